"""The automata of a fragment at its node, as two tables.

``FragmentHost`` (host.py) looks every event up here, the tests walk over these tables, and docs/nodes.md
draws them.

The *life* says whether it goes on at all. The *turn* says whether it is its turn to feed and emit: while it
is moved, split or merged, another fragment may be the one that does. Each changes whatever the other is.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["LIFE", "QUIET", "TURN", "LifeEvent", "LifeState", "TurnEvent", "TurnState"]


class LifeState(Enum):
    """Whether a fragment goes on."""

    RUNNING = "running"
    STOPPING = "stopping"  # its node ends: it feeds nothing more and takes a last checkpoint
    FAILED = "failed"  # the engine can't go on; what is kept stays, so readers still get it
    HALTED = "halted"  # failed, and its node ends
    CLOSED = "closed"  # its links are gone


class LifeEvent(Enum):
    """What changes the life of a fragment."""

    STOP = "its node ends"
    FAIL = "the engine can't go on"
    CLOSE = "it is removed"


class TurnState(Enum):
    """Whether a fragment feeds and emits."""

    OPEN = "open"  # feeds and emits
    SETTLING = "settling"  # to be split or merged: takes no checkpoint
    RESTING = "resting"  # settling, and feeds nothing
    FROZEN = "frozen"  # feeds nothing: another node may be its owner
    WAITING = "waiting"  # just made: other fragments have its links
    FOLLOWING = "following"  # just made: is fed what those are fed, and emits nothing
    ASKING = "asking"  # keeps nothing on disk: asks its neighbours where it stood


class TurnEvent(Enum):
    """What changes the turn of a fragment."""

    HOLD = "it was just made"
    FOLLOW = "the others go on"
    SETTLE = "it is to be split or merged"
    FREEZE = "it has to rest"
    THAW = "it is its turn"
    ASK = "only its neighbours know where it stood"
    ANSWERED = "all have said it"


QUIET = (TurnState.RESTING, TurnState.FROZEN, TurnState.WAITING, TurnState.FOLLOWING)
"""Nothing that comes is fed, and nothing leaves."""

_L, _T, _E, _F = LifeState, TurnState, LifeEvent, TurnEvent

# A pair that is missing here is a mistake of this node: a LocalProtocolError.
LIFE: dict[LifeState, dict[LifeEvent, LifeState]] = {
    _L.RUNNING: {_E.STOP: _L.STOPPING, _E.FAIL: _L.FAILED, _E.CLOSE: _L.CLOSED},
    _L.STOPPING: {_E.STOP: _L.STOPPING, _E.FAIL: _L.HALTED, _E.CLOSE: _L.CLOSED},
    _L.FAILED: {_E.STOP: _L.HALTED, _E.FAIL: _L.FAILED, _E.CLOSE: _L.CLOSED},
    _L.HALTED: {_E.STOP: _L.HALTED, _E.FAIL: _L.HALTED, _E.CLOSE: _L.CLOSED},
    _L.CLOSED: {_E.STOP: _L.CLOSED, _E.FAIL: _L.CLOSED, _E.CLOSE: _L.CLOSED},
}

TURN: dict[TurnState, dict[TurnEvent, TurnState]] = {
    _T.OPEN: {
        _F.HOLD: _T.WAITING,
        _F.SETTLE: _T.SETTLING,
        _F.FREEZE: _T.FROZEN,
        _F.THAW: _T.OPEN,
        _F.ASK: _T.ASKING,
    },
    _T.SETTLING: {_F.SETTLE: _T.SETTLING, _F.FREEZE: _T.RESTING, _F.THAW: _T.OPEN},
    _T.RESTING: {_F.SETTLE: _T.RESTING, _F.FREEZE: _T.RESTING, _F.THAW: _T.OPEN},
    _T.FROZEN: {_F.SETTLE: _T.RESTING, _F.FREEZE: _T.FROZEN, _F.THAW: _T.OPEN},
    _T.WAITING: {_F.FOLLOW: _T.FOLLOWING, _F.FREEZE: _T.WAITING, _F.THAW: _T.OPEN},
    _T.FOLLOWING: {_F.FREEZE: _T.FOLLOWING, _F.THAW: _T.OPEN},
    _T.ASKING: {_F.ANSWERED: _T.OPEN},
}
