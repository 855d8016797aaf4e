"""Numbers for keys and for the values of a column, by which rows are grouped and sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa._native import Keys, pick_keys
from medusa.engine.core.native_types import narrow, native_arrow, native_type, widen
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_bools

__all__ = ["KeyIds", "float_codes", "one_batch", "order_codes"]

_INT64_MIN = np.int64(-(1 << 63))


class KeyIds:
    """Keys of some types to 0, 1, 2 ... in order of first appearance; null and NaN are keys like others."""

    def __init__(self, names: Sequence[str], types: Sequence[str]) -> None:
        self._types = list(types)
        self.schema = pa.schema(
            [pa.field(f"key.{name}", native_arrow(type)) for name, type in zip(names, types, strict=True)]
        )
        self._ids = self._fresh()

    def _fresh(self) -> Keys:
        return Keys([native_type(type) for type in self._types])

    def __len__(self) -> int:
        return len(self._ids)

    def map(self, keys: Sequence[pa.Array], *, insert: bool = True) -> Ints:
        """Ids of rows with these key columns, which have the declared types.

        Without ``insert`` keys that aren't known have -1, and stay so.
        """
        wide = [widen(key, type) for key, type in zip(keys, self._types, strict=True)]
        return self._map(pa.RecordBatch.from_arrays(wide, schema=self.schema), insert=insert)

    def _map(self, keys: pa.RecordBatch, *, insert: bool = True) -> Ints:
        return np.asarray(pa.array(self._ids.map(keys, insert=insert)).to_numpy(), np.int64)

    def keys(self) -> pa.RecordBatch:
        """The keys in native types, in order of their ids."""
        return pa.RecordBatch.from_arrays(pa.record_batch(self._ids.keys()).columns, schema=self.schema)

    def picking(self) -> Callable[[pa.Array], list[pa.Array]]:
        """Gives the key columns, in native types, of rows with these ids, whatever ``keep`` does later."""
        known = self._ids
        return lambda ids: pa.record_batch(pick_keys(known, ids)).columns

    def narrowed(self, ids: Ints) -> list[pa.Array]:
        """The key columns of rows with these ids, in the declared types."""
        index = pa.array(ids)
        return [
            narrow(column.take(index), type)
            for column, type in zip(self.keys().columns, self._types, strict=True)
        ]

    def nbytes(self) -> int:
        return self._ids.nbytes()

    def keep(self, ids: Ints) -> None:
        """Forget all keys but these, which get the ids 0, 1, 2 ... in this order."""
        kept = self.keys().take(pa.array(ids))
        self._ids = self._fresh()
        self._map(kept)

    def load(self, keys: pa.RecordBatch) -> None:
        """Take keys of a checkpoint; only where none are known.

        Raises:
            ValueError: a key stands twice.
        """
        if keys.num_rows and self._map(keys)[-1] != keys.num_rows - 1:
            raise ValueError("a key stands twice")
        if len(self._ids) != keys.num_rows:
            raise ValueError("a key stands twice")


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table in one batch."""
    batches = table.to_batches()
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], table.schema)


def order_codes(array: pa.Array, type: str) -> tuple[Ints, npt.NDArray[np.bool_] | None]:
    """Integers in the order of a column's values: NaN above all numbers, -0.0 as 0.0.

    Returns:
        (codes, which rows are null or None where none is); the code of a null is the least int64.
    """
    nulls = as_bools(array.is_null()) if array.null_count else None
    wide = widen(array, type)
    if nulls is not None:
        wide = wide.fill_null(False if pa.types.is_boolean(wide.type) else 0)
    if pa.types.is_boolean(wide.type):
        codes = as_bools(wide).astype(np.int64)
    elif pa.types.is_floating(wide.type):
        codes = float_codes(wide.to_numpy())
    elif pa.types.is_unsigned_integer(wide.type):
        codes = (wide.to_numpy() ^ np.uint64(1 << 63)).view(np.int64)
    else:
        codes = wide.to_numpy()
    if nulls is not None:
        codes = np.where(nulls, _INT64_MIN, codes)
    return codes, nulls


def float_codes(values: npt.NDArray[np.float64]) -> Ints:
    """Integers in the order of the values: NaN above all numbers, -0.0 as 0.0."""
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    codes = np.where(bits < 0, bits ^ np.int64((1 << 63) - 1), bits)
    return np.where(np.isnan(values), np.int64((1 << 63) - 1), codes)
