"""A folder that one process, and one run of it, at a time may have."""

from __future__ import annotations

import fcntl
import os

from medusa.errors import StateError

__all__ = ["FolderLock"]


class FolderLock:
    """A folder is taken while this stands; it is given free by the end of the process too, however it ends.

    Args:
        number: the lock's open file in the folder; it is this one's to close from now on.
        path: of the folder, for the error.
        hint: what to do where another has it.

    Raises:
        StateError: another run or process has it; the file is closed.
    """

    def __init__(
        self, number: int, path: str, *, hint: str = "close that one first, or use another folder"
    ) -> None:
        self._number, self._process = number, os.getpid()
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._number = -1
            os.close(number)
            raise StateError(
                f"{path}: is in use by another run or process", hint=hint, code="state.locked"
            ) from None

    def close(self) -> None:
        """Give the folder free; safe to call twice. In a forked child only the child lets go of it."""
        number, self._number = self._number, -1
        if number < 0:
            return
        if os.getpid() == self._process:
            # Closed alone, it would stay with children that were forked meanwhile, as long as they live.
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)

    def __del__(self) -> None:
        if getattr(self, "_number", -1) >= 0:
            self.close()
