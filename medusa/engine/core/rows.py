"""Picking rows of batches without the convenience wrappers, which cost more than the work.

Large trains are filtered by native code, all columns in one call; on small ones getting there costs
more than ``RecordBatch.filter``. Schemas have at least one column, so batches know their rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from medusa._native import Times
from medusa._native import filter_rows as native_filter_rows
from medusa.elements import Train

__all__ = [
    "TIME",
    "Ints",
    "LookedTrain",
    "all_true",
    "as_bools",
    "as_int64",
    "as_times",
    "empty_batch",
    "filter_rows",
    "invert",
    "on_time_rows",
    "only_chunk",
    "take",
    "take_array",
]

Ints = npt.NDArray[np.int64]


class LookedTrain(Train, frozen=True, kw_only=True, gc=False):
    """A train whose times were looked at; native code takes what the look holds, others get an array."""

    looked: Times

    @property  # type: ignore[misc]
    def times(self) -> pa.Array:
        return self.looked.array

    @property
    def native(self) -> tuple[Any, Any]:
        looked = self.looked
        return looked.rows or self.batch, looked


TIME = pa.timestamp("us", tz="UTC")
"""The type of hidden times and of the bounds of windows."""

SMALL_ROWS = 1024

_INT64 = pa.int64()
_INVERT = pc.get_function("invert")
_TAKE = pc.get_function("array_take")
_UNCHECKED = pc.TakeOptions(boundscheck=False)


def as_bools(mask: pa.Array) -> npt.NDArray[np.bool_]:
    """A bool array as numpy; null counts as false."""
    rows = len(mask)
    if rows == 0:
        return np.zeros(0, dtype=np.bool_)
    validity, bits = mask.buffers()
    out = _unpack(bits, mask.offset, rows)
    if validity is not None and mask.null_count:
        out &= _unpack(validity, mask.offset, rows)
    return out


def _unpack(bits: pa.Buffer, offset: int, rows: int) -> npt.NDArray[np.bool_]:
    first, shift = divmod(offset, 8)
    data = np.frombuffer(bits, dtype=np.uint8, count=(shift + rows + 7) // 8, offset=first)
    return np.unpackbits(data, count=shift + rows, bitorder="little")[shift:].view(np.bool_)


def all_true(mask: pa.Array) -> bool:
    """Whether every value is true (none false, none null)."""
    return bool(mask.null_count == 0 and mask.true_count == len(mask))


def invert(mask: pa.Array) -> pa.Array:
    return _INVERT.call([mask])


def take(batch: pa.RecordBatch, index: pa.Array) -> pa.RecordBatch:
    """Rows by position; every position is known to be in range."""
    columns = [_TAKE.call([column, index], _UNCHECKED) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def take_array(array: pa.Array, index: pa.Array) -> pa.Array:
    return _TAKE.call([array, index], _UNCHECKED)


def filter_rows(train: Train, keep: pa.Array) -> Train:
    """The rows of a train for which ``keep`` is true (not false, not null), with times and late marks."""
    if all_true(keep):
        return train
    if len(train) <= SMALL_ROWS:
        pick = train.batch.filter(keep)
        times = None if train.times is None else train.times.filter(keep)
        late = None if train.late is None else train.late.filter(keep)
        return Train(batch=pick, times=times, late=late, kind=train.kind)
    columns = train.batch.columns
    hidden = [array for array in (train.times, train.late) if array is not None]
    shown = len(columns)
    alias = None if train.times is None else _alias(train.times, columns)
    if alias is not None:
        del hidden[0]
    rows = pa.RecordBatch.from_arrays([*columns, *hidden], [""] * (shown + len(hidden)))
    kept = pa.record_batch(native_filter_rows(rows, keep)).columns
    late = None if train.late is None else kept[-1]
    times = None
    if train.times is not None:
        times = kept[shown] if alias is None else kept[alias].view(train.times.type)
    pick = pa.RecordBatch.from_arrays(kept[:shown], schema=train.batch.schema)
    return Train(batch=pick, times=times, late=late, kind=train.kind)


def _alias(times: pa.Array, columns: list[pa.Array]) -> int | None:
    """The column that holds the times as they are, as that of a source in microseconds does."""
    address, offset = times.buffers()[1].address, times.offset
    for index, column in enumerate(columns):
        if column.type in (TIME, _INT64) and column.offset == offset and not column.null_count:
            values = column.buffers()[1]
            if values is not None and values.address == address:
                return index
    return None


def on_time_rows(train: Train) -> Train:
    """The rows of a train that were not late; without late marks."""
    if train.late is None:
        return train
    kept = filter_rows(train, invert(train.late))
    return Train(batch=kept.batch, times=kept.times, kind=kept.kind)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of these columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column that is in one piece, or empty."""
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def as_int64(array: pa.Array) -> npt.NDArray[np.int64]:
    """The numbers of an int64 or 64-bit temporal array without nulls, not copied."""
    if array.type != _INT64:
        array = array.view(_INT64)
    return array.to_numpy()  # type: ignore[no-any-return]


def as_times(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Microseconds as an array of times, not copied."""
    return pa.array(numbers).view(TIME)
