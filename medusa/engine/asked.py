"""What may be asked about a fragment and a run while they work; nothing changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from medusa.engine.boxes.base import Now, Operator
from medusa.engine.boxes.sink import SinkBox
from medusa.engine.boxes.source import SourceBox
from medusa.engine.dead import DeadLetters, DeadRow
from medusa.engine.meter import Meter
from medusa.engine.stats import counts_of, figures, stats_table
from medusa.engine.storage import Memory, Storage, memory_of
from medusa.engine.utility import qos_table
from medusa.engine.waiting import explain_boxes
from medusa.ports import Clock, Lock
from medusa.query.boxes import Graph

__all__ = ["Asked", "RunAsked"]


class Asked:
    """The part of ``Fragment`` that tells how it does."""

    graph: Graph
    boxes: Mapping[str, Operator]
    sources: Mapping[str, SourceBox]
    sinks: Mapping[str, SinkBox]
    has_calls: bool
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


class RunAsked(ABC):
    """The part of ``Run`` that tells how it does: from any thread."""

    _fragment: Asked
    _clock: Clock
    _state: Lock
    _closed: bool

    @abstractmethod
    def _refuse_closed(self) -> None: ...

    def positions(self) -> dict[str, int]:
        """Rows accepted so far of each source, late ones included: push from there after a restore."""
        with self._state:
            self._refuse_closed()
            return self._fragment.positions()

    def memory(self) -> Memory:
        """Bytes of state and of rows that wait, in memory and on disk, and of each box."""
        with self._state:
            self._refuse_closed()
            return self._fragment.memory()

    def stats(self) -> pa.Table:
        """One row per box: rows, rates, cost, lag, late, dead, bytes held, time spent, boundary.

        docs/metrics.md describes each column.
        """
        with self._state:
            self._refuse_closed()
            return self._fragment.stats(self._clock.monotonic_us())

    def qos(self) -> pa.Table:
        """One row for each sink with ``qos=``: its utility over the last 10 seconds, delay and loss.

        docs/qos.md describes each column. May be asked from any thread, as ``stats``.
        """
        with self._state:
            self._refuse_closed()
            sinks = self._fragment.sinks.items()
            return qos_table(((id, box.meter) for id, box in sinks), self._clock.monotonic_us())

    def explain(self) -> str:
        """For every box what it waits for, which input holds it back since when, and who is the cause.

        Since when: the boundary of that input, and how long ago it moved by the clock.
        """
        with self._state:
            self._refuse_closed()
            return self._fragment.explain(self._clock.monotonic_us())

    @property
    def ended(self) -> bool:
        """No more output will come: the run is closed, or every source has ended."""
        return self._closed or all(box.finished for box in self._fragment.sources.values())

    @property
    def goes_on_alone(self) -> bool:
        """Something may come though nobody pushes: after ``idle=``, or from async calls."""
        sources = self._fragment.sources.values()
        return self._fragment.has_calls or any(box.spec.idle_us is not None for box in sources)

    def dead(self) -> list[DeadRow]:
        """Rows on which an expression failed: the first 100 of each box since this run was made."""
        with self._state:
            self._refuse_closed()
            return self._fragment.dead()
