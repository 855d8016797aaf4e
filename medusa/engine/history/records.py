"""The history of a stream as bytes: segments of records, each a record batch under a CRC-32C.

A segment is three files. ``rows`` is an Arrow IPC stream (schema, then batches, without an end mark), which
any Arrow reads: the columns of the stream, ``@time`` where it has a time, and ``@late``. ``index`` has a
head of 24 bytes and 72 bytes for each batch: its number, place, sum and extent, and a sum of its own, so
that a record is there only with all its bytes, and a torn or changed one is known as such. ``copy`` is the
same as ``index`` once more: without one nobody knows which rows a segment has, or whether they are right.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from medusa._native import crc32c
from medusa.elements import END_US, START_US, Train
from medusa.engine.core.rows import TIME
from medusa.ports import Buffer

__all__ = [
    "ENTRY_BYTES",
    "HEAD_BYTES",
    "RecordEntry",
    "decode",
    "encode",
    "full_schema",
    "head",
    "merged_index",
    "pack",
    "plain_schema",
    "read_entries",
    "read_head",
    "read_index_head",
    "unpack",
]

MAGIC = b"MDHISTRY"
VERSION = 1
ROWS_MAX = 1 << 62
_TIMES, _LATE = "@time", "@late"
_HEAD = struct.Struct("<8sIIII")
_ENTRY = struct.Struct("<QQQQqqqqII")
HEAD_BYTES, ENTRY_BYTES = _HEAD.size, _ENTRY.size


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """What the index says of a record.

    Attributes:
        first: number of its first row.
        rows: how many it has; 0: it says a boundary only.
        start, length: its bytes in ``rows``.
        boundary_us: what the stream had promised before its first row.
        least_us, most_us: extent of its times.
        before_us: the largest time of all rows before it, trimmed ones too.
        sum: CRC-32C of its bytes; None: this entry itself is damaged, and what it says was deduced.
    """

    first: int
    rows: int
    start: int
    length: int
    boundary_us: int
    least_us: int
    most_us: int
    before_us: int
    sum: int | None

    @property
    def end(self) -> int:
        """Number of the row after its last."""
        return self.first + self.rows

    def encoded(self) -> bytes:
        plain = _ENTRY.pack(
            self.first,
            self.rows,
            self.start,
            self.length,
            self.boundary_us,
            self.least_us,
            self.most_us,
            self.before_us,
            self.sum or 0,
            0,
        )[:-4]
        return plain + crc32c(plain).to_bytes(4, "little")


def head(schema: pa.Schema) -> tuple[Buffer, bytes]:
    """The beginnings of the two files of a segment."""
    data = memoryview(schema.serialize())
    plain = _HEAD.pack(MAGIC, VERSION, len(data), crc32c(data), 0)[:-4]
    return data, plain + crc32c(plain).to_bytes(4, "little")


def read_index_head(index: memoryview) -> tuple[int, int] | None:
    """Length and CRC-32C of the schema at the beginning of ``rows``; None: the head is torn or damaged.

    Raises:
        ValueError: it was written by a later version.
    """
    if len(index) < HEAD_BYTES or int.from_bytes(index[HEAD_BYTES - 4 : HEAD_BYTES], "little") != crc32c(
        index[: HEAD_BYTES - 4]
    ):
        return None
    magic, version, length, sum, _ = _HEAD.unpack_from(index)
    if magic != MAGIC:
        return None
    if version > VERSION:
        raise ValueError(f"has version {version}, this program reads up to {VERSION}")
    return int(length), int(sum)


def read_head(index: memoryview, rows: Buffer) -> int | None:
    """Where the first record begins; None: the head is torn or damaged.

    Args:
        rows: the beginning of that file, at least as long as the schema.

    Raises:
        ValueError: it was written by a later version.
    """
    found = read_index_head(index)
    if found is None:
        return None
    length, sum = found
    schema = memoryview(rows).cast("B")[:length]
    return length if len(schema) == length and crc32c(schema) == sum else None


def read_entries(index: memoryview) -> list[RecordEntry | None]:
    """The entries behind the head, in order; None for one that is torn, damaged or can't be."""
    return [_entry(index[at : at + ENTRY_BYTES]) for at in range(HEAD_BYTES, len(index), ENTRY_BYTES)]


