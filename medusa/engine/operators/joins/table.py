"""The box of a keyed table: all its updates, merged by time.

Row by row by meaning, by rounds in fact: rows of different keys don't touch each other, so the first
rows of all keys of a step go together, then the second ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.keyed_table import TableStore
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer
from medusa.engine.core.rows import as_int64, as_times, take
from medusa.engine.core.site import Site
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Field, Schema, Table, Update
from medusa.query.boxes.tables import DELETED, PREFIX, read_rows
from medusa.query.expressions.tree import columns_of
from medusa.query.types import schema_to_arrow

__all__ = ["TableBox", "make_table_box"]


INPUT_ROWS = 1 << 52
"""Of a part of a split: place of a row = number of its input x this + the number that its router gave it."""


class _Input:
    """One update: its rows that wait, and the expressions of what they do."""

    def __init__(self, box: Operator, letters: DeadLetters, spec: Update, row: Schema, table: Schema) -> None:
        self.spec = spec
        self.schema = schema_to_arrow(row)
        self.waiting = TimedRowBuffer(self.schema)
        self.keys = Columns(box, letters, spec.keys, row)
        used = {name for each in spec.set for name in columns_of(each.expression)}
        stored = [field for field in table if PREFIX + field.name in used]
        self.stored = [field.name for field in stored]
        both = (*row, *(Field(PREFIX + field.name, field.type) for field in stored))
        self.both = schema_to_arrow(both)
        self.set = Columns(box, letters, spec.set, both) if spec.set else None
        self.insert = Columns(box, letters, spec.insert, row) if spec.insert else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one input that became ready: their keys, slots, and places in the merged order."""

    rows: Timed
    keys: list[pa.Array]
    slots: Ints
    rank: Ints

    def pick(self, index: Ints) -> _Rows:
        at = pa.array(index)
        return _Rows(
            self.rows.pick(index), [key.take(at) for key in self.keys], self.slots[index], self.rank[index]
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """Rows that an update gave."""

    input: int
    batch: pa.RecordBatch
    times: Ints
    rank: Ints
    deleted: bool


class TableBox(Operator):
    """Updates wait for the boundary of all of them; then each sees what those before it left.

    Args:
        inputs: columns of each input.
    """

    kind = "table"

    def __init__(self, spec: Table, *, inputs: Sequence[Schema], letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=len(inputs))
        self.boundary_ports = spec.ports
        self._spec = spec
        self._schema = schema_to_arrow(spec.schema)
        if spec.position is not None:
            self._schema = self._schema.append(pa.field(spec.position, pa.int64()))
        self._changes = self._schema.append(pa.field(DELETED, pa.bool_()))
        self._store = TableStore(spec.schema, spec.keys, spec.expire_us)
        self._store.fill(read_rows(spec, f"table {spec.id!r}"))
        self._inputs = [
            _Input(self, letters, update, row, spec.schema)
            for update, row in zip(spec.updates, inputs, strict=True)
        ]

    # Elements

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        if len(kept):
            self._inputs[input].waiting.add(Timed.of(kept))

    def on_boundary(self, time_us: int) -> None:
        ready = self._ready(time_us)
        if ready:
            self._send(self._apply(ready))
        if time_us < END_US:
            self._store.forget(time_us)
        self.advance(time_us)

    def _ready(self, boundary_us: int) -> dict[int, _Rows]:
        """Of each input the rows below the boundary."""
        found: dict[int, tuple[Timed, list[pa.Array]]] = {}
        for number, input in enumerate(self._inputs):
            rows = input.waiting.ready(boundary_us)
            if rows is not None:
                whole, keys = input.keys.compute(rows.train())
                if len(whole):
                    found[number] = (Timed.of(whole), keys)
        if not found:
            return {}
        times = np.concatenate([rows.times for rows, _ in found.values()])
        rank = np.empty(len(times), np.int64)
        rank[np.argsort(times, kind="stable")] = np.arange(len(times))
        made, start = {}, 0
        for number, (rows, keys) in found.items():
            stop = start + len(rows)
            made[number] = _Rows(rows, keys, self._store.slots(keys), rank[start:stop])
            start = stop
        return made

    def _apply(self, ready: dict[int, _Rows]) -> list[_Stored]:
        """Round by round: in each, every key has one row at most."""
        slots = np.concatenate([rows.slots for rows in ready.values()])
        ranks = np.concatenate([rows.rank for rows in ready.values()])
        order = np.lexsort((ranks, slots))
        sorted_slots = slots[order]
        first = np.concatenate([[True], sorted_slots[1:] != sorted_slots[:-1]])
        begins = np.flatnonzero(first)
        count = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        turn = np.empty(len(order), np.int64)
        turn[order] = count
        turns: dict[int, list[tuple[int, _Rows]]] = {}
        start = 0
        for number, rows in ready.items():
            mine = turn[start : start + len(rows.slots)]
            start += len(rows.slots)
            by_turn = np.argsort(mine, kind="stable")
            edges = np.flatnonzero(np.diff(mine[by_turn])) + 1
            for index in np.split(by_turn, edges):
                whole = len(index) == len(mine)
                turns.setdefault(int(mine[index[0]]), []).append(
                    (number, rows if whole else rows.pick(index))
                )
        made: list[_Stored] = []
        for each in sorted(turns):
            for number, rows in turns[each]:
                made += self._change(number, rows)
        return made

    def _change(self, number: int, rows: _Rows) -> list[_Stored]:
        """One round of one update."""
        input = self._inputs[number]
        found = self._store.sees(rows.slots, rows.rows.times)
        there = rows if found.all() else rows.pick(np.flatnonzero(found))
        if input.spec.delete:
            if not len(there.slots):
                return []
            stored = self._stored(number, there, deleted=True)
            self._store.drop(there.slots)
            return [stored]
        made = []
        if len(there.slots):
            columns = [self._store_column(name, there) for name in input.stored]
            batch = pa.RecordBatch.from_arrays([*there.rows.batch.columns, *columns], schema=input.both)
            made += self._write(number, there, batch, input.set, [c.name for c in input.spec.set], new=False)
        if input.spec.insert is not None and not found.all():
            rest = rows.pick(np.flatnonzero(~found))
            names = [column.name for column in input.spec.insert]
            made += self._write(number, rest, rest.rows.batch, input.insert, names, new=True)
        return made

    def _store_column(self, name: str, rows: _Rows) -> pa.Array:
        if name in self._store.columns:
            return self._store.columns[name].read(rows.slots)
        return rows.keys[self._store.keys.index(name)]

    def _write(
        self,
        number: int,
        rows: _Rows,
        batch: pa.RecordBatch,
        columns: Columns | None,
        names: list[str],
        *,
        new: bool,
    ) -> list[_Stored]:
        values: dict[str, pa.Array] = {}
        if columns is not None:
            train = Train(batch=batch, times=as_times(np.ascontiguousarray(rows.rows.times)))
            _, arrays, index = columns.compute_indexed(train)
            if index is not None:
                rows = rows.pick(index)
            values = dict(zip(names, arrays, strict=True))
        if not len(rows.slots):
            return []
        self._store.put(rows.slots, rows.rows.times, values, new=new)
        return [self._stored(number, rows, deleted=False)]

    def _stored(self, number: int, rows: _Rows, *, deleted: bool) -> _Stored:
        batch = pa.RecordBatch.from_arrays(self._columns(number, rows), schema=self._schema)
        return _Stored(number, batch, rows.rows.times, rows.rank, deleted)

    def _columns(self, number: int, rows: _Rows) -> list[pa.Array]:
        """What leaves of rows of an input."""
        columns = [self._store_column(name, rows) for name in self._store.names]
        if self._spec.position is not None:
            place = as_int64(rows.rows.batch.column(self._spec.position)) + number * INPUT_ROWS
            columns.append(pa.array(place))
        return columns

    # Output

    def _send(self, made: list[_Stored]) -> None:
        for number in range(len(self._inputs)):
            mine = [each for each in made if each.input == number]
            if mine:
                train = _merged(mine, [each.batch for each in mine])
                self.rows_out += len(train)
                self.emit(train, f"u{number}")
        if made and self.has_readers(""):
            flagged = [
                pa.RecordBatch.from_arrays(
                    [*each.batch.columns, pa.array(np.full(len(each.times), each.deleted))],
                    schema=self._changes,
                )
                for each in made
            ]
            self.emit(_merged(made, flagged))

    # What is asked about it

    def state_bytes(self) -> int:
        return self._store.nbytes()

    def queue_bytes(self) -> int:
        return sum(input.waiting.nbytes() for input in self._inputs)

    def queue_rows(self) -> int:
        return sum(len(input.waiting) for input in self._inputs)

    def waits_for(self, names: Sequence[str]) -> str:
        if not names:
            return f"holds {len(self._store)} rows, which nothing changes"
        return super().waits_for(names)

    def waits_open(self, names: Sequence[str]) -> str:
        return self.held(names, waits=True)

    # State

    def save_more(self, state: BoxState) -> None:
        self._store.save(state, "rows")
        for number, input in enumerate(self._inputs):
            input.waiting.save(state, f"waiting-{number}")

    def load_more(self, state: BoxState) -> None:
        self._store = TableStore(self._spec.schema, self._spec.keys, self._spec.expire_us)
        self._store.load(state, "rows")
        for number, input in enumerate(self._inputs):
            input.waiting.load(state, f"waiting-{number}")


def _merged(made: list[_Stored], batches: list[pa.RecordBatch]) -> Train:
    """The rows in merged order."""
    order = np.argsort(np.concatenate([each.rank for each in made]), kind="stable")
    times = np.concatenate([each.times for each in made])[order]
    return Train(batch=take(pa.concat_batches(batches), pa.array(order)), times=as_times(times))


def make_table_box(spec: Table, site: Site) -> Operator:
    return TableBox(spec, inputs=site.schemas, letters=site.letters)
