"""The rows of an archive, in order, into a stream: ``md.spark.replay``. It needs no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from medusa.apps.pipeline.folder import ArchiveFile, Manifest, Stored, open_folder
from medusa.errors import DataError
from medusa.io.pacing import paced_by
from medusa.spark.dataframes.source import SEQ, UNITS

__all__ = ["position_of", "replay", "rows_from"]

BATCH_ROWS = 1 << 16

Int64s = npt.NDArray[np.int64]


def replay(
    archive: str | Path | Stored,
    push: Callable[[pa.RecordBatch], object],
    *,
    speed: float | None = None,
    start: int = 0,
    row: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Give the rows of an archive to a stream, in order of ``_seq``, a few batches in memory at a time.

    Rows that were late or shed are among them: they come as they came.

    Args:
        push: takes the columns of the stream: ``lambda rows: run.push("flows", rows)``, or
            ``lambda rows: fed.publish("netmon.flows", rows)``.
        speed: seconds of the archive in one of the clock: 1 is real time. None: as fast as they are taken.
        start: the position from which on: what an earlier replay gave, or told, as the next.
        row: instead of ``start``: the row of the archive, counted from 0, from which on: the ``next_row`` of
            a named publisher says, under whose name nothing else was published.
        progress: called after each push with the rows pushed so far, and the position behind them.

    Returns:
        The position behind the last row.

    Raises:
        DataError: no whole archive, rows that aren't numbered in order, a speed for rows without time. What
            ``push`` raises passes; the position last told is then where to go on.
    """
    stored = archive if isinstance(archive, Stored) else open_folder(archive)
    if speed is not None and not speed > 0:
        raise DataError(
            f"speed is above 0, or None for as fast as possible, got {speed!r}", code="data.argument"
        )
    if speed is not None and stored.manifest.time is None:
        raise DataError(
            f"{stored.path}: rows have no time to go by", hint="leave the speed out", code="data.argument"
        )
    if row is not None:
        if start:
            raise DataError("start and row both say where to begin: leave one out", code="data.argument")
        start = position_of(stored, row)
    names = [field.name for field in stored.manifest.schema]
    batches = rows_from(stored, start)
    if speed is not None:
        timed = ((batch, _times(stored.manifest, batch)) for batch in batches)
        batches = paced_by(timed, speed, clock=clock, sleep=sleep)
    pushed, following = 0, start
    for batch in batches:
        push(batch.select(names))
        pushed += batch.num_rows
        following = batch.column(SEQ)[-1].as_py() + 1
        if progress is not None:
            progress(pushed, following)
    return following


def position_of(stored: Stored, row: int) -> int:
    """The ``_seq`` of a row, counted from 0 in its order; behind the last row what no row has.

    Raises:
        DataError: there are not so many.
    """
    if not 0 <= row <= stored.manifest.rows:
        raise DataError(
            f"{stored.path}: has {stored.manifest.rows:,} rows, and shall go on with number {row:,}",
            hint="more was published under this name: is it another archive's?",
            code="data.argument",
        )
    parts = sorted((part for part in stored.manifest.files if part.rows), key=lambda part: part.first or 0)
    behind, last = 0, -1
    while parts:
        first, rows = parts[0].first or 0, 0
        last = first
        while parts and (parts[0].first or 0) <= last:  # files that overlap
            part = parts.pop(0)
            last, rows = max(last, part.last or 0), rows + part.rows
        if row < behind + rows:
            for batch in rows_from(stored, first):
                if row < behind + batch.num_rows:
                    return int(batch.column(SEQ)[row - behind].as_py())
                behind += batch.num_rows
        behind += rows
    return last + 1


def rows_from(stored: Stored, start: int = 0) -> Iterator[pa.RecordBatch]:
    """The rows with ``_seq`` from ``start`` on, in its order, with all columns of the files.

    Files whose positions overlap are merged: of each of them one batch is held.
    """
    parts = sorted(
        (part for part in stored.manifest.files if part.last is not None and part.last >= start),
        key=lambda part: part.first or 0,
    )
    opened: list[_Cursor] = []
    behind = start - 1
    while parts or opened:
        while parts and (not opened or (parts[0].first or 0) <= min(each.last for each in opened)):
            opened += [each for each in [_Cursor(stored, parts.pop(0), start)] if each.rows is not None]
        if not opened:
            continue
        limit = min(each.last for each in opened)
        taken = [each.until(limit) for each in opened]
        opened = [each for each in opened if each.rows is not None]
        found = pa.Table.from_batches([batch for batch in taken if batch.num_rows])
        if len(found) and len(taken) > 1:
            found = found.sort_by(SEQ)
        for batch in found.combine_chunks().to_batches():
            seq = batch.column(SEQ).to_numpy()
            if seq[0] <= behind or (np.diff(seq) <= 0).any():
                raise DataError(
                    f"{stored.path}: rows near {SEQ} {int(seq[0]):,} are numbered twice, or out of order",
                    code="data.archive",
                )
            behind = int(seq[-1])
            yield batch


class _Cursor:
    """A place in a file.

    Attributes:
        rows: the batch there; None: the file has ended.
        last: the position of its last row.
    """

    def __init__(self, stored: Stored, part: ArchiveFile, start: int) -> None:
        self._path = stored.path / part.path
        self._schema = stored.manifest.columns
        self._start = start
        self.rows: pa.RecordBatch | None = None
        self.last = -1
        try:
            self._file = pq.ParquetFile(self._path)
            stored_groups = self._file.metadata
            groups = [
                each
                for each in range(stored_groups.num_row_groups)
                if self._reaches(stored_groups.row_group(each))
            ]
            self._batches = self._file.iter_batches(BATCH_ROWS, row_groups=groups) if groups else iter(())
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        self._next()

    def _reaches(self, group: pq.RowGroupMetaData) -> bool:
        column = group.column(self._schema.names.index(SEQ))
        known = (
            column.path_in_schema == SEQ and column.statistics is not None and column.statistics.has_min_max
        )
        return not known or column.statistics.max >= self._start

    def _next(self) -> None:
        self.rows = None
        while self.rows is None:
            try:
                batch = next(self._batches, None)
                if batch is None:
                    self._file.close()
                    return
                batch = batch.select(self._schema.names).cast(self._schema)
            except (pa.ArrowException, OSError, KeyError) as error:
                raise self._damaged(error) from None
            seq = batch.column(SEQ).to_numpy(zero_copy_only=False)
            first = int(np.searchsorted(seq, self._start))
            if first < len(seq):
                self.rows, self.last = batch.slice(first), int(seq[-1])

    def until(self, limit: int) -> pa.RecordBatch:
        """Its rows up to this position; goes on to the next batch where that was all."""
        assert self.rows is not None
        seq = self.rows.column(SEQ).to_numpy()
        count = int(np.searchsorted(seq, limit, side="right"))
        taken = self.rows.slice(0, count)
        if count == self.rows.num_rows:
            self._next()
        else:
            self.rows = self.rows.slice(count)
        return taken

    def _damaged(self, error: Exception) -> DataError:
        why = str(error).split("\n")[0][:200]
        return DataError(f"{self._path} can't be read: {why}", code="data.archive")


def _times(manifest: Manifest, batch: pa.RecordBatch) -> Int64s:
    """The times of rows in microseconds."""
    column: Any = batch.column(manifest.time)
    if manifest.unit is None:
        return column.view(pa.int64()).to_numpy()  # type: ignore[no-any-return]
    numbers = column.cast(pa.int64()).to_numpy()
    return numbers // 1000 if manifest.unit == "ns" else numbers * UNITS[manifest.unit]  # type: ignore[no-any-return]
