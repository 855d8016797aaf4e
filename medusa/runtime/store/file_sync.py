"""Files that become durable together.

A disk that is told to keep several files at once does so in little more than the time of one: each call alone
waits for the disk to have written all that came before it.
"""

from __future__ import annotations

import _thread
import os
from collections import deque
from collections.abc import Sequence
from types import TracebackType

__all__ = ["OpenFiles", "sync_together"]

THREADS_MAX = 8


class OpenFiles:
    """Descriptors of files and folders that were written, to be synced and closed; those that are left at the
    end are only closed.

    Args:
        most: so many are open at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: list[int] = []

    def add(self, number: int) -> None:
        """Take this one; it may be synced at once with those before it.

        Raises:
            OSError: one of them couldn't be synced.
        """
        self._numbers.append(number)
        if len(self._numbers) >= self._most:
            self.sync()

    def sync(self) -> None:
        """All that were added are durable, and closed.

        Raises:
            OSError: one couldn't be synced; all are closed.
        """
        try:
            sync_together(self._numbers)
        finally:
            self._close()

    def _close(self) -> None:
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            os.close(number)

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def sync_together(numbers: Sequence[int]) -> None:
    """Have all of these descriptors durable, at once.

    Raises:
        OSError: why the first that failed did; the others were tried.
    """
    left, failed = deque(numbers), deque[BaseException]()

    def sync(done: _thread.LockType | None) -> None:
        try:
            while left:
                try:
                    os.fsync(left.popleft())
                except IndexError:  # Another thread has taken the last one.
                    break
                except BaseException as error:  # Nobody else hears of it: a thread has no caller.
                    failed.append(error)
        finally:
            if done is not None:
                done.release()

    beside = []
    for _ in range(min(len(numbers), THREADS_MAX) - 1):
        done = _thread.allocate_lock()
        done.acquire()
        try:
            _thread.start_new_thread(sync, (done,))
        except RuntimeError:  # The system gives no more threads.
            break
        beside.append(done)
    sync(None)
    for done in beside:
        done.acquire()
    if failed:
        raise failed[0]
