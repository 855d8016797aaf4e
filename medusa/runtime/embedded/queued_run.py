"""A run with an input queue: ``push`` returns at once, and a thread of the run works off what waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from medusa.elements import Element
from medusa.engine.input.ingest import normalise
from medusa.engine.input.intake import Entry
from medusa.engine.input.push_arguments import boundary_time_us, from_first
from medusa.engine.operators.source import SourceBox
from medusa.engine.query_change import Change, Given
from medusa.errors import FullError, MedusaError, StateError
from medusa.query.boxes import Graph
from medusa.query.rewrite.split import BLOCK_ROWS
from medusa.runtime.embedded.queue_state import note_left
from medusa.runtime.embedded.worker_run import WorkingRun
from medusa.units import size_text

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["QueuedRun", "queued_options"]


def queued_options(settings: Mapping[str, Any], *, threads: int) -> dict[str, Any] | None:
    """What ``QueuedRun`` is made with, by the settings of a run, which may come from a checkpoint.

    Returns:
        None: it has no input queue.

    Raises:
        StateError: no such settings were written.
    """
    queue_bytes = settings.get("queue_bytes")
    if queue_bytes is None:
        return None
    if type(queue_bytes) is not int or queue_bytes < 0:
        raise StateError(f"not the settings of a run: queue_bytes {queue_bytes!r:.80}", code="state.corrupt")
    return {"queue_bytes": queue_bytes, "threads": threads}


class QueuedRun(WorkingRun):
    """A run that takes rows into a bounded queue; ``md.start(q, queue="64 MiB")`` makes it.

    Any thread may call it. Callbacks run in its own thread, and may push, as long as there is room.
    What goes wrong in that thread (a failed row with ``on_error="stop"``, a callback that raises) is
    raised by the next call of anybody, but for those that only ask; until then nothing more is worked
    on. A child after a fork has no such thread: there the run is closed.
    """

    # In

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: int | str | datetime | None = None,
        wait: bool = True,
    ) -> None:
        """Check rows, put them into the queue, and return; see ``md.Run.push`` for the arguments.

        Where the queue is full this waits until there is room; with ``wait=False``, or when called from
        a callback, it raises. Rows are shared, not copied (numpy arrays in a dict are): what they lie in
        may not be written to before ``flush``.

        Raises:
            DataError: the rows don't fit, or ``first`` leaves a gap: nothing of them entered.
            FullError: the queue is full; or it is, and stays so, as more output than ``memory=`` waits to
                be taken and the run has one thread. Nothing entered.
            StateError: the run is closed.
        """
        with self._interrupts:
            self._tell_caller()
            fragment = self._fragment
            box = fragment.source(source)
            if fragment.storage is not None:
                with self._state:
                    fragment.storage.check_budget()
            arrival_us = None if arrival is None else boundary_time_us(arrival, source, "an arrival")
            rows = box.exported(data) if first is None and extra == "refuse" else None
            if rows is not None:
                batches = [data]
            else:
                batches = normalise(
                    _owned(data), box.spec.schema, extra=extra, source=source, arrow=box.schema
                )
            while True:
                position = self._belt.queue.positions[source] if first is not None else None
                taken = batches if first is None else from_first(batches, first, position or 0, source)
                if box.spec.partitions is None:
                    times = fragment.check(box, taken, arrival_us, rows)
                else:
                    with self._state:  # its keys are looked up where the thread adds to them
                        times = fragment.check(box, taken, arrival_us, rows)
                entry = Entry(
                    0,
                    source,
                    taken,
                    times,
                    arrival_us,
                    rows=sum(batch.num_rows for batch in taken),
                    nbytes=sum(batch.nbytes for batch in taken),
                )
                if self._put(entry, wait, position, box):
                    return

    def boundary(self, source: str, time: int | str | datetime) -> None:
        """Promise, behind the rows that wait, that none with a smaller time will come; see ``md.Run``."""
        with self._interrupts:
            self._tell_caller()
            box = self._fragment.source(source)
            time_us = boundary_time_us(time, source, "a boundary")
            self._fragment.check_promise(box, time_us)
            self._put(Entry(0, source, promise_us=time_us), True, None, box)

    def _put(self, entry: Entry, wait: bool, position: int | None, box: SourceBox) -> bool:
        """Put what was checked into the queue; False: other rows of the source came first."""
        belt, queue = self._belt, self._belt.queue
        with belt.changed:
            while True:
                self._refuse_error()
                self._refuse_closed()
                self._refuse_stopped()
                queue.check_open(entry.source)
                if self._fragment.sources[entry.source] is not box:
                    raise StateError(
                        f"source {entry.source!r} was changed while this was being pushed: nothing entered",
                        hint="push it again",
                        code="run.changed",
                    )
                if position is not None and queue.positions[entry.source] != position:
                    return False
                if entry.promise_us is not None:
                    queue.check_promise(entry.source, entry.promise_us)
                elif not entry.rows:
                    return True
                if queue.has_room(entry.nbytes):
                    break
                self._refuse_to_wait(wait)
                self._wait()
            entry.came_us = self._clock.monotonic_us()
            queue.put(entry)
            belt.changed.notify_all()
        return True

    def _wait(self) -> None:
        """Wait for something to change, with ``changed`` held and nothing half done: an interrupt ends it."""
        self._belt.wait()
        self._interrupts.check()

    def _refuse_to_wait(self, wait: bool) -> None:
        """Raises FullError where waiting for room isn't wanted, or could be for ever."""
        if self._belt.stuck and not self._waits:
            self._refuse_full()
        if not wait or self._is_mine():
            why = "and wait=False" if not wait else "and a callback can't wait for it"
            held, allowed = (
                size_text(each) for each in (self._belt.queue.held_bytes, self._belt.queue.bytes_max)
            )
            raise FullError(
                f"{held} wait in the input queue, allowed are {allowed}, {why}",
                hint="push again when some has been worked off, or start with a larger queue=",
                code="full.queue",
            )

    def flush(self) -> None:
        """Wait until all that has been pushed so far has been worked through.

        Raises:
            StateError: the run is closed, or a callback called this.
            What went wrong in the thread of the run.
        """
        self._in_order(self._refuse_stopped)

    def finish(self) -> None:
        """Work off what waits, then end all sources: see ``md.Run.finish``."""
        self._in_order(self._finish, ends=True)

    def _finish(self) -> None:
        self._fragment.finish()
        self._warn("")

    def checkpoint(self) -> str:
        """Work off what waits, then write a checkpoint: see ``md.Run.checkpoint``."""
        return str(self._in_order(self._save))

    def change(self, query: Query, *, reset: Sequence[str] = ()) -> Change:
        """Work off what waits, then change the query: see ``md.Run.change``."""
        graph = self._checked(query)
        made: list[Change] = []
        self._in_order(lambda: made.append(self._go_on_with(graph, query.functions, reset)))
        return made[0]

    def split(
        self,
        box: str,
        n: int | None = None,
        *,
        ranges: str | Sequence[int] = "even",
        block: int = BLOCK_ROWS,
    ) -> tuple[str, ...]:
        """Work off what waits, then split a box: see ``md.Run.split``."""
        made: list[tuple[str, ...]] = []
        self._in_order(lambda: made.append(self._split_now(box, n, ranges, block)))
        return made[0]

    def merge(self, box: str) -> None:
        """Work off what waits, then merge a box: see ``md.Run.merge``."""
        self._in_order(lambda: self._merge_now(box))

    def _go_on_with(
        self,
        graph: Graph,
        functions: Mapping[str, object],
        reset: Sequence[str],
        given: Given | None = None,
    ) -> Change:
        with self._belt.changed:  # nothing is pushed meanwhile
            return super()._go_on_with(graph, functions, reset, given)

    def _check_change(self, change: Change) -> None:
        source = self._belt.queue.holds(change.gone)
        if source:
            raise StateError(
                f"source {source!r} goes, and rows of it wait that were pushed meanwhile",
                hint="push to it no more, then change the query",
                code="change.rows",
            )

    def _changed(self, made: Change) -> None:
        super()._changed(made)
        self._belt.queue.change(self._fragment.positions(), made.gone)

    def _in_order(self, call: Callable[[], object], *, ends: bool = False) -> object:
        """Have something done by the thread, behind what waits, and wait for it."""
        with self._interrupts:
            return self._have_done(call, ends)

    def _have_done(self, call: Callable[[], object], ends: bool) -> object:
        self._tell_caller()
        self._refuse_own_thread()
        belt, queue = self._belt, self._belt.queue
        entry = Entry(0, call=call)
        with belt.changed:
            self._refuse_error()
            self._refuse_closed()
            self._refuse_stopped()
            entry.came_us = self._clock.monotonic_us()
            ended = queue.ended
            try:
                queue.ended |= ends
                queue.put(entry)
                belt.calls.add(entry)
                belt.changed.notify_all()
                while not (entry.done or entry.left):
                    self._refuse_error()
                    self._wait()
            finally:
                belt.calls.discard(entry)
                if not entry.done and belt.working is not entry:  # an error or an interrupt came first
                    queue.withdraw(entry)
                    queue.ended = ended
            self._refuse_error()
        self._tell_warnings()
        if entry.error is not None:
            if ends and not self.ended and not self._fragment.stopped:
                with belt.changed:  # refused: rows of before a restore are missing
                    queue.ended = ended
            raise entry.error
        if entry.left:
            self._refuse_closed()
            self._refuse_stopped()
        return entry.result

    # Out

    def _take(self, sink: str, changes: bool, at_most: str | int | None) -> tuple[Any, bool]:
        with self._interrupts:
            self._tell_caller()
        return super()._take(sink, changes, at_most)

    def _took(self, elements: list[Element]) -> None:
        with self._belt.changed:
            self._belt.takes += 1
            self._belt.changed.notify_all()
        super()._took(elements)

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back, in the thread of the run, with new rows: see ``md.Run.on``."""
        with self._interrupts:
            self._tell_caller()
            super().on(sink, call)

    def tick(self) -> None:
        with self._interrupts:
            self._tell_caller()
            super().tick()

    def positions(self) -> dict[str, int]:
        """Rows taken so far of each source, those that wait in the queue included."""
        self._refuse_closed()
        with self._interrupts, self._belt.changed:
            return dict(self._belt.queue.positions)

    def stats(self, *, attached: bool = False) -> pa.Table:
        """As ``md.Run.stats``; the queues of sources are what waits in the input queue."""
        with self._interrupts, self._state:
            with self._belt.changed:
                for name, box in self._fragment.sources.items():
                    queue = self._belt.queue
                    box.waiting_rows, box.waiting_bytes = queue.rows[name], queue.nbytes[name]
            return super().stats(attached=attached)

    # The end

    def close(self) -> None:
        """Work off what waits, and close: see ``md.Run.close``.

        Raises:
            StateError: the last checkpoint couldn't be written, or a callback called this.
            What went wrong in the thread of the run; the run is closed all the same.
        """
        with self._interrupts:
            if self._closed:
                return
            self._refuse_own_thread()
            errors: list[BaseException] = []
            try:
                self._drain(errors)
            except BaseException as interrupt:
                self._shut(interrupt)
                raise
            self._shut(errors[0] if errors else None)
            self._tell_warnings()
            if errors:
                raise errors[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; where an error is on its way out, without working off what waits."""
        with self._interrupts:
            if self._closed:
                return
            if error is None:
                self.close()
            else:
                self._shut(error)

    def _drain(self, errors: list[BaseException]) -> None:
        belt = self._belt
        with belt.changed:
            me = object()
            try:
                belt.calls.add(me)
                belt.changed.notify_all()
                while belt.error is not None or belt.queue.head is not None or belt.behind:
                    if belt.error is None:
                        self._wait()
                        continue
                    errors.append(belt.error)
                    belt.error = None
                    belt.changed.notify_all()
            finally:
                belt.calls.discard(me)

    def _shut(self, error: BaseException | None) -> None:
        """Stop the thread and close; what is left, and what goes wrong, is noted on an error."""
        belt = self._belt
        with belt.changed:
            belt.stopping = True
            belt.changed.notify_all()
        try:
            self._thread.join()
            with belt.changed:
                left = belt.queue.forget()
                untold, belt.error = belt.error, None
                belt.changed.notify_all()
            if error is not None:
                note_left(error, left)
                if untold is not None and untold is not error:
                    error.add_note(f"besides, the thread of the run had failed: {untold!r}")
        finally:
            self._finalizer.detach()
            try:
                super().close()
            except MedusaError as other:
                if error is None:
                    raise
                error.add_note(f"besides, closing the run failed: {other}")
            finally:
                with belt.changed:
                    belt.changed.notify_all()  # those who wait for room see that it is closed


def _owned(data: Any) -> Any:
    """Columns that the caller may write to later are copied."""
    if not isinstance(data, Mapping):
        return data
    return {
        name: column.copy() if isinstance(column, np.ndarray) else column for name, column in data.items()
    }
