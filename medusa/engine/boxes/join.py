"""Inner joins: rows of equal key, at most so far apart in time.

A pair's release is the later of its two times; pairs leave by (release, left position, right
position) once the boundaries of both inputs have passed the release. A row is forgotten when no
partner can come any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from medusa._native import Keys
from medusa.elements import END_US, START_US, Train
from medusa.engine.boxes.base import BoxState, Operator, expect_table, show_time
from medusa.engine.columns import Columns
from medusa.engine.dead import DeadLetters
from medusa.engine.matching import Ints, Rows, Segment, Segments, concat, order_of_pairs, pairs_of, ranges_of
from medusa.engine.rows import TIME, as_bools, as_int64, as_times, on_time_rows, take_array
from medusa.engine.widen import narrow, native_arrow, native_type, widen
from medusa.query.boxes import Field, Join, Schema, WindowJoin
from medusa.query.expression import Column, Named
from medusa.query.tree import columns_of
from medusa.query.types import schema_to_arrow, to_arrow

__all__ = ["JoinBox"]

PAIRS_MAX = 1 << 20
"""Pairs made in one step, where time can be cut smaller."""

KEYS_SPARE = 1 << 16
"""Keys remembered beyond twice the rows held, before the index is built anew."""

_LEFT, _RIGHT = 0, 1


class _Side:
    """One input: rows that wait for the boundary, and rows that may still find partners."""

    def __init__(self, columns: Columns, schema: pa.Schema, key_types: Sequence[str]) -> None:
        self.columns = columns
        self.key_types = key_types
        self.schema = schema
        self.keyed = pa.schema([(str(i), native_arrow(type)) for i, type in enumerate(key_types)])
        self.seen = 0
        self.waiting: list[Rows] = []
        self.held = Segments()

    def rows(self) -> list[Rows]:
        return [*self.held.rows(), *self.waiting]

    def ready(self, boundary_us: int) -> Rows | None:
        """Take the waiting rows before the boundary, by position."""
        parts: list[Rows] = []
        waiting: list[Rows] = []
        for rows in self.waiting:
            before = rows.times < boundary_us
            if before.all():
                parts.append(rows)
            elif before.any():
                parts.append(rows.pick(np.flatnonzero(before)))
                waiting.append(rows.pick(np.flatnonzero(~before)))
            else:
                waiting.append(rows)
        self.waiting = waiting
        return concat(parts) if parts else None


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Matched rows of one segment of each side."""

    left: Rows
    right: Rows
    left_at: Ints
    right_at: Ints

    def releases(self) -> Ints:
        return np.maximum(self.left.times[self.left_at], self.right.times[self.right_at])


