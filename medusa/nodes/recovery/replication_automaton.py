"""The automaton of one secondary, as the owner of the fragment sees it: a table.

``Replication`` (replication.py) looks every event up here, the tests walk over it, and docs/standby.md draws
it.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["REPLICATION", "ReplicationEvent", "ReplicationState"]


class ReplicationState(Enum):
    """Of one secondary of one fragment."""

    RESTING = "resting"  # nothing is sent; it is asked again after a while
    ASKING = "asking"  # it was asked whether it can follow
    SEEDING = "seeding"  # takes the checkpoint, and what was fed after it
    FOLLOWING = "following"  # has fed nearly all that the owner has fed: it may be a secondary


class ReplicationEvent(Enum):
    """What can happen to it."""

    DUE = "it is there and should follow"
    READY = "it can"
    NEAR = "it is close behind"
    BROKEN = "refused, silent for long, restarted or too far behind"


_S, _E = ReplicationState, ReplicationEvent

REPLICATION: dict[ReplicationState, dict[ReplicationEvent, ReplicationState]] = {
    _S.RESTING: {_E.DUE: _S.ASKING, _E.BROKEN: _S.RESTING},
    _S.ASKING: {_E.READY: _S.SEEDING, _E.BROKEN: _S.RESTING},
    _S.SEEDING: {_E.NEAR: _S.FOLLOWING, _E.BROKEN: _S.RESTING},
    _S.FOLLOWING: {_E.BROKEN: _S.RESTING},
}
