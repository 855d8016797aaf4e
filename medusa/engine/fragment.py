"""A connected part of a query, running on one site: elements in, elements out, and nothing else.

It does no IO and reads no clock but to measure how busy its boxes were. Given the same elements in
the same order it gives the same output, bit for bit; ``Run``, the nodes and the simulator all
drive this one class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

import pyarrow as pa

from medusa._native import Exported, Times
from medusa.elements import END_US, Boundary, Element, Shed, Train
from medusa.engine.compile import compile_graph
from medusa.engine.core.box import Now, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.memory_bounds import Storage
from medusa.engine.idle_sources import Idleness, MissingSources
from medusa.engine.inspection import Inspection
from medusa.engine.operators.apply import AsyncApplyBox
from medusa.engine.operators.connection import Connections
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.source import SourceBox
from medusa.engine.overload.ruled_drops import RuledDrops
from medusa.engine.qos.rates import Meter
from medusa.engine.scheduler import Scheduler
from medusa.engine.sliced_fragment import SlicedFragment
from medusa.engine.state import fragment_state
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.capture import Capture
from medusa.engine.state.evolve import EvolutionPlan, catch_up
from medusa.engine.stats import counts_of
from medusa.engine.wiring import Scheduling, combines_of, connect_all
from medusa.errors import DataError, QueryError, StateError
from medusa.ports import Buffer, Clock, Segments, Tasks, Workers
from medusa.query.boxes import Graph
from medusa.query.graph import CheckedGraph, check_graph

__all__ = ["TRAIN_ROWS_MAX", "Fragment"]

TRAIN_ROWS_MAX = 1 << 17
"""Rows that run through the boxes at once. Fewer: the cost of each call shows; more: their columns
don't stay in the cache from box to box (measured in docs/performance.md)."""


T = TypeVar("T")


