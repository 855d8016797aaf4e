"""The states of the keys of a process box, and their table in a checkpoint, as captures take it."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Sequence
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from medusa._native import Slots
from medusa.engine.core.box import BoxState
from medusa.engine.state.background_copy import items_later
from medusa.engine.udf.key_state import KeyState
from medusa.engine.udf.process_state import KeyRow, key_columns, keys_schema, load_keys
from medusa.query.boxes import Schema

__all__ = ["KeyStates"]

SPARE = 1 << 14
"""Numbers of keys that have gone beyond as many as there are, before all get new ones."""

ROW_COST = 64
"""Copying a key, whose fields are Python's, takes as long as copying so many rows of a native window."""


class _Copy:
    """What was kept for a copy: keys as they were when it began, that changed before it came to them.

    Attributes:
        broken: a piece of it couldn't be made, and would be another by now.
    """

    def __init__(self) -> None:
        self.rows: list[KeyRow] = []
        self.broken = False

    def keep(self, make: Callable[[], list[KeyRow]]) -> None:
        try:
            self.rows += make()
        except BaseException:
            self.fail()  # else it would take other keys for them
            raise

    def fail(self) -> None:
        self.broken = True


class KeyStates:
    """By key, in the order in which keys got a state; each has a number that ascends with it.

    Args:
        names, types: of the key columns.
        fields: of a state.
        timed: first rows are (time, place), as in a part of a split, and not numbers.
    """

    def __init__(self, names: Sequence[str], types: Sequence[str], fields: Schema, *, timed: bool) -> None:
        self._names, self._types, self._fields, self._timed = names, types, fields, timed
        self._states: dict[Any, KeyState] = {}
        self._keys: list[Any] = []
        """By number; of one that has gone, anything."""
        self._held: list[KeyState | None] = []
        """The same."""
        self._slots = Slots()
        self._copy: ReferenceType[_Copy] | None = None
        """The last one; who makes it holds it."""

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: Any) -> KeyState | None:
        return self._states.get(key)

    def items(self) -> ItemsView[Any, KeyState]:
        return self._states.items()

    def nbytes(self) -> int:
        """Of what stands beside the states."""
        return self._slots.nbytes() + 16 * len(self._held)

    def touch(self, state: KeyState) -> None:
        """Fields or timers of the state of a key are about to change."""
        if self._copy is None:
            return  # nobody asked for them so far, so that nobody asks what changed
        copy = self._copy()
        number, first = state._number, len(copy.rows) if copy is not None else 0
        if self._slots.touch_one(number, first) and copy is not None:
            copy.keep(lambda: [self._kept_row(number)])

    def keep(self, key: Any, state: KeyState) -> None:
        """A key has this state from now on."""
        if len(self._held) > 2 * len(self._states) + SPARE and not self._slots.copying:
            self._renumber()
        self._slots.open_one(len(self._held), 0)
        state._numbered(len(self._held))
        self._keys.append(key)
        self._held.append(state)
        self._states[key] = state

    def drop(self, key: Any) -> None:
        """A key has none any more; one that never had any is no error. What it had was touched before."""
        state = self._states.pop(key, None)
        if state is not None:
            self._slots.close_one(state._number, 0)
            self._held[state._number] = self._keys[state._number] = None

    def _renumber(self) -> None:
        """From 0 on; captures before this are known no more."""
        self._slots.clear()
        self._keys, self._held = list(self._states), list(self._states.values())
        for number, state in enumerate(self._states.values()):
            state._numbered(number)
        self._slots.open(pa.array(np.arange(len(self._held))), 0)

    # State

    def save(self, state: BoxState, name: str) -> None:
        """One row for each key."""
        schema = keys_schema(self._names, self._types, self._fields, self._timed)
        if not state.patient and state.capture is None:
            rows = [(key, each.first, *each.saved()) for key, each in self._states.items()]
            state.put(name, pa.Table.from_arrays(self._columns(rows), schema=schema))
            return
        self._finish_copy()
        copy = _Copy()
        self._copy = ref(copy)
        take = partial(self._take, copy)
        made = partial(pa.Table.from_arrays, schema=schema)
        patient, capture, rows_now = state.patient, state.capture, len(self._states)
        later = items_later(
            self._slots.copy, rows_now, take, made, patient=patient, capture=capture, cost=ROW_COST
        )
        state.put(name, later)

    def _finish_copy(self) -> None:
        """A copy under way has all that it needs, and goes on."""
        copy = self._copy() if self._copy is not None else None
        left = self._slots.keep_all(len(copy.rows) if copy is not None else 0)
        if left is not None and copy is not None:
            numbers = pa.array(left).to_pylist()
            copy.keep(lambda: [self._kept_row(number) for number in numbers])

    def _row(self, number: int) -> KeyRow:
        state = self._held[number]
        assert state is not None, "a copy has keys that were there"
        return self._keys[number], state.first, *state.saved()

    def _kept_row(self, number: int) -> KeyRow:
        key, first, values, timers = self._row(number)
        return key, first, list(values), list(timers)

    def _take(self, copy: _Copy, items: pa.RecordBatch) -> list[pa.Array]:
        if copy.broken:
            raise MemoryError("out of memory for keys of a copy, which may have changed since")
        numbers, places = (column.to_pylist() for column in items.columns)
        try:
            rows = [
                self._row(number) if place < 0 else copy.rows[place]
                for number, place in zip(numbers, places, strict=True)
            ]
            return self._columns(rows)
        except BaseException:
            copy.fail()
            raise

    def _columns(self, rows: Sequence[KeyRow]) -> list[pa.Array]:
        return key_columns(rows, self._types, self._fields, timed=self._timed)

    def load(self, state: BoxState, *, make: Callable[[Any], KeyState], seen: int) -> None:
        """Take back what ``save`` gave; only where there is none.

        Raises:
            ValueError: as ``load_keys``.
        """
        self._states = load_keys(
            state, self._names, self._types, self._fields, make=make, seen=seen, timed=self._timed
        )
        self._renumber()
