"""What can be taken from a run, and asked of it, wherever its rows come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa

from medusa.engine.core.dead_letters import DeadRow
from medusa.engine.core.memory_bounds import Memory
from medusa.engine.load_view import loads
from medusa.engine.qos.output_utility import qos_table
from medusa.engine.run.gate import RunGate
from medusa.engine.run.output import RunOutput
from medusa.ports import Clock
from medusa.query.render.diagram import Diagram
from medusa.runtime.embedded.async_streams import stream_of

__all__ = ["ReadableRun"]


class ReadableRun(ABC):
    """A run as those see it who take its rows."""

    def __init__(self, gate: RunGate, clock: Clock, rows_out: RunOutput) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._clock = clock
        self._rows_out = rows_out
        self.output, self.room = gate.output, gate.room  # told when there may be some
        self.take = rows_out.take  # type: ignore[method-assign]  # small trains cost what a call costs

    def take(self, sink: str, *, changes: bool = False, at_most: str | int | None = None) -> Any:
        """What has come out since the last take.

        Args:
            at_most: about so many bytes of it, such as ``"64 MiB"``, but at least one train; the rest stays.

        Returns:
            A ``pyarrow.Table``, empty with the sink's columns where nothing came; or with
            ``changes`` the list of elements: numbered trains, trains of early rows (kind
            ``TENTATIVE``, without numbers), and boundaries. An early row is void when a final or
            later early row of its window and key comes, or a boundary beyond its time.
        """
        return self._rows_out.take(sink, changes=changes, at_most=at_most)

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows at the end of each push, boundary and finish that made some; with
        ``queue=``, in the thread of the run.

        Rows count as taken once all callbacks of their sink have returned; after one that raised,
        they come again with the next rows, and its error comes out of the push, whose rows entered.
        """
        self._rows_out.on(sink, call)

    def taken(self, sink: str) -> int:
        """The number of the next row that ``take`` gives; rows of a sink are numbered from 0."""
        with self._gate.asking():
            return self._fragment.sink(sink).taken

    def stream(self, sink: str, *, changes: bool = False) -> AsyncIterator[Any]:
        """What comes out of a sink, as it comes: ``async for table in run.stream("tolls")``.

        It ends when the run is closed (what was not taken by then is in the checkpoint, where there
        is one), or has finished and all has been taken.

        Args:
            changes: lists of elements as of ``take(sink, changes=True)``, in place of tables.

        Raises:
            DataError: there is no such sink.
        """
        return stream_of(self, lambda: self._rows_out.read(sink, changes, None))

    def positions(self) -> dict[str, int]:
        """Rows accepted so far of each source, late ones and those that wait in the input queue included:
        push from there after a restore.
        """
        with self._gate.asking():
            return self._fragment.positions()

    def memory(self) -> Memory:
        """Bytes of state and of rows that wait, in memory and on disk, and of each box."""
        with self._gate.asking():
            return self._fragment.memory()

    @abstractmethod
    def stats(self, *, attached: bool = False) -> pa.Table:
        """One row per box."""

    def qos(self) -> pa.Table:
        """One row for each sink with ``qos=``: its utility over the last 10 seconds, delay and loss.

        docs/qos.md describes each column. May be asked from any thread, as ``stats``.
        """
        with self._gate.asking():
            sinks = self._fragment.sinks.items()
            return qos_table(((id, box.meter) for id, box in sinks), self._clock.monotonic_us())

    def explain(self) -> str:
        """For every box what it waits for, which input holds it back since when, and who is the cause.

        Since when: the boundary of that input, and how long ago it moved by the clock.
        """
        with self._gate.asking():
            return self._fragment.explain(self._clock.monotonic_us())

    def diagram(self, *, load: bool = True) -> Diagram:
        """A drawing of the query: SVG, which notebooks show, and Mermaid text.

        Args:
            load: the busier a box was in the last seconds the darker it is, so that the bottleneck is
                seen; with the rows that wait, and who holds back whom. Without it, as ``q.diagram()``.
        """
        rows = self.stats().to_pylist()
        with self._gate.state:
            graph = self._fragment.graph
            found = loads(graph, self._fragment.boxes, rows) if load else None
        return Diagram(graph, found)

    def dead(self) -> list[DeadRow]:
        """Rows on which an expression failed: the first 100 of each box since this run was made."""
        with self._gate.asking():
            return self._fragment.dead()

    @property
    def ended(self) -> bool:
        """No more output will come: the run is closed, or every source has ended."""
        return self._gate.closed or self._fragment.finished

    @property
    def goes_on_alone(self) -> bool:
        """Something may come though nobody pushes: after ``idle=``, or from async calls."""
        return self._fragment.goes_on_alone

    @abstractmethod
    def tick(self) -> None:
        """Let time pass."""
