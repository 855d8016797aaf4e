"""The files of an archive, written by Spark's workers: rows come in order, files go by ranges of time.

A task writes files under names that no other attempt uses, and tells what they hold. The driver lists those
of the attempts that ended well, so a task that fails, or runs twice, leaves nothing in the archive.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from medusa.apps.pipeline.folder import ROWS, ArchiveFile
from medusa.decoders import msgpack_decoder
from medusa.query.boxes import Schema
from medusa.query.types import to_arrow
from medusa.spark import column_types
from medusa.spark.dataframes.source import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SLOT", "RowChunk", "WriteTask", "made_frame", "write_frame"]

SLOT = "slot"
"""The column of a DataFrame that says to which range of time, and so to which files, a row belongs."""
FILE_ROWS = 1 << 22
GROUP_ROWS = 1 << 17
SEQ, LATE, SHED = META

Int64s = npt.NDArray[np.int64]


class RowChunk(Protocol):
    """Rows that a worker makes: the stream's columns, their positions, and their times (None: none)."""

    rows: pa.RecordBatch
    seq: Int64s
    times_us: Int64s | None


class WriteTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is told.

    Attributes:
        folder: the archive's.
        period_us: the range of time of a file; None: files are cut by ``_seq``, or not at all.
        marks: the columns besides ``_seq`` that rows have.
        bases: of each slot the position of its first row, where rows come without one.
        numbered: files have ``_seq``.
        epoch: of an archive that grows: files are named by it.
    """

    folder: str
    schema: Schema
    period_us: int | None
    marks: tuple[str, ...] = ()
    bases: dict[int, int] | None = None
    numbered: bool = True
    epoch: int | None = None


_TASKS = msgpack_decoder(WriteTask)


FIELDS = ("path", "rows", "bytes", "first", "last", "from_us", "to_us", "late", "shed")


def write_frame(df: DataFrame, writing: WriteTask) -> list[ArchiveFile]:
    """Write a DataFrame: columns by place (``c0`` ...), ``t``, ``SLOT``, and what ``writing`` says.

    The rows of each of its partitions are in order of slot, then position.
    """
    told = df.mapInArrow(partial(_write, msgspec.msgpack.encode(writing)), _told())
    return _parts(told)


def made_frame(
    spark: SparkSession, make: Callable[[int], Iterator[RowChunk]], parts: int, writing: WriteTask
) -> list[ArchiveFile]:
    """Write what ``make`` gives for each number below ``parts``, in as many tasks."""
    numbers = spark.range(0, parts, 1, parts)
    return _parts(numbers.mapInArrow(partial(_make, make, msgspec.msgpack.encode(writing)), _told()))


def _told() -> str:
    return "path string, " + ", ".join(f"{name} long" for name in FIELDS[1:])


def _parts(told: DataFrame) -> list[ArchiveFile]:
    found = [ArchiveFile(**{name: row[name] for name in FIELDS}) for row in told.collect()]
    return sorted(found, key=lambda part: (part.first if part.first is not None else 0, part.path))


def _write(encoded: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` calls."""
    files = _Files(_TASKS.decode(encoded))
    for batch in batches:
        if batch.num_rows:
            files.spark(batch)
    yield from files.close()


