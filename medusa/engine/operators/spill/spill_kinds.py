"""How boxes with one input lie in parts: distinct, running, sessions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.native_types import native_type, widen
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64
from medusa.engine.core.site import Site
from medusa.engine.operators.joins.distinct import DistinctBox
from medusa.engine.operators.spill.spill_kind import (
    POSITION,
    SpillKind,
    least_us,
    moved,
    moved_last,
    single,
    with_position,
)
from medusa.engine.operators.windows.running import RunningBox
from medusa.engine.operators.windows.session import SessionBox
from medusa.query.boxes import AggregateCall, Distinct, Field, Running
from medusa.query.boxes.windows_per_group import Session
from medusa.query.expressions.expression import Column

__all__ = ["DistinctKind", "RunningKind", "SessionKind"]


def wide(arrays: Sequence[pa.Array], types: Sequence[str]) -> list[pa.Array]:
    return [widen(array, type) for array, type in zip(arrays, types, strict=False)]


class DistinctKind(SpillKind):
    """Rows leave by (time, position)."""

    tables = ("waiting", "keys")
    sorted_by: Mapping[str, Sequence[str]] = {"waiting": ("@time", POSITION)}
    order = 2

    def __init__(self, spec: Distinct, site: Site, plain: Operator) -> None:
        super().__init__(plain)
        self._spec, self._site = spec, site
        self._types = self.plain._columns.types
        self.key_types = [native_type(type) for type in self._types]
        self._width = len(site.input.schema)

    def make(self, letters: DeadLetters) -> Operator:
        return DistinctBox(self._spec, input=with_position(self._site.input.schema), letters=letters)

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        whole, keys = self.plain.readable(train)
        return whole, wide(keys, self._types)

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        *columns, position = train.batch.columns
        schema = self.plain._waiting._schema
        return pa.RecordBatch.from_arrays(columns, schema=schema), [train.times, position]

    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        return time_us

    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        return least_us(state.tables["waiting"], 1)

    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        if name == "keys":
            return list(rows.columns[: len(self._types)])
        *columns, times = rows.columns
        batch = pa.RecordBatch.from_arrays(columns, schema=self.plain._waiting._schema)
        return wide(self.plain.keys_of(batch, times), self._types)

    def localise(self, state: BoxState) -> BoxState:
        rows = moved(single(state.tables["waiting"]), self._width)
        tables = {"waiting": pa.Table.from_batches([rows]), "keys": state.tables["keys"]}
        return BoxState(tables=tables)

    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        if name == "keys":
            return state.tables["keys"]
        return pa.Table.from_batches([moved_last(single(state.tables["waiting"]), self._width)])


class _Slots(SpillKind):
    """Accumulators by slot: the first table says which key a slot is of."""

    head = ""
    """The first table; its columns are keys, then numbers, one of them the slot."""

    def _head_keys(self) -> int:
        return len(self.plain._key_names)

    def _tables_of(self, plain: Operator) -> list[str]:
        empty = BoxState()
        plain.save_more(empty)
        return [self.head, *(name for name in empty.tables if name != self.head)]

    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        if name == self.head:
            return wide(rows.columns[: self._head_keys()], self._types)
        return as_int64(rows.column("slot"))

    def slots(self, rows: pa.RecordBatch) -> Ints | None:
        return as_int64(rows.column("slot"))

    _types: Sequence[str]

    def localise(self, state: BoxState) -> BoxState:
        """Slots are numbered 0, 1, 2 ... in their order, and so are the groups."""
        given = np.sort(as_int64(single(state.tables[self.head]).column("slot")))
        tables = {}
        for name, table in state.tables.items():
            numbers = pa.array(given.searchsorted(as_int64(single(table).column("slot"))))
            made = _with(table, "slot", numbers)
            if name == "groups":
                made = _with(made, "first", pa.array(np.arange(table.num_rows)))
            tables[name] = made
        rows = int(as_int64(single(tables["groups"]).column("rows")).sum()) if "groups" in tables else 0
        return BoxState(meta=self._local_meta(len(given), rows), tables=tables)

    @abstractmethod
    def _local_meta(self, slots: int, rows: int) -> dict[str, Any]:
        """The numbers of a part that has given so many slots to so many rows."""

    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        slots, rows = offsets
        made = _plus(state.tables[name], "slot", slots)
        return _plus(made, "first", rows) if name == "groups" else made


def _with(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), array)


def _plus(table: pa.Table, name: str, more: int) -> pa.Table:
    return _with(table, name, pa.array(as_int64(single(table.select([name])).column(0)) + more))


class RunningKind(_Slots):
    """Each row is answered as it comes; they leave by position."""

    at_once = True
    head = "keys"

    def __init__(self, spec: Running, site: Site, plain: Operator) -> None:
        super().__init__(plain)
        self._spec, self._site = spec, site
        self._types = self.plain._groups.columns.types[: len(spec.keys)]
        self.key_types = [native_type(type) for type in self._types]
        self.tables = self._tables_of(plain)
        self._width = len(site.input.schema)

    def make(self, letters: DeadLetters) -> Operator:
        output = self._site.output.schema
        return RunningBox(
            self._spec,
            input=with_position(self._site.input.schema),
            output=(*with_position(output[: self._width]), *output[self._width :]),
            letters=letters,
            timed=self._site.input.timed,
        )

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        whole, arrays = self.plain.readable(train)
        return whole, wide(arrays[: len(self._types)], self._types)

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        columns = train.batch.columns
        position = columns.pop(self._width)
        return pa.RecordBatch.from_arrays(columns, schema=self.plain._schema), [position]

    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        return time_us

    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        return int(END_US)

    def _local_meta(self, slots: int, rows: int) -> dict[str, Any]:
        return {"next_slot": slots, "rows": rows}

    def localise(self, state: BoxState) -> BoxState:
        made = super().localise(state)
        if self._spec.expire_us is None:
            made.meta["next_slot"] = 0
        return made

    def counts(self, meta: Mapping[str, Any], rows: Mapping[str, int]) -> Sequence[int]:
        slots = meta["next_slot"] if self._spec.expire_us is not None else rows["keys"]
        return slots, meta.get("rows", 0)

    def taken(self, meta: Mapping[str, Any]) -> int:
        return int(meta.get("rows", 0))

    def meta(self, totals: Sequence[int], taken: int) -> dict[str, Any]:
        next_slot = totals[0] if self._spec.expire_us is not None else 0
        return {"next_slot": next_slot, **({"rows": taken} if self.plain._plain else {})}


class SessionKind(_Slots):
    """Sessions leave by (end, start, first position), which an aggregate of parts finds."""

    folds = True
    head = "sessions"
    order = 3

    def __init__(self, spec: Session, site: Site, plain: Operator) -> None:
        super().__init__(plain)
        self._site = site
        first = AggregateCall(FIRST, "min", Column(POSITION))
        self._spec = msgspec.structs.replace(spec, aggregates=(*spec.aggregates, first))
        self._types = self.plain._groups.columns.types[: len(spec.keys)]
        self.key_types = [native_type(type) for type in self._types]
        self.tables = self._tables_of(plain)
        self.pending_us = spec.gap_us

    def make(self, letters: DeadLetters) -> Operator:
        return SessionBox(
            self._spec,
            input=with_position(self._site.input.schema),
            output=(*self._site.output.schema, Field(FIRST, "int64")),
            letters=letters,
            timed=self._site.timed,
        )

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        whole, arrays = self.plain.readable(train)
        return whole, wide(arrays[: len(self._types)], self._types)

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        *columns, first = train.batch.columns
        schema = self.plain._results._schema
        return pa.RecordBatch.from_arrays(columns, schema=schema), [columns[1], columns[0], first]

    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        if time_us >= END_US:
            return time_us
        ends = [box._sessions.next_end_us() for box in hot if isinstance(box, SessionBox)]
        return min([*ends, wake_us, time_us + int(self._spec.gap_us)]) - 1

    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        last = as_int64(single(state.tables["sessions"]).column("last"))
        return int(last.min()) + self._spec.gap_us if len(last) else int(END_US)

    def _local_meta(self, slots: int, rows: int) -> dict[str, Any]:
        return {"slots": [slots, rows], "rows": rows}

    def localise(self, state: BoxState) -> BoxState:
        made = super().localise(state)
        rows = single(made.tables["sessions"])
        position = as_int64(rows.column("position"))
        _, ranks = np.unique(position, return_inverse=True)
        made.tables["sessions"] = _with(made.tables["sessions"], "position", pa.array(ranks))
        order = np.argsort(as_int64(rows.column("slot")))
        slots = as_int64(single(made.tables["groups"]).column("slot"))
        firsts = pa.array(position[order][slots])
        made.tables["groups"] = made.tables["groups"].append_column(
            pa.field(f"{FIRST}.value", pa.int64()), firsts
        )
        return made

    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        made = super().globalise(name, state, offsets)
        if name == "groups":
            return made.drop_columns([f"{FIRST}.value"])
        if name == "sessions" and made.num_rows:
            groups = single(state.tables["groups"])
            order = np.argsort(as_int64(groups.column("slot")))
            firsts = as_int64(groups.column(f"{FIRST}.value"))[order]
            slots = as_int64(groups.column("slot"))[order]
            rows = single(state.tables["sessions"])
            mine = firsts[slots.searchsorted(as_int64(rows.column("slot")))]
            session = as_int64(rows.column("session"))
            begins = np.flatnonzero(np.diff(session, prepend=session[0] - 1))
            least = np.minimum.reduceat(mine, begins)
            position = np.repeat(least, np.diff(begins, append=len(mine)))
            made = _with(made, "position", pa.array(position))
            made = _plus(made, "session", offsets[0])
        return made

    def counts(self, meta: Mapping[str, Any], rows: Mapping[str, int]) -> Sequence[int]:
        return meta["slots"][0], meta["rows"]

    def taken(self, meta: Mapping[str, Any]) -> int:
        return int(meta["slots"][1])

    def meta(self, totals: Sequence[int], taken: int) -> dict[str, Any]:
        return {"slots": [totals[0], taken], "rows": taken}


FIRST = "@first"
