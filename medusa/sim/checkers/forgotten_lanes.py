"""What the forks of a node lack of tentative lanes that went on, since another one took their place.

    e's lane at z    ── rows ── rows ── rows ──
    z's forks        ── fork 1 ──┬── fork 2 ──     what e had said before is in the first one alone
    f's lane at z    ── fork 1 ──┴── fork 2 ──     why there is another one

Nobody keeps what comes by a tentative lane, so a fork that begins has what comes from then on (docs/dpc.md,
*What isn't there yet*). Looked at from outside, now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ForgottenLanes", "Forks"]


@dataclass(frozen=True, slots=True)
class Forks:
    """Of a node, at a moment.

    Attributes:
        made: so many there have been.
        shown: rows of one leave.
        lanes: sender -> the fork of its from which tentative rows come; 0: none come.
    """

    made: int
    shown: bool
    lanes: Mapping[str, int]


class ForgottenLanes:
    """Of all nodes."""

    def __init__(self) -> None:
        self._before: dict[str, Forks] = {}
        self._forgotten: dict[tuple[str, str], list[int]] = {}
        """Node and sender -> when the node's fork had another in its place, and the sender's lane went on."""

    def look(self, now_us: int, node: str, forks: Forks) -> None:
        """Take note of how a node's are."""
        before, self._before[node] = self._before.get(node, forks), forks
        if not before.shown or forks.made <= before.made:
            return
        for sender, fork in forks.lanes.items():
            if fork and before.lanes.get(sender) == fork:
                self._forgotten.setdefault((node, sender), []).append(now_us)

    def lacks(self, node: str, sender: str, from_us: int, to_us: int) -> bool:
        """Whether what a sender's fork said at ``from_us`` may be missing in the node's at ``to_us``."""
        return any(from_us <= at_us <= to_us for at_us in self._forgotten.get((node, sender), ()))
