"""What a program sees of the histories of a run: how much there is, and parts of it as tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, START_US
from medusa.engine.core.box import show_time
from medusa.engine.history.history import History
from medusa.engine.history.opening import SCHEMA_BYTES_MAX
from medusa.engine.history.opening import read_history as read_segments
from medusa.engine.history.records import merged_index, plain_schema, read_head
from medusa.engine.history.views import view_of_rows, view_of_times
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.engine.run.gate import RunGate
from medusa.errors import DataError, StateError
from medusa.runtime.store.history_files import FolderSegments
from medusa.runtime.store.history_store import segments_in
from medusa.units import Duration, duration_us

__all__ = ["HistoryInfo", "HistoryViews", "read_history"]


@dataclass(frozen=True, slots=True)
class HistoryInfo:
    """How much history a connection point holds.

    Attributes:
        name: of the connection point.
        rows: how many are kept.
        nbytes: what they take, on disk or in memory.
        first: number of the oldest row that is kept.
        next: number of the next row that comes.
        durable: rows of lower numbers survive a power cut; 0 in memory.
        from_us: the least time of the rows that are kept, in microseconds since 1970; None: no rows, or
            no time.
        to_us: the largest one of all rows so far.
        trimmed: rows that were trimmed since this run was made.
        on_disk: it lies in the folder of ``history=``.
    """

    name: str
    rows: int
    nbytes: int
    first: int
    next: int
    durable: int
    from_us: int | None
    to_us: int | None
    trimmed: int
    on_disk: bool


class HistoryViews:
    """Shows the histories of a run."""

    def __init__(self, gate: RunGate, sync: Callable[[], None]) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._sync = sync

    def info(self, name: str) -> HistoryInfo:
        """As ``md.Run.history``."""
        with self._gate.asking():
            history = self._history(name)
            from_us = history.oldest_us
            on_disk = not history.port.memory
            return HistoryInfo(
                name=name,
                rows=history.rows,
                nbytes=history.nbytes,
                first=history.oldest_seq,
                next=history.next_seq,
                durable=history.durable_seq if on_disk else 0,
                from_us=from_us,
                to_us=None if from_us is None else history.most_us,
                trimmed=history.trimmed,
                on_disk=on_disk,
            )

    def view(self, name: str, **ranges: Any) -> pa.Table:
        """As ``md.Run.view``."""
        with self._gate.asking():
            if self._fragment.behind:
                self._sync()
            return _viewed(self._history(name), name, **ranges)

    def _history(self, name: str) -> History:
        found = self._fragment.connection(name).history
        assert found is not None, "every run keeps histories"
        return found


def _viewed(
    history: History,
    name: str,
    *,
    start: int | str | datetime | None,
    end: int | str | datetime | None,
    last: Duration | None,
    rows: int | tuple[int, int] | None,
) -> pa.Table:
    """The rows of a range, as ``md.Run.view`` has it."""
    ranges = {"start or end": start is not None or end is not None, "last": last is not None}
    given = [each for each, is_given in {**ranges, "rows": rows is not None}.items() if is_given]
    if len(given) > 1:
        raise _wrong(name, f"{' and '.join(given)} are different ranges", "give one of them")
    if rows is not None:
        return view_of_rows(history, *_numbers(name, rows, history.next_seq))
    if given and not history.timed:
        raise _wrong(name, "its stream has no time", "rows=100")
    if last is not None:
        last_us = duration_us(last, what=f"view of {name!r}: last", minimum_us=1, error=DataError)
        history.write()
        return view_of_times(history, history.most_us - last_us + 1)
    low, high = int(START_US), int(END_US)
    if start is not None:
        low = boundary_time_us(start, name, "the start of a view", kind="connection_point")
    if end is not None:
        high = boundary_time_us(end, name, "the end of a view", kind="connection_point")
    if high <= low:
        said = f"end must be later than start, got {show_time(low)} to {show_time(high)}"
        raise _wrong(name, said, "start <= time < end")
    return view_of_times(history, low, high)


def _numbers(name: str, rows: Any, next_seq: int) -> tuple[int, int]:
    if type(rows) is int and rows >= 0:
        return next_seq - rows, next_seq
    if isinstance(rows, tuple) and len(rows) == 2 and all(type(each) is int and each >= 0 for each in rows):
        if rows[1] < rows[0]:
            raise _wrong(name, f"rows={rows!r:.80} end before they begin", "rows=(first, end)")
        return rows
    raise _wrong(name, f"rows={rows!r:.80} are no rows", "rows=100, or rows=(first, end) with row numbers")


def _wrong(name: str, what: str, hint: str) -> DataError:
    return DataError(f"view of {name!r}: {what}", hint=hint, code="data.view")


def read_history(
    folder: str | os.PathLike[str],
    name: str,
    *,
    start: int | str | datetime | None = None,
    end: int | str | datetime | None = None,
    last: Duration | None = None,
    rows: int | tuple[int, int] | None = None,
) -> pa.Table:
    """Rows of a history on disk, without the run that wrote it; also after that was killed.

    Nothing is changed. Of the last segment it takes the records up to the last one that is whole.

    Args:
        folder: what ``md.start`` was given as ``history=``.
        name: of the connection point.
        start, end, last, rows: a range, as of ``run.view``; by default all rows.

    Returns:
        The rows that are kept, in the order of their numbers.

    Raises:
        DataError: no such range, or times of a stream without time.
        StateError: there is no such history, or it is damaged: names the file and the rows; ranges without
            them can be read.
    """
    segments = segments_in(folder, name)
    schema, timed = _schema(segments)
    history = History(segments, schema, timed=timed, keep_us=None, keep_bytes=None)
    read_segments(history)
    return _viewed(history, name, start=start, end=end, last=last, rows=rows)


def _schema(segments: FolderSegments) -> tuple[pa.Schema, bool]:
    """Of the first segment that tells it."""
    error = "its head is damaged"
    names = segments.names()
    for first in names:
        rows = segments.read(first, 0, SCHEMA_BYTES_MAX)
        try:
            length = read_head(merged_index(segments.indexes(first)), rows)
            if length is not None:
                return plain_schema(memoryview(rows)[:length])
        except ValueError as wrong:
            error = str(wrong)
    raise StateError(f"{segments.where(names[0], 'index')}: {error}", code="state.corrupt")
