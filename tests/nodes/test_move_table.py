"""The tables of who hands a fragment over, and of who takes it."""

from __future__ import annotations

import pytest

from medusa.nodes.migration.automaton import OWNER, TARGET, MoveEvent, OwnerState, TargetState


@pytest.mark.parametrize(("table", "states"), [(OWNER, OwnerState), (TARGET, TargetState)])
def test_every_state_is_reached_and_every_one_that_waits_can_break(table, states):
    first = next(iter(states))
    reached, new = {first}, [first]
    while new:
        for state in table[new.pop()].values():
            if state not in reached:
                reached.add(state)
                new.append(state)
    assert reached == set(states) == set(table)
    resting = {OwnerState.RUNNING, OwnerState.GONE, TargetState.ABSENT, TargetState.OWNING}
    assert all(MoveEvent.BROKEN in table[state] for state in set(states) - resting)


def test_after_the_owner_wrote_that_it_hands_over_only_the_target_or_an_operator_gives_it_back():
    back = {event for event, state in OWNER[OwnerState.HANDING].items() if state is OwnerState.UNDOING}
    assert back == {MoveEvent.NEVER, MoveEvent.GRANT}
    assert TARGET[TargetState.TAKING] == {
        MoveEvent.DURABLE: TargetState.OWNING,
        MoveEvent.BROKEN: TargetState.TAKING,
    }
