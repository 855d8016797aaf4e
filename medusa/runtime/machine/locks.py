"""A folder that one process, and one run of it, at a time may have."""

from __future__ import annotations

import fcntl
import os
import weakref

from medusa.errors import StateError

__all__ = ["FolderLock"]


class FolderLock:
    """A folder is taken while this stands; it is given free by the end of the process too, however it ends.

    Args:
        number: the lock's open file in the folder; it is this one's to close from now on.
        path: of the folder, for the error.
        hint: what to do where another has it.

    Raises:
        StateError: another run or process has it.
        OSError: nothing can be locked there. After either the file is closed.
    """

    _number = -1

    def __init__(
        self, number: int, path: str, *, hint: str = "close that one first, or use another folder"
    ) -> None:
        self._number, self._process = number, os.getpid()
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._let_go()
            raise StateError(
                f"{path}: is in use by another run or process", hint=hint, code="state.locked"
            ) from None
        except BaseException:
            self._let_go()
            raise
        _LOCKS.add(self)

    def close(self) -> None:
        """Give the folder free; safe to call twice. In a forked child only the child lets go of it."""
        if self._number >= 0 and os.getpid() == self._process:
            # A child that is being forked just now has the file too, and hasn't closed it yet.
            fcntl.flock(self._number, fcntl.LOCK_UN)
        self._let_go()

    def _let_go(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        self.close()


_LOCKS: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: the folder is its parent's, and free when that ends."""
    for each in list(_LOCKS):
        each._let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
