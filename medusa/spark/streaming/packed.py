"""What travels between the steps of a streaming query in Spark: trains and boundaries, packed.

Spark gives a stateful step its rows by pandas, which changes types and is slow. So a row of Spark holds a
whole train as the bytes of an Arrow record batch, and says for which step, shard and input it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from medusa.elements import Boundary, Element, Train
from medusa.engine.core.rows import TIME
from medusa.errors import DataError
from medusa.query.boxes import Schema
from medusa.query.types import schema_to_arrow

__all__ = [
    "COLUMNS",
    "ROWS_MAX",
    "Packed",
    "carried",
    "pack",
    "pieces_of",
    "place",
    "read",
    "table",
    "trains",
]

ROWS_MAX = 1 << 16
"""Rows of one train; more go as several."""

COLUMNS = "stage int, shard int, lane int, number bigint, bound bigint, rows binary"
"""The columns of a packed row, as Spark declares them."""

_TIME, _LATE = "@time", "@late"
_SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("shard", pa.int32()),
        ("lane", pa.int32()),
        ("number", pa.int64()),
        ("bound", pa.int64()),
        ("rows", pa.binary()),
    ]
)


class Packed(NamedTuple):
    """Rows, then a boundary.

    Attributes:
        stage, shard: the step and the group of it that this is for.
        lane: the input.
        number: places it among those of its lane in this micro-batch.
        bound: in microseconds; ``START_US``: none came.
        rows: a record batch; None: none came.
    """

    stage: int
    shard: int
    lane: int
    number: int
    bound: int
    rows: bytes | None


def carried(schema: Schema, *, timed: bool) -> pa.Schema:
    """The columns of a train on its way: its own, its times and its marks."""
    hidden = [pa.field(_LATE, pa.bool_())]
    if timed:
        hidden.insert(0, pa.field(_TIME, TIME))
    return pa.schema([*schema_to_arrow(schema), *hidden])


def pack(elements: Iterable[Element], schema: pa.Schema) -> tuple[list[bytes], int | None]:
    """What came to a sink: its trains as few record batches, and the last boundary.

    A boundary says no less when it comes later, so one behind all rows does.
    """
    made, bound_us = [], None
    for element in elements:
        if isinstance(element, Boundary):
            bound_us = element.time_us
        elif isinstance(element, Train) and len(element):
            late = element.late
            hidden = [pa.array(np.zeros(len(element), np.bool_)) if late is None else late]
            if _TIME in schema.names:
                assert element.times is not None, "a stream with time brings it"
                hidden.insert(0, element.times.view(TIME))
            made.append(pa.RecordBatch.from_arrays([*element.batch.columns, *hidden], schema=schema))
    return pieces_of(made), bound_us


def pieces_of(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    """Record batches of the same columns as the bytes of few."""
    if not batches:
        return []
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return [
        whole.slice(start, ROWS_MAX).serialize().to_pybytes() for start in range(0, whole.num_rows, ROWS_MAX)
    ]


def read(rows: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch as ``pack`` wrote it.

    Raises:
        DataError: it isn't one of these columns.
    """
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(rows), schema)
        batch.validate()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"packed rows can't be read: {error}", code="data.packed") from None
    return batch


def trains(rows: bytes, schema: pa.Schema) -> Train:
    """A train as ``pack`` wrote it."""
    batch = read(rows, schema)
    late, times = batch.column(_LATE), None
    shown = batch.num_columns - 1
    if _TIME in schema.names:
        shown -= 1
        times = batch.column(_TIME)
    plain = pa.RecordBatch.from_arrays(
        batch.columns[:shown], schema=pa.schema([schema.field(place) for place in range(shown)])
    )
    return Train(batch=plain, times=times, late=late if late.true_count else None)


def table(rows: Sequence[Packed]) -> pa.RecordBatch:
    """Packed rows as Spark takes them."""
    columns = zip(*rows, strict=True) if rows else [[]] * len(_SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def place(group: int) -> int:
    """The number by which a group of a step goes, such that Spark spreads the groups evenly.

    Spark puts a row into partition ``hash(number) mod partitions``. That hash (Murmur3 of four bytes with the
    seed 42) can be turned back: this is the number whose hash is ``group``. So it holds for any number of
    partitions, and a checkpoint for all of them.
    """
    h = _unshifted(group & _MASK, 16) * _inverse(0xC2B2AE35) & _MASK
    h = _unshifted(h, 13) * _inverse(0x85EBCA6B) & _MASK
    h = _unshifted(h, 16) ^ 4
    h = (h - 0xE6546B64) * _inverse(5) & _MASK
    k = _rotated(h, 32 - 13) ^ 42
    k = _rotated(k * _inverse(0x1B873593) & _MASK, 32 - 15) * _inverse(0xCC9E2D51) & _MASK
    return k - (1 << 32) if k >> 31 else k


_MASK = (1 << 32) - 1


def _unshifted(value: int, bits: int) -> int:
    """What ``it ^ it >> bits`` was made of."""
    made = value
    for _ in range(31 // bits):
        made = value ^ made >> bits
    return made


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _inverse(factor: int) -> int:
    return pow(factor, -1, 1 << 32)