class JoinBox(Operator):
    """An interval join; a window join is one with ``within_us`` 0 on window_start, window_end and the keys.

    Args:
        keys: (left, right, type common to both sides) of each key column of the output, in order.
        sides: schemas of the inputs.
        schema: columns of the output.
    """

    def __init__(
        self,
        spec: Join | WindowJoin,
        *,
        keys: Sequence[tuple[Named, Named, str]],
        within_us: int,
        sides: tuple[Schema, Schema],
        schema: Schema,
        letters: DeadLetters,
    ) -> None:
        super().__init__(spec.id, inputs=2)
        self.kind = "join" if isinstance(spec, Join) else "window_join"
        self._within_us = within_us
        self._schema = schema_to_arrow(schema)
        self._key_types = [type for _, _, type in keys]
        self._key_count = len(keys)
        sides_keys = ([ours for ours, _, _ in keys], [theirs for _, theirs, _ in keys])
        self._sides = tuple(
            _Side(
                Columns(self, letters, sides_keys[side], sides[side]),
                schema_to_arrow(sides[side]),
                self._key_types,
            )
            for side in (_LEFT, _RIGHT)
        )
        self._others = tuple(_other_columns(sides[side], sides_keys[side]) for side in (_LEFT, _RIGHT))
        self._ids = Keys([native_type(type) for type in self._key_types])
        self._where: Columns | None = None
        if spec.where is not None:
            used = columns_of(spec.where)
            self._where_columns = [
                (side, index, Field(f"{prefix}.{field.name}", field.type))
                for side, prefix in ((_LEFT, "left"), (_RIGHT, "right"))
                for index, field in enumerate(sides[side])
                if f"{prefix}.{field.name}" in used
            ]
            both = tuple(field for *_, field in self._where_columns)
            self._where = Columns.single(self, letters, spec.where, both, timed=False)
            self._where_schema = schema_to_arrow(both)

    # Rows in

    def on_train(self, input: int, train: Train) -> None:
        side = self._sides[input]
        kept = on_time_rows(train)
        self.late += len(train) - len(kept)
        first = side.seen
        side.seen += len(kept)
        whole, keys, index = side.columns.compute_indexed(kept)
        if not len(whole):
            return
        positions = np.arange(first, side.seen) if index is None else first + index
        arrays = [
            widen(key if key.type == to_arrow(type) else key.cast(to_arrow(type)), type)
            for key, type in zip(keys, self._key_types, strict=True)
        ]
        keyed = pa.RecordBatch.from_arrays(arrays, schema=side.keyed)
        rows = Rows(whole.batch, keyed, as_int64(whole.times), positions, np.zeros(len(whole), np.int64))
        nulls = [array for array in arrays if array.null_count]
        if nulls:  # a null key matches nothing
            keep = ~np.logical_or.reduce([as_bools(array.is_null()) for array in nulls])
            rows = rows.pick(np.flatnonzero(keep))
        if len(rows):
            side.waiting.append(self._with_ids(rows))

    def _with_ids(self, rows: Rows) -> Rows:
        ids = pa.array(self._ids.map(rows.keys)).to_numpy().astype(np.int64)
        return Rows(rows.batch, rows.keys, rows.times, rows.positions, ids)

    # Pairs out

    def on_boundary(self, time_us: int) -> None:
        left, right = (side.ready(time_us) for side in self._sides)
        if left is not None or right is not None:
            self._step(left, right)
        if time_us < END_US:
            for side in self._sides:
                side.held.forget(time_us - self._within_us)
            self._forget_keys()
        else:
            for side in self._sides:
                side.held.replace([])
        self.advance(time_us)

    def _step(self, left: Rows | None, right: Rows | None) -> None:
        """Emit the pairs of rows that just became ready with each other and with those held."""
        found = self._search(left, right)
        total = sum(int(ranges[1].sum()) for *_, ranges, _ in found)
        if total > PAIRS_MAX and self._halve(left, right):
            return
        pairs = []
        for probe, build, ranges, probe_is_left in found:
            ours, theirs = pairs_of(probe, build, ranges)
            if probe_is_left:
                pairs.append(_Pairs(probe.rows, build.rows, ours, theirs))
            else:
                pairs.append(_Pairs(build.rows, probe.rows, theirs, ours))
        if pairs:
            self._emit_pairs(pairs)
        for side, rows in zip(self._sides, (left, right), strict=True):
            if rows is not None and self._within_us > 0:
                # Rows still to come, also those of a later half of this step, are no earlier.
                side.held.add(Segment(rows), int(rows.times.min()) - self._within_us)

    def _search(
        self, left: Rows | None, right: Rows | None
    ) -> list[tuple[Segment, Segment, tuple[Ints, Ints], bool]]:
        """(probe, build, ranges, whether the probe is the left side) wherever there are pairs."""
        new_left = None if left is None else Segment(left)
        new_right = None if right is None else Segment(right)
        tries: list[tuple[Segment, Segment, bool]] = []
        if new_left is not None:
            tries += [(new_left, old, True) for old in self._sides[_RIGHT].held]
            if new_right is not None:
                tries.append((new_left, new_right, True))
        if new_right is not None:
            tries += [(new_right, old, False) for old in self._sides[_LEFT].held]
        found = []
        for probe, build, probe_is_left in tries:
            ranges = ranges_of(probe, build, self._within_us)
            if ranges is not None:
                found.append((probe, build, ranges, probe_is_left))
        return found

    def _halve(self, left: Rows | None, right: Rows | None) -> bool:
        """Do the step in two, by time; False where all rows have one time."""
        sides = [rows for rows in (left, right) if rows is not None]
        first = min(int(rows.times.min()) for rows in sides)
        last = max(int(rows.times.max()) for rows in sides)
        if first == last:
            return False
        middle = first + (last - first + 1) // 2
        self._step(_part(left, middle, before=True), _part(right, middle, before=True))
        self._step(_part(left, middle, before=False), _part(right, middle, before=False))
        return True

    def _emit_pairs(self, pairs: list[_Pairs]) -> None:
        releases = np.concatenate([part.releases() for part in pairs])
        left = np.concatenate([part.left.positions[part.left_at] for part in pairs])
        right = np.concatenate([part.right.positions[part.right_at] for part in pairs])
        order = order_of_pairs(releases, left, right)
        times = as_times(releases[order])
        if self._where is not None:
            times, order = self._only_where(pairs, order, times)
        if not len(order):
            return
        columns = [_gather(pairs, _LEFT, i, order, keys=True) for i in range(self._key_count)]
        columns = [narrow(column, type) for column, type in zip(columns, self._key_types, strict=True)]
        for side in (_LEFT, _RIGHT):
            columns += [_gather(pairs, side, index, order) for index in self._others[side]]
        self.emit_train(Train(batch=pa.RecordBatch.from_arrays(columns, schema=self._schema), times=times))

    def _only_where(self, pairs: list[_Pairs], order: Ints, times: pa.Array) -> tuple[pa.Array, Ints]:
        assert self._where is not None
        columns = [_gather(pairs, side, index, order) for side, index, _ in self._where_columns]
        if columns:
            batch = pa.RecordBatch.from_arrays(columns, schema=self._where_schema)
        else:  # a condition on nothing still has rows
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(order))], names=[""])
        _, (keep,), index = self._where.compute_indexed(Train(batch=batch, times=times))
        chosen = np.flatnonzero(as_bools(keep))
        if index is not None:
            chosen = index[chosen]
        at = pa.array(chosen)
        return times.take(at), order[chosen]

    def _forget_keys(self) -> None:
        """Build the index anew where most of its keys have no row any more."""
        held = [rows for side in self._sides for rows in side.rows()]
        live = sum(len(rows) for rows in held)
        if len(self._ids) <= 2 * live + KEYS_SPARE:
            return
        self._ids = Keys([native_type(type) for type in self._key_types])
        for side in self._sides:
            side.held.replace([Segment(self._with_ids(rows)) for rows in side.held.rows()])
            side.waiting = [self._with_ids(rows) for rows in side.waiting]

    # What is asked about it

    def state_bytes(self) -> int:
        return sum(rows.nbytes() for side in self._sides for rows in side.held.rows())

    def queue_bytes(self) -> int:
        return sum(rows.nbytes() for side in self._sides for rows in side.waiting)

    def waits_for(self, names: Sequence[str]) -> str:
        if self.input_us >= END_US:
            return "finished"
        held_by = names[self.inputs_us.index(self.input_us)]
        waiting = [sum(map(len, side.waiting)) for side in self._sides]
        text = f"waits for {held_by}, which holds its boundary at {show_time(self.input_us)}"
        return text + f"; {waiting[0]} left and {waiting[1]} right rows wait for it"

    # State

    def _state_schema(self, side: _Side) -> pa.Schema:
        fields = [pa.field(f"@key{i}", side.keyed.field(i).type) for i in range(self._key_count)]
        return pa.schema([*side.schema, *fields, pa.field("@time", TIME), pa.field("@position", pa.int64())])

    def save_more(self, state: BoxState) -> None:
        state.meta["seen"] = [side.seen for side in self._sides]
        for name, side in zip(("left", "right"), self._sides, strict=True):
            schema = self._state_schema(side)
            batches = [
                pa.RecordBatch.from_arrays(
                    [
                        *rows.batch.columns,
                        *rows.keys.columns,
                        as_times(np.ascontiguousarray(rows.times)),
                        pa.array(rows.positions),
                    ],
                    schema=schema,
                )
                for rows in side.rows()
            ]
            state.tables[name] = pa.Table.from_batches(batches, schema)

    def load_more(self, state: BoxState) -> None:
        boundary = min(state.meta["inputs_us"])
        for name, side, seen in zip(("left", "right"), self._sides, state.meta["seen"], strict=True):
            side.seen = int(seen)
            table = expect_table(state.tables, name, self._state_schema(side))
            for batch in table.to_batches():
                rows = self._with_ids(_from_state(batch, side, self._key_count))
                before = rows.times < boundary
                if before.any():
                    side.held.add(Segment(rows.pick(np.flatnonzero(before))), int(START_US))
                if not before.all():
                    side.waiting.append(rows.pick(np.flatnonzero(~before)))


