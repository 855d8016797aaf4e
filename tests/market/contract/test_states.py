"""The table of a negotiation, walked over."""

from __future__ import annotations

import pytest

from medusa.automaton import next_state
from medusa.errors import LocalProtocolError
from medusa.market.contract.states import NEGOTIATION, NegotiationEvent, NegotiationState

STATES, EVENTS = NegotiationState, NegotiationEvent


def reached(start: NegotiationState) -> set[NegotiationState]:
    found, open_states = {start}, [start]
    while open_states:
        for state in NEGOTIATION[open_states.pop()].values():
            if state not in found:
                found.add(state)
                open_states.append(state)
    return found


def test_states_are_those_of_the_dataspace_protocol():
    names = "REQUESTED OFFERED ACCEPTED AGREED VERIFIED FINALIZED TERMINATED"
    assert [state.value for state in STATES] == names.split()
    assert set(NEGOTIATION) == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_every_state_can_end_and_only_the_last_is_final(state):
    if state is STATES.TERMINATED:
        assert NEGOTIATION[state] == {}
    else:
        assert NEGOTIATION[state][EVENTS.TERMINATE] is STATES.TERMINATED


def test_whoever_proposes_it_can_be_finalized():
    assert reached(STATES.REQUESTED) == reached(STATES.OFFERED) == set(STATES)


def test_nothing_goes_back_behind_an_agreement():
    bound = {STATES.AGREED, STATES.VERIFIED, STATES.FINALIZED, STATES.TERMINATED}
    assert reached(STATES.AGREED) == bound


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_a_step_that_is_not_in_the_table_is_refused(state, event):
    target = NEGOTIATION[state].get(event)
    if target is not None:
        assert next_state(NEGOTIATION, state, event, of="x") is target
    else:
        with pytest.raises(LocalProtocolError, match=f"is {state.value}"):
            next_state(NEGOTIATION, state, event, of="x")
