"""Lookup: each row with the row of a table as it was at its time.

The box follows the changes of the table in a copy of its own, so that a step finds for all rows at
once the last change before each: they are sorted together by (slot, time), changes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.keyed_table import TableStore
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer
from medusa.engine.core.rows import as_bools, as_times
from medusa.engine.core.site import Site
from medusa.engine.expressions.box_expressions import Columns
from medusa.errors import QueryError
from medusa.query.boxes import Lookup, Schema, Table
from medusa.query.boxes.tables import DELETED, read_rows
from medusa.query.types import schema_to_arrow

__all__ = ["LookupBox", "make_lookup", "table_of"]

_STREAM, _CHANGES = 0, 1


class LookupBox(Operator):
    """Rows and changes wait until the boundaries of both inputs have passed them.

    Args:
        table: the table whose changes come.
        updated: anything may change it.
        row: columns of the stream.
        output: columns of the output.
    """

    kind = "lookup"

    def __init__(
        self,
        spec: Lookup,
        *,
        table: Table,
        updated: bool,
        row: Schema,
        output: Schema,
        letters: DeadLetters,
    ) -> None:
        super().__init__(spec.id, inputs=2)
        if not updated:
            self.inputs_us[_CHANGES] = int(END_US)
        self._spec = spec
        self._table = table
        self._columns = Columns(self, letters, spec.keys, row)
        self._rows = TimedRowBuffer(schema_to_arrow(row))
        self._changed = TimedRowBuffer(schema_to_arrow(table.schema).append(pa.field(DELETED, pa.bool_())))
        self._schema = schema_to_arrow(output)
        self._store = TableStore(table.schema, table.keys, table.expire_us)
        self._store.fill(read_rows(table, f"table {table.id!r}"))

    # Elements

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        if len(kept):
            (self._rows if input == _STREAM else self._changed).add(Timed.of(kept))

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._results(time_us))

    def _results(self, time_us: int) -> Iterator[None]:
        """Everything below a boundary, piece by piece, and then the boundary."""
        changes = self._changed.ready(time_us)
        slots = None
        if changes is not None:
            slots = self._store.slots([changes.batch.column(key) for key in self._store.keys])
        rows = self._rows.ready(time_us)
        if rows is not None:
            yield from self._find(rows, changes, slots)
        if changes is not None and slots is not None:
            self._follow(changes, slots)
        if time_us < END_US:
            self._store.forget(time_us)
        self.advance(time_us)

    def keys_of(self, batch: pa.RecordBatch, times: pa.Array) -> list[pa.Array]:
        """What rows look up; of those on which that fails, anything."""
        return self._columns.evaluate(batch, times)[0]

    def _find(self, rows: Timed, changes: Timed | None, changed_slots: Ints | None) -> Iterator[None]:
        whole, keys = self._columns.compute(rows.train())
        if not len(whole):
            return iter(())
        rows = Timed.of(whole)
        slots = self._store.slots(keys, insert=False)
        known = slots >= 0
        stored = known.copy()
        stored[known] = self._store.sees(slots[known], rows.times[known])
        # Where each row's values are: the stored ones it sees first, then the changes.
        source = np.full(len(rows), -1, np.int64)
        source[stored] = np.arange(int(stored.sum()))
        values = [column.read(slots[stored]) for column in self._store.columns.values()]
        if changes is not None and changed_slots is not None:
            last = _last_changes(slots, rows.times, changed_slots, changes.times)
            hit = last >= 0
            at = last[hit]
            gone = as_bools(changes.batch.column(DELETED))[at]
            gone |= ~self._store.fresh(rows.times[hit], changes.times[at])
            source[hit] = np.where(gone, -1, int(stored.sum()) + at)
            values = [
                pa.concat_arrays([column, changes.batch.column(name)])
                for column, name in zip(values, self._store.columns, strict=True)
            ]
        return self._send(rows, values, source)

    def _send(self, rows: Timed, values: list[pa.Array], source: Ints) -> Iterator[None]:
        found = source >= 0
        if self._spec.how == "inner" and not found.all():
            index = np.flatnonzero(found)
            rows, source, found = rows.pick(index), source[index], found[index]
        for first, end in self._cuts(values, source):
            at = pa.array(source[first:end], mask=~found[first:end])
            columns = [*rows.batch.slice(first, end - first).columns, *(column.take(at) for column in values)]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            times = as_times(np.ascontiguousarray(rows.times[first:end]))
            self.emit_train(Train(batch=batch, times=times))
            if end < len(rows):
                yield

    def _cuts(self, values: list[pa.Array], source: Ints) -> Iterator[tuple[int, int]]:
        """(first, end) of pieces: one row of the table may be what very many rows find."""
        table = pa.RecordBatch.from_arrays(values, names=[str(place) for place in range(len(values))])
        texts = output_pieces.text_columns(table.schema)
        if not texts or not table.num_rows:
            return output_pieces.row_cuts(len(source))
        sizes = output_pieces.text_bytes(table, texts)
        if int(sizes.max()) * len(source) <= output_pieces.BYTES_MAX:
            return output_pieces.row_cuts(len(source))
        return output_pieces.cuts(np.where(source < 0, 0, sizes[np.maximum(source, 0)]))

    def _follow(self, changes: Timed, slots: Ints) -> None:
        """Take changes into the copy; the last of each key counts."""
        _, back = np.unique(slots[::-1], return_index=True)
        last = len(slots) - 1 - back
        deleted = as_bools(changes.batch.column(DELETED))[last]
        self._store.drop(slots[last[deleted]])
        kept = last[~deleted]
        at = pa.array(kept)
        values = {name: changes.batch.column(name).take(at) for name in self._store.columns}
        self._store.put(slots[kept], changes.times[kept], values, new=True)

    # What is asked about it

    def state_bytes(self) -> int:
        return self._store.nbytes()

    def queue_bytes(self) -> int:
        return self._rows.nbytes() + self._changed.nbytes()

    def queue_rows(self) -> int:
        return len(self._rows) + len(self._changed)

    def waits_open(self, names: Sequence[str]) -> str:
        return f"{self.held(names, waits=True)}; {len(self._rows)} rows wait for it"

    # State

    def save_more(self, state: BoxState) -> None:
        self._store.save(state, "rows")
        self._rows.save(state, "waiting")
        self._changed.save(state, "changes")

    def load_more(self, state: BoxState) -> None:
        self._store = TableStore(self._table.schema, self._table.keys, self._table.expire_us)
        self._store.load(state, "rows")
        self._rows.load(state, "waiting")
        self._changed.load(state, "changes")


def _last_changes(slots: Ints, times: Ints, changed: Ints, when: Ints) -> Ints:
    """For each row the last change of its slot at its time or before; -1 where there is none.

    Changes stand in order of time, and at equal times in their order.
    """
    count = len(changed)
    all_slots = np.concatenate([changed, slots])
    all_times = np.concatenate([when, times])
    kind = np.concatenate([np.zeros(count, np.int8), np.ones(len(slots), np.int8)])
    order = np.lexsort((kind, all_times, all_slots))  # stable: equal ones keep their order
    is_change = order < count
    place = np.maximum.accumulate(np.where(is_change, np.arange(len(order)), -1))
    found = np.full(len(slots), -1, np.int64)
    mine = np.flatnonzero(~is_change)
    before = place[mine]
    hit = before >= 0
    hit[hit] = all_slots[order[before[hit]]] == all_slots[order[mine[hit]]]
    found[order[mine[hit]] - count] = order[before[hit]]
    return found


def table_of(spec: Lookup, site: Site) -> Table:
    """What the table of a look-up is.

    Raises:
        QueryError: it stands elsewhere, and the look-up doesn't say what it is; or it has other keys.
    """
    table = site.origins[1] if spec.table is None else spec.table
    if not isinstance(table, Table) or table.position is not None:
        raise QueryError(
            f"lookup {spec.id!r}: its table is not on this site",
            hint="a table and its look-ups run in one place",
            code="query.table",
        )
    if (names := tuple(key.name for key in spec.keys)) != table.keys:
        raise QueryError(
            f"lookup {spec.id!r}: expected the keys {', '.join(table.keys)}, got {', '.join(names)[:80]}",
            code="query.key",
        )
    return table


def make_lookup(spec: Lookup, site: Site) -> Operator:
    """The box of a look-up."""
    return LookupBox(
        spec,
        table=table_of(spec, site),
        updated=site.inputs[1].timed,
        row=site.inputs[0].schema,
        output=site.output.schema,
        letters=site.letters,
    )
