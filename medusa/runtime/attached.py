"""A query that reads a connection point of a running query: first its history, then on, row by row.

Nothing is queued between the two: the attached query has a place in the history, a number, and reads on
from there when it is asked. So rows can neither be missed nor come twice, what waits takes no memory of
its own, and a query that is slow, fails or is forgotten costs the run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from medusa.elements import START_US, Boundary, Train
from medusa.engine.arguments import callback
from medusa.engine.boxes.connection import ConnectionPointBox
from medusa.engine.dead import DeadRow
from medusa.engine.judged import JudgedRun
from medusa.engine.run import to_table
from medusa.engine.tell import warn_dead
from medusa.errors import MedusaError, StateError
from medusa.runtime.tasks import LoopTasks

if TYPE_CHECKING:
    from medusa.runtime.changing import ChangingRun

__all__ = ["AttachedRun"]


class AttachedRun:
    """A query that is attached to a connection point; ``run.attach`` makes it.

    It works when it is asked, in the thread that asks, and follows the rules of its run: one thread at a
    time, unless the run has several. It ends with the run.

    Attributes:
        at: the connection point.
        first_seq: number of the first row that it reads there.
        from_us: windows that start before it, in microseconds since 1970, aren't given, since some of
            their rows may have come before ``first_seq``; None: all are given.
    """

    def __init__(
        self,
        run: ChangingRun,
        point: ConnectionPointBox,
        judged: JudgedRun,
        tasks: LoopTasks,
        *,
        first_seq: int,
        from_us: int,
        memory_bytes: int,
    ) -> None:
        self.at = point.id
        self.first_seq = first_seq
        self.from_us = from_us if from_us > START_US else None
        self._run = run
        self._point = point
        self._judged = judged
        self._fragment = judged.fragment
        self._tasks = tasks
        self._memory_bytes = memory_bytes
        self._next = first_seq
        self._callbacks: dict[str, list[Callable[[pa.Table], object]]] = {}
        self._error: BaseException | None = None
        self._closed = False

    @property
    def from_time(self) -> datetime | None:
        """``from_us`` as a datetime in UTC; None: all windows are given."""
        if self.from_us is None:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.from_us)

    # Rows out

    def take(self, sink: str, *, changes: bool = False) -> Any:
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
        with self._run._turn():
            box = self._fragment.sink(sink)
            self._refuse()
            self._read_on()
            if self._fragment.letters.fresh is not None:
                warn_dead(self._fragment.letters.fresh)
                self._fragment.letters.fresh = None
            elements = box.take()
        return elements if changes else to_table(elements, box.schema)

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows: with those of the history now, then at the end of each push, boundary and
        finish of the run that made some. When one raises, this query has failed: a warning says so, and
        the run goes on.
        """
        with self._run._turn():
            self._fragment.sink(sink)
            self._refuse()
            checked = callback(call, f"on({sink!r}, ...)")
            self._callbacks.setdefault(sink, []).append(checked)
            if self not in self._run._attached:
                self._run._attached.append(self)
            self._tell()

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

    # What is asked about it

    def stats(self) -> pa.Table:
        """One row per box, as ``md.Run.stats``."""
        with self._run._state:
            return self._fragment.stats(self._run._clock.monotonic_us())

    def explain(self) -> str:
        """For every box what it waits for, as ``md.Run.explain``."""
        with self._run._state:
            return self._fragment.explain(self._run._clock.monotonic_us())

    def dead(self) -> list[DeadRow]:
        """Rows on which an expression failed, as ``md.Run.dead``."""
        with self._run._state:
            return self._fragment.dead()

    # The end

    def close(self) -> None:
        """Read no more; safe to call twice, and after the run is closed."""
        if not self._closed:
            self._closed = True
            self._tasks.close()
            if self in self._run._attached:
                self._run._attached.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<{self._fragment.graph.name!r} attached to {self.at!r} from row {self.first_seq} on{closed}>"

    # Inner workings

    def _refuse(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise StateError(f"{self!r} reads no more", hint="attach again", code="run.closed")

    def _read_on(self) -> None:
        """Read until all has been read or enough output waits; within a turn of the run."""
        if self._run._fragment.behind:
            self._run._sync()
        try:
            self._fragment.at(self._run._clock.monotonic_us())
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
            for sink, calls in self._callbacks.items():
                box = self._fragment.sink(sink)
                if box.held_rows:
                    table = to_table(box.take(), box.schema)
                    try:
                        for call in calls:
                            call(table)
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
