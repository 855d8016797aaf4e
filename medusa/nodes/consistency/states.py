"""How an output stream is, as one table.

``delay_bound`` looks every event up here, the tests walk over the table, and docs/dpc.md draws it.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["CONSISTENCY", "ConsistencyEvent", "ConsistencyState"]


class ConsistencyState(Enum):
    """Of a stream; ``StreamState`` says it to readers."""

    STABLE = "stable"  # its rows are as without failures, and none is held up
    UP_FAILURE = "up_failure"  # an input that leads to it is missing: what is new is tentative
    STABILIZATION = "stabilization"  # all inputs are back, and what was missing is fed: corrections come
    FAILURE = "failure"  # all inputs that lead to it are missing; to its reader: or the sender isn't heard


class ConsistencyEvent(Enum):
    """What changes it."""

    MISSED = "an input that leads to it is missing"
    LOST = "all inputs that lead to it are missing"
    BEHIND = "an input that leads to it is still being corrected"
    BACK = "no input that leads to it is missing any more"
    CORRECTED = "all that was missing has been fed"


_S, _E = ConsistencyState, ConsistencyEvent

# A pair that is missing here is a mistake of this node: a LocalProtocolError.
CONSISTENCY: dict[ConsistencyState, dict[ConsistencyEvent, ConsistencyState]] = {
    _S.STABLE: {_E.MISSED: _S.UP_FAILURE, _E.LOST: _S.FAILURE, _E.BEHIND: _S.STABILIZATION},
    _S.UP_FAILURE: {_E.MISSED: _S.UP_FAILURE, _E.LOST: _S.FAILURE, _E.BACK: _S.STABILIZATION},
    _S.FAILURE: {_E.MISSED: _S.UP_FAILURE, _E.LOST: _S.FAILURE, _E.BACK: _S.STABILIZATION},
    _S.STABILIZATION: {
        _E.MISSED: _S.UP_FAILURE,
        _E.LOST: _S.FAILURE,
        _E.BEHIND: _S.STABILIZATION,
        _E.CORRECTED: _S.STABLE,
    },
}
