"""The folder of an archive is for one writer: the ``_lock`` in it, which dies with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from medusa.errors import DataError

__all__ = ["LOCK", "Lock"]

LOCK = "_lock"
FILE_MODE = 0o600


class Lock:
    """A folder for us alone, until it is closed.

    Raises:
        DataError: another writes there.
        OSError: the file can't be made.
    """

    _number: int | None = None

    def __init__(self, folder: Path) -> None:
        self._number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise DataError(
                f"{folder}: another process writes into it", hint="end that one first", code="data.archive"
            ) from None

    def close(self) -> None:
        """Another may have it; closed twice is closed."""
        number, self._number = self._number, None
        if number is not None:
            os.close(number)

    def __del__(self) -> None:
        self.close()
