"""A query that reads a connection point of a running query: first its history, then on, row by row.

Nothing is queued between the two: the attached query has a place in the history, a number, and reads on
from there when it is asked. So rows can neither be missed nor come twice, what waits takes no memory of
its own, and a query that is slow, fails or is forgotten costs the run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from medusa.elements import START_US, Boundary, Element, Train
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.overload.drop_set import SHEDDING_SCHEMA
from medusa.engine.prejudged_source import JudgedRun
from medusa.engine.run.gate import RunGate
from medusa.engine.run.output import RunOutput
from medusa.engine.run.run_warnings import RunWarnings
from medusa.engine.stats import told_apart
from medusa.errors import StateError
from medusa.runtime.embedded.readable_run import ReadableRun
from medusa.runtime.machine.event_loop import LoopTasks

if TYPE_CHECKING:
    from medusa.runtime.embedded.attachments import Attachments
    from medusa.runtime.embedded.run import Run

__all__ = ["AttachedRun"]


class HistoryReader:
    """Reads a connection point on, for one query, as far as there is room for what that gives.

    Args:
        host: what the run gives to attached queries.
        first_seq: number of the first row that it reads.

    Attributes:
        error: why it reads no more; None: it does.
    """

    passes = True  # whatever lets time pass reads on

    def __init__(
        self, host: Attachments, gate: RunGate, point: ConnectionPointBox, judged: JudgedRun, first_seq: int
    ) -> None:
        self._host = host
        self._clock = host.clock
        self._gate = gate
        self._point = point
        self._judged = judged
        self._fragment = judged.fragment
        self._next = first_seq
        self._told = self._place  # as far as it had read when its output was told of last
        self.error: BaseException | None = None

    @property
    def _place(self) -> tuple[int, int]:
        """How far it has read: the next row, and what was promised."""
        [source] = self._fragment.sources.values()
        return self._next, source.boundary_us

    @property
    def behind(self) -> int:
        """How many rows it has not read yet."""
        history = self._point.history
        return 0 if history is None else history.next_seq - self._next

    def bring_on(self) -> None:
        """Read until all has been read or enough output waits; within a turn of the run.

        Raises:
            What a failed row, or a history that can't be read, raised; also at each later call.
        """
        if self.error is not None:
            raise self.error
        self._host.bring_on()
        try:
            self._fragment.at(self._clock.monotonic_us())
            self._read()
            if self._fragment.has_calls:
                self._fragment.poll()
        except BaseException as error:
            self.error = error
            raise

    def _read(self) -> None:
        history = self._point.history
        assert history is not None, "it was attached to one"
        if self._next < history.next_seq:
            for element in history.read(self._next):
                if self._is_full():
                    return
                self._judged.feed(element)
                if isinstance(element, Train):
                    self._next = element.first_seq + len(element)
        if not self._is_full():
            self._judged.feed(Boundary(self._point.boundary_us))

    def _is_full(self) -> bool:
        return self._fragment.held_bytes() > self._gate.memory_bytes

    def took(self, elements: list[Element]) -> None:
        """Elements were taken, perhaps none: other sinks may have rows now, or there is room to read on."""
        if elements or self._place != self._told:
            self._told = self._place
            self._gate.tell_output()

    def read_to(self, call_back: Callable[[], None]) -> None:
        """Read on, and give callbacks what is new, which makes room to read on."""
        before: int | None = None
        while before != self._next:
            before = self._next
            self.bring_on()
            try:
                call_back()
            except BaseException as error:
                self.error = error
                raise


def _refused(what: str, hint: str) -> Any:
    """A method of a run that an attached query doesn't have."""

    def refuse(self: AttachedRun, *given: object, **options: object) -> Any:
        raise StateError(
            f"{what}() of a query that is attached to {self.at!r}: it reads what the run gives it",
            hint=hint,
            code="run.attached",
        )

    refuse.__name__ = what
    refuse.__doc__ = f"Refused (``run.attached``): {hint}."
    return refuse


