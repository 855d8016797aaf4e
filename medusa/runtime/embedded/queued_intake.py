"""Rows into a run with an input queue: ``push`` returns at once, and a thread works off what waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from medusa.engine.input.ingest import normalise
from medusa.engine.input.intake import IntakeEntry
from medusa.engine.input.push_arguments import boundary_time_us, from_first
from medusa.engine.operators.source import SourceBox
from medusa.engine.query_change import Change
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.gate import RunGate
from medusa.engine.run.intake import Check, Moment, RunIntake
from medusa.errors import FullError, MedusaError, StateError
from medusa.ports import Clock
from medusa.runtime.embedded.queue_state import QueueState, note_left
from medusa.runtime.embedded.queue_worker import QueueWorker
from medusa.runtime.embedded.shedding import Shedding
from medusa.runtime.embedded.thread_reports import ThreadReports
from medusa.units import size_text

__all__ = ["QueuedIntake"]

T = TypeVar("T")


class QueuedIntake(RunIntake):
    """Puts rows into a bounded queue, from which a worker takes them.

    Any thread may call it. What goes wrong in the thread of the run (a failed row with
    ``on_error="stop"``, a callback that raises) is raised by the next call of anybody, but for those that
    only ask; until then nothing more is worked on.

    Args:
        waits: callers of the run stand in line, so that waiting for output to be taken can end.
    """

    def __init__(
        self,
        gate: RunGate,
        clock: Clock,
        belt: QueueState,
        reports: ThreadReports,
        rest: AtRest,
        shedding: Shedding,
        worker: QueueWorker,
        *,
        waits: bool,
    ) -> None:
        super().__init__(gate, clock, reports, rest)
        self._belt = belt
        self._reports = reports
        self._shedding = shedding
        self._worker = worker
        self._waits = waits

    # In

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: Moment | None = None,
        wait: bool = True,
    ) -> None:
        with self._gate.interrupts:
            self._reports.tell_caller()
            fragment = self._fragment
            box = fragment.source(source)
            if fragment.storage is not None:
                with self._gate.state:
                    fragment.storage.check_budget()
            arrival_us = None if arrival is None else boundary_time_us(arrival, source, "an arrival")
            rows = box.exported(data) if first is None and extra == "refuse" else None
            if rows is not None:
                batches = [data]
            else:
                batches = normalise(
                    _owned(data), box.spec.schema, extra=extra, source=source, arrow=box.schema
                )
            queue = self._belt.queue
            while True:
                position = queue.positions[source] if first is not None else None
                taken = batches if first is None else from_first(batches, first, position or 0, source)
                if box.spec.partitions is None:
                    times = fragment.check(box, taken, arrival_us, rows)
                else:
                    with self._gate.state:  # its keys are looked up where the thread adds to them
                        times = fragment.check(box, taken, arrival_us, rows)
                entry = IntakeEntry(
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

    def boundary(self, source: str, time: Moment) -> None:
        """Promise it behind the rows that wait."""
        with self._gate.interrupts:
            self._reports.tell_caller()
            box = self._fragment.source(source)
            time_us = boundary_time_us(time, source, "a boundary")
            self._fragment.check_promise(box, time_us)
            self._put(IntakeEntry(0, source, promise_us=time_us), True, None, box)

    def _put(self, entry: IntakeEntry, wait: bool, position: int | None, box: SourceBox) -> bool:
        """Put what was checked into the queue; False: other rows of the source came first."""
        belt, queue = self._belt, self._belt.queue
        with belt.changed:
            while True:
                self._refuse_to_begin()
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
            entry.come(self._clock.monotonic_us())
            queue.put(entry)
            belt.tell()
        return True

    def _refuse_to_begin(self) -> None:
        self._reports.refuse_error()
        self._gate.refuse_closed()
        self._reports.refuse_stopped()

    def _wait(self) -> None:
        """Wait for something to change, with ``changed`` held and nothing half done: an interrupt ends it."""
        self._belt.wait()
        self._gate.check_interrupts()

    def _refuse_to_wait(self, wait: bool) -> None:
        """Raises FullError where waiting for room isn't wanted, or could be for ever."""
        if self._belt.stuck and not self._waits:
            self._gate.refuse_full()
        if not wait or self._belt.is_mine():
            why = "and wait=False" if not wait else "and a callback can't wait for it"
            queue = self._belt.queue
            held, allowed = size_text(queue.held_bytes), size_text(queue.bytes_max)
            raise FullError(
                f"{held} wait in the input queue, allowed are {allowed}, {why}",
                hint="push again when some has been worked off, or start with a larger queue=",
                code="full.queue",
            )

    # In its place

    def tick(self) -> None:
        self._reports.hear()
        super().tick()
        self._worker.look()

    def flush(self) -> None:
        self.in_order(lambda check: self._reports.refuse_stopped())

    def in_order(self, call: Callable[[Check], T], *, ends: bool = False, settles: bool = True) -> T:
        with self._gate.interrupts:
            self._reports.tell_caller()
            self._reports.refuse_own_thread()
            entry = IntakeEntry(0, call=partial(call, None))
            self._have_done(entry, ends)
            return cast(T, entry.result)

    def _have_done(self, entry: IntakeEntry, ends: bool) -> None:
        """Have the thread do it, and wait."""
        belt, queue = self._belt, self._belt.queue
        with belt.changed:
            self._refuse_to_begin()
            entry.come(self._clock.monotonic_us())
            ends &= not queue.ended
            try:
                if ends:
                    queue.end()
                queue.put(entry)
                belt.calls.add(entry)
                belt.tell()
                while not (entry.done or entry.left):
                    self._reports.refuse_error()
                    self._wait()
            finally:
                belt.calls.discard(entry)
                if not entry.done and belt.working is not entry:  # an error or an interrupt came first
                    queue.withdraw(entry)
                    if ends:
                        queue.go_on()
            self._reports.refuse_error()
        self._reports.tell_warnings()
        if entry.error is not None:
            if ends and not self._fragment.finished and not self._fragment.stopped:
                with belt.changed:  # refused: rows of before a restore are missing
                    queue.go_on()
            raise entry.error
        if entry.left:
            self._gate.refuse_closed()
            self._reports.refuse_stopped()

    # Asked and told

    def positions(self) -> dict[str, int]:
        self._gate.refuse_closed()
        with self._gate.interrupts, self._belt.changed:
            return dict(self._belt.queue.positions)

    def count_waiting(self) -> None:
        queue = self._belt.queue
        with self._gate.interrupts, self._belt.changed:
            for name, box in self._fragment.sources.items():
                box.note_waiting(queue.rows[name], queue.nbytes[name])

    def changing(self) -> AbstractContextManager[object]:
        return self._belt.changed

    def check_change(self, change: Change) -> None:
        queue = self._belt.queue
        source = queue.holds(change.gone)
        if source:
            raise StateError(
                f"source {source!r} goes, and rows of it wait that were pushed meanwhile",
                hint="push to it no more, then change the query",
                code="change.rows",
            )

    def changed(self, change: Change) -> None:
        self._shedding.begin()
        queue = self._belt.queue
        queue.change(self._fragment.positions(), change.gone)

    # The end

    def close(self, end: Callable[[], None], error: BaseException | None = None) -> None:
        """Work off what waits, stop the thread, and ``end``.

        Raises:
            StateError: a callback called this.
            What went wrong in the thread of the run, or at the end.
        """
        with self._gate.interrupts:
            if self._gate.closed:
                return
            if error is not None:
                self._stop(end, error)
                return
            self._reports.refuse_own_thread()
            try:
                errors = self._belt.drain(self._gate.interrupts.check)
            except BaseException as interrupt:
                self._stop(end, interrupt)
                raise
            self._stop(end, errors[0] if errors else None)
            self._reports.tell_warnings()
            if errors:
                raise errors[0]

    def _stop(self, end: Callable[[], None], error: BaseException | None) -> None:
        """Stop the thread and end; what is left, and what goes wrong, is noted on an error."""
        belt, queue = self._belt, self._belt.queue
        try:
            self._worker.stop()
            with belt.changed:
                left = queue.forget()
            untold = belt.take_error()
            if error is not None:
                note_left(error, left)
                if untold is not None and untold is not error:
                    error.add_note(f"besides, the thread of the run had failed: {untold!r}")
        finally:
            self._worker.forget()
            try:
                end()
            except MedusaError as other:
                if error is None:
                    raise
                error.add_note(f"besides, closing the run failed: {other}")
            finally:
                belt.tell()  # those who wait for room see that it is closed

    def give_up(self) -> None:
        self._worker.give_up()


def _owned(data: Any) -> Any:
    """Columns that the caller may write to later are copied."""
    if not isinstance(data, Mapping):
        return data
    return {
        name: column.copy() if isinstance(column, np.ndarray) else column for name, column in data.items()
    }
