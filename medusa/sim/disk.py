"""A disk in memory: a ``Store`` whose writes take time, fail, and die with a crash until synced."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.errors import StateError
from medusa.ports import Buffer

__all__ = ["Disk"]


class Disk:
    """Named groups; survives crashes of its host.

    ``write`` is synced when it returns (the ``Store`` port). ``begin`` and ``sync`` are its two
    halves, between which a crash loses the group.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._groups: dict[str, dict[str, bytes]] = {}
        self._unsynced: dict[str, dict[str, bytes]] = {}
        self.fail_next = 0
        """So many of the next writes fail."""

    def begin(self, name: str, files: Mapping[str, Buffer]) -> None:
        """Start to write a group; nobody can read it yet."""
        self._unsynced[name] = {file: bytes(data) for file, data in files.items()}

    def sync(self, name: str) -> bool:
        """End the write; whether the group exists now."""
        files = self._unsynced.pop(name, None)
        if files is None:
            return False
        if self.fail_next:
            self.fail_next -= 1
            return False
        self._groups[name] = files
        return True

    def crash(self) -> None:
        """What was not synced is gone."""
        self._unsynced.clear()

    def lose(self) -> None:
        """The whole disk is gone."""
        self._groups.clear()
        self._unsynced.clear()

    # --- the Store port -----------------------------------------------------------------------

    def write(self, name: str, files: Mapping[str, Buffer]) -> None:
        self.begin(name, files)
        if not self.sync(name):
            raise StateError(f"can't write {self.where(name)}: the disk failed")

    def read(self, name: str) -> dict[str, Buffer]:
        try:
            return dict(self._groups[name])
        except KeyError:
            raise StateError(f"no group {self.where(name)}") from None

    def names(self) -> list[str]:
        return sorted(self._groups)

    def delete(self, name: str) -> None:
        self._groups.pop(name, None)

    def where(self, name: str, file: str = "") -> str:
        return f"{self._host}:/{name}/{file}".rstrip("/")
