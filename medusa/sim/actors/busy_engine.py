"""An engine in virtual time whose rows take time, as its boxes say: else time stands still while they run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from medusa.nodes.reports import Stats
from medusa.runtime.engine_host.host import Done, EngineHost

__all__ = ["BusyEngine"]


class BusyEngine(EngineHost):
    """Counts for each row that comes into a fragment so much time, which is its CPU time as well.

    Args:
        row_us: that each takes.
    """

    def __init__(self, *arguments: Any, row_us: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._row_us = row_us

    def finished(self) -> list[Done]:
        return [self._timed(done) if isinstance(done, Stats) else done for done in super().finished()]

    def _timed(self, done: Stats) -> Stats:
        boxes = {
            name: {**figures, "busy_us": figures["rows_in"] * self._row_us * (figures["kind"] == "source")}
            for name, figures in done.counts["boxes"].items()
        }
        return replace(done, counts={**done.counts, "boxes": boxes, "cpu_us": None})
