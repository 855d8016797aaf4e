"""Where a node keeps its checkpoints and its catalog, as ``store`` of its configuration says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from medusa.errors import StateError
from medusa.nodes.config.settings import Settings
from medusa.ports import Buffer, Clock, Content, NodeStore
from medusa.runtime.store.folder_store import FolderStore

__all__ = ["open_store"]

SECOND_US = 1_000_000


def open_store(settings: Settings, clock: Clock) -> NodeStore:
    """Where the node with this configuration keeps what it keeps.

    Raises:
        StateError: its folder can't be made or opened, or another process has it.
    """
    if settings.forgets:
        _wait_for_a_new_second(clock)
        return _Unstored()
    try:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"the data folder {settings.data} can't be made: {error.strerror}",
            hint="give `data` a folder that this user may write",
            code="state.io",
        ) from None
    return FolderStore(settings.data)


class _Unstored:
    """Of a node that keeps nothing over its end (``store = "memory"``): nothing is ever found in it."""

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        """Nothing is written, and nobody is told that it was durable over our end."""

    def read(self, name: str) -> dict[str, Buffer]:
        raise StateError(f"no group {self.where(name)}", code="state.io")

    def names(self) -> list[str]:
        return []

    def delete(self, name: str) -> None:
        """It isn't there."""

    def where(self, name: str, file: str = "") -> str:
        return f"(in memory)/{name}/{file}".rstrip("/")

    def close(self) -> None:
        """Nothing is open."""


def _wait_for_a_new_second(clock: Clock) -> None:
    """Lives are told apart by the second in which they begin: no two begin in one."""
    time.sleep((SECOND_US - clock.now_us() % SECOND_US) / SECOND_US)
