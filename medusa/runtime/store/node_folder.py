"""``store = "disk"``: a node keeps what it needs in the folder ``data`` of its machine."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from medusa.errors import StateError
from medusa.nodes.config.settings import Settings
from medusa.ports import Clock
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.journal import FolderJournal

__all__ = ["DataFolder", "open_folder"]


class DataFolder:
    """Implements ``medusa.ports.NodeStore`` in a folder, which one process at a time may have open.

    Args:
        existing: only what is there: nothing is made, and nothing removed.

    Raises:
        StateError: it can't be opened, or another process has it (``state.locked``).
    """

    def __init__(self, path: str, *, existing: bool = False) -> None:
        self.groups = FolderStore(path, create=not existing, sweep=not existing)
        try:
            self.journal = FolderJournal(path)
        except BaseException:
            self.groups.close()
            raise

    def age_s(self, group: str) -> float:
        with contextlib.suppress(OSError):
            return max(time.time() - os.stat(self.groups.where(group)).st_mtime, 0.0)
        return 0.0

    def beside(self, name: str) -> DataFolder:
        """Another one within it, ``NAME-N.aside``, with the first N that is free."""
        base = self.groups.where(name)
        free = next(path for n in range(1 << 20) if not os.path.lexists(path := f"{base}-{n}.aside"))
        return DataFolder(free)

    def close(self) -> None:
        self.journal.close()
        self.groups.close()


def open_folder(settings: Settings, clock: Clock, existing: bool) -> DataFolder:
    """The folder ``data``; it is made, where it isn't to exist."""
    if not existing:
        try:
            Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"the data folder {settings.data} can't be made: {error.strerror}",
                hint="give `data` a folder that this user may write",
                code="state.io",
            ) from None
    return DataFolder(settings.data, existing=existing)
