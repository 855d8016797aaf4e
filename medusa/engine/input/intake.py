"""What waits before a run: rows, boundaries and other work, in the order in which they were pushed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from medusa._native import Times
from medusa.elements import START_US
from medusa.engine.core.box import show_time
from medusa.errors import DataError

__all__ = ["IntakeEntry", "IntakeQueue"]


@dataclass(slots=True, eq=False)
class IntakeEntry:
    """Work that waits: rows of a source, a boundary of one, or something to be done in its place.

    Attributes:
        came_us: when it was pushed, by the clock of the run.
        source: of rows and boundaries; empty for others.
        times: of the rows, as ``Fragment.check`` gave them.
        promise_us: the time of a boundary.
        call: what is to be done.
        done: it has been worked through.
        left: it was taken out, and never will be.
        result, error: what the call gave, or raised.
    """

    came_us: int
    source: str = ""
    batches: Sequence[pa.RecordBatch] = ()
    times: Sequence[Times | None] = ()
    arrival_us: int | None = None
    promise_us: int | None = None
    call: Callable[[], object] | None = None
    rows: int = 0
    nbytes: int = 0
    done: bool = False
    left: bool = False
    result: object = None
    error: BaseException | None = None

    def come(self, now_us: int) -> None:
        """It is pushed now."""
        self.came_us = now_us

    def do(self, call: Callable[[], object]) -> None:
        """Do what is to be done, and keep what it gives."""
        self.result = call()

    def fail(self, error: BaseException) -> None:
        """What was to be done raised."""
        self.error = error


class IntakeQueue:
    """Entries in order, bounded by the bytes of their rows. It takes no lock: whoever shares it does.

    An entry stays in it, with its bytes, until it has been worked through.

    Args:
        bytes_max: of rows that wait. A push that is larger enters when nothing waits.
        positions: rows that each source has taken so far.

    Attributes:
        positions: of each source, rows taken so far, those that wait included.
        rows, nbytes: of each source, what waits.
        ended: the end of all sources has been pushed.
    """

    def __init__(self, bytes_max: int, positions: Mapping[str, int]) -> None:
        self.bytes_max = bytes_max
        self.positions = dict(positions)
        self.rows = dict.fromkeys(positions, 0)
        self.nbytes = dict.fromkeys(positions, 0)
        self.held_bytes = 0
        self.ended = False
        self._entries: deque[IntakeEntry] = deque()
        self._inside: deque[IntakeEntry] = deque()
        self._promised: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> IntakeEntry | None:
        """What is to be worked on, or is."""
        return self._entries[0] if self._entries else None

    def has_room(self, nbytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + nbytes <= self.bytes_max

    def check_open(self, source: str) -> None:
        """Raises DataError when the end of the source has been pushed, or it isn't there any more."""
        if source not in self.positions:
            raise DataError(f"source {source!r} went with a change of the query", code="data.source")
        if self.ended:
            raise DataError(
                f"source {source!r} has ended: no rows after the end boundary", code="data.finished"
            )

    def check_promise(self, source: str, time_us: int) -> None:
        """Raises DataError for a boundary below one that waits."""
        promised = self._promised.get(source, int(START_US))
        if time_us < promised:
            raise DataError(
                f"source {source!r}: boundary {show_time(time_us)} is below the earlier one,"
                f" {show_time(promised)}",
                hint="a boundary is a promise: it may not decrease",
                code="data.boundary",
            )

    def holds(self, sources: Collection[str]) -> str:
        """One of these sources of which something waits; empty: nothing of them does."""
        return next((entry.source for entry in self._entries if entry.source in sources), "")

    def change(self, positions: Mapping[str, int], gone: Collection[str]) -> None:
        """The query has these sources from now on; nothing waits of those that are gone or begin anew."""
        for each in (self.positions, self.rows, self.nbytes, self._promised):
            for name in gone & each.keys():
                del each[name]
        for name, position in positions.items():
            self.positions.setdefault(name, position)
            self.rows.setdefault(name, 0)
            self.nbytes.setdefault(name, 0)

    def end(self) -> None:
        """The end of all sources is pushed."""
        self.ended = True

    def go_on(self) -> None:
        """It was not pushed after all."""
        self.ended = False

    def put(self, entry: IntakeEntry) -> None:
        """Take what has been checked, and has room."""
        self._entries.append(entry)
        if entry.promise_us is not None:
            self._promised[entry.source] = entry.promise_us
        if entry.rows:
            self.positions[entry.source] += entry.rows
            self.rows[entry.source] += entry.rows
            self.nbytes[entry.source] += entry.nbytes
            self.held_bytes += entry.nbytes

    def done(self) -> None:
        """The head has been worked through."""
        self._out(self._entries.popleft()).done = True

    def take_in(self) -> None:
        """The head is being worked on beside others; it holds its place until ``worked_before``."""
        self._inside.append(self._entries.popleft())

    def worked_before(self, us: int | None) -> None:
        """Everything that was taken in and had come before this moment has been worked through; None: all."""
        while self._inside and (us is None or self._inside[0].came_us < us):
            self._out(self._inside.popleft()).done = True

    def withdraw(self, entry: IntakeEntry) -> None:
        """Take out a call that isn't being worked on; one that has gone is no error."""
        if entry in self._entries:
            self._entries.remove(entry)
            entry.left = True

    def forget(self) -> dict[str, int]:
        """Take everything out, undone, and its rows out of the positions.

        Returns:
            Of each source that had some, the rows.
        """
        self.worked_before(None)  # they have entered, and are left no more than others that have
        left = {source: rows for source, rows in self.rows.items() if rows}
        for source, rows in left.items():
            self.positions[source] -= rows
        while self._entries:
            self._out(self._entries.popleft()).left = True
        return left

    def _out(self, entry: IntakeEntry) -> IntakeEntry:
        if entry.rows:
            self.rows[entry.source] -= entry.rows
            self.nbytes[entry.source] -= entry.nbytes
            self.held_bytes -= entry.nbytes
        entry.batches = entry.times = ()  # somebody may hold it longer
        return entry