class Fragment(SlicedFragment, Inspection):
    """The boxes of a graph, running in the caller's thread.

    Args:
        on_error: ``dead``: leave out rows on which an expression fails, count and keep them;
            ``stop``: raise. After that the fragment takes nothing more.
        clock: measures how busy each box was.
        sink_times: trains at sinks carry their times (what nodes and ``changes=True`` need).
        train_rows_max: larger batches are cut to this many rows.
        functions: of users, by box, where they aren't registered.
        tasks: runs async functions; without it a query with one is refused.
        workers: run copies of boxes over disjoint keys; the output is the same.
        histories: where each connection point keeps its history (then ``connections.open``); None: nowhere.
        scheduler: makes what runs the boxes and orders work between outputs; None: all at once, as it comes.
        storage: bounds of memory, and where to spill; None: there are none.

    Raises:
        QueryError: the graph doesn't hold.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        on_error: str = "dead",
        clock: Clock | None = None,
        sink_times: bool = True,
        train_rows_max: int = TRAIN_ROWS_MAX,
        functions: Mapping[str, object] | None = None,
        tasks: Tasks | None = None,
        workers: Workers | None = None,
        histories: Callable[[str], Segments] | None = None,
        scheduler: Callable[[Graph, Sequence[Operator], Now], Scheduling] | None = None,
        storage: Storage | None = None,
    ) -> None:
        if on_error not in ("dead", "stop"):
            raise QueryError(f'on_error is "dead" or "stop", got {on_error!r:.80}', code="query.on_error")
        super().__init__()
        self.letters = DeadLetters(stop=on_error == "stop")
        self._now = Now()
        self.storage = storage
        self._clock = clock
        self._ordered_by = scheduler
        self.make_boxes = partial(
            compile_graph,
            letters=self.letters,
            sink_times=sink_times,
            tasks=tasks,
            workers=workers,
            histories=histories,
            storage=storage,
        )
        self.sink_times = sink_times
        # Workers share a train: the longer it is, the more panes it has, and the less often they wait.
        self._train_rows_max = train_rows_max * (4 if workers is not None else 1)
        self._failed: BaseException | None = None
        self._measured = clock is not None
        checked = check_graph(graph)
        functions = dict(functions or {})
        self.wire(checked, self.make_boxes(checked, functions=functions), functions)

    def wire(self, checked: CheckedGraph, boxes: list[Operator], functions: Mapping[str, object]) -> None:
        """Run these boxes, which aren't connected, from now on.

        Args:
            functions: of users, by box, where they aren't registered.
        """
        clock, storage = self._clock, self.storage
        self.functions = dict(functions)
        self.graph, self.checked = checked.graph, checked
        self._async = [box for box in boxes if isinstance(box, AsyncApplyBox)]
        self.has_calls = bool(self._async)
        """Some box calls async functions, so that output may come by itself."""
        if storage is not None:
            storage.adopt(boxes)
        self._scheduler: Scheduling
        if self._ordered_by is not None:
            self._scheduler = self._ordered_by(self.graph, boxes, self._now)
        elif storage is not None and storage.spool is not None:
            self._scheduler = Scheduler(boxes, clock, storage.relieve)
        else:
            self._scheduler = Scheduler(boxes, clock)
        self._meter = Meter()
        self._box_sums: dict[str, str] | None = None
        connect_all(checked, boxes, self._scheduler, self._now, self.letters, clock)
        self.boxes: dict[str, Operator] = {box.id: box for box in boxes}
        self.sources = {box.id: box for box in boxes if isinstance(box, SourceBox)}
        self.sinks = {box.id: box for box in boxes if isinstance(box, SinkBox)}
        self.connections = Connections(boxes)
        self._sinks = list(self.sinks.values())
        self._idleness = Idleness(checked.graph, self.boxes)
        self._missing_sources: MissingSources | None = None
        self._combines = {id: combines_of(checked, self.boxes, id) for id in self.sources}
        self.ruled = RuledDrops(checked, self.boxes)

    def relieve(self) -> None:
        """Move to disk what is too much for memory, where there is a disk for it."""
        if self.storage is not None:
            self.storage.relieve()

    def close(self) -> None:
        """Sync histories for the last time; nothing is taken any more."""
        self.connections.close()

    # Rows and elements in

    def check_rows(
        self, source: str, batches: Sequence[pa.RecordBatch], arrival_us: int | None = None
    ) -> list[Times | None]:
        """The times of rows that are about to be pushed, looked at; nothing changes.

        Args:
            arrival_us: when they arrived, where the source has ``ahead`` and no column says so.

        Raises:
            DataError: unknown or ended source, a null or impossible time, an arrival that is missing
                or that nobody asks for, a partition that isn't listed, a fragment that stopped.
        """
        return self.check(self.source(source), batches, arrival_us)

    def check(
        self,
        box: SourceBox,
        batches: Sequence[pa.RecordBatch],
        arrival_us: int | None = None,
        rows: Exported | None = None,
    ) -> list[Times | None]:
        """``check_rows`` of a source of this fragment.

        Args:
            rows: what it gave as ``exported`` for the only batch.
        """
        if self._failed is not None:
            self._refuse_after_failure()
        if box.finished:
            _refuse_ended(box)
        if box.wants_arrival or arrival_us is not None:
            box.check_arrival(arrival_us)
        if rows is not None:
            return [box.times_of(batches[0], rows)]
        return [box.times_of(batch) for batch in batches]

    def push_rows(
        self,
        source: str,
        batches: Sequence[pa.RecordBatch],
        times: Sequence[Times | None],
        arrival_us: int | None = None,
    ) -> None:
        """Take rows that ``check_rows`` has passed: judge their lateness and run to quiescence.

        Raises:
            DataError: a failed row with ``on_error="stop"``.
        """
        self.push(self.source(source), batches, times, arrival_us)

    def push(
        self,
        box: SourceBox,
        batches: Sequence[pa.RecordBatch],
        times: Sequence[Times | None],
        arrival_us: int | None = None,
    ) -> None:
        """``push_rows`` of a source of this fragment."""
        for batch, batch_times in zip(batches, times, strict=True):
            self._run_rows(box, batch, batch_times, arrival_us)

    def feed(self, source: str, element: Element | Shed) -> None:
        """Take one element and run to quiescence.

        A train of a source that isn't ``judged`` brings rows only: their time is read from their
        column and their lateness is judged here.

        Raises:
            DataError: unknown source, wrong columns, null times, a decreasing boundary, malformed
                partial results: nothing changed. Or a failed row with ``on_error="stop"``: see ``stopped``.
        """
        self._refuse_after_failure()
        if isinstance(element, Boundary):
            self.promise(source, element.time_us)
            return
        box = self.source(source)
        if isinstance(element, Shed):
            self.ruled.shed(source, element.share_ppm)
            return
        if not isinstance(element, Train):
            raise DataError(
                f"source {source!r}: {type(element).__name__} doesn't enter a fragment", code="data.element"
            )
        if box.finished:
            _refuse_ended(box)
        box.check_train(element)
        for combine in self._combines[source]:
            combine.check_train(source, element)
        times = self.check_rows(source, [element.batch], element.arrival_us)
        if box.spec.judged:
            box.receive(0, element)
            self._settle()
        else:
            self.push_rows(source, [element.batch], times, element.arrival_us)

    def _run_rows(
        self, box: SourceBox, batch: pa.RecordBatch, times: Times | None, arrival_us: int | None
    ) -> None:
        step = self._train_rows_max
        rows = batch.num_rows
        if rows <= step:
            self._enter(box, batch, times, arrival_us)
            return
        for start in range(0, rows, step):
            part = None if times is None else times.part(start, step)
            if self._rests is not None and self.unfinished:
                self._entering.append((box, batch.slice(start, step), part, arrival_us))
            else:
                self._enter(box, batch.slice(start, step), part, arrival_us)

    def _enter(
        self, box: SourceBox, batch: pa.RecordBatch, times: Times | None, arrival_us: int | None
    ) -> None:
        box.accept(batch, times, arrival_us)
        self._settle()

    def promise(self, source: str, time_us: int) -> None:
        """Take an explicit boundary and run to quiescence.

        Raises:
            DataError: unknown source, a source without time, or a decreasing boundary.
        """
        self._refuse_after_failure()
        box = self.source(source)
        box.check_promise(time_us)
        self._run_promise(box, time_us)

    def _run_promise(self, box: SourceBox, time_us: int) -> None:
        box.promise(time_us)
        self._settle()

    # Time passes

    def at(self, now_us: int, entered_us: int | None = None) -> None:
        """What comes next comes at this moment, in microseconds of a clock that never runs back.

        Args:
            entered_us: it has waited outside since then.
        """
        if now_us >= self._meter.due_us:
            self._meter.note(now_us, counts_of(list(self.boxes.values())), self._now.us)
        self._now.pass_to(now_us, entered_us)

    def tick(self, now_us: int) -> None:
        """See which sources are idle at this moment, move them as far as boxes ask, run to quiescence.

        Without sources with ``idle`` it does nothing but take note of the time. What it decides is
        not in the data: the same elements with other ticks may give other late rows.
        """
        self.at(now_us)
        if self._failed is not None:
            return
        if self.connections:
            self._go_on(partial(self.connections.pass_time, now_us))
        for box in self._idleness.sources:
            self._rest(box, now_us)
        while asked := list(self._idleness.asked()):  # boundaries only grow, each at most to another input's
            self._lift(asked)

    def held_up(self, silent: Collection[str], *, missing: bool = False) -> list[tuple[str, Element]]:
        """Of these sources with ``idle``, those for which a box waits, and the boundary that it asks for.

        Args:
            missing: of these sources, whatever they are, each once.
        """
        if missing:
            if self._missing_sources is None:
                self._missing_sources = MissingSources(self.graph, self.boxes)
            asked = self._missing_sources.asked(silent)
            return [(id, Boundary(time_us)) for id, time_us in asked.items()]
        for box in self._idleness.sources:
            box.deem_silent(box.id in silent)
        return [(box.id, Boundary(time_us)) for box, time_us in self._idleness.asked()]

    def _rest(self, box: SourceBox, now_us: int) -> None:
        if box.rest(now_us):
            self._settle()

    def _lift(self, asked: Sequence[tuple[SourceBox, int]]) -> None:
        for box, time_us in asked:
            box.lift(time_us)
        self._settle()

    def step(self) -> bool:
        """Run some of what waits, as the scheduler chooses; False: nothing waits. Raises as ``push``."""
        self._refuse_after_failure()
        return self._guard(self._scheduler.step)

    def quiesce(self) -> None:
        """Come to rest: nothing waits between boxes, and no call of an async function is under way.

        Raises:
            DataError: the fragment has stopped.
        """
        self._refuse_after_failure()
        self.wait()
        self._settle()

    def _settle(self) -> None:
        # As _guard, without a call more: every push comes here.
        try:
            self._scheduler.run_until(self._rests)
        except BaseException as error:
            self._stop(error)
            raise

    def _guard(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except BaseException as error:
            self._stop(error)
            raise

    def _stop(self, error: BaseException) -> None:
        """A failed row, or memory ran out: some boxes are ahead of others, and there is no way back."""
        self._abandon()
        self._failed = error

    def _refuse_after_failure(self) -> None:
        if self._failed is not None:
            raise DataError(
                f"the run has stopped: {getattr(self._failed, 'message', None) or repr(self._failed)}",
                hint="restore it from its checkpoint, or start again",
                code="data.stopped",
            )

    def give_up(self, error: BaseException) -> None:
        """What was at work was broken off where it can't go on: take nothing more, as after a failed row."""
        self._abandon()
        self._failed = StateError(
            f"what it did was broken off by {type(error).__name__} and couldn't be finished",
            code="run.broken_off",
        )

    @property
    def stopped(self) -> bool:
        """A row failed with ``on_error="stop"``, or an interrupt couldn't wait any longer: output so far can
        be drained, nothing more is taken."""
        return self._failed is not None

    def finish(self, look: Callable[[], object] | None = None) -> None:
        """Send the end boundary to all sources, in order: every window closes; then ``wait``."""
        self._refuse_after_failure()
        for box in self.sources.values():
            if not box.finished:
                self._run_promise(box, int(END_US))
        self.wait(look)

    # Async functions

    def poll(self) -> None:
        """Go on with the output of calls that have ended."""
        if self._failed is None:
            for box in self._async:
                self._go_on(box.poll)

    def wait(self, look: Callable[[], object] | None = None) -> bool:
        """Wait for all calls of async functions, and go on with their output; whether there were any.

        Args:
            look: called now and then meanwhile, where nothing is half done. What it raises ends the wait; the
                fragment goes on, and this can be called again.
        """
        waited = False
        if self._failed is None:
            for box in self._async:  # inputs first: what one gives may start calls of the next
                waited |= box.calls > 0
                while look is not None and not box.rest():
                    look()
                self._go_on(box.wait)
        return waited

    def _go_on(self, move: Callable[[], object]) -> None:
        self._guard(move)
        self._settle()

    # Elements out

    def drain(self, sink: str) -> list[Element]:
        """What has come to a sink since the last time: trains numbered by ``first_seq``, and boundaries."""
        return self.sink(sink).take()

    # State

    def snapshot(self) -> dict[str, Buffer]:
        """Everything held, as files: Arrow IPC per box and ``fragment.json``. Nothing changes.

        Only between elements; the buffers don't change when the fragment goes on.

        Raises:
            StateError: calls of async functions have not ended (``wait``).
        """
        return self._copying(patient=False).files()

    def copying(self) -> BackgroundCopy:
        """What ``snapshot`` gives, copied piece by piece between elements. Raises as that."""
        return self._copying(patient=True)

    def captured(self, capture: Capture | None, *, patient: bool = False) -> BackgroundCopy:
        """What ``snapshot`` gives, for a checkpoint that may be a delta. Raises as that.

        Args:
            capture: of boxes that know, only what changed since its base. None: all.
            patient: copied piece by piece between elements.
        """
        return self._copying(patient=patient, capture=capture)

    def _copying(self, *, patient: bool, capture: Capture | None = None) -> BackgroundCopy:
        self._refuse_after_failure()
        if self.unfinished and self._ordered_by is None:
            raise StateError("the element under way is not done", code="state.slice")
        if any(box.calls for box in self._async):
            raise StateError("calls of async functions have not ended", code="state.calls")
        self._go_on(self.connections.sync)  # first: a history may be ahead of a checkpoint, never behind
        if self._box_sums is None:
            self._box_sums = fragment_state.box_sums(self.checked)
        return fragment_state.save(
            self.graph.name,
            self.boxes,
            self._box_sums,
            patient=patient,
            capture=capture,
            shedding=self.ruled.save(),
        )

    @classmethod
    def restore(
        cls,
        graph: Graph,
        files: Mapping[str, Buffer],
        *,
        on_error: str = "dead",
        clock: Clock | None = None,
        sink_times: bool = True,
        workers: Workers | None = None,
        tasks: Tasks | None = None,
        plan: EvolutionPlan | None = None,
        histories: Callable[[str], Segments] | None = None,
        storage: Storage | None = None,
        settles: bool = True,
    ) -> Self:
        """A fragment that goes on where ``snapshot`` was taken, with as many workers as you like.

        Args:
            plan: what becomes of each box, where the graph isn't the one that was running.
            settles: histories on disk are taken back to where the state is; else they stay as they are until
                ``connections.settle``, or the first row that is written.

        Raises:
            StateError: a file is missing, isn't what ``snapshot`` wrote, or belongs to another graph.
            QueryError: the graph doesn't hold.
        """
        made = cls(
            graph,
            on_error=on_error,
            clock=clock,
            sink_times=sink_times,
            tasks=tasks,
            workers=workers,
            histories=histories,
            storage=storage,
        )
        fragment_state.load(made.checked, made.boxes, files, kept=None if plan is None else plan.kept)
        made.ruled.load(fragment_state.read_index(files).shedding)
        made.connections.prepare()
        if settles:
            made.connections.settle()
        made._settle()  # what was loaded may be more than memory has room for
        if plan is not None:
            for id in made.boxes:
                catch_up(graph, made.boxes, plan.fresh, id)
                made._settle()
        return made


def _refuse_ended(box: SourceBox) -> None:
    raise DataError(f"source {box.id!r} has ended: no rows after the end boundary", code="data.finished")
