"""The values of a group's earlier rows, for ``md.lag``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.state.background_copy import Deferred
from medusa.engine.state.capture import Capture
from medusa.engine.state.row_changes import SlotChanges, SlottedRows, TableChange, slots_changed

__all__ = ["Lags"]

Index = npt.NDArray[np.int64]

RECENT_ROWS = 8192
NONE = np.zeros(0, dtype=np.int64)


class _Held:
    """Rows by slot, oldest first within one: ``slots`` ascend. It never changes."""

    def __init__(self, slots: Index, columns: Sequence[pa.Array]) -> None:
        self.slots = slots
        self.columns = list(columns)

    def without(self, slots: Index) -> _Held:
        return self.at(np.flatnonzero(~np.isin(self.slots, slots)))

    def at(self, index: Index) -> _Held:
        where = pa.array(index)
        return _Held(self.slots[index], [column.take(where) for column in self.columns])

    def of(self, slots: Index) -> _Held:
        """Rows of some slots (ascending), by slot."""
        low, high = np.searchsorted(self.slots, slots), np.searchsorted(self.slots, slots, side="right")
        counts = high - low
        starts = np.cumsum(counts) - counts
        return self.at(np.repeat(low - starts, counts) + np.arange(int(counts.sum())))

    def with_(self, other: _Held) -> _Held:
        """Rows of both; where a slot is in both, the other's come later."""
        slots = np.concatenate([self.slots, other.slots])
        columns = [pa.concat_arrays(pair) for pair in zip(self.columns, other.columns, strict=True)]
        return _Held(slots, columns).at(np.argsort(slots, kind="stable"))


@dataclass(frozen=True, slots=True)
class _Both:
    """Rows of most slots, and the newer ones of those seen lately. They never change."""

    base: _Held
    recent: _Held

    def of(self, slots: Index) -> _Held:
        """The rows of some slots (ascending)."""
        recent = self.recent.of(slots)
        newer = np.append(recent.slots, -1)[np.searchsorted(recent.slots, slots)] == slots
        return self.base.of(slots[~newer]).with_(recent)

    def all(self) -> _Held:
        return self.base.without(self.recent.slots).with_(self.recent)

    def layout(self) -> SlottedRows:
        return SlottedRows(self.base.slots, self.recent.slots)


class Lags:
    """The last rows of every slot, of some columns.

    The rows of slots seen lately stand in a small part, so that a train costs what its own slots cost.

    Args:
        types: of the columns.
        offsets: for each result: the column, and how many rows earlier.
    """

    def __init__(self, types: Sequence[pa.DataType], offsets: Sequence[tuple[int, int]]) -> None:
        self._offsets = list(offsets)
        self._depth = max(offset for _, offset in offsets)
        self._types = list(types)
        self._base = self._empty()
        self._recent = self._empty()
        self._changes = SlotChanges()
        self._left: list[Index] = []
        """Slots that no row will have any more, that are held still."""

    def _empty(self) -> _Held:
        return _Held(NONE, [pa.nulls(0, type) for type in self._types])

    def take(self, slots: Index, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The results of these rows, which are then held themselves."""
        seen = np.unique(slots)
        self._changes.note(seen)
        before = _Both(self._base, self._recent).of(seen)
        held = len(before.slots)
        together = before.with_(_Held(slots, columns))
        all_slots = np.concatenate([before.slots, slots])
        order = np.argsort(all_slots, kind="stable")
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        mine = places[held:]
        begins = np.searchsorted(together.slots, slots)
        results = []
        for column, offset in self._offsets:
            at = mine - offset
            index = pa.array(np.where(at >= begins, at, 0), mask=at < begins)
            results.append(together.columns[column].take(index))
        ends = np.searchsorted(together.slots, together.slots, side="right")
        last = together.at(np.flatnonzero(ends - np.arange(len(ends)) <= self._depth))
        self._recent = self._recent.without(seen).with_(last)
        if len(self._recent.slots) > max(RECENT_ROWS, len(self._base.slots) // 8):
            self._settle()
        return results

    def _settle(self) -> None:
        self._base = _Both(self._base, self._recent).all()
        self._recent = self._empty()

    def keep(self, slots: Index) -> None:
        """Forget all other slots."""
        self._settle()
        self._base = self._base.at(np.flatnonzero(np.isin(self._base.slots, slots)))
        self._left = []

    def leave(self, slots: Index) -> None:
        """No row will have them any more."""
        self._left.append(slots)
        # Few arrays, however often some leave: two are put together once the newer is as long.
        while len(self._left) > 1 and len(self._left[-2]) <= len(self._left[-1]):
            newer = self._left.pop()
            self._left[-1] = np.concatenate([self._left[-1], newer])

    def nbytes(self) -> int:
        columns = [*self._base.columns, *self._recent.columns]
        slots = (self._base.slots, self._recent.slots, *self._left)
        return sum(int(column.nbytes) for column in columns) + 8 * sum(map(len, slots))

    # State

    def later(self, slots: int, schema: pa.Schema, capture: Capture | None = None) -> Deferred:
        """What is held as a table of these columns: by slot those that haven't left, oldest row first.

        Args:
            slots: how many there are: all from 0 on, where there is a capture.
            capture: only those that changed since its base, where that is known; only where none ever leaves.
        """
        both, left = _Both(self._base, self._recent), list(self._left)
        found = self._changes.since(capture, both.layout(), slots) if capture is not None else None

        def table(held: _Held) -> pa.Table:
            return pa.Table.from_arrays([pa.array(held.slots), *held.columns], schema=schema)

        def make() -> tuple[pa.Table, TableChange | None]:
            changed = found.changed(slots) if found is not None else None
            if found is None or changed is None:
                held = both.all()
                return table(held.without(np.concatenate(left)) if left else held), None
            held = both.of(changed)
            return table(held), slots_changed(found.then, changed, held.slots)

        return Deferred(make, captured=capture is not None)

    def load(self, slots: Index, columns: Sequence[pa.Array]) -> None:
        """Take that back; ValueError where it can't be."""
        if (np.diff(slots) < 0).any():
            raise ValueError("lags: slots don't ascend")
        if len(slots) and np.unique(slots, return_counts=True)[1].max() > self._depth:
            raise ValueError("lags: more rows of a slot than are looked at")
        self._base = _Held(slots, columns)
