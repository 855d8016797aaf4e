"""What a run with an input queue and its thread share, and what outlives the run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping

from medusa.engine.input.intake import Entry, InputQueue

__all__ = ["LISTEN_AGAIN_S", "Belt", "Changed", "abandon", "note_left"]

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


class Belt:
    """What a run and its thread share. All of it is read and written under ``changed``.

    Attributes:
        working: the entry that is being worked on.
        error: what the thread ran into and nobody has been told; it waits until somebody is.
        behind: of what was taken out of the queue, some waits between the boxes.
        calls: who waits for work to be done: as long as anybody does output may exceed ``memory=``.
        takes: how often output has been taken.
        full_at: there was too much output when it had been taken so often.
    """

    def __init__(self, queue: InputQueue) -> None:
        self.queue = queue
        self.changed = Changed()  # reentrant: a finaliser may run anywhere
        self.working: Entry | None = None
        self.error: BaseException | None = None
        self.stopping = False
        self.behind = False
        self.calls: set[object] = set()  # an interrupt anywhere leaves nobody in it
        self.takes = 0
        self.full_at = -1

    @property
    def stuck(self) -> bool:
        """The thread waits for output to be taken."""
        return self.full_at == self.takes and not self.calls

    def wait(self) -> None:
        """Let go of ``changed``, by a caller, until something has changed; or sooner, so look again."""
        self.changed.wait(LISTEN_AGAIN_S)

    def next(self, look_again_s: float | None) -> Entry | None:
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


def abandon(belt: Belt, name: str) -> None:
    """A run was lost, or the program ends, without ``close``."""
    with belt.changed:
        left = {source: rows for source, rows in belt.queue.rows.items() if rows}
        belt.stopping = True
        belt.changed.notify_all()
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
