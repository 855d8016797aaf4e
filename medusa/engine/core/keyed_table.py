"""The rows of a keyed table: one slot for each key, columns that are read and written by slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.core.captured_slots import CapturedSlots
from medusa.engine.core.group_numbers import KeyIds
from medusa.engine.core.native_types import native_arrow
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_bools
from medusa.query.boxes import Schema
from medusa.query.shape import types_of
from medusa.query.types import to_arrow

__all__ = ["TableStore"]

Bools = npt.NDArray[np.bool_]

BEFORE_TIME = 1 << 62
"""Time of change of rows that were there before all time: they don't expire until they change."""

SLOTS_SPARE = 1 << 14
"""Slots without a row beyond as many as have one, before all are numbered anew."""

GROWTH_SHARE = 4
"""Room for one slot more for each so many, as it gets short: so keys that come one after the other don't have
all columns copied each time. Too small: memory; too large: copies."""

_WIDTHS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "V16"}


OBJECT_BYTES = 56
"""What Python takes for a text beside its characters."""

COLUMNS_PER_COST = 4
"""Copying so many columns of a row takes as long as copying a row of a native window."""

TEXT_COST = 4
"""Copying a text, in such rows."""


class _Column:
    """Values by slot, null where nothing was written."""

    def __init__(self, type: str) -> None:
        self.type = to_arrow(type)
        self._width = 0
        kind = "O"
        if pa.types.is_boolean(self.type):
            kind = "?"
        elif not (pa.types.is_string(self.type) or pa.types.is_binary(self.type)):
            self._width = self.type.bit_width // 8
            kind = _WIDTHS[self._width]
        self._values = np.zeros(0, kind)
        self._valid = np.zeros(0, np.bool_)
        self._written = self._written_bytes = 0  # of texts

    @property
    def holds_texts(self) -> bool:
        return self._values.dtype == np.object_

    def resize(self, slots: int) -> None:
        more = slots - len(self._values)
        self._values = np.concatenate([self._values, np.zeros(more, self._values.dtype)])
        self._valid = np.concatenate([self._valid, np.zeros(more, np.bool_)])

    def keep(self, slots: Ints) -> None:
        self._values, self._valid = self._values[slots], self._valid[slots]

    def read(self, slots: Ints) -> pa.Array:
        values, valid = self._values[slots], self._valid[slots]
        if not self._width:
            return pa.array(values, self.type, mask=~valid, from_pandas=False)
        bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        return pa.Array.from_buffers(self.type, len(slots), [bitmap, pa.py_buffer(values.tobytes())])

    def write(self, slots: Ints, array: pa.Array) -> None:
        if not len(slots):
            return
        self._valid[slots] = as_bools(array.is_valid())
        if self._width:
            data = array.buffers()[1]
            start = array.offset * self._width
            self._values[slots] = np.frombuffer(data, self._values.dtype, len(array), start)
        elif self._values.dtype == np.bool_:
            self._values[slots] = as_bools(array)
        else:
            self._values[slots] = array.to_numpy(zero_copy_only=False)
            self._written += len(array)
            self._written_bytes += int(array.nbytes) + OBJECT_BYTES * len(array)

    def clear(self, slots: Ints) -> None:
        self._valid[slots] = False

    def nbytes(self) -> int:
        """Texts are objects, which are counted as large as those written so far were in the mean."""
        texts = 0
        if self._written:
            texts = int(np.count_nonzero(self._valid)) * self._written_bytes // self._written
        return int(self._values.nbytes) + len(self._valid) + texts


