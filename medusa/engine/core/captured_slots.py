"""Rows that a box holds by slot, in columns of its own, as captures take them: in pieces, while they change.

The native ``Slots`` says which rows there are, which changed since a capture and which must be kept before
they change; the columns are read here, many rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias
from weakref import ReferenceType, WeakMethod, ref

import numpy as np
import pyarrow as pa

from medusa._native import Batch, Slots
from medusa.engine.core.box import BoxState
from medusa.engine.core.kept_rows import KeptRows
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64
from medusa.engine.state.background_copy import items_later

__all__ = ["CapturedSlots"]


Read: TypeAlias = Callable[[Ints], list[pa.Array]]
"""Columns of some slots, as they are now."""


class _Copy:
    """What was kept for a copy: rows that changed before it came to them.

    Attributes:
        broken: a piece of it couldn't be read, and may read otherwise by now.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.kept = KeptRows(schema)
        self.broken = False

    def fail(self) -> None:
        self.broken = True


class CapturedSlots:
    """Tell it of slots before their rows come, change or go.

    Args:
        schema: columns of a row that may change.
        read: gives those columns; a method of who holds the rows, and this.
    """

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        self._schema = schema
        self._reads = WeakMethod(read)  # or rows would live until somebody looks for such circles
        self._slots = Slots()
        self._copy: ReferenceType[_Copy] | None = None
        """The last one; who makes it holds it."""

    def come(self, slots: Ints) -> None:
        """Rows come, or change."""
        self._keep(self._slots.open(pa.array(slots), self._first()))

    def go(self, slots: Ints) -> None:
        self._keep(self._slots.close(pa.array(slots), self._first()))

    def renumber(self, rows: int) -> None:
        """All rows are about to get other slots: 0, 1, 2 ... ``rows``. No capture is known any more."""
        self._keep(self._slots.keep_all(self._first()))
        self._slots.clear()
        self.come(np.arange(rows))

    @property
    def _read(self) -> Read:
        read = self._reads()
        assert read is not None, "who holds the rows calls this"
        return read

    def _first(self) -> int:
        copy = self._copy() if self._copy is not None else None
        return copy.kept.next if copy is not None else 0

    def _keep(self, slots: Batch | None) -> None:
        copy = self._copy() if self._copy is not None else None
        if slots is None or copy is None:
            return
        try:
            which = as_int64(pa.array(slots))
            if len(which):
                copy.kept.add(pa.RecordBatch.from_arrays(self._read(which), schema=self._schema), 0)
        except BaseException:
            copy.fail()  # else it would take other rows for them
            raise

    def nbytes(self) -> int:
        return self._slots.nbytes()

    def save(
        self,
        state: BoxState,
        name: str,
        rows: int,
        keys: Callable[[pa.Array], list[pa.Array]],
        schema: pa.Schema,
        *,
        cost: int = 1,
    ) -> None:
        """Add the table of all rows, in the order of their slots, to a state that is captured or copied in
        pieces.

        Args:
            rows: how many there are.
            keys: columns that never change, of some slots as they are now, however rows are numbered later;
                those of a row follow them.
            schema: of the table.
            cost: of a row, in rows of a native window.
        """
        self._keep(self._slots.keep_all(self._first()))
        copy = _Copy(self._schema)
        self._copy = ref(copy)
        take = partial(self._take, copy, keys, self._read)  # a copy outlives the box
        made = partial(pa.Table.from_arrays, schema=schema)
        patient, capture = state.patient, state.capture
        state.put(
            name, items_later(self._slots.copy, rows, take, made, patient=patient, capture=capture, cost=cost)
        )

    def _take(
        self, copy: _Copy, keys: Callable[[pa.Array], list[pa.Array]], read: Read, items: pa.RecordBatch
    ) -> list[pa.Array]:
        if copy.broken:
            raise MemoryError("out of memory for rows of a copy, which may have changed since")
        slots, numbers = items.columns
        try:
            return [*keys(slots), *self._columns(copy.kept, read, as_int64(slots), as_int64(numbers))]
        except BaseException:
            copy.fail()
            raise

    def _columns(self, kept: KeptRows, read: Read, slots: Ints, numbers: Ints) -> list[pa.Array]:
        ahead = numbers >= 0
        if not ahead.any():
            return read(slots)
        every = range(len(self._schema))
        if ahead.all():
            return kept.take(pa.array(numbers), every)
        here, there = np.flatnonzero(~ahead), np.flatnonzero(ahead)
        order = np.empty(len(slots), np.int64)
        order[np.concatenate([here, there])] = np.arange(len(slots))
        at = pa.array(order)
        now, then = read(slots[here]), kept.take(pa.array(numbers[there]), every)
        return [pa.concat_arrays([ours, theirs]).take(at) for ours, theirs in zip(now, then, strict=True)]
