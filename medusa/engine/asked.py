"""What may be asked about a fragment while it runs; nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from medusa.engine.boxes.base import Now, Operator
from medusa.engine.boxes.source import SourceBox
from medusa.engine.dead import DeadLetters, DeadRow
from medusa.engine.meter import Meter
from medusa.engine.stats import counts_of, figures, stats_table
from medusa.engine.storage import Memory, Storage, memory_of
from medusa.engine.waiting import explain_boxes
from medusa.query.boxes import Graph

__all__ = ["Asked"]


class Asked:
    """The part of ``Fragment`` that tells how it does."""

    graph: Graph
    boxes: Mapping[str, Operator]
    sources: Mapping[str, SourceBox]
    letters: DeadLetters
    storage: Storage | None
    _meter: Meter
    _measured: bool
    _now: Now

    def memory(self) -> Memory:
        """What is held, in bytes."""
        if self.storage is not None:
            return self.storage.memory()
        return memory_of(list(self.boxes.values()), 0)

    def positions(self) -> dict[str, int]:
        """Rows accepted so far, of each source, late ones included."""
        return {name: box.accepted for name, box in self.sources.items()}

    def dead(self) -> list[DeadRow]:
        """The first failed rows of each box."""
        return self.letters.rows()

    def graph_json(self) -> Any:
        """The graph as JSON values: what ``medusa.query.codec`` reads back."""
        return msgspec.to_builtins(self.graph)

    def stats(self, now_us: int | None = None) -> pa.Table:
        """One row per box; see ``medusa.engine.stats``.

        Args:
            now_us: the moment, by the clock of ``at`` and ``tick``: without it nobody knows of rates.
        """
        counts = counts_of(list(self.boxes.values()))
        return stats_table(self.figures(), self._meter, now_us, counts, self._now.us)

    def figures(self) -> list[dict[str, Any]]:
        """The same as plain values, without rates; boundaries in microseconds."""
        return figures(self.graph, self.boxes, timed=self._measured)

    def explain(self, now_us: int | None = None) -> str:
        """What every box waits for, and which source holds it back since when.

        Args:
            now_us: the moment, by the clock of ``at`` and ``tick``: tells for how long.
        """
        return explain_boxes(self.graph, self.boxes, now_us)
