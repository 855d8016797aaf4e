"""Nodes with room that a query would use and that aren't there: whoever keeps some in store starts them.

a box that should grow finds no room ──> missing ── a node with room comes ──> it grows
                                                 ── it has less to do ──> forgotten
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from medusa.nodes.scaling.measured_boxes import BoxWork
from medusa.nodes.scaling.next_step import ScaleGoal, together
from medusa.nodes.scaling.policy import ScaleRules
from medusa.wire.status_and_metrics import NodesLackedStatus

__all__ = ["MissingNodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lack:
    """A box isn't in as many parts as are wanted.

    Attributes:
        parts: that are wanted, and ``why``.
        count: of nodes with room that it would take.
    """

    parts: int
    count: int
    since_us: int
    why: str


class MissingNodes:
    """Of one query."""

    def __init__(self, rules: ScaleRules) -> None:
        self._rules = rules
        self._lacks: dict[str, _Lack] = {}
        """By box."""

    def note(self, now_us: int, goal: ScaleGoal, box: BoxWork, rooms: Mapping[str, float]) -> None:
        """A box should grow, and there may not be nodes enough."""
        count = self._count(box, goal.parts, rooms)
        if count and goal.box not in self._lacks:
            self._lacks[goal.box] = _Lack(parts=goal.parts, count=count, since_us=now_us, why=goal.why)

    def follow(
        self, measured: Mapping[str, BoxWork], rooms: Mapping[str, float], *, begins: bool
    ) -> ScaleGoal | None:
        """See what is missing still.

        Args:
            begins: a goal may be taken up now.

        Returns:
            that for which a node with room has come.
        """
        came = None
        for id, lack in list(self._lacks.items()):
            box = measured.get(id)
            if box is None or not self._overfull(box, lack.parts):
                del self._lacks[id]
                continue
            count = self._count(box, lack.parts, rooms)
            if count < lack.count:
                if not begins or came is not None:
                    continue  # At a later look.
                came = ScaleGoal(box=id, parts=lack.parts, grows=True, why=lack.why)
            if count:
                self._lacks[id] = replace(lack, count=count)
            else:
                del self._lacks[id]
        return came

    def status(self, now_us: int, absent: Sequence[str]) -> NodesLackedStatus | None:
        """What is missing; None: nothing.

        Args:
            absent: nodes that may take parts, and aren't up.
        """
        if not self._lacks:
            return None
        return NodesLackedStatus(
            count=sum(each.count for each in self._lacks.values()),
            for_us=now_us - min(each.since_us for each in self._lacks.values()),
            why="; ".join(f"{box}: {each.why}" for box, each in self._lacks.items()),
            nodes=tuple(absent),
        )

    def _overfull(self, box: BoxWork, parts: int) -> bool:
        """Whether it has too much to do in as many parts as it has, while so many are wanted, or parts that
        stand together have."""
        high = self._rules.high
        if parts > len(box.parts) and (box.work or 0.0) / len(box.parts) > high:
            return True
        return any(sum(part.work or 0.0 for part in each) > high for each in together(box))

    def _count(self, box: BoxWork, parts: int, rooms: Mapping[str, float]) -> int:
        """How many more nodes it would take, each part at a node of its own."""
        rules = self._rules
        taken = {part.node for part in box.parts}
        share = min((box.work or 0.0) / parts, rules.target)
        free = [node for node, used in rooms.items() if node not in taken and used + share <= rules.high]
        return max(parts - len(taken) - len(free), 0)
