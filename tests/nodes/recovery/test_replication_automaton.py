"""What one secondary is to its owner changes by the table alone."""

from __future__ import annotations

import pytest

from medusa.automaton import next_state
from medusa.errors import LocalProtocolError
from medusa.nodes.recovery.replication import _Link
from medusa.nodes.recovery.replication_automaton import REPLICATION, ReplicationEvent, ReplicationState

_S, _E = ReplicationState, ReplicationEvent


@pytest.mark.parametrize("state", ReplicationState)
@pytest.mark.parametrize("event", ReplicationEvent)
def test_each_event_in_each_state_leads_where_the_table_says_or_changes_nothing(state, event):
    link = _Link(fragment="q/f", node="s", state=state, since_us=1)
    if event in REPLICATION[state]:
        link.move(5, event)
        assert (link.state, link.since_us) == (REPLICATION[state][event], 5)
        return
    with pytest.raises(LocalProtocolError, match=f"secondary 's' of fragment 'q/f' is {state.value}"):
        link.move(5, event)
    assert (link.state, link.since_us) == (state, 1)


def test_every_state_is_reached_and_every_event_happens_somewhere():
    reached, new = {_S.RESTING}, [_S.RESTING]
    while new:
        for state in set(REPLICATION[new.pop()].values()) - reached:
            reached.add(state)
            new.append(state)
    assert reached == set(ReplicationState) == set(REPLICATION)
    assert {event for row in REPLICATION.values() for event in row} == set(ReplicationEvent)


# --- by hand, not from the table -----------------------------------------------------------------------


def test_the_way_to_a_secondary_skips_nothing():
    been = [_S.RESTING]
    for event in (_E.DUE, _E.READY, _E.NEAR):
        been.append(next_state(REPLICATION, been[-1], event, of="it"))
    assert [each.value for each in been] == ["resting", "asking", "seeding", "following"]


def test_whatever_breaks_it_ends_at_rest():
    for state in ReplicationState:
        assert next_state(REPLICATION, state, _E.BROKEN, of="it") is _S.RESTING


def test_only_one_that_has_the_checkpoint_comes_near():
    ways = [
        (state, event)
        for state, row in REPLICATION.items()
        for event, to in row.items()
        if to is _S.FOLLOWING
    ]
    assert ways == [(_S.SEEDING, _E.NEAR)]
