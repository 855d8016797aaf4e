"""What a run gives to the queries that are attached to its connection points."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.engine.history.history import History
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.prejudged_source import JudgedRun, source_of
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.gate import RunGate
from medusa.engine.run.idle_clock import PassingTime
from medusa.engine.run.run_warnings import RunWarnings
from medusa.engine.stats import told_apart
from medusa.errors import MedusaError, QueryError
from medusa.ports import Clock
from medusa.query.graph import label_of
from medusa.query.user_registry import check_functions
from medusa.runtime.embedded.attached import AttachedRun
from medusa.runtime.embedded.fork_guard import ForkGuard
from medusa.runtime.embedded.query_argument import graph_of
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.units import Duration, byte_count, duration_us

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.runtime.embedded.run import Run

__all__ = ["Attachments"]


class Attachments:
    """The attached queries of a run. It does no work for them before they ask.

    Attributes:
        gate: of the run.
        clock: of the run.
    """

    def __init__(
        self,
        gate: RunGate,
        clock: Clock,
        time: PassingTime,
        warnings: RunWarnings,
        checkpoints: RunCheckpoints,
        rest: AtRest,
        fork_guard: ForkGuard,
    ) -> None:
        self.gate = gate
        self.clock = clock
        self._fragment = gate.fragment
        self._time = time
        self._warnings = warnings
        self._checkpoints = checkpoints
        self._rest = rest
        self._fork_guard = fork_guard
        # The name of the query of each, in their order. One that nobody has costs nothing.
        self._attached: weakref.WeakKeyDictionary[AttachedRun, str] = weakref.WeakKeyDictionary()
        self._count = 0  # so far

    def attach(
        self,
        run: Run,
        query: Query,
        at: str,
        history: Duration | None,
        memory: str | int,
        on_error: str,
    ) -> AttachedRun:
        """As ``md.Run.attach``."""
        graph = graph_of(query)
        check_functions({label_of(box): box.functions for box in graph.boxes})
        memory_bytes = byte_count(memory, what="memory")
        back_us = None
        if history is not None and history != "all":
            back_us = duration_us(history, what="history")
        with self.gate.turn():
            point = self._fragment.connection(at)
            source = source_of(graph, point)
            assert point.history is not None, "runs keep histories"
            first = point.history.oldest_seq
            if history is None:
                first = point.history.next_seq
            elif back_us is not None:
                first = _seq_back(point.history, back_us, at)
            from_us = point.history.complete_from(first)
            self._count += 1
            tasks = LoopTasks()
            judged = JudgedRun(
                graph,
                source,
                from_us,
                functions=query.functions,
                on_error=on_error,
                clock=self.clock,
                tasks=tasks,
            )
            made = AttachedRun(
                run,
                self,
                point,
                judged,
                tasks,
                number=self._count,
                first_seq=first,
                from_us=from_us,
                memory_bytes=memory_bytes,
            )
            self._attached[made] = graph.name
            return made

    def with_stats(self, own: pa.Table) -> pa.Table:
        """The figures of the run, and behind them those of its attached queries, told apart."""
        others = [(query, each.label, each.stats()) for each, query in list(self._attached.items())]
        return told_apart([(self._fragment.graph.name, None, own), *others])

    def close(self) -> None:
        """The run ends: they read no more."""
        for each in tuple(self._attached):
            each.close()

    # For those that are attached

    def watch_forks(self, gate: RunGate) -> None:
        """Close the gate of an attached query where that of the run is closed after a fork."""
        self._fork_guard.watch(gate)

    def bring_on(self) -> None:
        """What is to come by now is there, and durable; within a turn."""
        if self._time.passes:
            self._time.bring_on()
        if self._fragment.behind:
            self._checkpoints.sync()

    def has(self, point: ConnectionPointBox) -> bool:
        """The connection point hasn't gone, or begun anew, with a change of the run."""
        return self._fragment.connections.get(point.id) is point

    def follow(self, each: AttachedRun) -> None:
        """One that has callbacks is told when the run has come to rest."""
        self._rest.follow(each.follow)

    def forget(self, each: AttachedRun) -> None:
        """One that reads no more."""
        self._attached.pop(each, None)
        self._rest.forget(each.follow)

    def warn_failed(self, at: str, error: Exception) -> None:
        """A callback or a row failed one of them; the run goes on."""
        said = error.message if isinstance(error, MedusaError) else repr(error)
        self._warnings.caution(f"the query attached to {at!r} has failed: {said}", RuntimeWarning)


def _seq_back(history: History, back_us: int, name: str) -> int:
    if not history.timed:
        raise QueryError(
            f"connection_point {name!r}: its stream has no time, so no row is an hour old",
            hint='history="all", or None',
            code="query.attach",
        )
    history.write()  # or it doesn't know their times
    return history.seq_at(history.most_us - back_us) if history.rows else history.next_seq
