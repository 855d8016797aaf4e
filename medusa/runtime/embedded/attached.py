"""A query that reads a connection point of a running query: first its history, then on, row by row.

Nothing is queued between the two: the attached query has a place in the history, a number, and reads on
from there when it is asked. So rows can neither be missed nor come twice, what waits takes no memory of
its own, and a query that is slow, fails or is forgotten costs the run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa

from medusa.elements import START_US, Boundary, Element, Train
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.prejudged_source import JudgedRun
from medusa.errors import MedusaError, StateError
from medusa.runtime.embedded.asyncio_run import LiveRun
from medusa.runtime.machine.event_loop import LoopTasks

__all__ = ["AttachedRun"]


def _refused(what: str, hint: str) -> Any:
    """A method that an attached query doesn't have, in place of the one of its class."""

    def refuse(self: AttachedRun, *given: object, **options: object) -> Any:
        raise StateError(
            f"{what}() of a query that is attached to {self.at!r}: it reads what the run gives it",
            hint=hint,
            code="run.attached",
        )

    refuse.__name__ = what
    refuse.__doc__ = f"Refused (``run.attached``): {hint}."
    return refuse


class AttachedRun(LiveRun):
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
        run: LiveRun,
        point: ConnectionPointBox,
        judged: JudgedRun,
        tasks: LoopTasks,
        *,
        number: int,
        first_seq: int,
        from_us: int,
        memory_bytes: int,
    ) -> None:
        super().__init__(
            judged.fragment,
            clock=run._clock,
            memory_bytes=memory_bytes,
            settings={},
            turns=run._turns,
            state=run._state,
            interrupts=run._interrupts,
        )
        self.at = point.id
        self.label = f"{point.id}-{number}"
        self._number = number
        self.first_seq = first_seq
        self.from_us = from_us if from_us > START_US else None
        self.output = run.output  # told at the end of each push, when there may be rows to read
        self._run = run
        self._point = point
        self._judged = judged
        self._tasks = tasks
        self._next = first_seq
        self._told = self._place  # as far as it had read when its output was told of last
        self._error: BaseException | None = None
        self._idles = True  # whatever lets time pass reads on

    @property
    def from_time(self) -> datetime | None:
        """``from_us`` as a datetime in UTC; None: all windows are given."""
        if self.from_us is None:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.from_us)

    # Rows in: by the connection point alone

    push = _refused("push", "push to the run that it is attached to")
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

    def _took(self, elements: list[Element]) -> None:
        super()._took(elements)
        if (
            elements or self._place != self._told
        ):  # other sinks may have rows now, or there is room to read on
            self._told = self._place
            self.output.tell()

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows: with those of the history now, then at the end of each push, boundary and
        finish of the run that made some. When one raises, this query has failed: a warning says so, and
        the run goes on.
        """
        super().on(sink, call)
        with self._turn():
            self._run._let_follow(self)
            self._tell()

    def flush(self) -> None:
        """Read on as far as ``memory=`` allows."""
        with self._turn(tells=True):
            self._read_on()

    @property
    def behind(self) -> int:
        """How many rows of the connection point it has not read yet."""
        history = self._point.history
        return 0 if history is None or self._closed else history.next_seq - self._next

    @property
    def ended(self) -> bool:
        """No more output will come: it is closed, it failed, or its input has ended and been read; or its
        connection point went, or began anew, with a change of the run.
        """
        finished = all(box.finished for box in self._fragment.sources.values())
        gone = self._run._fragment.connections.get(self.at) is not self._point and not self.behind
        return self._closed or self._run._closed or self._error is not None or finished or gone

    @property
    def goes_on_alone(self) -> bool:
        return super().goes_on_alone or self._run.goes_on_alone

    # The end

    def close(self) -> None:
        """Read no more; safe to call twice, and after the run is closed."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._run._forget(self)
        self._tasks.close()
        self.output.tell()

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<{self._fragment.graph.name!r} attached to {self.at!r} from row {self.first_seq} on{closed}>"

    # Inner workings

    def _refuse_closed(self) -> None:
        self._run._refuse_closed()
        if self._closed:
            raise StateError(f"{self!r} reads no more", hint="attach again", code="run.closed")

    @property
    def _place(self) -> tuple[int, int]:
        """How far it has read: the next row, and what was promised."""
        [source] = self._fragment.sources.values()
        return self._next, source.boundary_us

    def _pass_time(self) -> None:
        self._read_on()

    def _read_on(self) -> None:
        """Read until all has been read or enough output waits; within a turn of the run."""
        if self._error is not None:
            raise self._error
        if self._run._idles:
            self._run._pass_time()
        if self._run._fragment.behind:
            self._run._sync()
        try:
            self._fragment.at(self._clock.monotonic_us())
            self._read()
            if self._fragment.has_calls:
                self._fragment.poll()
        except BaseException as error:
            self._error = error
            raise

    def _read(self) -> None:
        history = self._point.history
        assert history is not None, "it was attached to one"
        if self._next < history.next_seq:
            for element in history.read(self._next):
                if self._fragment.held_bytes() > self._memory_bytes:
                    return
                self._judged.feed(element)
                if isinstance(element, Train):
                    self._next = element.first_seq + len(element)
        if self._fragment.held_bytes() <= self._memory_bytes:
            self._judged.feed(Boundary(self._point.boundary_us))

    def _tell(self) -> None:
        """Give the callbacks what is new; within a turn of the run."""
        before = -1
        while before != self._next:
            before = self._next
            self._read_on()
            try:
                super()._tell()
            except BaseException as error:
                self._error = error
                raise

    def follow(self) -> None:
        """After the run has come to rest: callbacks see what is new; what fails is only this query's."""
        if self._error is not None or self._closed:
            return
        try:
            self._tell()
        except Exception as error:
            said = error.message if isinstance(error, MedusaError) else repr(error)
            self._run._caution(f"the query attached to {self.at!r} has failed: {said}", RuntimeWarning)

    def _after_fork(self) -> None:
        self._run._after_fork()
        if self._run._forked:
            self._leave_to_parent()
