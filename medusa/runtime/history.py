"""Where histories of connection points lie: in memory, or in a folder.

    history/
      .lock                              held while a run has the folder open
      recent/                            one folder for each connection point
        000000000000000000.arrows        the rows of a segment, by the number of the first: an Arrow stream
        000000000000000000.index         and what stands where in it, with checksums

When a file is synced: all of a segment when the next one begins; the last one when the run asks, which it
does before each checkpoint, a second after the last time where it still takes rows, and when it is closed.
A sync that fails isn't tried again: the kernel may have dropped what it couldn't write.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from medusa.engine.history import MEMORY_BYTES
from medusa.errors import QueryError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import ConnectionPoint, Graph
from medusa.runtime.files import FILE_MODE, FOLDER_MODE, path_of, told, write_all
from medusa.runtime.locks import FolderLock
from medusa.units import size_text

__all__ = [
    "FolderSegments",
    "HistoryFolder",
    "HistoryMemory",
    "MemorySegments",
    "check_in_memory",
    "keeps_history",
    "place_of",
    "segments_in",
]

LOCK = ".lock"
_ENDINGS = {"rows": "arrows", "index": "index"}
_NAME = re.compile(r"(\d{18})\.index")
_POINT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _OPEN


class MemorySegments:
    """Implements ``medusa.ports.Segments`` in memory; records are kept as they were written."""

    memory = True

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, Buffer]] = {}
        self._length = 0

    def names(self) -> list[int]:
        return sorted(self._rows)

    def begin(self, first: int, rows: Buffer, index: Buffer) -> None:
        self._rows[first] = {}
        self._length = len(memoryview(rows))

    def append(self, rows: Buffer, index: Buffer) -> None:
        segment = self._rows[next(reversed(self._rows))]
        segment[self._length] = rows
        self._length += len(memoryview(rows))

    def sync(self) -> None:
        """Memory has nothing to sync."""

    def index(self, first: int) -> Buffer:
        raise AssertionError("a history in memory is never opened again")

    def read(self, first: int, start: int, length: int) -> Buffer:
        return self._rows[first][start]

    def cut(self, first: int, rows_length: int, index_length: int) -> None:
        raise AssertionError("a history in memory is never opened again")

    def remove(self, first: int) -> None:
        del self._rows[first]

    def where(self, first: int, file: str = "rows") -> str:
        return "the history in memory"


class HistoryMemory:
    """Histories of a run that has no folder for them."""

    def open(self, *, fresh: bool) -> None:
        """Nothing is there, ever."""

    def segments(self, name: str) -> MemorySegments:
        """Where the history of one connection point is kept."""
        return MemorySegments()

    def close(self) -> None:
        """They go with the run."""


class HistoryFolder:
    """A folder of histories, which one run of one process at a time may have open.

    Args:
        path: where; nothing is done there until ``open``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lock: FolderLock | None = None
        self._made: list[FolderSegments] = []
        self._path = path_of(path, "history")

    def open(self, *, fresh: bool) -> None:
        """Take the folder, which is made where it doesn't exist (its parent must), and tidy it.

        Args:
            fresh: refuse one that holds history already.

        Raises:
            StateError: no folder, no permission, in use, or history where there must be none.
        """
        with told(self._path, "can't be opened"):
            make_folder(self._path)
        with told(f"{self._path}/{LOCK}", "can't be locked"):
            number = os.open(f"{self._path}/{LOCK}", os.O_RDWR | os.O_CREAT | _OPEN, FILE_MODE)
            self._lock = FolderLock(number, self._path)
        try:
            with told(self._path, "can't be read"):
                names = sorted(
                    each.name
                    for each in os.scandir(self._path)
                    if _POINT.fullmatch(each.name) and each.is_dir()
                )
            points = {name: FolderSegments(f"{self._path}/{name}") for name in names}
            if fresh and (held := [name for name, each in points.items() if each.names()]):
                raise StateError(
                    f"{self._path}: holds history already, of {', '.join(held)}",
                    hint="go on from a checkpoint with md.restore(..., history=...), or use another folder",
                    code="state.exists",
                )
            for each in points.values():
                each.sweep()
        except BaseException:
            self.close()
            raise

    def segments(self, name: str) -> FolderSegments:
        """Where the history of one connection point lies."""
        made = FolderSegments(f"{self._path}/{name}")
        self._made.append(made)
        return made

    def close(self) -> None:
        """Give the folder free; safe to call twice."""
        for each in self._made:
            each.close()
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def __del__(self) -> None:
        self.close()