class AttachedRun(ReadableRun):
    """A query that is attached to a connection point; ``run.attach`` makes it.

    It is a run: rows leave by ``take``, ``stream`` and ``on``, and it can be asked as any run. None come in
    but from the connection point, so ``push``, ``boundary`` and ``finish`` are refused (``run.attached``),
    with whatever is done to the run that it reads from: ``change``, ``checkpoint``, ``attach`` and so on.

    It works when it is asked, in the thread that asks, and follows the rules of its run: one thread at a
    time, unless the run has several. It ends with the run.

    Attributes:
        at: the connection point.
        label: what tells it apart in the figures of the run: the connection point and a number.
        first_seq: number of the first row that it reads there.
        from_us: windows that start before it, in microseconds since 1970, aren't given, since some of
            their rows may have come before ``first_seq``; None: all are given.
    """

    def __init__(
        self,
        run: Run,
        host: Attachments,
        point: ConnectionPointBox,
        judged: JudgedRun,
        tasks: LoopTasks,
        *,
        number: int,
        first_seq: int,
        from_us: int,
        memory_bytes: int,
    ) -> None:
        self.at = point.id
        self.label = f"{point.id}-{number}"
        self.first_seq = first_seq
        self.from_us = from_us if from_us > START_US else None
        self._run = run  # it goes on as long as somebody has this
        self._host = host
        self._point = point
        self._tasks = tasks
        self._text = f"{judged.fragment.graph.name!r} attached to {point.id!r} from row {first_seq} on"
        above = host.gate
        gate = RunGate(
            judged.fragment,
            memory_bytes=memory_bytes,
            turns=above.turns,
            state=above.state,
            interrupts=above.interrupts,
            output=above.output,  # told at the end of each push, when there may be rows to read
            above=above,
            why_closed=partial(_reads_no_more, self._text),
        )
        self._reader = reader = HistoryReader(host, gate, point, judged, first_seq)
        warnings = RunWarnings(judged.fragment)
        super().__init__(gate, host.clock, RunOutput(gate, reader, warnings, lambda: None, took=reader.took))
        host.watch_forks(gate)

    @property
    def from_time(self) -> datetime | None:
        """``from_us`` as a datetime in UTC; None: all windows are given."""
        if self.from_us is None:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.from_us)

    # Rows in: by the connection point alone

    push = _refused("push", "push to the run that it is attached to")
    push_async = push
    boundary = _refused("boundary", "boundaries are those of the run that it is attached to")
    finish = _refused("finish", "it ends with the run: finish that, or close() this")
    change = _refused("change", "close() it, and attach the other query with history=")
    split = _refused("split", "split the run that it is attached to")
    merge = _refused("merge", "merge the run that it is attached to")
    checkpoint = _refused("checkpoint", "it is in no checkpoint: attach it again after a restore")
    attach = _refused("attach", "attach to the run itself")
    record = _refused("record", "run.record(..., query=...) of the run itself")
    view = _refused("view", "ask the run itself")
    history = _refused("history", "ask the run itself")
    serve_metrics = _refused("serve_metrics", "its figures are among those that the run serves")
    on_shed = _refused("on_shed", "rows are shed by the run, before they come to the connection point")

    # Rows out

    def take(self, sink: str, *, changes: bool = False, at_most: str | int | None = None) -> Any:
        """Read on as far as ``memory=`` allows, and give what has come out since the last take.

        Returns:
            As ``md.Run.take``; rows of a sink are numbered from 0. While ``behind`` isn't 0, there is
            more: take again.

        Raises:
            DataError: there is no such sink, or the source names another column than that of the time.
            StateError: rows were trimmed before they were read, or can't be read; the run is closed, or
                another thread is at work with it; this is closed.
            What a failed row or a callback raised, also at each later call.
        """
        return super().take(sink, changes=changes, at_most=at_most)

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows: with those of the history now, then at the end of each push, boundary and
        finish of the run that made some. When one raises, this query has failed: a warning says so, and
        the run goes on.
        """
        super().on(sink, call)
        with self._gate.turn():
            self._host.follow(self)
            self._call_back()

    def tick(self) -> None:
        """Read on as far as ``memory=`` allows; callbacks see what is new."""
        with self._gate.turn(tells=True):
            self._call_back()

    def flush(self) -> None:
        """Read on as far as ``memory=`` allows."""
        with self._gate.turn(tells=True):
            self._reader.bring_on()

    def stats(self, *, attached: bool = False) -> pa.Table:
        """As ``md.Run.stats``; no query is attached to this one."""
        with self._gate.asking():
            own = self._fragment.stats(self._clock.monotonic_us())
            return told_apart([(self._fragment.graph.name, None, own)]) if attached else own

    def shedding(self) -> pa.Table:
        """No rows: they are shed by the run, before they come to the connection point."""
        with self._gate.asking():
            return SHEDDING_SCHEMA.empty_table()

    @property
    def metrics_address(self) -> None:
        """None: its figures are among those that the run serves."""

    @property
    def behind(self) -> int:
        """How many rows of the connection point it has not read yet."""
        return 0 if self._gate.closed else self._reader.behind

    @property
    def ended(self) -> bool:
        """No more output will come: it is closed, it failed, or its input has ended and been read; or its
        connection point went, or began anew, with a change of the run.
        """
        gone = not self._host.has(self._point) and not self.behind
        failed = self._reader.error is not None
        return super().ended or self._host.gate.closed or failed or gone

    @property
    def goes_on_alone(self) -> bool:
        return super().goes_on_alone or self._run.goes_on_alone

    # The end

    def close(self) -> None:
        """Read no more; safe to call twice, and after the run is closed."""
        with self._gate.state:
            if self._gate.closed:
                return
            self._gate.close()
            self._host.forget(self)
        self._tasks.close()
        self.output.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._text}{', closed' if self._gate.closed else ''}>"

    # Inner workings

    def _call_back(self) -> None:
        """Give the callbacks what is new; within a turn of the run."""
        self._reader.read_to(self._rows_out.call_back)

    def follow(self) -> None:
        """After the run has come to rest: callbacks see what is new; what fails is only this query's."""
        if self._reader.error is not None or self._gate.closed:
            return
        try:
            self._call_back()
        except Exception as error:
            self._host.warn_failed(self.at, error)


def _reads_no_more(described: str) -> StateError:
    return StateError(f"<{described}, closed> reads no more", hint="attach again", code="run.closed")