def _from_state(batch: pa.RecordBatch, side: _Side, key_count: int) -> Rows:
    width = len(side.schema)
    columns = batch.columns
    keys = columns[width : width + key_count]
    times, positions = columns[-2:]
    if times.null_count or positions.null_count or any(key.null_count for key in keys):
        raise ValueError("nulls among the keys, times or positions of a join")
    return Rows(
        pa.RecordBatch.from_arrays(columns[:width], schema=side.schema),
        pa.RecordBatch.from_arrays(keys, schema=side.keyed),
        as_int64(times),
        as_int64(positions),
        np.zeros(batch.num_rows, np.int64),
    )


def _other_columns(schema: Schema, keys: Sequence[Named]) -> list[int]:
    """The columns besides those that are keys as they stand."""
    gone = {key.expression.name for key in keys if isinstance(key.expression, Column)}
    return [index for index, field in enumerate(schema) if field.name not in gone]


def _part(rows: Rows | None, middle_us: int, *, before: bool) -> Rows | None:
    if rows is None:
        return None
    index = np.flatnonzero((rows.times < middle_us) == before)
    return rows.pick(index) if len(index) else None


def _gather(pairs: list[_Pairs], side: int, index: int, order: Ints, *, keys: bool = False) -> pa.Array:
    """One column of the pairs, in their order."""
    parts = []
    for part in pairs:
        rows, at = (part.left, part.left_at) if side == _LEFT else (part.right, part.right_at)
        if len(pairs) == 1:
            at = at[order]
        parts.append(take_array((rows.keys if keys else rows.batch).column(index), pa.array(at)))
    if len(parts) == 1:
        return parts[0]
    return take_array(pa.concat_arrays(parts), pa.array(order))
