"""Accumulators of windows that close group by group: sessions, row windows, value windows.

An open thing has a slot: a number that is never used again. The native store holds the accumulators
of all slots; what has left is dropped when it is more than what is open, so memory follows what is
open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa._native import ItemsCopy, Keys, RunningStore, Window, keys_nbytes, pick_keys
from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.native_types import narrow, native_arrow, native_type, widen
from medusa.engine.core.rows import as_int64, as_times, only_chunk
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.windows.aggregate_calls import NativeCall, calls_of
from medusa.engine.operators.windows.groups_user import SlotAggregates
from medusa.engine.operators.windows.slot_results import Finished, Numbers
from medusa.engine.state.background_copy import (
    ByNumber,
    OfItems,
    capture_of,
    groups_later,
    items_later,
    rows_later,
)
from medusa.engine.state.row_changes import GrowingRows
from medusa.query.boxes import AggregateCall, Schema
from medusa.query.expressions.aggregates import AGGREGATES
from medusa.query.expressions.expression import Named
from medusa.query.shape import types_of

__all__ = ["Groups", "KeyIndex", "expect_integers"]

PANE_US = 1 << 60
"""All rows of a store fall into one pane of the native window; half of it lies before the epoch."""

DEAD_LEAST = 4096

LEFT_MOST = 4096
"""Slots that leave before the store is told, where its state is captured: what begins then looks them up."""
ORDERED = frozenset(name for name, kind in AGGREGATES.items() if kind.ordered)
HIDDEN = ("latest time", "all rows")
"""Columns of state that no aggregate of the query asked for."""


class KeyIndex:
    """Keys to numbers, and back."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = list(types)
        self._native = [native_type(type) for type in types]
        self._names = [f"k{i}" for i in range(len(self._types))]
        self.keys = Keys(self._native)

    def __len__(self) -> int:
        return len(self.keys) if self._types else 1

    def ids(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """An int32 for each row; new keys get the next numbers."""
        if not self._types:
            return pa.array(np.zeros(rows, dtype=np.int32))
        wide = [widen(column, type) for column, type in zip(columns, self._types, strict=True)]
        return pa.array(self.keys.map(pa.RecordBatch.from_arrays(wide, self._names)))

    def columns(self, ids: Numbers) -> list[pa.Array]:
        """The keys of some numbers, one column each."""
        if not self._types:
            return []
        batch = pa.record_batch(pick_keys(self.keys, pa.array(ids)))
        return [narrow(column, type) for column, type in zip(batch.columns, self._types, strict=True)]

    def keep(self, ids: Numbers) -> None:
        """Forget all others; the number of ``ids[i]`` becomes i."""
        if not self._types:
            return
        kept = pa.record_batch(pick_keys(self.keys, pa.array(ids)))
        self.keys = Keys(self._native)
        self.keys.map(kept)

    def later(self, ids: Numbers, made: Callable[[list[pa.Array]], pa.Table]) -> ByNumber | None:
        """A table of the keys of some numbers, copied piece by piece; None: they are few.

        Args:
            made: the table, of their columns.
        """
        take = self._taking(lambda start, end: ids[start:end])
        return rows_later(len(ids), take, made) if self._types else None

    def grown(
        self,
        rows: int,
        more: Callable[[int, int], list[pa.Array]],
        made: Callable[[list[pa.Array]], pa.Table],
        state: BoxState,
        known: GrowingRows,
    ) -> ByNumber | None:
        """A table of the keys 0 .. rows and other columns, none of which changes; None: they are few.

        Args:
            more: those columns of the keys [start, end).
            made: the table, of all columns.
            known: how many there were at earlier captures.
        """
        if not self._types:
            return None
        capture = capture_of(state.capture, rows)
        change = known.since(capture, rows) if capture is not None else None
        first = change.base_rows if change is not None else 0
        keys = self._taking(lambda start, end: np.arange(first + start, first + end))

        def take(start: int, end: int) -> list[pa.Array]:
            return [*keys(start, end), *more(first + start, first + end)]

        captured = capture is not None
        return rows_later(rows - first, take, made, patient=state.patient, captured=captured, change=change)

    def of_items(
        self,
        begin: Callable[[int, int], ItemsCopy],
        rows: int,
        made: Callable[[list[pa.Array]], pa.Table],
        state: BoxState,
    ) -> OfItems:
        """A table of the keys of numbered items, and of other columns of them.

        Args:
            begin: a copy of the items: first the number of the key, then those columns.
            rows: how many there are.
            made: the table, of all columns.
        """
        pick = self._picking()

        def take(items: pa.RecordBatch) -> list[pa.Array]:
            return [*pick(items.column(0)), *items.columns[1:]]

        return items_later(begin, rows, take, made, patient=state.patient, capture=state.capture)

    def _picking(self) -> Callable[[pa.Array], list[pa.Array]]:
        """Their columns, of some numbers."""
        keys, types = self.keys, self._types  # ``keep`` leaves them as they are

        def pick(ids: pa.Array) -> list[pa.Array]:
            batch = pa.record_batch(pick_keys(keys, ids))
            return [narrow(column, type) for column, type in zip(batch.columns, types, strict=True)]

        return pick if types else lambda ids: []

    def _taking(self, ids: Callable[[int, int], Numbers]) -> Callable[[int, int], list[pa.Array]]:
        """Their columns, of the numbers [start, end) of some."""
        pick = self._picking()
        return lambda start, end: pick(pa.array(ids(start, end)))

    def nbytes(self) -> int:
        return keys_nbytes(self.keys)


def _by_arrival(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Partial states of joined sessions, with places for times: at equal times an earlier part is later.

    Rows that came after sessions were joined are in the first part, and only they can have the time of a
    row of another one. Who merges takes the last part for the later one.
    """
    table = pa.Table.from_batches(parts).combine_chunks()
    for number, name in enumerate(table.schema.names):
        if not name.endswith(".at"):
            continue
        times = table.column(number)
        values = as_int64(times.fill_null(0).combine_chunks())
        places = np.empty(len(values), dtype=np.int64)
        places[np.lexsort((-np.arange(len(values)), values))] = np.arange(len(values))
        ranked = pa.array(places, mask=np.asarray(times.is_null()))
        table = table.set_column(number, table.schema.field(number), ranked)
    return table.to_batches()  # type: ignore[no-any-return]


class Groups:
    """The columns that a box reads, and the accumulators of its slots.

    Args:
        extra: columns besides keys and arguments, computed with them.
        latest: also keep the largest time of each slot; ``finish`` gives it as the last column.
        by_time: ``first`` and ``last`` go by time; else by order of arrival.
    """

    def __init__(
        self,
        box: Operator,
        letters: DeadLetters,
        input: Schema,
        *,
        keys: Sequence[Named],
        calls: Sequence[AggregateCall],
        extra: Sequence[Named] = (),
        latest: bool,
        by_time: bool,
        timed: bool,
    ) -> None:
        label = f"{box.kind} {box.id!r}"
        made = calls_of(calls, types_of(input), label=label)
        self._calls = calls
        self.places = made.places
        users = {place: calls[place] for place in made.users}
        self._users = SlotAggregates(users, label=label) if users else None
        self._arguments: dict[int, range] = {}
        asked = [*keys, *extra, *made.arguments]
        for place, call in users.items():
            args = [arg for arg in (call.arg, *(call.more or ())) if arg is not None]
            self._arguments[place] = range(len(asked), len(asked) + len(args))
            asked += [Named(call.name, arg) for arg in args]
        self.columns = Columns(box, letters, asked, input, timed=timed)
        self._key_names = [f"key.{key.name}" for key in keys]
        types = self.columns.types
        self.width = len(keys)
        self._first = len(keys) + len(extra)
        self.index = KeyIndex(types[: self.width])
        self._types = types[self._first : self._first + len(made.arguments)]
        self._latest = latest
        self._by_time = by_time and any(call.function in ORDERED for call in calls)
        native = [native_type(type) for type in self._types]
        self._native_calls = list(made.native)
        self._combine_calls, self._combine_inputs = _apart(made.native, native)
        if latest:
            self._native_calls.append(("max", len(native), 0.0))
            self._combine_calls.append(("max", len(self._combine_inputs), 0.0))
            native.append("l")
            self._combine_inputs.append("l")
        self._native = native
        self._schema = pa.schema(
            [("order", pa.int64()), ("slot", pa.int64())]
            + [(str(i), native_arrow(type)) for i, type in enumerate(self._types)]
            + ([("time", pa.int64())] if latest else [])
        )
        self._store = self._fresh()
        self._left: list[Numbers] = []
        """Slots that have left, that the store wasn't told of yet."""
        self._captured = False
        """The store's state was captured, so that it will be again."""
        self._held = 0
        self._next = 0
        self._zeros = np.zeros(0, dtype=np.int64)

    def _fresh(self) -> RunningStore:
        return RunningStore(
            size_us=PANE_US,
            advance_us=PANE_US,
            keys=["l"],
            inputs=self._native,
            aggregates=self._native_calls,
        )

    # Keys

    def keys_of(self, ids: Numbers) -> list[pa.Array]:
        """The keys of some numbers, one column each."""
        return self.index.columns(ids)

    def keep_keys(self, ids: Numbers) -> None:
        """Forget all others; the number of ``ids[i]`` becomes i."""
        self.index.keep(ids)

    def key_fields(self) -> list[tuple[str, pa.DataType]]:
        """Names and types of the columns of keys in a saved state."""
        none = self.keys_of(np.zeros(0, dtype=np.int64))
        return [(name, column.type) for name, column in zip(self._key_names, none, strict=True)]

    def save_keys(self, state: BoxState, name: str, ids: Numbers, more: Mapping[str, pa.Array]) -> None:
        """The keys of some numbers as a table, beside other columns."""

        def table(keys: list[pa.Array]) -> pa.Table:
            return pa.Table.from_arrays([*keys, *more.values()], names=[*self._key_names, *more])

        later = self.index.later(ids, table) if state.patient else None
        state.put(name, later or table(self.keys_of(ids)))

    def save_items(
        self,
        state: BoxState,
        name: str,
        begin: Callable[[int, int], ItemsCopy],
        rows: int,
        more: Sequence[str],
    ) -> None:
        """Numbered items as a table: their keys, and columns ``more``.

        Args:
            begin: a copy of them: the number of the key, then those columns.
            rows: how many there are.
        """
        names = [*self._key_names, *more]

        def table(columns: list[pa.Array]) -> pa.Table:
            return pa.Table.from_arrays(columns, names=names)

        state.put(name, self.index.of_items(begin, rows, table, state))

    def save_grown_keys(
        self,
        state: BoxState,
        name: str,
        rows: int,
        more: Callable[[int, int], dict[str, pa.Array]],
        known: GrowingRows,
    ) -> None:
        """As ``save_keys`` of all numbers below ``rows``, where no row ever changes or goes.

        Args:
            more: the other columns of the rows [start, end).
            known: how many rows there were at earlier captures.
        """
        names = [*self._key_names, *more(0, 0)]

        def table(columns: list[pa.Array]) -> pa.Table:
            return pa.Table.from_arrays(columns, names=names)

        later = self.index.grown(rows, lambda a, b: list(more(a, b).values()), table, state, known)
        state.put(name, later or table([*self.keys_of(np.arange(rows)), *more(0, rows).values()]))

    def load_keys(self, columns: Sequence[pa.Array], rows: int) -> Numbers:
        """Know the keys of a saved table; the number of each row's."""
        return as_int64(self.index.ids(columns, rows).cast(pa.int64()))

    # Rows in

    def compute(self, train: Train) -> tuple[Train, list[pa.Array]]:
        """The rows that don't fail, and the columns that are read of them."""
        return self.columns.compute(train)

    def ids(self, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        return self.index.ids(arrays[: self.width], rows)

    def add(self, slots: pa.Array, arrays: Sequence[pa.Array], times: pa.Array | None) -> None:
        """Take rows into their slots, in order."""
        if not len(slots):
            return
        self._store.add(self._rows(slots, arrays, times))
        if self._users is not None:
            self._users.add(as_int64(slots), self._users_arguments(arrays))

    def run(self, slots: pa.Array, arrays: Sequence[pa.Array]) -> Finished:
        """Take rows, in order of arrival; the aggregates of its slot as they stand after each."""
        if not len(slots):
            return Finished(np.zeros(0, np.int64), [], [])
        batches = [pa.record_batch(batch) for batch in self._store.run(self._rows(slots, arrays, None))]
        failed = self._store.failed()
        dead: list[tuple[int, int]] = []
        if failed is not None:
            told = pa.record_batch(failed)
            calls = [self.places[call] for call in told.column(3).to_pylist()]
            dead = sorted(zip(as_int64(told.column(0)).tolist(), calls, strict=True))
        users = {}
        if self._users is not None:
            users = self._users.run(as_int64(slots), self._users_arguments(arrays))
        if not batches:
            return Finished(np.zeros(0, np.int64), [], dead)
        columns = [pa.concat_arrays(parts) for parts in zip(*(b.columns for b in batches), strict=True)]
        index = as_int64(columns[0])
        found = {place: column for place, column in zip(self.places, columns[3:], strict=True) if place >= 0}
        found |= {place: column.take(pa.array(index)) for place, column in users.items()}
        return Finished(index, [found[place] for place in range(len(self._calls))], dead)

    def _users_arguments(self, arrays: Sequence[pa.Array]) -> dict[int, list[pa.Array]]:
        return {place: [arrays[i] for i in at] for place, at in self._arguments.items()}

    def _rows(self, slots: pa.Array, arrays: Sequence[pa.Array], times: pa.Array | None) -> pa.RecordBatch:
        rows = len(slots)
        if self._by_time:
            order = np.clip(as_int64(times), -(PANE_US // 2), PANE_US // 2 - 1) + PANE_US // 2
        else:
            if len(self._zeros) < rows:
                self._zeros = np.zeros(rows, dtype=np.int64)
            order = self._zeros[:rows]
        columns = [pa.array(order), slots]
        arguments = arrays[self._first : self._first + len(self._types)]
        columns += [widen(a, t) for a, t in zip(arguments, self._types, strict=True)]
        if self._latest:
            columns.append(times.view(pa.int64()))  # type: ignore[union-attr]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    # Results out

    def finish(self, slots: Numbers, numbers: Numbers | None, count: int) -> Finished:
        """The aggregates of ``count`` windows.

        Args:
            slots: their parts, in order.
            numbers: which window each part is of, ascending from 0; None: one part each.
        """
        if numbers is None:
            batches = [pa.record_batch(batch) for batch in self._store.pick(pa.array(slots))]
            failed = self._store.failed()
        else:
            window = self._combined(slots, numbers)
            batches = [pa.record_batch(batch) for batch in window.close(int(END_US))]
            failed = window.failed()
        table = pa.Table.from_batches(batches).combine_chunks() if len(batches) > 1 else None
        found = batches[0] if table is None and batches else table
        told_failed = self._failed(failed, slots, numbers)
        if found is None:
            return Finished(np.zeros(0, np.int64), [], told_failed)
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in found.columns]
        index = np.arange(count)
        if failed is not None:
            told = as_int64(columns[2])
            index = told if numbers is not None else np.flatnonzero(np.isin(slots, told))
        return Finished(index, self._ordered(columns[3:], index, slots, numbers, count), told_failed)

    def _ordered(
        self, native: list[pa.Array], index: Numbers, slots: Numbers, numbers: Numbers | None, count: int
    ) -> list[pa.Array]:
        """Results in the order of the aggregates, then the latest times."""
        found = {place: column for place, column in zip(self.places, native, strict=False) if place >= 0}
        if self._users is not None:
            at = pa.array(index)
            for place, column in self._users.finish(slots, numbers, count).items():
                found[place] = column.take(at)
        return [found[place] for place in range(len(self._calls))] + native[len(self.places) :]

    def _combined(self, slots: Numbers, numbers: Numbers) -> Window:
        window = Window(
            size_us=1,
            advance_us=1,
            keys=["l"],
            inputs=self._combine_inputs,
            aggregates=self._combine_calls,
            stage="combine",
        )
        at = 0
        made = [pa.record_batch(batch) for batch in self._store.pick(pa.array(slots), states=True)]
        for states in _by_arrival(made) if self._by_time else made:
            rows = states.num_rows
            start = as_times(np.zeros(rows, dtype=np.int64))
            end = as_times(np.ones(rows, dtype=np.int64))
            columns = [start, end, pa.array(numbers[at : at + rows]), *states.columns[3:]]
            window.add(pa.RecordBatch.from_arrays(columns, names=states.schema.names))
            at += rows
        return window

    def _failed(self, failed: Any, slots: Numbers, numbers: Numbers | None) -> list[tuple[int, int]]:
        """(window, aggregate) of those whose sum doesn't fit."""
        if failed is None:
            return []
        batch = pa.record_batch(failed)
        which = as_int64(batch.column(2))
        if numbers is None:
            order = np.argsort(slots)
            which = order[np.searchsorted(slots, which, sorter=order)]
        calls = [self.places[call] for call in batch.column(3).to_pylist()]
        return sorted(zip(which.tolist(), calls, strict=True))

    def leave(self, slots: Numbers) -> None:
        """They aren't in use any more."""
        self._left.append(slots)
        # Few arrays, however often some leave: two are put together once the newer is as long.
        while len(self._left) > 1 and len(self._left[-2]) <= len(self._left[-1]):
            newer = self._left.pop()
            self._left[-1] = np.concatenate([self._left[-1], newer])
        if self._captured and len(self._left[0]) >= LEFT_MOST:
            self._tell_left()

    def _tell_left(self) -> None:
        if self._left:
            self._store.leave(pa.array(np.concatenate(self._left)))
            self._left = []

    def settle(self, next_slot: int, live: int) -> bool:
        """Whether most slots have left, so that ``keep`` is due."""
        self._held += next_slot - self._next
        self._next = next_slot
        return self._held - live > max(DEAD_LEAST, live)

    def keep(self, slots: Numbers) -> None:
        """Drop the accumulators of all other slots."""
        boundary, taken = self._store.position()
        state = self._living(slots)
        self._store = self._fresh()
        self._store.load(state, boundary, taken)
        self._held = len(slots)
        self._left = []
        if self._users is not None:
            self._users.keep(slots)

    def _living(self, slots: Numbers | range) -> pa.RecordBatch:
        state = pa.record_batch(self._store.state())
        if state.num_rows == len(slots):  # none of them is waiting to be freed
            return state
        return state.filter(pc.is_in(state.column(4), value_set=pa.array(np.asarray(slots, dtype=np.int64))))

    def nbytes(self) -> int:
        users = self._users.nbytes() if self._users is not None else 0
        left = sum(slots.nbytes for slots in self._left)
        return self._store.nbytes() + self.index.nbytes() + users + left

    # State

    def save(self, state: BoxState, count: int, slots: Callable[[], Numbers | range]) -> None:
        """The accumulators of the slots in use, as table ``groups``.

        Args:
            count: how many those are.
            slots: gives them, where it has to be asked.
        """
        self._tell_left()
        self._captured |= state.capture is not None
        patient, capture = state.patient, state.capture
        later = groups_later(self._store, self._table, count, patient=patient, capture=capture)
        state.put("groups", later or self._table(self._living(slots())))
        state.meta["rows"] = self._store.position()[1]
        if self._users is not None:
            state.tables["users"] = self._users.save(np.asarray(slots(), dtype=np.int64))

    def _table(self, rows: pa.RecordBatch) -> pa.Table:
        groups = pa.Table.from_batches([rows])
        names = [self._readable(name) for name in groups.schema.names]
        return groups.rename_columns(names).drop_columns(["pane_start", "pane_end"])

    def load(self, state: BoxState, slots: Numbers, next_slot: int) -> None:
        """Take that back; ValueError unless it has exactly these slots."""
        fresh = pa.record_batch(self._store.state())
        fields = [field.with_name(self._readable(field.name)) for field in fresh.schema]
        table = expect_table(state.tables, "groups", pa.schema(fields[2:])).combine_chunks()
        (taken,) = expect_integers([state.meta["rows"]], 1)
        columns = [only_chunk(column) for column in table.columns]
        rows = table.num_rows
        bounds = [np.zeros(rows, dtype=np.int64), np.full(rows, PANE_US)]
        held = columns[2]
        if held.null_count or not np.array_equal(np.sort(as_int64(held)), np.sort(slots)):
            raise ValueError("groups: other slots than those that are open")
        if rows:
            batch = pa.RecordBatch.from_arrays([*map(pa.array, bounds), *columns], schema=fresh.schema)
            self._store.load(batch, -(1 << 63), taken)
        elif taken < 0:
            raise ValueError(f"{taken} rows taken")
        self._held, self._next = rows, next_slot
        if self._users is not None:
            self._users.load(state, slots)

    def _readable(self, name: str) -> str:
        """Names of native state in the words of the query."""
        if name == "k0":
            return "slot"
        head, dot, suffix = name.partition(".")
        if dot and head[1:].isdigit():
            number = int(head[1:])
            place = self.places[number] if number < len(self.places) else -1
            return f"{self._calls[place].name}.{suffix}" if place >= 0 else f"{HIDDEN[number == 0]}.{suffix}"
        return name


def _apart(calls: Sequence[NativeCall], inputs: Sequence[str]) -> tuple[list[NativeCall], list[str]]:
    """The calls with an input each: the state columns of an aggregate stand alone."""
    made: list[NativeCall] = []
    own: list[str] = []
    for function, argument, parameter in calls:
        if argument < 0:
            made.append((function, -1, parameter))
            continue
        made.append((function, len(own), parameter))
        own.append(inputs[argument])
    return made, own


def expect_integers(values: Any, count: int) -> list[int]:
    """Whole numbers of a saved state that fit 64 bits; ValueError for anything else."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"expected {count} integers, got {values!r}")
    for value in values:
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"expected {count} integers, got {values!r}")
    return values
