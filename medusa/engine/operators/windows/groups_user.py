"""Aggregates that users wrote, by slot: beside the native store of ``groups.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.operators.windows.aggregate_user import Kept
from medusa.query.boxes import AggregateCall

__all__ = ["SlotAggregates"]

Index = npt.NDArray[np.int64]


class SlotAggregates:
    """The state arrays of users' aggregates; slots ascend in them.

    Args:
        calls: with the number of each among the box's aggregates.
    """

    def __init__(self, calls: Mapping[int, AggregateCall], *, label: str) -> None:
        self._kept = {place: Kept(call, label=label) for place, call in calls.items()}
        self._states = {place: kept.init(0) for place, kept in self._kept.items()}
        self._slots: Index = np.zeros(0, dtype=np.int64)

    def add(self, slots: Index, arguments: Mapping[int, Sequence[pa.Array]]) -> None:
        """Take rows, in order."""
        last = self._slots[-1] if len(self._slots) else -1
        new = np.unique(slots[slots > last])
        if len(new):
            self._slots = np.concatenate([self._slots, new])
        ids = np.searchsorted(self._slots, slots)
        for place, kept in self._kept.items():
            state = kept.grown(self._states[place], len(self._slots))
            self._states[place] = kept.add(state, ids, arguments[place])

    def run(self, slots: Index, arguments: Mapping[int, Sequence[pa.Array]]) -> dict[int, pa.Array]:
        """Take rows one by one; the results of the slot of each after it."""
        parts: dict[int, list[pa.Array]] = {place: [] for place in self._kept}
        for row in range(len(slots)):
            slot = slots[row : row + 1]
            self.add(
                slot, {place: [c.slice(row, 1) for c in columns] for place, columns in arguments.items()}
            )
            for place, array in self.finish(slot, None, 1).items():
                parts[place].append(array)
        return {place: pa.concat_arrays(arrays) for place, arrays in parts.items()}

    def _of(self, place: int, slots: Index) -> dict[str, npt.NDArray[Any]]:
        at = np.searchsorted(self._slots, slots)
        return {name: array[at] for name, array in self._states[place].items()}

    def finish(self, slots: Index, numbers: Index | None, count: int) -> dict[int, pa.Array]:
        """Results of windows by the number of the aggregate; parts of a window are merged in order."""
        made = {}
        for place, kept in self._kept.items():
            state = self._of(place, slots)
            if numbers is not None:
                state = kept.merge(kept.init(count), state, numbers)
            made[place] = kept.finish(state)
        return made

    def keep(self, slots: Index) -> None:
        """Drop all other slots."""
        slots = np.sort(slots)
        self._states = {place: self._of(place, slots) for place in self._kept}
        self._slots = slots

    def nbytes(self) -> int:
        return sum(int(array.nbytes) for state in self._states.values() for array in state.values())

    # State

    def save(self, slots: Index) -> pa.Table:
        slots = np.sort(slots)
        columns = [pa.array(slots)]
        for place in self._kept:
            columns += [pa.array(array) for array in self._of(place, slots).values()]
        return pa.Table.from_arrays(columns, names=self._names())

    def _names(self) -> list[str]:
        made = ["slot"]
        for kept in self._kept.values():
            made += [f"{kept.call.name}.{name}" for name in kept.dtypes]
        return made

    def load(self, state: BoxState, slots: Index) -> None:
        """ValueError unless it has exactly these slots."""
        slots = np.sort(slots)
        expected = self.save(np.zeros(0, dtype=np.int64)).schema
        table = expect_table(state.tables, "users", expected).combine_chunks()
        if any(column.null_count for column in table.columns):
            raise ValueError("users: a state is null")
        arrays = iter(column.to_numpy() for column in table.columns)
        if not np.array_equal(next(arrays), slots):
            raise ValueError("users: other slots than those that are open")
        self._slots = slots
        for place, kept in self._kept.items():
            self._states[place] = {
                name: np.array(next(arrays), dtype=kept.dtypes[name]) for name in kept.dtypes
            }
