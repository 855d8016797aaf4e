"""A disk in memory for histories, which loses what wasn't synced, or half of it, when the power fails."""

from __future__ import annotations

import random

from medusa.errors import StateError
from medusa.ports import Buffer

FILES = ("rows", "index", "copy")


class Disk:
    """Implements ``medusa.ports.Segments``. Creating, cutting and removing are durable at once."""

    memory = False

    def __init__(self) -> None:
        self.files: dict[tuple[int, str], bytearray] = {}
        self.synced: dict[tuple[int, str], int] = {}
        self.last: int | None = None
        self.fail_in: int | None = None
        """After so many appends and syncs the next fails, in the middle."""

    def names(self) -> list[int]:
        return sorted({first for first, file in self.files})

    def begin(self, first: int, rows: Buffer, index: Buffer) -> None:
        if self.last is not None:
            self.sync()
        assert (first, "index") not in self.files
        self.last = first
        self._put(first, rows, index)

    def append(self, rows: Buffer, index: Buffer) -> None:
        assert self.last is not None
        self._put(self.last, rows, index)

    def _put(self, first: int, rows: Buffer, index: Buffer) -> None:
        for file, data in zip(FILES, (rows, index, index), strict=True):
            content = bytes(data)
            known = self.files.setdefault((first, file), bytearray())
            self.synced.setdefault((first, file), 0)
            if self._fails():
                known += content[: len(content) // 2]
                raise StateError(f"{self.where(first, file)} couldn't be written: no space", code="state.io")
            known += content

    def _fails(self) -> bool:
        if self.fail_in is None:
            return False
        self.fail_in -= 1
        return self.fail_in < 0

    def sync(self) -> None:
        if self.last is None:
            return
        if self._fails():
            raise StateError(f"{self.where(self.last)} couldn't be synced: no space", code="state.io")
        for file in FILES[:2]:  # the copy of the index is synced when the next segment begins
            self.synced[self.last, file] = len(self.files[self.last, file])

    def indexes(self, first: int) -> tuple[Buffer, ...]:
        return tuple(bytes(self.files.get((first, file), b"")) for file in FILES[1:])

    def rewrite_index(self, first: int, index: Buffer) -> None:
        for file in FILES[1:]:
            self.files[first, file] = bytearray(index)
            self.synced[first, file] = len(self.files[first, file])

    def read(self, first: int, start: int, length: int) -> Buffer:
        return bytes(self.files[first, "rows"][start : start + length])

    def cut(self, first: int, rows_length: int, index_length: int) -> None:
        assert first == self.names()[-1], "only the last one is cut"
        for file, length in zip(FILES, (rows_length, index_length, index_length), strict=True):
            assert length <= len(self.files[first, file])
            del self.files[first, file][length:]
            self.synced[first, file] = length
        self.last = first

    def remove(self, first: int) -> None:
        names = self.names()
        assert first in (names[0], names[-1]), "only an end is removed"
        for file in FILES:
            self.files.pop((first, file), None)
            self.synced.pop((first, file), None)
        if self.last == first:
            self.last = None

    def where(self, first: int, file: str = "rows") -> str:
        return f"disk:/{first}.{file}"

    def crash(self, chance: random.Random | None = None) -> None:
        """Go on after ``kill -9``, or with ``chance`` after a power cut: of what wasn't synced some is gone,
        torn or rubbish, each file by itself."""
        self.last = self.fail_in = None
        for key, data in self.files.items() if chance is not None else ():
            assert chance is not None
            synced = self.synced[key]
            loose = len(data) - synced
            if loose:
                kept = chance.randint(0, loose)
                del data[synced + kept :]
                if kept and chance.random() < 0.5:
                    at = synced + chance.randrange(kept)
                    data[at:] = chance.randbytes(len(data) - at)
