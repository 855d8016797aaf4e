"""The folder of an archive is for one writer: the ``_lock`` in it, which dies with its process."""

from __future__ import annotations

import os
from pathlib import Path

from medusa.errors import DataError, StateError
from medusa.runtime.machine.locks import FolderLock

__all__ = ["LOCK", "ArchiveLock"]

LOCK = "_lock"
FILE_MODE = 0o600


class ArchiveLock(FolderLock):
    """A folder for us alone, until it is closed.

    Raises:
        DataError: another writes there.
        OSError: the file can't be made.
    """

    def __init__(self, folder: Path) -> None:
        number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            super().__init__(number, str(folder))
        except StateError:
            raise DataError(
                f"{folder}: another process writes into it", hint="end that one first", code="data.archive"
            ) from None