def _make(
    make: Callable[[int], Iterator[RowChunk]], encoded: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    files = _Files(_TASKS.decode(encoded))
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for chunk in make(number):
                files.chunk(chunk)
    yield from files.close()


class _Files:
    """The files of a task, one after the other."""

    def __init__(self, writing: WriteTask) -> None:
        self._writing = writing
        own = [(field.name, to_arrow(field.type)) for field in writing.schema]
        meta = [(SEQ, pa.int64())] if writing.numbered else []
        meta += [(name, pa.bool_()) for name in writing.marks]
        self._schema = pa.schema(own + meta)
        self._numbered: dict[int, int] = {}
        self._slot: int | None = None
        self._file: _File | None = None
        self._done: list[ArchiveFile] = []

    def spark(self, batch: pa.RecordBatch) -> None:
        """Rows as Spark has them."""
        writing = self._writing
        own = [
            column_types.arrow_in(batch.column(f"c{place}"), field.type, f"column {field.name!r}")
            for place, field in enumerate(writing.schema)
        ]
        slots = batch.column(SLOT).to_numpy(zero_copy_only=False)
        times = batch.column(column_types.TIME)
        times_us = None if times.null_count else times.to_numpy()
        meta: list[Any] = []
        if writing.numbered:
            meta.append(self._number(slots) if writing.bases is not None else batch.column(SEQ))
        meta += [batch.column(name) for name in writing.marks]
        self._add(pa.RecordBatch.from_arrays([*own, *meta], schema=self._schema), slots, times_us)

    def chunk(self, chunk: RowChunk) -> None:
        """Rows as a worker made them."""
        columns_ = [
            chunk.rows.column(field.name).cast(field.type) for field in self._schema if field.name != SEQ
        ]
        rows = pa.RecordBatch.from_arrays([*columns_, pa.array(chunk.seq)], schema=self._schema)
        period_us = self._writing.period_us
        if period_us is None or chunk.times_us is None:
            slots: Int64s = np.zeros(rows.num_rows, np.int64)
        else:
            slots = chunk.times_us // period_us
        self._add(rows, slots, chunk.times_us)

    def _number(self, slots: Int64s) -> pa.Array:
        """Positions: rows of a slot come one after the other, and all of them to this task."""
        bases = self._writing.bases or {}
        made = np.empty(len(slots), np.int64)
        for low, high in _runs(slots):
            slot = int(slots[low])
            begun = self._numbered.get(slot, 0)
            made[low:high] = np.arange(high - low) + (bases[slot] + begun)
            self._numbered[slot] = begun + high - low
        return pa.array(made)

    def _add(self, rows: pa.RecordBatch, slots: Int64s, times_us: Int64s | None) -> None:
        for low, high in _runs(slots):
            slot = int(slots[low])
            if self._file is None or slot != self._slot or self._file.rows >= FILE_ROWS:
                self._end()
                self._slot = slot
                self._file = _File(self._writing, self._schema, slot)
            taken = rows.slice(low, high - low)
            self._file.add(taken, None if times_us is None else times_us[low:high])

    def _end(self) -> None:
        if self._file is not None:
            self._done.append(self._file.close())
        self._file = None

    def close(self) -> Iterator[pa.RecordBatch]:
        """What the files hold, as rows for Spark."""
        self._end()
        if self._done:
            rows = [msgspec.to_builtins(part) for part in self._done]
            types = [pa.string(), *[pa.int64()] * (len(FIELDS) - 1)]
            yield pa.RecordBatch.from_pylist(rows, pa.schema(list(zip(FIELDS, types, strict=True))))


class _File:
    """A file that is being written."""

    def __init__(self, writing: WriteTask, schema: pa.Schema, slot: int) -> None:
        self._folder = Path(writing.folder)
        period_us = writing.period_us
        start = f"{slot:012}" if period_us is None else _moment(slot * period_us)
        if writing.epoch is not None:
            start = f"e{writing.epoch:010}" if period_us is None else f"e{writing.epoch:010}-{start}"
        self._path = f"{ROWS}/{start}-{uuid.uuid4().hex[:12]}.parquet"
        self._schema = schema
        self._out = pq.ParquetWriter(self._folder / self._path, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self.rows = 0
        self._lows: dict[str, int] = {}
        self._highs: dict[str, int] = {}
        self._marked = {LATE: 0, SHED: 0}

    def add(self, rows: pa.RecordBatch, times_us: Int64s | None) -> None:
        if times_us is not None:
            self._seen("time", int(times_us.min()), int(times_us.max()))
        names = rows.schema.names
        if SEQ in names:
            seq = rows.column(names.index(SEQ)).to_numpy()
            self._seen(SEQ, int(seq.min()), int(seq.max()))
        for name in self._marked:
            if name in names:
                self._marked[name] += rows.column(names.index(name)).true_count
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= GROUP_ROWS:
            self._flush()

    def _seen(self, what: str, low: int, high: int) -> None:
        self._lows[what] = min(low, self._lows.get(what, low))
        self._highs[what] = max(high, self._highs.get(what, high))

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
            self._out.write_table(table, row_group_size=GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> ArchiveFile:
        self._flush()
        self._out.close()
        with (self._folder / self._path).open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        return ArchiveFile(
            path=self._path,
            rows=self.rows,
            bytes=size,
            first=self._lows.get(SEQ),
            last=self._highs.get(SEQ),
            from_us=self._lows.get("time"),
            to_us=self._highs.get("time"),
            late=self._marked[LATE],
            shed=self._marked[SHED],
        )


def _runs(slots: Int64s) -> Iterator[tuple[int, int]]:
    """Where the same slot stands: (first, behind the last)."""
    cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    yield from pairwise(cuts)


def _moment(time_us: int) -> str:
    """A time as a part of a file's name, to the second or as fine as it is."""
    text = str(np.datetime64(time_us, "us")).replace(":", "-")
    return text.removesuffix(".000000")
