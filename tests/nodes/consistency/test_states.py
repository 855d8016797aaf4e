"""The states of an output stream, by hand: the table can't be asked whether it is right."""

from __future__ import annotations

import pytest

from medusa.automaton import next_state
from medusa.errors import LocalProtocolError
from medusa.nodes.consistency.states import CONSISTENCY, ConsistencyEvent, ConsistencyState
from medusa.wire.messages.tentative import STREAM_STATES

S, E = ConsistencyState, ConsistencyEvent

MOVES = {
    (S.STABLE, E.MISSED): S.UP_FAILURE,
    (S.STABLE, E.LOST): S.FAILURE,
    (S.STABLE, E.BEHIND): S.STABILIZATION,
    (S.UP_FAILURE, E.MISSED): S.UP_FAILURE,
    (S.UP_FAILURE, E.LOST): S.FAILURE,
    (S.UP_FAILURE, E.BACK): S.STABILIZATION,
    (S.FAILURE, E.MISSED): S.UP_FAILURE,
    (S.FAILURE, E.LOST): S.FAILURE,
    (S.FAILURE, E.BACK): S.STABILIZATION,
    (S.STABILIZATION, E.MISSED): S.UP_FAILURE,
    (S.STABILIZATION, E.LOST): S.FAILURE,
    (S.STABILIZATION, E.BEHIND): S.STABILIZATION,
    (S.STABILIZATION, E.CORRECTED): S.STABLE,
}


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", E)
def test_every_pair_is_a_move_or_refused(state: S, event: E) -> None:
    if (state, event) in MOVES:
        assert next_state(CONSISTENCY, state, event, of="it") is MOVES[state, event]
    else:
        with pytest.raises(LocalProtocolError, match=event.value):
            next_state(CONSISTENCY, state, event, of="it")


def test_a_sender_can_say_each() -> None:
    assert {*STREAM_STATES} == {each.value for each in S}
