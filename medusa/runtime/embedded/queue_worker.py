"""The thread of a run with an input queue: it works off what waits."""

from __future__ import annotations

import threading
import weakref

from medusa.engine.input.intake import IntakeEntry
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.gate import RunGate
from medusa.ports import Clock
from medusa.runtime.embedded.async_streams import LOOK_AGAIN_S
from medusa.runtime.embedded.queue_state import QueueState, abandon
from medusa.runtime.embedded.shedding import Shedding
from medusa.runtime.embedded.thread_reports import ThreadReports

__all__ = ["QueueWorker", "leave_to_parent", "silent_until"]


def silent_until(clock: Clock, belt: QueueState) -> int:
    """Up to when sources are silent: rows that wait have come later than what is done."""
    with belt.changed:
        head = belt.queue.head
        return clock.monotonic_us() if head is None else head.came_us


def leave_to_parent(belt: QueueState, finalizer: weakref.finalize[..., QueueWorker]) -> None:
    """In a forked process: the thread isn't there, and nobody else works on what waits."""
    belt.forked()
    finalizer.detach()


class QueueWorker:
    """Works off the queue of a run, in a thread that begins at once.

    Its thread holds it only while it works, so that of a run that is lost the thread ends.

    Attributes:
        finalizer: ends the thread, and says what is left, when the run is lost.
    """

    def __init__(
        self,
        gate: RunGate,
        clock: Clock,
        belt: QueueState,
        reports: ThreadReports,
        rest: AtRest,
        shedding: Shedding,
    ) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._clock = clock
        self._belt = belt
        self._reports = reports
        self._rest = rest
        self._shedding = shedding
        look_again_s = LOOK_AGAIN_S if gate.fragment.goes_on_alone else None
        thread = threading.Thread(
            target=_serve, args=(belt, weakref.ref(self), look_again_s), name="medusa-run", daemon=True
        )
        self.finalizer = weakref.finalize(self, abandon, belt, gate.fragment.graph.name)
        self._thread = thread
        belt.begin(thread)

    def give_up(self) -> None:
        """End the thread of a run that nobody has got."""
        self.finalizer()
        self._thread.join()

    def stop(self) -> None:
        """End the thread; what waits isn't worked on."""
        self._belt.stop()
        self._thread.join()

    def forget(self) -> None:
        """The run is closed: nothing is to be said when it is gone."""
        self.finalizer.detach()

    def look(self) -> None:
        """See what is left of the work, where some of it waits between the boxes."""

    # In the thread

    def serve(self, entry: IntakeEntry | None) -> None:
        """Work through one entry; None: let time pass."""
        if entry is None:
            if self._fragment.stopped:
                return
            try:
                with self._gate.turn(tells=True):
                    self._rest.settle()
            except BaseException as error:
                self._fail(error)
            return
        belt = self._belt
        with belt.changed:
            takes = belt.takes
        try:
            with self._gate.turn(tells=True):
                full = entry.call is None and self._gate.is_full()
                if not full or belt.calls:
                    self._work(entry)
                    full = False
        except BaseException as error:
            self._done(entry, error)
            return
        if full:
            belt.note_full(takes)
            self._gate.tell_output()
        else:
            self._done(entry, None)

    def _work(self, entry: IntakeEntry) -> None:
        fragment = self._fragment
        fragment.at(self._clock.monotonic_us(), entry.came_us)
        if entry.call is not None:
            entry.do(entry.call)
        elif entry.promise_us is not None:
            fragment.promise(entry.source, entry.promise_us)
        else:
            box = fragment.source(entry.source)
            # What is left out of rows that come again has been decided.
            if self._shedding.shedder is not None and not fragment.replays:
                with self._belt.changed:
                    self._shedding.control(self._clock.monotonic_us(), self._belt.queue)
            try:
                fragment.push(box, entry.batches, entry.times, entry.arrival_us)
            finally:
                if box.late or fragment.letters.fresh is not None:
                    self._reports.warn(entry.source)
        self._rest.settle()

    def _done(self, entry: IntakeEntry, error: BaseException | None) -> None:
        error = self._belt.done(entry, error)
        if error is not None or self._fragment.stopped:
            self._fail(error)
        self._gate.tell_room()

    def _fail(self, error: BaseException | None) -> None:
        """Keep an error for the next caller; a run that has stopped works on nothing more."""
        self._belt.fail(error, stopped=self._fragment.stopped)
        self._gate.tell()


def _serve(belt: QueueState, ref: weakref.ref[QueueWorker], look_again_s: float | None) -> None:
    """What the thread does."""
    while True:
        entry = belt.next(look_again_s)
        if belt.stopping:
            return
        worker = ref()
        if worker is None:
            return
        worker.serve(entry)
        del worker, entry
