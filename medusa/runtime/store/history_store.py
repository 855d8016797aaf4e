"""Where histories of connection points lie: in memory, or in a folder.

    history/
      .lock                              held while a run has the folder open
      recent/                            one folder for each connection point
        000000000000000000.arrows        the rows of a segment, by the number of the first: an Arrow stream
        000000000000000000.index         and what stands where in it, with checksums
        000000000000000000.index-copy    the same once more
        000000000000000000.removed       rows of a segment that is being removed, under another name

When a file is synced: all of a segment when the next one begins; rows and index of the last one when the
run asks, which it does before each checkpoint, a second after the last time where it still takes rows, and
when it is closed. A sync that fails isn't tried again: the kernel may have dropped what it couldn't write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from medusa.engine.history.history import MEMORY_BYTES
from medusa.engine.history.opening import unreadable
from medusa.engine.operators.connection import Connections
from medusa.engine.warnings import warn_user
from medusa.errors import CheckpointWarning, QueryError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import ConnectionPoint, Graph
from medusa.runtime.machine.locks import FolderLock
from medusa.runtime.store.folder_store import FILE_MODE, path_of, told
from medusa.runtime.store.history_files import FolderSegments, make_folder
from medusa.units import size_text

__all__ = [
    "HistoryFolder",
    "HistoryMemory",
    "MemorySegments",
    "check_in_memory",
    "keeps_history",
    "place_of",
    "segments_in",
    "warn_unreadable",
]

LOCK = ".lock"
_POINT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC


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

    def indexes(self, first: int) -> tuple[Buffer, ...]:
        raise AssertionError("a history in memory is never opened again")

    def rewrite_index(self, first: int, index: Buffer) -> None:
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

    def sweep(self) -> None:
        """Nobody leaves anything in memory."""

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
        self._found: list[FolderSegments] = []
        self._path = path_of(path, "history")

    def open(self, *, fresh: bool) -> None:
        """Take the folder, which is made where it doesn't exist (its parent must). Nothing in it is changed.

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
            self._found = [FolderSegments(f"{self._path}/{name}") for name in names]
            if fresh and (
                held := [n for n, each in zip(names, self._found, strict=True) if each.holds_rows()]
            ):
                raise StateError(
                    f"{self._path}: holds history already, of {', '.join(held)}",
                    hint="go on from a checkpoint with md.restore(..., history=...), or use another folder",
                    code="state.exists",
                )
        except BaseException:
            self.close()
            raise

    def sweep(self) -> None:
        """Remove what is left of segments that were being begun or removed; once the rest has been checked.

        Raises:
            StateError: it can't be removed.
        """
        for each in self._found:
            each.sweep()

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


def warn_unreadable(connections: Connections) -> None:
    """Say which rows of the histories of a restored run can't be read, as far as that is known already."""
    for name, box in connections.items():
        if box.gone is not None and box.history is not None and not box.history.port.memory:
            first, end = box.gone
            folder = os.path.dirname(box.history.port.where(first))
            warn_user(
                f"{folder}: holds nothing of connection_point {name!r}, and when the checkpoint was written"
                f" rows {first} to {end - 1} were kept there: they are lost, or were trimmed since. The"
                " history begins empty at the checkpoint",
                CheckpointWarning,
            )
        for where, first, end in () if box.history is None else unreadable(box.history):
            warn_user(
                f"{where} is damaged or missing: rows {first} to {end - 1} of connection_point {name!r} can't"
                f" be read, {end - first} in all",
                CheckpointWarning,
            )
