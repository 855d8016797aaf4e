"""The automaton of a move: a fragment goes from its owner to a target, as two tables.

``OutgoingMove`` (order.py) and ``StateReceiver`` (state_receiver.py) look every event up here, the tests walk
over these tables, and docs/moving.md draws them. Nothing else decides what is legal when.

    owner                                        target
      |  Receive(attempt, spec)                    |
      |------------------------------------------->|  can it?
      |  Ready(ticket, window)                     |
      |<-------------------------------------------|
      |  Piece ... Whole: a checkpoint             |
      |------------------------------------------->|  opened from it, mute
      |  Fed ...: all that was fed after it        |
      |------------------------------------------->|  fed the same, in the same order
      |     feeds no more; on disk: it is yours    |
      |  Handover                                  |
      |------------------------------------------->|  fed all; on disk: it is mine
      |  Settled(taken)                            |
      |<-------------------------------------------|  feeds and emits

Until the owner writes that it hands over, whatever goes wrong ends the attempt and nothing has happened.
From then on the two find out by asking: what the target has on disk decides.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["OWNER", "TARGET", "MoveEvent", "OwnerState", "TargetState"]


class OwnerState(Enum):
    """Of the node that has the fragment."""

    RUNNING = "running"  # nobody moves it
    PREPARING = "preparing"  # neighbours and target are asked; on disk: what to undo
    COPYING = "copying"  # runs, and sends the target a checkpoint and what it feeds after that
    HANDING = "handing"  # on disk: the target owns it, if it takes it; then it feeds nothing
    UNDOING = "undoing"  # runs; neighbours are told to forget the target
    RETIRING = "retiring"  # on disk: it is gone; neighbours are told where
    GONE = "gone"  # who asks is told where


class TargetState(Enum):
    """Of the node that is to have it, for one attempt."""

    ABSENT = "absent"  # nothing is here, and by an attempt that is over nothing ever will be
    FILLING = "filling"  # takes the checkpoint
    FOLLOWING = "following"  # feeds what the owner fed, and shows nothing of it
    TAKING = "taking"  # has fed all; that it is the owner is on its way to disk
    OWNING = "owning"  # on disk: feeds and emits


class MoveEvent(Enum):
    """What can happen to either side."""

    MOVE = "somebody wants it moved"
    READY = "target and neighbours are ready"
    REFUSED = "refused"
    BROKEN = "silent, restarted or out of time"
    NEAR = "the target is close behind"
    TAKEN = "the target has it"
    NEVER = "the target will never have it"
    TOLD = "all neighbours have heard"
    GRANT = "its operator gave it away"
    RECEIVE = "an owner asks"
    WHOLE = "the checkpoint is whole"
    HANDOVER = "all was fed that the owner fed"
    DURABLE = "on disk"


_O, _T, _E = OwnerState, TargetState, MoveEvent

# A pair that is missing here is no move: such a message is left over, and dropped.
OWNER: dict[OwnerState, dict[MoveEvent, OwnerState]] = {
    _O.RUNNING: {_E.MOVE: _O.PREPARING},
    _O.PREPARING: {_E.READY: _O.COPYING, _E.REFUSED: _O.UNDOING, _E.BROKEN: _O.UNDOING},
    _O.COPYING: {_E.NEAR: _O.HANDING, _E.REFUSED: _O.UNDOING, _E.BROKEN: _O.UNDOING},
    _O.HANDING: {
        _E.BROKEN: _O.HANDING,
        _E.REFUSED: _O.HANDING,
        _E.TAKEN: _O.RETIRING,
        _E.NEVER: _O.UNDOING,
        _E.GRANT: _O.UNDOING,
    },
    _O.UNDOING: {_E.TOLD: _O.RUNNING, _E.BROKEN: _O.UNDOING},
    _O.RETIRING: {_E.TOLD: _O.GONE, _E.BROKEN: _O.RETIRING},
    _O.GONE: {},
}

TARGET: dict[TargetState, dict[MoveEvent, TargetState]] = {
    _T.ABSENT: {_E.RECEIVE: _T.FILLING},
    _T.FILLING: {_E.WHOLE: _T.FOLLOWING, _E.REFUSED: _T.ABSENT, _E.BROKEN: _T.ABSENT},
    _T.FOLLOWING: {_E.HANDOVER: _T.TAKING, _E.REFUSED: _T.ABSENT, _E.BROKEN: _T.ABSENT},
    _T.TAKING: {_E.DURABLE: _T.OWNING, _E.BROKEN: _T.TAKING},
    _T.OWNING: {},
}
