"""What may be asked about a fragment while it works; nothing changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from medusa._native import Times
from medusa.engine.blocked_boxes import explain_boxes
from medusa.engine.core.box import Now, Operator
from medusa.engine.core.dead_letters import DeadLetters, DeadRow
from medusa.engine.core.memory_bounds import Memory, Storage, memory_of
from medusa.engine.operators.connection import ConnectionPointBox, Connections
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.source import SourceBox
from medusa.engine.qos.rates import Meter
from medusa.engine.stats import counts_of, figures, stats_table
from medusa.engine.wiring import Scheduling
from medusa.errors import DataError
from medusa.query.boxes import Graph
from medusa.query.graph import UNTIMED_PORTS, time_dependent
from medusa.query.suggest import did_you_mean

__all__ = ["Inspection"]

B = TypeVar("B", bound=Operator)


class Inspection:
    """The part of ``Fragment`` that tells what it has and how that does."""

    graph: Graph
    boxes: Mapping[str, Operator]
    sources: Mapping[str, SourceBox]
    sinks: Mapping[str, SinkBox]
    connections: Connections
    has_calls: bool
    letters: DeadLetters
    storage: Storage | None
    _entering: deque[tuple[SourceBox, pa.RecordBatch, Times | None, int | None]]
    _meter: Meter
    _scheduler: Scheduling
    _sinks: Sequence[SinkBox]
    _measured: bool
    _now: Now

    def source(self, name: str) -> SourceBox:
        """A source by name.

        Raises:
            DataError: there is none; says which there are.
        """
        return self._named("source", name, self.sources)

    def sink(self, name: str) -> SinkBox:
        """A sink by name.

        Raises:
            DataError: there is none; says which there are.
        """
        return self._named("sink", name, self.sinks)

    def connection(self, name: str) -> ConnectionPointBox:
        """A connection point by name.

        Raises:
            DataError: there is none; says which there are.
        """
        return self._named("connection point", name, self.connections)

    def _named(self, kind: str, name: str, known: Mapping[str, B]) -> B:
        found = known.get(name) if isinstance(name, str) else None
        if found is None:
            raise DataError(
                f"query {self.graph.name!r} has no {kind} {name!r:.80}",
                hint=did_you_mean(str(name), known),
                code=f"data.{kind.split()[0]}",
            )
        return found

    def sources_read_in_time(self) -> set[str]:
        """The sources above a box that leaves late rows out."""
        reads = set(time_dependent(self.graph))
        for spec in reversed(self.graph.boxes):
            if spec.id in reads:
                reads.update(arc.box for arc in spec.inputs if arc.port not in UNTIMED_PORTS)
        return reads & set(self.sources)

    def memory(self) -> Memory:
        """What is held, in bytes."""
        if self.storage is not None:
            return self.storage.memory()
        return memory_of(list(self.boxes.values()), 0)

    def held_bytes(self) -> int:
        """Bytes of output that nobody has drained."""
        held = 0
        for box in self._sinks:
            held += box.queue_bytes()
        return held

    def used_bytes(self) -> int:
        """Bytes held by all boxes and between them: state, rows that wait, output that nobody has drained."""
        boxes = sum(box.state_bytes() + box.queue_bytes() for box in self.boxes.values())
        parts = sum(int(batch.nbytes) for _, batch, *_ in self._entering)
        return boxes + parts + self._scheduler.waiting_bytes()

    def positions(self) -> dict[str, int]:
        """Rows accepted so far, of each source, late ones included."""
        return {name: box.accepted for name, box in self.sources.items()}

    @property
    def goes_on_alone(self) -> bool:
        """Something may come though nobody pushes: after ``idle=``, or from async calls."""
        return self.has_calls or any(box.spec.idle_us is not None for box in self.sources.values())

    @property
    def finished(self) -> bool:
        """Every source has ended."""
        return all(box.finished for box in self.sources.values())

    def dead(self) -> list[DeadRow]:
        """The first failed rows of each box."""
        return self.letters.rows()

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
