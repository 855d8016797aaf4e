"""The automaton of a split or merge, as a table.

``RepartitionJob`` (job.py) looks every event up here, the tests walk over the table, and docs/splitting.md
draws it.
Nothing else decides what is legal when.

Until the catalog that names the new fragments is on disk, the old ones are what there is: whatever goes
wrong before, they go on. So while the catalog is written only the disk, or a removal of the query, ends it.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["SPLIT", "SplitEvent", "SplitState"]


class SplitState(Enum):
    """How far a split or merge is."""

    ASKING = "asking"  # the coordinator of the query is asked whether it still runs
    WEIGHING = "weighing"  # the engine finds ranges of equal weight
    DRAINING = "draining"  # what is on its way between the old fragments arrives
    CUTTING = "cutting"  # the engine makes the new fragments
    WRITING = "writing"  # their first checkpoints are on their way to disk
    FOLLOWING = "following"  # they are fed what the old ones are fed
    SWITCHING = "switching"  # the catalog that names them is on its way to disk
    OVER = "over"  # done, or given up


class SplitEvent(Enum):
    """What can happen to it."""

    AGREED = "agreed"
    AGREED_BY_WEIGHT = "agreed, by weight"
    WEIGHED = "ranges are found"
    AT_REST = "all is at rest"
    MADE = "the new ones are made"
    WRITTEN = "their checkpoints are on disk"
    NEAR = "they are close behind"
    DONE = "the catalog is on disk, and all is fed"
    FAILED = "refused, failed or out of time"
    UNWRITABLE = "the catalog can't be written"
    REMOVED = "the query is removed"


_S, _E = SplitState, SplitEvent
_ENDS = {_E.FAILED: _S.OVER, _E.REMOVED: _S.OVER}

# A pair that is missing here is a mistake of this node: a LocalProtocolError.
SPLIT: dict[SplitState, dict[SplitEvent, SplitState]] = {
    _S.ASKING: {_E.AGREED: _S.DRAINING, _E.AGREED_BY_WEIGHT: _S.WEIGHING, **_ENDS},
    _S.WEIGHING: {_E.WEIGHED: _S.DRAINING, **_ENDS},
    _S.DRAINING: {_E.AT_REST: _S.CUTTING, **_ENDS},
    _S.CUTTING: {_E.MADE: _S.WRITING, **_ENDS},
    _S.WRITING: {_E.WRITTEN: _S.FOLLOWING, **_ENDS},
    _S.FOLLOWING: {_E.NEAR: _S.SWITCHING, _E.UNWRITABLE: _S.OVER, **_ENDS},
    _S.SWITCHING: {_E.DONE: _S.OVER, _E.UNWRITABLE: _S.OVER, _E.REMOVED: _S.OVER},
    _S.OVER: {},
}