def merged_index(indexes: Sequence[Buffer]) -> memoryview:
    """An index of itself and its copies: the head and each entry from the first in which it is whole."""
    views = [memoryview(each).cast("B") for each in indexes]
    length = max((len(each) for each in views), default=0)
    made = bytearray()
    for start, size in (
        (0, HEAD_BYTES),
        *((at, ENTRY_BYTES) for at in range(HEAD_BYTES, length, ENTRY_BYTES)),
    ):
        slots = [bytes(each[start : start + size]) for each in views]
        whole = [each for each in slots if len(each) == size and _is_summed(each)]
        made += whole[0] if whole else max(slots, key=len, default=b"").ljust(size, b"\0")
    return memoryview(bytes(made[:length]))


def _is_summed(part: bytes) -> bool:
    return crc32c(part[:-4]) == int.from_bytes(part[-4:], "little")


def _entry(data: memoryview) -> RecordEntry | None:
    if len(data) < ENTRY_BYTES or int.from_bytes(data[-4:], "little") != crc32c(data[:-4]):
        return None
    made = RecordEntry(*_ENTRY.unpack(data)[:-1])
    times = (made.boundary_us, made.least_us, made.most_us, made.before_us)
    counts = (made.first, made.rows, made.start, made.length)
    fits = all(START_US <= time <= END_US for time in times) and made.least_us <= made.most_us
    return made if fits and all(count < ROWS_MAX for count in counts) else None


def full_schema(schema: pa.Schema, *, timed: bool) -> pa.Schema:
    """The columns of ``rows``."""
    plain = schema.remove_metadata()
    if timed:
        plain = plain.append(pa.field(_TIMES, TIME))
    return plain.append(pa.field(_LATE, pa.bool_()))


def plain_schema(data: Buffer) -> tuple[pa.Schema, bool]:
    """The columns of a stream, from the beginning of ``rows``, and whether it has a time.

    Raises:
        ValueError: no such beginning.
    """
    try:
        full = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"no schema: {error}") from None
    if not len(full) or full.names[-1] != _LATE:
        raise ValueError("no history of rows")
    timed = len(full) > 1 and full.field(len(full) - 2).equals(pa.field(_TIMES, TIME))
    return pa.schema(list(full)[: -2 if timed else -1]), timed


def pack(train: Train, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a train in the columns of ``full_schema``."""
    columns = list(train.batch.columns)
    if len(schema) > len(columns) + 1:
        columns.append(train.times)
    rows = len(train)
    late = train.late
    if late is None:
        zeros = pa.py_buffer(bytes((rows + 7) // 8))
        late = pa.Array.from_buffers(pa.bool_(), rows, [None, zeros])
    columns.append(late)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unpack(batch: pa.RecordBatch, schema: pa.Schema, *, timed: bool, first: int) -> Train:
    """The train that ``pack`` took, numbered."""
    columns = batch.columns
    late = columns.pop()
    times = columns.pop() if timed else None
    return Train(
        batch=pa.RecordBatch.from_arrays(columns, schema=schema),
        times=times,
        first_seq=first,
        late=late if late.true_count else None,
    )


def encode(batch: pa.RecordBatch) -> tuple[Buffer, int]:
    """A record as bytes, and their CRC-32C."""
    data = memoryview(batch.serialize())
    return data, crc32c(data)


def decode(data: Buffer, entry: RecordEntry, schema: pa.Schema, *, timed: bool) -> pa.RecordBatch:
    """The batch of a record.

    Raises:
        ValueError: the bytes aren't those that were written, or aren't such a batch.
    """
    if entry.sum is None:
        raise ValueError("their entry in the index is damaged")
    if len(memoryview(data).cast("B")) != entry.length or crc32c(data) != entry.sum:
        raise ValueError("the checksum is wrong")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError, OverflowError) as error:
        raise ValueError(f"no batch of these columns: {error}") from None
    if batch.num_rows != entry.rows:
        raise ValueError(f"{batch.num_rows} rows, not {entry.rows}")
    if batch.column(len(schema) - 1).null_count or (timed and batch.column(len(schema) - 2).null_count):
        raise ValueError("a time or a mark is null")
    return batch
