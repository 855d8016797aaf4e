"""An engine in virtual time in which rows of one box cost as much as it is said that they do now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from medusa.nodes.reports import Stats
from medusa.runtime.engine_host.host import Done, EngineHost

__all__ = ["CostlyBoxEngine"]


class CostlyBoxEngine(EngineHost):
    """What other boxes do costs nothing. Time doesn't pass by it: nothing is slower for what it costs.

    Args:
        box: its name; parts of it cost the same.
        row_us: what a row costs now.
        spent: told of what it has cost.
    """

    def __init__(
        self,
        *arguments: Any,
        box: str,
        row_us: Callable[[], int],
        spent: Callable[[int], None],
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._is_ours = re.compile(f"{re.escape(box)}(-[1-9][0-9]*)*").fullmatch
        self._row_us, self._spent = row_us, spent
        self._known: dict[tuple[str, str], tuple[int, int]] = {}
        """Fragment and box -> rows that came, and what they cost."""

    def finished(self) -> list[Done]:
        return [self._costed(done) if isinstance(done, Stats) else done for done in super().finished()]

    def _costed(self, done: Stats) -> Stats:
        boxes = {
            id: {**figures, "busy_us": self._cost_us(done.fragment, id, figures)}
            for id, figures in done.counts["boxes"].items()
        }
        return replace(done, counts={**done.counts, "boxes": boxes})

    def _cost_us(self, fragment: str, id: str, figures: Mapping[str, Any]) -> int:
        if not self._is_ours(id) or figures["kind"] in ("source", "sink", "ordered_merge"):
            return 0
        came: int = figures["rows_in"]
        rows, cost_us = self._known.get((fragment, id), (came, 0))
        more_us = max(came - rows, 0) * self._row_us()
        self._spent(more_us)
        self._known[fragment, id] = came, cost_us + more_us
        return cost_us + more_us
