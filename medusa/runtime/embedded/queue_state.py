"""What a run with an input queue and its thread share, and what outlives the run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping

from medusa.elements import Element
from medusa.engine.input.intake import IntakeEntry, IntakeQueue

__all__ = ["LISTEN_AGAIN_S", "Changed", "QueueState", "abandon", "note_left"]

LISTEN_AGAIN_S = 0.25
"""An interrupt (Ctrl-C) that comes in the moment before a lock is waited for wakes nobody: it is heard with
the next wake, which is at most so much later."""


class Changed(threading.Condition):
    """A condition that is held again, once, when an interrupt ends a wait."""

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        except BaseException:  # maybe between letting go and waiting, where Python doesn't take it again
            if not self._is_owned():  # type: ignore[attr-defined]
                self.acquire()
            raise


class QueueState:
    """What a run and its thread share. All of it is read and written under ``changed``.

    Attributes:
        thread: works off what waits; None: it hasn't begun.
        working: the entry that is being worked on.
        error: what the thread ran into and nobody has been told; it waits until somebody is.
        behind: of what was taken out of the queue, some waits between the boxes.
        calls: who waits for work to be done: as long as anybody does output may exceed ``memory=``.
        takes: how often output has been taken.
        full_at: there was too much output when it had been taken so often.
    """

    def __init__(self, queue: IntakeQueue) -> None:
        self.queue = queue
        self.changed = Changed()  # reentrant: a finaliser may run anywhere
        self.thread: threading.Thread | None = None
        self.working: IntakeEntry | None = None
        self.error: BaseException | None = None
        self.stopping = False
        self.behind = False
        self.calls: set[object] = set()  # an interrupt anywhere leaves nobody in it
        self.takes = 0
        self.full_at = -1

    def begin(self, thread: threading.Thread) -> None:
        """Let a thread do the work from now on."""
        self.thread = thread
        thread.start()

    def is_mine(self) -> bool:
        """It is the thread of the run that asks."""
        return threading.current_thread() is self.thread

    def tell(self) -> None:
        """Something has changed."""
        with self.changed:
            self.changed.notify_all()

    def note_take(self, elements: list[Element]) -> None:
        """Output has been taken, perhaps none."""
        with self.changed:
            self.takes += 1
            self.changed.notify_all()

    def note_full(self, takes: int) -> None:
        """There was too much output when it had been taken so often; what was to be worked on waits on."""
        with self.changed:
            self.full_at, self.working = takes, None
            self.changed.notify_all()

    def begin_step(self) -> int:
        """Nothing in the queue is worked on; how often output has been taken."""
        with self.changed:
            self.working = None
            return self.takes

    def taken_in(self) -> None:
        """The entry that is worked on has entered, and holds its place until nothing before it is left."""
        with self.changed:
            self.working = None
            self.queue.take_in()

    def look(self, *, behind: bool, oldest_us: int | None) -> None:
        """Between the boxes some work is left, the oldest since then."""
        with self.changed:
            self.behind = behind
            self.queue.worked_before(oldest_us)
            self.changed.notify_all()

    def done(self, entry: IntakeEntry, error: BaseException | None) -> BaseException | None:
        """The entry that is worked on is done; gives an error that its caller isn't told."""
        with self.changed:
            self.working = None
            self.queue.done()
            if error is not None and entry.call is not None:
                entry.fail(error)
                error = None
            self.changed.notify_all()
        return error

    def fail(self, error: BaseException | None, *, stopped: bool) -> None:
        """Keep an error for the next caller; where the run has stopped, forget what waits."""
        with self.changed:
            left = self.queue.forget() if stopped else {}
            if error is not None:
                note_left(error, left)
                self.error = error
            self.changed.notify_all()

    def take_error(self) -> BaseException | None:
        """What the thread ran into and nobody has been told; then it goes on."""
        with self.changed:
            error, self.error = self.error, None
            self.changed.notify_all()
        return error

    def drain(self, check: Callable[[], None]) -> list[BaseException]:
        """Wait until nothing waits any more; what the thread ran into meanwhile.

        Args:
            check: called now and then meanwhile; what it raises ends the wait.
        """
        errors: list[BaseException] = []
        me = object()
        with self.changed:
            try:
                self.calls.add(me)
                self.changed.notify_all()
                while self.error is not None or self.queue.head is not None or self.behind:
                    if self.error is None:
                        self.wait()
                        check()
                        continue
                    errors.append(self.error)
                    self.error = None
                    self.changed.notify_all()
            finally:
                self.calls.discard(me)
        return errors

    def stop(self) -> None:
        """The thread works on nothing more."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def forked(self) -> None:
        """In a forked process, where the thread isn't, and nobody gives back what it holds."""
        self.changed = Changed()

    @property
    def stuck(self) -> bool:
        """The thread waits for output to be taken."""
        return self.full_at == self.takes and not self.calls

    def wait(self) -> None:
        """Let go of ``changed``, by a caller, until something has changed; or sooner, so look again."""
        self.changed.wait(LISTEN_AGAIN_S)

    def next(self, look_again_s: float | None) -> IntakeEntry | None:
        """Wait for work, at most so long; None: there was none."""
        with self.changed:
            while not self.stopping:
                rests = self.error is not None or self.stuck
                if (self.queue.head is not None or self.behind) and not rests:
                    self.working = self.queue.head
                    return self.working
                if not self.changed.wait(look_again_s) and not rests:
                    break
        return None


def abandon(belt: QueueState, name: str) -> None:
    """A run was lost, or the program ends, without ``close``."""
    with belt.changed:
        left = {source: rows for source, rows in belt.queue.rows.items() if rows}
        belt.stop()
    if left:
        warnings.warn(
            f"the run of {name!r} was never closed: {_rows_text(left)} were not worked through",
            ResourceWarning,
            stacklevel=1,
        )


def note_left(error: BaseException, left: Mapping[str, int]) -> None:
    if left:
        error.add_note(f"{_rows_text(left)} waited in the input queue and were not worked through")


def _rows_text(left: Mapping[str, int]) -> str:
    rows = ", ".join(f"{rows:,} of {source!r}" for source, rows in left.items())
    return f"rows ({rows})"
