"""What a fragment on a node leaves out right behind its sources, as their rules say (``Source.shed``).

How much is told from outside (``Shed``), between elements, and stands in the log of whoever drives the
fragment. Given the same elements and shares the same rows are left out: after a restart, and at nodes that
stand by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa.elements import WHOLE_PPM
from medusa.engine.core.box import Operator
from medusa.engine.overload.drop_operator import DropOperator
from medusa.engine.overload.drop_set import DropSet
from medusa.engine.overload.drop_sites import ruled_places
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.graph import CheckedGraph

__all__ = ["RuledDrops"]


class RuledDrops:
    """The valves behind the sources of one fragment; none where no source has a rule.

    Args:
        boxes: that run, connected.
    """

    def __init__(self, checked: CheckedGraph, boxes: Mapping[str, Operator]) -> None:
        self._drops: DropSet | None = None
        self._valves: dict[str, DropOperator] = {}
        self._told = 0
        if any(isinstance(box, Source) and box.shed is not None for box in checked.graph.boxes):
            self._drops = DropSet(checked, boxes, find=ruled_places)
            self._valves = {valve.place.box: valve for valve in self._drops.valves}

    def shed(self, source: str, share_ppm: int) -> None:
        """From now on this share of what comes to a source is left out.

        Raises:
            DataError: the source has no rule, or it is no share; nothing changed.
        """
        valve = self._valves.get(source)
        if valve is None or not 0 <= share_ppm <= WHOLE_PPM:
            raise DataError(
                f"source {source!r}: {share_ppm} millionths can't be left out"
                + ("" if valve is not None else ": nothing ever is there"),
                code="data.shed",
            )
        valve.set(share_ppm / WHOLE_PPM)

    def take(self) -> int:
        """Rows that were left out since the last call."""
        if not self._valves:
            return 0
        before, self._told = self._told, sum(valve.shed for valve in self._valves.values())
        return self._told - before

    def save(self) -> dict[str, Any] | None:
        """All that what is left out next depends on, as JSON values; None: nothing ever is."""
        return None if self._drops is None else self._drops.save()

    def load(self, state: Any) -> None:
        """Take back what ``save`` gave, here or in a fragment whose place this one takes; None: nothing.

        Raises:
            StateError: it can't have come from ``save``.
        """
        if self._drops is not None and state is not None:
            self._drops.load(state)
            self.take()