class FolderSegments:
    """Implements ``medusa.ports.Segments`` in a folder, which the first segment makes."""

    memory = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows = self._index = -1
        self._last: int | None = None

    def sweep(self) -> None:
        """Remove rows without an index: of a segment that was being begun, or removed."""
        whole = {f"{first:018d}.arrows" for first in self.names()}
        with told(self._path, "can't be read"):
            for each in os.scandir(self._path):
                if re.fullmatch(r"\d{18}\.arrows", each.name) and each.name not in whole:
                    os.unlink(each.path)

    def names(self) -> list[int]:
        try:
            with told(self._path, "can't be read"):
                found = [_NAME.fullmatch(name) for name in os.listdir(self._path)]
        except StateError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return []
            raise
        return sorted(int(each[1]) for each in found if each)

    def begin(self, first: int, rows: Buffer, index: Buffer) -> None:
        self.sync()
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        with told(self.where(first), "couldn't be written"):
            make_folder(self._path)
            self._rows = os.open(self.where(first), flags, FILE_MODE)
            write_all(self._rows, memoryview(rows).cast("B"))
            self._index = os.open(self.where(first, "index"), flags, FILE_MODE)
            write_all(self._index, memoryview(index).cast("B"))
            self._last = first
            sync_folder(self._path)

    def append(self, rows: Buffer, index: Buffer) -> None:
        assert self._last is not None, "a segment was begun"
        with told(self.where(self._last), "couldn't be written"):
            write_all(self._rows, memoryview(rows).cast("B"))
            write_all(self._index, memoryview(index).cast("B"))

    def sync(self) -> None:
        if self._last is None:
            return
        with told(self.where(self._last), "couldn't be synced"):
            os.fsync(self._rows)
            os.fsync(self._index)

    def index(self, first: int) -> Buffer:
        with told(self.where(first, "index"), "can't be read"):
            return _read(self.where(first, "index"), 0, None)

    def read(self, first: int, start: int, length: int) -> Buffer:
        with told(self.where(first), "can't be read"):
            return _read(self.where(first), start, length)

    def cut(self, first: int, rows_length: int, index_length: int) -> None:
        self.close()
        with told(self.where(first), "can't be cut"):
            self._index = os.open(self.where(first, "index"), os.O_WRONLY | _OPEN)
            os.ftruncate(self._index, index_length)
            self._rows = os.open(self.where(first), os.O_WRONLY | _OPEN)
            os.ftruncate(self._rows, rows_length)
            for number in (self._index, self._rows):
                os.lseek(number, 0, os.SEEK_END)
                os.fsync(number)
            self._last = first

    def remove(self, first: int) -> None:
        if first == self._last:
            self.close()
        with told(self.where(first), "can't be removed"):
            # The index first: rows without one are swept at the next start.
            for file in ("index", "rows"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.where(first, file))
            # Else, after a power cut, it might be there again and the next one not: a hole.
            sync_folder(self._path)

    def where(self, first: int, file: str = "rows") -> str:
        return f"{self._path}/{first:018d}.{_ENDINGS[file]}"

    def close(self) -> None:
        """Close the files of the last segment; safe to call twice."""
        for number in (self._rows, self._index):
            if number >= 0:
                os.close(number)
        self._rows = self._index = -1
        self._last = None


def segments_in(folder: str | os.PathLike[str], name: str) -> FolderSegments:
    """The history of one connection point, for reading.

    Raises:
        StateError: there is none.
    """
    path = path_of(folder)
    if isinstance(name, str) and _POINT.fullmatch(name):
        found = FolderSegments(f"{path}/{name}")
        if found.names():
            return found
    raise StateError(f"{path}: holds no history of {str(name)[:80]!r}", code="state.none")


def keeps_history(graph: Graph) -> bool:
    """Whether a query has connection points."""
    return any(isinstance(box, ConnectionPoint) for box in graph.boxes)


def check_in_memory(graph: Graph, settings: Mapping[str, Any]) -> None:
    """Refuse histories in memory that may fill the whole budget of state.

    They count against it, and nothing but age or ``keep_bytes`` takes rows out of them: a run that they have
    filled would take no row any more, and only a boundary of long after would give it room.

    Raises:
        QueryError: together they may take as much as the budget: says which takes most.
    """
    budget = settings.get("state_budget_bytes")
    if budget is None or settings.get("history"):
        return
    may = {
        box.id: MEMORY_BYTES if box.keep_bytes is None else box.keep_bytes
        for box in graph.boxes
        if isinstance(box, ConnectionPoint)
    }
    if sum(may.values()) < budget:
        return
    most = max(may, key=lambda id: may[id])
    raise QueryError(
        f"connection_point {most!r} may keep {size_text(may[most])} in memory"
        + (f", all together {size_text(sum(may.values()))}" if len(may) > 1 else "")
        + f", and state_budget= is {size_text(budget)}",
        hint='a smaller keep_bytes=, a larger state_budget=, or history="folder"',
        code="query.history",
    )


def place_of(path: str | os.PathLike[str] | None, graph: Graph) -> HistoryFolder | HistoryMemory:
    """Where the histories of a run of this query lie; nothing is done there yet.

    Raises:
        QueryError: there is a folder and nothing to keep in it, or it is no path.
    """
    if path is None:
        return HistoryMemory()
    path_of(path, "history")
    if not keeps_history(graph):
        raise QueryError(
            f"query {graph.name!r} has no connection point, so there is no history= to keep",
            hint='q.connection_point("recent", cars, keep="1h")',
            code="query.history",
        )
    return HistoryFolder(path)


def make_folder(path: str) -> None:
    """Make a folder that is there durably; one that is there already is no error."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        return
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
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