class TableStore:
    """One row for each key.

    Args:
        expire_us: a row that long after the last change of its key doesn't see it; None: for ever.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], expire_us: int | None) -> None:
        types = types_of(schema)
        self.names = list(types)
        self.keys = list(keys)
        self._types = types
        self._expire_us = expire_us
        self.ids = KeyIds(keys, [types[key] for key in keys])
        self.columns = {name: _Column(type) for name, type in types.items() if name not in keys}
        self._present = np.zeros(0, np.bool_)
        self._changed = np.zeros(0, np.int64)
        self._captured = CapturedSlots(pa.schema(list(self._schema())[len(keys) :]), self._read)
        texts = sum(column.holds_texts for column in self.columns.values())
        self._cost = 1 + len(self.columns) // COLUMNS_PER_COST + TEXT_COST * texts

    def __len__(self) -> int:
        return int(np.count_nonzero(self._present))

    def slots(self, keys: Sequence[pa.Array], *, insert: bool = True) -> Ints:
        """The slots of keys; without ``insert`` -1 for a key that has none."""
        found = self.ids.map(keys, insert=insert)
        needed = len(self.ids)
        if needed > len(self._present):
            # What is filled at once, as before all time, takes no more than it has.
            room = needed + (needed // GROWTH_SHARE if len(self._present) else 0)
            for column in self.columns.values():
                column.resize(room)
            more = room - len(self._present)
            self._present = np.concatenate([self._present, np.zeros(more, np.bool_)])
            self._changed = np.concatenate([self._changed, np.zeros(more, np.int64)])
        return found

    def sees(self, slots: Ints, times: Ints) -> Bools:
        """Which rows find their key: it is there, and hasn't expired."""
        found: Bools = self._present[slots]
        if self._expire_us is not None:
            found &= times - self._changed[slots] <= self._expire_us
        return found

    def fresh(self, times: Ints, changed: Ints) -> Bools:
        """Which rows see a change that happened at ``changed``."""
        if self._expire_us is None:
            return np.ones(len(times), np.bool_)
        kept: Bools = times - changed <= self._expire_us
        return kept

    def put(self, slots: Ints, times: Ints, values: dict[str, pa.Array], *, new: bool) -> None:
        """Write columns of some slots, each once; the other columns of new rows become null."""
        self._captured.come(slots)
        for name, column in self.columns.items():
            if name in values:
                column.write(slots, values[name])
            elif new:
                column.clear(slots)
        self._present[slots] = True
        self._changed[slots] = times

    def drop(self, slots: Ints) -> None:
        self._captured.go(slots)
        self._present[slots] = False

    def forget(self, boundary_us: int) -> None:
        """Let go of what no row at or after the boundary sees."""
        if self._expire_us is not None:
            gone = np.flatnonzero(self._present & (self._changed < boundary_us - self._expire_us))
            if len(gone):
                self.drop(gone)
        live = len(self)
        if len(self.ids) > 2 * live + SLOTS_SPARE:
            kept = np.flatnonzero(self._present)
            self._captured.renumber(live)
            self.ids.keep(kept)
            for column in self.columns.values():
                column.keep(kept)
            self._present, self._changed = self._present[kept], self._changed[kept]

    def nbytes(self) -> int:
        columns = sum(column.nbytes() for column in self.columns.values())
        return columns + 25 * len(self._present) + self._captured.nbytes()

    # Whole tables

    def fill(self, table: pa.Table) -> None:
        """The rows that the table holds before all time."""
        whole = table.combine_chunks()
        if not whole.num_rows:
            return
        arrays = {name: whole.column(name).chunk(0) for name in self.names}
        slots = self.slots([arrays[key] for key in self.keys])
        self.put(slots, np.full(len(slots), BEFORE_TIME), arrays, new=True)

    def _schema(self) -> pa.Schema:
        keys = [pa.field(f"key.{key}", native_arrow(self._types[key])) for key in self.keys]
        rest = [pa.field(f"value.{name}", column.type) for name, column in self.columns.items()]
        return pa.schema([*keys, *rest, pa.field("@changed", pa.int64())])

    def save(self, state: BoxState, name: str) -> None:
        """One row for each key, in order of their slots."""
        keys, schema = self.ids.picking(), self._schema()
        if state.patient or state.capture is not None:
            self._captured.save(state, name, len(self), keys, schema, cost=self._cost)
            return
        slots = np.flatnonzero(self._present)
        arrays = [*keys(pa.array(slots)), *self._read(slots)]
        state.put(name, pa.Table.from_arrays(arrays, schema=schema))

    def _read(self, slots: Ints) -> list[pa.Array]:
        """What may change of some rows."""
        return [*(column.read(slots) for column in self.columns.values()), pa.array(self._changed[slots])]

    def load(self, state: BoxState, name: str) -> None:
        """Take back what ``save`` gave; only on an empty store.

        Raises:
            ValueError, KeyError: it can't have come from ``save``.
        """
        table = expect_table(state.tables, name, self._schema()).combine_chunks()
        if not table.num_rows:
            return
        arrays = [column.chunk(0) for column in table.columns]
        changed = arrays[-1]
        if changed.null_count:
            raise ValueError("a row of a table without the time of its change")
        when = changed.to_numpy()
        if ((np.abs(when) > BEFORE_TIME // 4) & (when != BEFORE_TIME)).any() or when.min() < -BEFORE_TIME:
            raise ValueError("a row of a table that changed at no possible time")
        count = len(self.keys)
        self.ids.load(pa.RecordBatch.from_arrays(arrays[:count], schema=self.ids.schema))
        rows = len(self.ids)
        for column in self.columns.values():
            column.resize(rows)
        self._present = np.zeros(rows, np.bool_)
        self._changed = np.zeros(rows, np.int64)
        values = dict(zip(self.columns, arrays[count:-1], strict=True))
        self.put(np.arange(rows), changed.to_numpy(), values, new=True)
