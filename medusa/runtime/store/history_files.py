"""The files of one history: segments in a folder, of three files each.

``medusa.runtime.store.history_store`` says what lies there. A segment is removed by renaming its rows first:
from then on it doesn't count, and whatever else of it a killed writer left goes with them. Rows that only
lack an index are kept.
"""

from __future__ import annotations

import contextlib
import os
import re

from medusa.ports import Buffer
from medusa.runtime.store.folder_store import FILE_MODE, FOLDER_MODE, told, write_all

__all__ = ["FolderSegments", "make_folder", "sync_folder"]

_ENDINGS = {"rows": "arrows", "index": "index", "copy": "index-copy", "removed": "removed"}
_FILES = {ending: file for file, ending in _ENDINGS.items()}
_NAME = re.compile(r"(\d{18})\.(arrows|index|index-copy|removed)")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC


class FolderSegments:
    """Implements ``medusa.ports.Segments`` in a folder, which the first segment makes."""

    memory = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows = self._index = self._copy = -1
        self._last: int | None = None

    def sweep(self) -> None:
        """Remove what is left of segments that were being removed, or begun, when their writer was killed.

        Raises:
            StateError: it can't be removed.
        """
        with told(self._path, "can't be read"):
            for first, files in self._files().items():
                if "removed" in files:
                    self._finish_removal(first)
                elif files == {"rows"} and not self._has_rows(first):
                    os.unlink(self.where(first))

    def holds_rows(self) -> bool:
        """Whether a segment is there of which more than the beginning of its rows was written."""
        with told(self._path, "can't be read"):
            return any(
                "removed" not in files and (files != {"rows"} or self._has_rows(first))
                for first, files in self._files().items()
            )

    def _has_rows(self, first: int) -> bool:
        """Whether anything stands behind the schema: an Arrow message of a length that its beginning says."""
        size, begins = os.stat(self.where(first)).st_size, _read(self.where(first), 0, 8)
        if begins[:4] != b"\xff\xff\xff\xff":
            return size >= 8 and any(_read(self.where(first), 0, None))
        return size > 8 + int.from_bytes(begins[4:8], "little")

    def _files(self) -> dict[int, set[str]]:
        """Of each segment the files that it has."""
        made: dict[int, set[str]] = {}
        try:
            names = os.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        for found in filter(None, map(_NAME.fullmatch, names)):
            made.setdefault(int(found[1]), set()).add(_FILES[found[2]])
        return made

    def names(self) -> list[int]:
        with told(self._path, "can't be read"):
            return sorted(first for first, files in self._files().items() if "removed" not in files)

    def begin(self, first: int, rows: Buffer, index: Buffer) -> None:
        if self._last is not None:
            self.sync()
            with told(self.where(self._last, "copy"), "couldn't be synced"):
                os.fsync(self._copy)
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        with told(self.where(first), "couldn't be written"):
            make_folder(self._path)
            if os.path.lexists(self.where(first, "removed")):
                self._finish_removal(first)
            self._rows = os.open(self.where(first), flags, FILE_MODE)
            write_all(self._rows, memoryview(rows).cast("B"))
            self._index = os.open(self.where(first, "index"), flags, FILE_MODE)
            write_all(self._index, memoryview(index).cast("B"))
            self._copy = os.open(self.where(first, "copy"), flags, FILE_MODE)
            write_all(self._copy, memoryview(index).cast("B"))
            self._last = first
            sync_folder(self._path)

    def append(self, rows: Buffer, index: Buffer) -> None:
        assert self._last is not None, "a segment was begun"
        with told(self.where(self._last), "couldn't be written"):
            write_all(self._rows, memoryview(rows).cast("B"))
            for number in (self._index, self._copy):
                write_all(number, memoryview(index).cast("B"))

    def sync(self) -> None:
        if self._last is None:
            return
        with told(self.where(self._last), "couldn't be synced"):
            os.fsync(self._rows)
            os.fsync(self._index)

    def indexes(self, first: int) -> tuple[Buffer, ...]:
        return self._read_index(first, "index"), self._read_index(first, "copy")

    def _read_index(self, first: int, file: str) -> bytes:
        with told(self.where(first, file), "can't be read"):
            try:
                return _read(self.where(first, file), 0, None)
            except FileNotFoundError:
                return b""

    def rewrite_index(self, first: int, index: Buffer) -> None:
        rewritten = False
        for file in ("index", "copy"):
            if self._read_index(first, file) == bytes(index):
                continue
            path = self.where(first, file)
            with told(path, "couldn't be written"):
                number = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN, FILE_MODE)
                try:
                    write_all(number, memoryview(index).cast("B"))
                    os.fsync(number)
                finally:
                    os.close(number)
                os.rename(f"{path}.tmp", path)
            rewritten = True
        if rewritten:
            with told(self._path, "couldn't be synced"):
                sync_folder(self._path)

    def read(self, first: int, start: int, length: int) -> Buffer:
        with told(self.where(first), "can't be read"):
            return _read(self.where(first), start, length)

    def cut(self, first: int, rows_length: int, index_length: int) -> None:
        self.close()
        with told(self.where(first), "can't be cut"):
            # What is cut first must not say less than what is cut later: the rows last.
            self._copy = os.open(self.where(first, "copy"), os.O_WRONLY | os.O_CREAT | _OPEN, FILE_MODE)
            os.ftruncate(self._copy, index_length)
            self._index = os.open(self.where(first, "index"), os.O_WRONLY | _OPEN)
            os.ftruncate(self._index, index_length)
            self._rows = os.open(self.where(first), os.O_WRONLY | _OPEN)
            os.ftruncate(self._rows, rows_length)
            for number in (self._copy, self._index, self._rows):
                os.lseek(number, 0, os.SEEK_END)
                os.fsync(number)
            self._last = first

    def remove(self, first: int) -> None:
        if first == self._last:
            self.close()
        with told(self.where(first), "can't be removed"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.where(first), self.where(first, "removed"))
            self._finish_removal(first)
            # Else, after a power cut, it might be there again and the next one not: a hole.
            sync_folder(self._path)

    def _finish_removal(self, first: int) -> None:
        for file in ("index", "copy", "removed"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.where(first, file))

    def where(self, first: int, file: str = "rows") -> str:
        return f"{self._path}/{first:018d}.{_ENDINGS[file]}"

    def close(self) -> None:
        """Close the files of the last segment; safe to call twice."""
        for number in (self._rows, self._index, self._copy):
            if number >= 0:
                os.close(number)
        self._rows = self._index = self._copy = -1
        self._last = None


def make_folder(path: str) -> None:
    """Make a folder that is there durably; one that is there already is no error."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        return
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Make durable which files are in a folder.

    Raises:
        OSError: it can't be read, or synced.
    """
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _read(path: str, start: int, length: int | None) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN)
    try:
        size = os.fstat(number).st_size
        left = max(0, size - start if length is None else min(length, size - start))
        parts = []
        while left > 0:
            part = os.pread(number, min(left, 1 << 26), start)
            if not part:
                break
            parts.append(part)
            start += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(number)
