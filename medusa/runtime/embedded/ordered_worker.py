"""The thread of a run whose work is ordered between outputs by their quality of service."""

from __future__ import annotations

from typing import Any

from medusa.engine.input.intake import IntakeEntry
from medusa.engine.overload.qos_scheduler import Ordering, latency_outputs
from medusa.ports import Clock
from medusa.query.boxes import Apply, Graph
from medusa.runtime.embedded.queue_worker import QueueWorker

__all__ = ["OrderedWorker", "ordering_of", "worker_of"]


def ordering_of(graph: Graph, clock: Clock, *, queued: bool, durable: bool, bounded: bool) -> Ordering | None:
    """What orders the work of a run; None: it is done in the order in which it came.

    Args:
        durable: the run has checkpoints: a restored one would have to take rows in the same order again.
        bounded: what waits may go to disk, which asks for an order of its own; or rows are kept away from
            state that is too large, which has to be seen before they are between boxes.
    """
    calls = any(isinstance(box, Apply) and box.in_flight is not None for box in graph.boxes)
    if not queued or durable or bounded or calls or not latency_outputs(graph):
        return None
    return Ordering(clock)


class OrderedWorker(QueueWorker):
    """Rows enter as soon as the thread has a moment, and wait before the first boxes.

    They count as waiting in the input queue until nothing that entered before them is left. Calls that
    need a query at rest (``flush``, ``finish``, ``change`` and others) find it so.
    """

    def __init__(self, *parts: Any, ordering: Ordering) -> None:
        self._ordering = ordering
        ordering.hold()
        super().__init__(*parts)

    def look(self) -> None:
        """Free the queue of what has been worked through between the boxes."""
        ordering = self._ordering
        self._belt.look(behind=ordering.waits, oldest_us=ordering.oldest_us)

    def serve(self, entry: IntakeEntry | None) -> None:
        rests = entry is None or entry.call is not None
        if rests and self._ordering.waits:
            self._step()
        elif entry is not None and entry.call is not None:
            self._ordering.hold(False)
            try:
                super().serve(entry)
            finally:
                self._ordering.hold()
                self.look()
        else:
            super().serve(entry)
            self.look()

    def _step(self) -> None:
        """Run some of what waits between the boxes, unless there is too much output already."""
        belt = self._belt
        takes = belt.begin_step()
        full = False
        try:
            with self._gate.turn(tells=True):
                full = self._gate.is_full() and not belt.calls
                if not full:
                    self._fragment.at(self._clock.monotonic_us())
                    self._fragment.step()
                    self._rest.settle()
        except BaseException as error:
            self.look()
            self._fail(error)
            return
        if full:
            belt.note_full(takes)
            self._gate.tell_output()
        self.look()
        self._gate.tell_room()

    def _done(self, entry: IntakeEntry, error: BaseException | None) -> None:
        if error is not None or entry.call is not None or self._fragment.stopped:
            super()._done(entry, error)
        else:
            self._belt.taken_in()


def worker_of(ordering: Ordering | None, *parts: Any) -> QueueWorker:
    """The worker of a run; None: its work is done in the order in which it came."""
    return QueueWorker(*parts) if ordering is None else OrderedWorker(*parts, ordering=ordering)
