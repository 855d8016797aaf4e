"""The decision logs on a disk in memory, which tests can break: the port ``Journal``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusa.engine.recovery.synced_length import extended
from medusa.errors import StateError
from medusa.ports import Buffer, Synced
from medusa.sim.world.file_damage import damaged

__all__ = ["DiskJournal"]


@dataclass(slots=True)
class _File:
    """A log and its mark.

    Attributes:
        synced: bytes that a crash can't take.
        mark: what the mark says; None: nothing was ever synced, or it is gone.
        begun: what the first sync held.
    """

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    mark: Synced | None = None
    begun: Synced | None = None

    def sync(self) -> None:
        self.synced = len(self.data)
        before = self.mark or Synced(0, 0)
        self.mark = extended(before, bytes(self.data[before.length :]))
        if self.begun is None and self.data:
            self.begun = self.mark


class DiskJournal:
    """Files that only grow; what isn't synced may be lost, or torn, when the machine crashes.

    Args:
        host: whose disk it is.
        fails: whether the next write fails; asked once for each.
        tears: whether it ends half done, as when the power goes.
    """

    def __init__(self, host: str, *, fails: Callable[[], bool], tears: Callable[[], bool]) -> None:
        self._host = host
        self._fails = fails
        self._tears = tears
        self._files: dict[int, _File] = {}
        self.aside: dict[str, bytes] = {}
        """Copies that were set aside, by where they are."""

    def crash(self, unsynced: str = "lost") -> None:
        """What wasn't synced is ``lost``, ``kept`` or ``torn``."""
        for number, file in list(self._files.items()):
            more = len(file.data) - file.synced
            kept = {"lost": 0, "kept": more, "torn": more // 2}[unsynced]
            del file.data[file.synced + kept :]
            file.synced = len(file.data)
            if not file.data:
                del self._files[number]

    def lose(self) -> None:
        """All is gone."""
        self._files.clear()
        self.aside.clear()

    def damage(self, how: str, pick: int) -> str:
        """Harm one of them, as ``Disk.damage`` says; where it was, empty where there is none."""
        numbers = self.numbers()
        if not numbers:
            return ""
        number = numbers[-1 - pick % min(len(numbers), 2)]
        file = self._files[number]
        if how == "gone":
            file.data = bytearray()  # and its mark says that there was one
            file.mark = None if pick % 5 < 2 else file.mark  # or that is gone with it
        elif how == "older":  # It ends where it did some time ago.
            file.data = file.data[: pick // 3 % (len(file.data) + 1)]
        else:
            file.data = bytearray(damaged(bytes(file.data), how, pick // 3))
        file.synced = len(file.data)
        return self.where(number)

    # --- the Journal port ---------------------------------------------------------------------

    def numbers(self) -> list[int]:
        return sorted(self._files)

    def read(self, number: int) -> Buffer:
        return bytes(self._file(number).data)

    def append(self, number: int, data: Buffer) -> None:
        file = self._files.setdefault(number, _File())
        if (torn := self._tears()) or self._fails():
            file.data += bytes(data)[: len(data) // 2]
            if torn:
                file.synced = len(file.data)
            raise StateError(f"can't write {self.where(number)}: the disk failed")
        file.data += data

    def sync(self, number: int) -> None:
        self._file(number).sync()

    def synced(self, number: int) -> Synced | None:
        file = self._file(number)
        if file.mark is None and file.begun is not None and len(file.data) < file.begun.length:
            return file.begun
        return file.mark

    def cut(self, number: int, length: int) -> None:
        file = self._file(number)
        del file.data[length:]
        file.mark = file.begun = None
        file.sync()

    def set_aside(self, number: int) -> str:
        where = f"{self.where(number)}.damaged{len(self.aside)}"
        self.aside[where] = bytes(self._file(number).data)
        return where

    def remove(self, number: int) -> None:
        self._files.pop(number, None)

    def where(self, number: int) -> str:
        return f"{self._host}:/decisions-{number}"

    def _file(self, number: int) -> _File:
        try:
            return self._files[number]
        except KeyError:
            raise StateError(f"no log {self.where(number)}") from None
