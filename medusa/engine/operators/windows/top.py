"""Top-N: the rows with the largest value per window and group."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from medusa.elements import END_US, START_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import float_codes
from medusa.engine.core.rows import as_int64, as_times
from medusa.engine.core.sorting import order_in_pieces
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.windows.groups import KeyIndex, expect_integers
from medusa.engine.operators.windows.slot_results import Numbers
from medusa.query.boxes import Schema, Top
from medusa.query.expressions.expression import Column, Named
from medusa.query.types import schema_to_arrow, to_arrow

__all__ = ["TopBox"]

BATCH_BYTES = 1024
"""What a batch takes beside its rows, about: windows that advance by little hold very many."""

REDUCE_ROWS = 16_384
TIME_LIMIT = 1 << 61
LAST = (1 << 63) - 1


class TopBox(Operator):
    """Rows wait in panes, cut at every start and end of a window.

    A pane that has grown is cut down to the rows that can still be wanted: the largest of each group,
    and its first row, which says when the group appeared.
    """

    kind = "top"

    def __init__(
        self, spec: Top, *, input: Schema, output: Schema, letters: DeadLetters, timed: bool
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self._spec = spec
        self._timed = timed
        self._schema = schema_to_arrow(output)
        self._columns = Columns(self, letters, [*spec.keys, Named("by", spec.by)], input)
        self._key_types = self._columns.types[:-1]
        gone = {key.expression.name for key in spec.keys if isinstance(key.expression, Column)}
        self._others = [i for i, field in enumerate(input) if field.name not in gone]
        names = [f"key.{key.name}" for key in spec.keys] + [input[i].name for i in self._others]
        types = [self._schema.field(2 + i).type for i in range(len(names))]
        self._held_schema = pa.schema(
            [
                ("time", pa.int64()),
                ("position", pa.int64()),
                ("by", to_arrow(self._columns.types[-1])),
                *zip(names, types, strict=True),
            ]
        )
        self._panes: dict[int, list[pa.RecordBatch]] = {}
        self._kept: dict[int, int] = {}
        self._taken = 0
        self._next_start = -(1 << 62)

    # Rows in

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        whole, arrays = self._columns.compute(kept)
        rows = len(whole)
        if not rows:
            return
        times = as_int64(whole.times)
        position = np.arange(self._taken, self._taken + rows)
        self._taken += rows
        others = [whole.batch.column(i) for i in self._others]
        # As in every window, the key -0.0 is 0.0.
        keys = [pc.add(a, pa.scalar(0, a.type)) if pa.types.is_floating(a.type) else a for a in arrays[:-1]]
        columns = [pa.array(times), pa.array(position), arrays[-1], *keys, *others]
        self.leave(self._holding(pa.RecordBatch.from_arrays(columns, schema=self._held_schema)))

    def _holding(self, rows: pa.RecordBatch) -> Iterator[None]:
        """Put rows into their panes, and cut down those that have grown, piece by piece."""
        starts = self._pane_starts(as_int64(rows.column(0)))
        found = np.unique(starts)
        for start in found.tolist():
            part = rows if len(found) == 1 else rows.filter(pa.array(starts == start))
            batches = self._panes.setdefault(start, [])
            batches.append(part)
            held = sum(batch.num_rows for batch in batches)
            if held > REDUCE_ROWS + 2 * self._kept.get(start, 0):
                self._panes[start] = [(yield from self._reduced(_joined(batches)))]
                self._kept[start] = self._panes[start][0].num_rows

    def _pane_starts(self, times: Numbers) -> Numbers:
        size, advance = self._spec.size_us, self._spec.advance_us
        a, b = times // advance * advance, (times - size) // advance * advance + size
        return np.maximum(a, b)

    def _reduced(self, rows: pa.RecordBatch) -> Generator[None, None, pa.RecordBatch]:
        groups, order, rank = yield from self._ranked(rows)
        many = rows.num_rows > output_pieces.ROWS_MAX
        if many:
            yield
        keep = np.zeros(rows.num_rows, dtype=bool)
        keep[order[rank <= self._spec.n]] = True
        keep[np.diff(np.maximum.accumulate(groups), prepend=-1) > 0] = True  # The first row of each.
        if many:
            yield
        return rows.filter(pa.array(keep))

    def _ranked(self, rows: pa.RecordBatch) -> Generator[None, None, tuple[Numbers, Numbers, Numbers]]:
        """The group of each row by first appearance, the rows by (group, rank), and their ranks."""
        keys, index = rows.columns[3 : 3 + len(self._key_types)], KeyIndex(self._key_types)
        many = rows.num_rows > output_pieces.ROWS_MAX
        groups = np.empty(rows.num_rows, np.int64)
        for first, end in output_pieces.row_cuts(rows.num_rows):
            if first:
                yield
            ids = index.ids([key.slice(first, end - first) for key in keys], end - first)
            groups[first:end] = as_int64(ids.cast(pa.int64()))
        codes = _codes(rows.column(2), self._spec.descending)
        if many:
            yield
        order = yield from order_in_pieces([codes, groups])  # Rows stand by position, and the sort is stable.
        if many:
            yield
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        if many:
            yield
        rank = np.arange(1, len(order) + 1) - np.repeat(starts, sizes)
        return groups, order, rank

    # Windows out

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._results(time_us))

    def _results(self, time_us: int) -> Iterator[None]:
        """The windows that close at a boundary, piece by piece, and then the boundary."""
        sent = 0
        for start in list(self._closing(time_us)):
            sent += yield from self._send(start)
            if sent >= output_pieces.ROWS_MAX:
                sent = 0
                yield
        if time_us >= END_US:
            self._panes.clear()
            self.advance(time_us)
            return
        if time_us < -TIME_LIMIT:
            return
        size, advance = self._spec.size_us, self._spec.advance_us
        self._next_start = (time_us - size) // advance * advance + advance
        for pane in [start for start in self._panes if self._pane_end(start) <= self._next_start]:
            del self._panes[pane]
            self._kept.pop(pane, None)
        self.advance(self._next_start + size - 1)

    def _pane_end(self, start: int) -> int:
        size, advance = self._spec.size_us, self._spec.advance_us
        a, b = start // advance * advance, (start - size) // advance * advance + size
        return min(a, b) + advance

    def _closing(self, time_us: int) -> Iterator[int]:
        """Starts of the windows that hold rows, are open, and end by then; ascending."""
        size, advance = self._spec.size_us, self._spec.advance_us
        done = self._next_start - advance
        for pane in sorted(self._panes):
            first = max((pane - size) // advance * advance + advance, done + advance)
            for start in range(first, pane // advance * advance + 1, advance):
                if start + size > time_us:
                    break
                yield start
                done = start

    def _send(self, start: int) -> Generator[None, None, int]:
        """Send the results of a window; how many rows of them were sent since the last piece."""
        end = start + self._spec.size_us
        batches = [b for pane in sorted(self._panes) if start <= pane < end for b in self._panes[pane]]
        rows = _joined(batches)
        position = as_int64(rows.column(1))
        if (np.diff(position) < 0).any():
            rows = rows.take(pa.array(np.argsort(position)))
        if rows.num_rows > output_pieces.ROWS_MAX:
            yield
        _, order, rank = yield from self._ranked(rows)
        wanted = rank <= self._spec.n
        order, rank, sent = order[wanted], rank[wanted], 0
        for first, last in output_pieces.row_cuts(len(order)):
            if first or rows.num_rows > output_pieces.ROWS_MAX:
                yield
            self._emit(start, end, rows, order[first:last], rank[first:last])
            sent = last - first
        return sent

    def _emit(self, start: int, end: int, rows: pa.RecordBatch, order: Numbers, rank: Numbers) -> None:
        """Some rows of a window and their ranks."""
        at, count = pa.array(order), len(order)
        columns = [
            as_times(np.full(count, start)),
            as_times(np.full(count, end)),
            *(column.take(at) for column in rows.columns[3:]),
            pa.array(rank),
        ]
        times = as_times(np.full(count, end - 1)) if self._timed else None
        self.emit_train(Train(batch=pa.RecordBatch.from_arrays(columns, schema=self._schema), times=times))

    # What is asked

    def _rows(self) -> int:
        return sum(batch.num_rows for batches in self._panes.values() for batch in batches)

    def state_bytes(self) -> int:
        batches = [batch for held in self._panes.values() for batch in held]
        return sum(int(batch.nbytes) for batch in batches) + BATCH_BYTES * len(batches)

    def waits_open(self, names: Sequence[str]) -> str:
        return f"{self._rows()} rows wait for the end of their window; {self.held(names)}"

    # State

    def save_more(self, state: BoxState) -> None:
        batches = [batch for start in sorted(self._panes) for batch in self._panes[start]]
        state.put("rows", pa.Table.from_batches(batches, self._held_schema))
        state.meta["taken"] = self._taken

    def load_more(self, state: BoxState) -> None:
        table = expect_table(state.tables, "rows", self._held_schema)
        (taken,) = expect_integers([state.meta["taken"]], 1)
        (boundary,) = expect_integers([min(state.meta["inputs_us"])], 1)
        size, advance = self._spec.size_us, self._spec.advance_us
        if boundary > START_US and boundary >= -TIME_LIMIT:
            self._next_start = (boundary - size) // advance * advance + advance
        rows = _joined(table.to_batches()) if table.num_rows else None
        if rows is None:
            self._taken = taken
            return
        if rows.column(0).null_count or rows.column(1).null_count:
            raise ValueError("rows: a time or a position is null")
        times, position = as_int64(rows.column(0)), as_int64(rows.column(1))
        if times.min() < -TIME_LIMIT or times.max() >= TIME_LIMIT:
            raise ValueError("rows: a time out of range")
        if position.min() < 0 or position.max() >= taken or len(np.unique(position)) < len(position):
            raise ValueError("rows: a position twice, or beyond the rows taken")
        starts = self._pane_starts(times)
        if min(map(self._pane_end, np.unique(starts).tolist())) <= self._next_start:
            raise ValueError("rows: a pane that no open window needs")
        self._taken = taken
        for start in np.unique(starts).tolist():
            part = rows.filter(pa.array(starts == start))
            if (np.diff(as_int64(part.column(1))) < 0).any():
                raise ValueError("rows: positions don't ascend")
            self._panes[start] = [part]
            self._kept[start] = part.num_rows


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _codes(by: pa.Array, descending: bool) -> Numbers:
    """Whole numbers in the order wanted: NaN is the greatest, null comes last either way."""
    nulls = np.asarray(by.is_null())
    if pa.types.is_boolean(by.type):
        by = by.cast(pa.int8())
    if (found := _number_codes(by, nulls, descending)) is not None:
        return found
    if pa.types.is_floating(by.type):
        values = by.fill_null(0.0).to_numpy(zero_copy_only=False)
        codes = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    else:
        codes = pc.rank(by, sort_keys="ascending", tiebreaker="dense")
        codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    codes = -codes if descending else codes
    codes[nulls] = LAST
    return codes


def _number_codes(by: pa.Array, nulls: npt.NDArray[np.bool_], descending: bool) -> Numbers | None:
    """The same of numbers, without a sort; None: of others, or where a value stands in for null."""
    if pa.types.is_signed_integer(by.type):
        values = by.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    elif pa.types.is_floating(by.type):
        values = float_codes(by.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64))
    else:
        return None
    codes: Numbers = ~values if descending else values
    if not nulls.any():
        return codes
    if (codes == LAST).any():
        return None
    codes[nulls] = LAST
    return codes
