"""A run with an input queue whose work is ordered between outputs by their quality of service."""

from __future__ import annotations

from typing import Any

from medusa.engine.input.intake import Entry
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.overload.qos_scheduler import Ordering, latency_outputs
from medusa.ports import Clock
from medusa.query.boxes import Apply, Graph
from medusa.runtime.embedded.queued_run import QueuedRun

__all__ = ["OrderedRun", "ordering_of"]


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


class OrderedRun(QueuedRun):
    """Rows enter as soon as the thread has a moment, and wait before the first boxes.

    They count as waiting in the input queue until nothing that entered before them is left. Calls that
    need a query at rest (``flush``, ``finish``, ``change`` and others) find it so.
    """

    def __init__(self, fragment: LoggedFragment, *, ordering: Ordering, **options: Any) -> None:
        self._ordering = ordering
        ordering.holds = True
        super().__init__(fragment, **options)

    def tick(self) -> None:
        super().tick()
        self._look()

    def _serve_one(self, entry: Entry | None) -> None:
        rests = entry is None or entry.call is not None
        if rests and self._ordering.waits:
            self._step()
        elif entry is not None and entry.call is not None:
            self._ordering.holds = False
            try:
                super()._serve_one(entry)
            finally:
                self._ordering.holds = True
                self._look()
        else:
            super()._serve_one(entry)
            self._look()

    def _step(self) -> None:
        """Run some of what waits between the boxes, unless there is too much output already."""
        belt = self._belt
        with belt.changed:
            belt.working, takes = None, belt.takes
        full = False
        try:
            with self._turn(tells=True):
                full = self._full() and not belt.calls
                if not full:
                    self._fragment.at(self._clock.monotonic_us())
                    self._fragment.step()
                    self._settled()
        except BaseException as error:
            self._look()
            self._failed(error)
            return
        if full:
            with belt.changed:
                belt.full_at = takes
                belt.changed.notify_all()
            self.output.tell()
        self._look()
        self.room.tell()

    def _done(self, entry: Entry, error: BaseException | None) -> None:
        if error is not None or entry.call is not None or self._fragment.stopped:
            super()._done(entry, error)
            return
        with self._belt.changed:
            self._belt.working = None
            self._belt.queue.take_in()

    def _look(self) -> None:
        """See what is left of the work, and free the queue of what has been worked through."""
        belt = self._belt
        with belt.changed:
            belt.behind = self._ordering.waits
            belt.queue.worked_before(self._ordering.oldest_us)
            belt.changed.notify_all()
