"""Checkpoints that are newer than the one a run was restored from: when they may go.

Whoever restores an earlier checkpoint may want the newer ones after all. So they stay until the run has come
as far again: until its last two checkpoints hold at least as many rows of each source. One whose manifest is
damaged, so that nobody knows how far it came, goes when two have been written. One with a source that the run
doesn't have any more, or that a later version wrote, stays until somebody removes its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["NewerCheckpoint", "ahead_from_json", "ahead_to_json", "positions_of"]

SOURCES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class NewerCheckpoint:
    """One of them.

    Attributes:
        groups: what it is made of: itself, and what it is a delta on.
        positions: of each source, the rows that it holds; None: it is damaged, and nobody knows.
        decisions: number of the log that begins after it; None: nobody knows.
        readable: by this version.
    """

    groups: tuple[str, ...]
    positions: Mapping[str, int] | None = None
    decisions: int | None = None
    readable: bool = True

    def may_go(self, kept: Sequence[Mapping[str, int]], *, rewritten: bool) -> bool:
        """Whether this one holds nothing that the checkpoints that are kept don't.

        Args:
            kept: their positions.
            rewritten: all of them were written after the run was restored.
        """
        if not self.readable:
            return False
        mine = self.positions
        if mine is None:
            return rewritten
        return all(each.get(source, -1) >= rows for each in kept for source, rows in mine.items())

    def is_behind(self, positions: Mapping[str, int]) -> bool:
        """Whether a run that has these sources can come as far."""
        return self.readable and (self.positions is None or positions.keys() >= self.positions.keys())


def positions_of(facts: Mapping[str, Any]) -> dict[str, int] | None:
    """The positions in a manifest; None: it has none."""
    found = facts.get("positions")
    if not isinstance(found, Mapping) or len(found) > SOURCES_MAX:
        return None
    return {name: rows for name, rows in found.items() if type(rows) is int}


def ahead_to_json(ahead: Mapping[str, NewerCheckpoint]) -> dict[str, Any]:
    """What the manifest of the next checkpoint says of them."""
    return {
        name: {
            "groups": list(each.groups),
            "positions": None if each.positions is None else dict(each.positions),
            "decisions": each.decisions,
            "readable": each.readable,
        }
        for name, each in ahead.items()
    }


def ahead_from_json(found: Any, names: Sequence[str]) -> dict[str, NewerCheckpoint]:
    """Those of a manifest that are still there.

    Args:
        names: of all checkpoints that there are.

    Raises:
        ValueError: that can't be.
    """
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("ahead: expected an object")
    made: dict[str, NewerCheckpoint] = {}
    for name, each in found.items():
        if not isinstance(each, dict) or each.keys() != {"groups", "positions", "decisions", "readable"}:
            raise ValueError(f"ahead: {name!r:.80} is not described")
        groups, positions, decisions = each["groups"], each["positions"], each["decisions"]
        if (
            not (isinstance(groups, list) and all(isinstance(group, str) for group in groups))
            or not (positions is None or (isinstance(positions, dict) and positions_of(each) == positions))
            or not (decisions is None or (type(decisions) is int and decisions > 0))
            or type(each["readable"]) is not bool
        ):
            raise ValueError(f"ahead: {name!r:.80} is not described")
        if name in names:
            made[name] = NewerCheckpoint(tuple(groups), positions, decisions, each["readable"])
    return made
