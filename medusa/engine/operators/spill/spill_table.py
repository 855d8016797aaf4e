"""How tables and look-ups lie in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.native_types import native_type, widen
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64
from medusa.engine.core.site import Site
from medusa.engine.operators.joins.lookup import LookupBox, table_of
from medusa.engine.operators.joins.table import TableBox
from medusa.engine.operators.spill.spill_kind import (
    POSITION,
    SpillKind,
    least_us,
    moved,
    moved_last,
    single,
    with_position,
)
from medusa.query.boxes import Lookup, Table
from medusa.query.boxes.tables import DELETED
from medusa.query.shape import types_of

__all__ = ["LookupKind", "TableKind"]

ORDER = "@order"
INPUT = 1 << 48
"""Positions of an input: the next input's rows are behind all of them."""


class _Stored(SpillKind):
    """Rows of a table by key, and rows that wait, whose keys may still fail: then any part may have them."""

    order = 2

    def __init__(self, plain: Operator, table: Table) -> None:
        super().__init__(plain)
        types = types_of(table.schema)
        self._table = msgspec.structs.replace(table, rows=None)  # a part doesn't begin with all of them
        self._key_types = [types[key] for key in table.keys]
        self.key_types = [native_type(type) for type in self._key_types]

    def _wide(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        return [widen(key, type) for key, type in zip(keys, self._key_types, strict=True)]

    def _on_time(self, train: Train) -> Train:
        return self.plain.on_time(train)  # type: ignore[no-any-return]

    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        return time_us

    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        return min(least_us(table, 1) for name, table in state.tables.items() if name != "rows")

    _widths: Mapping[str, int]
    """Columns of rows that wait."""

    def localise(self, state: BoxState) -> BoxState:
        tables = dict(state.tables)
        for name in self.sorted_by:
            tables[name] = pa.Table.from_batches([moved(single(tables[name]), self._widths[name])])
        return BoxState(tables=tables)

    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        if name not in self.sorted_by:
            return state.tables[name]
        return pa.Table.from_batches([moved_last(single(state.tables[name]), self._widths[name])])


class PartLookup(LookupBox):
    """Changes have no positions: those of one key stay in order."""

    def on_train(self, input: int, train: Train) -> None:
        if input:
            batch = train.batch.select(range(train.batch.num_columns - 1))
            train = Train(batch=batch, times=train.times)
        super().on_train(input, train)


class LookupKind(_Stored):
    """Rows leave by (time, position)."""

    tables = ("rows", "waiting", "changes")
    sorted_by: Mapping[str, Sequence[str]] = {"waiting": ("@time", POSITION)}

    def __init__(self, spec: Lookup, site: Site, plain: Operator) -> None:
        super().__init__(plain, table_of(spec, site))
        self._spec, self._site = spec, site
        self._width = len(site.input.schema)
        self._widths = {"waiting": self._width}

    def make(self, letters: DeadLetters) -> Operator:
        output = self._site.output.schema
        return PartLookup(
            self._spec,
            table=self._table,
            updated=self._site.inputs[1].timed,
            row=with_position(self._site.input.schema),
            output=(*with_position(output[: self._width]), *output[self._width :]),
            letters=letters,
        )

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        kept = self._on_time(train)
        return kept, self._keys(input, kept.batch, kept.times)

    def _keys(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> list[pa.Array]:
        if input:
            return self._wide([batch.column(key) for key in self._table.keys])
        return self._wide(self.plain.keys_of(batch, times))

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        columns = train.batch.columns
        position = columns.pop(self._width)
        return pa.RecordBatch.from_arrays(columns, schema=self.plain._schema), [train.times, position]

    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        if name == "rows":
            return list(rows.columns[: len(self._key_types)])
        *columns, times = rows.columns
        batch = pa.RecordBatch.from_arrays(columns, names=rows.schema.names[:-1])
        return self._keys(int(name == "changes"), batch, times)


class PartTable(TableBox):
    """Rows that leave say where they stand among those of one time: by input, then position."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._schema = self._schema.append(pa.field(ORDER, pa.int64()))
        self._changes = self._schema.append(pa.field(DELETED, pa.bool_()))

    def _columns(self, number: int, rows: Any) -> list[pa.Array]:
        position = as_int64(rows.rows.batch.column(POSITION))
        return [*super()._columns(number, rows), pa.array(number * INPUT + position)]


class TableKind(_Stored):
    """Rows leave by (time, input, position)."""

    def __init__(self, spec: Table, site: Site, plain: Operator) -> None:
        super().__init__(plain, spec)
        self._inputs = tuple(with_position(schema) for schema in site.schemas)
        waiting = [f"waiting-{number}" for number in range(len(self._inputs))]
        self.tables = ("rows", *waiting)
        self.sorted_by = dict.fromkeys(waiting, ("@time", POSITION))
        self._widths = {name: len(schema) for name, schema in zip(waiting, site.schemas, strict=True)}
        self.ports = (*(port for port in spec.ports if port), "")

    def make(self, letters: DeadLetters) -> Operator:
        return PartTable(self._table, inputs=self._inputs, letters=letters)

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        kept = self._on_time(train)
        return kept, self._keys(input, kept.batch, kept.times)

    def _keys(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> list[pa.Array]:
        return self._wide(self.plain._inputs[input].keys.evaluate(batch, times)[0])

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        columns = train.batch.columns
        order = columns.pop(len(self.plain._schema))
        schema = self.plain._schema if port else self.plain._changes
        return pa.RecordBatch.from_arrays(columns, schema=schema), [train.times, order]

    def leaves(self, port: str) -> bool:
        return bool(port)

    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        if name == "rows":
            return list(rows.columns[: len(self._key_types)])
        *columns, times = rows.columns
        batch = pa.RecordBatch.from_arrays(columns, names=rows.schema.names[:-1])
        return self._keys(int(name.removeprefix("waiting-")), batch, times)
