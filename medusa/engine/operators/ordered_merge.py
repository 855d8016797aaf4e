"""Ordered merge: the results of the parts of a box that was split, as the whole box would have sent them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, START_US, Boundary, Element, Kind, Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.group_numbers import one_batch
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer
from medusa.engine.core.rows import TIME, as_bools, as_int64, as_times, filter_rows, take, take_array
from medusa.query.boxes import OrderedMerge, Schema
from medusa.query.types import schema_to_arrow

__all__ = ["OrderedMergeBox"]

MISSING = (1 << 63) - 1
"""The place of a row without a partner: behind all."""


@dataclass(frozen=True, slots=True)
class _Came:
    """Rows that wait.

    Attributes:
        after_us: the boundary of their input before which they didn't come.
        until_us: the one that came next; None: none has.
        first: the lowest of their numbers.
        nbytes: what the train holds.
    """

    after_us: int
    until_us: int | None
    first: int
    train: Train
    nbytes: int

    def waits_at(self, time_us: int) -> bool:
        """Whether a row of another part that isn't here yet may belong before these."""
        return self.until_us is None or self.until_us > time_us


class OrderedMergeBox(Operator):
    """Rows wait for the boundaries of all parts.

    In order of release (windows, joins): a row leaves when no part can send one that is released
    earlier. In order of arrival: the router sends every boundary to all parts at the same place
    between two rows. A part passes it on there or, over a link, together with a later one behind the rows
    between them: boundaries go missing, but none overtakes a row. So once all parts have passed the
    boundary behind a row, all rows with lower numbers are here, and it leaves behind those.
    """

    kind = "ordered_merge"
    takes_tentative = True

    def __init__(self, spec: OrderedMerge, *, input: Schema, output: Schema) -> None:
        super().__init__(spec.id, inputs=len(spec.inputs))
        self._spec = spec
        self._input = schema_to_arrow(input)
        self._output = schema_to_arrow(output)
        names = self._input.names
        self._shown = [names.index(name) for name in self._output.names]
        self._by = [names.index(name) for name in spec.by]
        self._positions = [names.index(name) for name in spec.positions]
        self._release = None if spec.release is None else names.index(spec.release)
        self._came: list[deque[_Came]] = [deque() for _ in spec.inputs]
        """Of each part, in order of their numbers: what waits stands behind what doesn't."""
        self._waiting = TimedRowBuffer(self._input)

    def receive(self, input: int, element: Element) -> None:
        if isinstance(element, Boundary) and element.time_us > self.inputs_us[input]:
            self._close(input, element.time_us)
        super().receive(input, element)

    def _close(self, input: int, until_us: int) -> None:
        """This is the boundary behind what came last."""
        came = self._came[input]
        for index in range(len(came) - 1, -1, -1):
            if came[index].until_us is not None:
                break
            came[index] = replace(came[index], until_us=until_us)

    def on_train(self, input: int, train: Train) -> None:
        if train.kind is not Kind.STABLE:
            self.emit_train(self._plain(train))
        elif self._spec.arrival:
            self._came[input].append(self._waits(train, self.inputs_us[input], None))
        else:
            kept = self.on_time(train)
            if len(kept):
                self._waiting.add(self._released(kept))

    def on_boundary(self, time_us: int) -> None:
        if self._spec.arrival:
            self._leave(time_us)
            held = (came[0].after_us for came in self._came if came)
            self.advance(min(time_us, min(held, default=time_us)))
        else:
            rows = self._waiting.ready(min(time_us + self._spec.within_us, int(END_US)))
            if rows is not None:
                self.emit_train(self._ordered(rows))
            self.advance(time_us)

    def flush(self) -> None:
        """Send what waits though no boundary has passed it; only where all parts have taken the same rows.

        Only rows in order of arrival can wait then.
        """
        came, self._came = self._came, [deque() for _ in self._came]
        self._emit_in_order([each.train for each in chain.from_iterable(came)])

    # In order of arrival

    def _waits(self, train: Train, after_us: int, until_us: int | None) -> _Came:
        return _Came(after_us, until_us, int(self._numbers(train).min()), train, int(train.batch.nbytes))

    def _numbers(self, train: Train) -> Ints:
        return as_int64(train.batch.column(self._positions[0]))

    def _leave(self, time_us: int) -> None:
        """Send what stands before the first row that may still be preceded by one that isn't here."""
        passed = [list(takewhile(lambda each: not each.waits_at(time_us), came)) for came in self._came]
        waits = [
            came[len(gone)].first
            for came, gone in zip(self._came, passed, strict=True)
            if len(came) > len(gone)
        ]
        limit = min(waits, default=None)
        ready: list[Train] = []
        for came, gone in zip(self._came, passed, strict=True):
            stay: list[_Came] = []
            for each in gone:
                came.popleft()
                if limit is None:
                    ready.append(each.train)
                else:
                    before, behind = self._cut(each, limit)
                    ready += before
                    stay += behind
            came.extendleft(reversed(stay))
        self._emit_in_order(ready)

    def _cut(self, each: _Came, limit: int) -> tuple[list[Train], list[_Came]]:
        """The rows with lower numbers than this, and the others."""
        lower = self._numbers(each.train) < limit
        if lower.all():
            return [each.train], []
        behind = filter_rows(each.train, pa.array(~lower))
        before = [filter_rows(each.train, pa.array(lower))] if lower.any() else []
        return before, [self._waits(behind, each.after_us, each.until_us)]

    def _emit_in_order(self, ready: list[Train]) -> None:
        if not ready:
            return
        batch = pa.concat_batches([train.batch for train in ready]) if len(ready) > 1 else ready[0].batch
        # One row may give several, which stand together in what its part sent.
        at = pa.array(np.argsort(as_int64(batch.column(self._positions[0])), kind="stable"))
        times = None
        if all(train.times is not None for train in ready):
            times = take_array(pa.concat_arrays([train.times for train in ready]), at)
        late = take_array(pa.concat_arrays([_marks(train) for train in ready]), at)
        late = late if late.true_count else None
        self.emit_train(self._plain(Train(batch=take(batch, at), times=times, late=late)))

    # In order of release

    def _released(self, train: Train) -> Timed:
        times = as_int64(train.times)
        if self._release is not None:
            return self._exchanged(Timed(train.batch, times))
        if self._spec.within_us:
            times = times + self._spec.within_us * self._alone(train.batch)
        return Timed(train.batch, times)

    def _exchanged(self, rows: Timed) -> Timed:
        """With the time of the release as that of the row, which stands in the column meanwhile; and back."""
        assert self._release is not None
        batch, at = rows.batch, self._release
        other = as_int64(batch.column(at))
        return Timed(batch.set_column(at, batch.schema.field(at), pa.array(rows.times)), other)

    def _alone(self, batch: pa.RecordBatch) -> Ints:
        """1 for each row without a partner."""
        if len(self._positions) == 1:
            return np.ones(batch.num_rows, np.int64)
        nulls = [as_bools(batch.column(index).is_null()) for index in self._positions]
        return (nulls[0] | nulls[1]).astype(np.int64)

    def _ordered(self, rows: Timed) -> Train:
        columns = [
            batch_column.fill_null(MISSING) for batch_column in map(rows.batch.column, self._positions)
        ]
        by = [rows.batch.column(index) for index in self._by]
        keys = [rows.times, *map(as_int64, by), *map(as_int64, columns)]
        index = np.lexsort(keys[::-1])
        times = rows.times
        if self._release is not None:
            times = self._exchanged(rows).times
        if self._spec.within_us:
            times = times - self._spec.within_us * self._alone(rows.batch)
        at = pa.array(index)
        return self._plain(Train(batch=take(rows.batch, at), times=as_times(times[index])))

    def _plain(self, train: Train) -> Train:
        """Without the positions."""
        columns = [train.batch.column(index) for index in self._shown]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._output)
        return Train(batch=batch, times=train.times, late=train.late, kind=train.kind)

    # What is asked about it

    def queue_bytes(self) -> int:
        came = sum(each.nbytes for came in self._came for each in came)
        return came + self._waiting.nbytes()

    def queue_rows(self) -> int:
        return sum(len(each.train) for came in self._came for each in came) + len(self._waiting)

    def waits_open(self, names: Sequence[str]) -> str:
        return f"{self.held(names, waits=True)}; {self.queue_rows()} rows wait for it"

    # State

    def _came_schema(self) -> pa.Schema:
        hidden = [("@time", TIME), ("@late", pa.bool_()), ("@after", pa.int64())]
        return pa.schema([*self._input, *(pa.field(name, type) for name, type in hidden)])

    def save_more(self, state: BoxState) -> None:
        if not self._spec.arrival:
            self._waiting.save(state, "waiting")
            return
        schema = self._came_schema()
        for input, came in enumerate(self._came):
            batches = [self._saved(each, schema) for each in came]
            state.put(f"input-{input}", pa.Table.from_batches(batches, schema))

    def _saved(self, each: _Came, schema: pa.Schema) -> pa.RecordBatch:
        train = each.train
        after = pa.array(np.full(len(train), each.after_us))
        columns = [*train.batch.columns, train.times, _marks(train), after]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def load_more(self, state: BoxState) -> None:
        if not self._spec.arrival:
            self._waiting.load(state, "waiting")
            return
        schema = self._came_schema()
        limits = state.meta["inputs_us"]
        for input in range(len(self._came)):
            batch = one_batch(expect_table(state.tables, f"input-{input}", schema))
            *columns, times, late, after = batch.columns
            if times.null_count or late.null_count or after.null_count:
                raise ValueError("a null among the times or marks of rows that wait")
            if columns[self._positions[0]].null_count:
                raise ValueError("a row that waits has no position")
            marks = as_int64(after)
            if (np.diff(marks) < 0).any() or (
                len(marks) and not START_US <= marks[0] <= marks[-1] <= limits[input]
            ):
                raise ValueError("rows wait for a boundary that they can't have come after")
            runs = _runs(marks)
            # Which boundary came behind rows isn't saved: it is at most the one before the next rows.
            behind = [*(int(marks[start]) for start, _ in runs[1:]), limits[input]][: len(runs)]
            for (start, stop), until_us in zip(runs, behind, strict=True):
                rows = pa.RecordBatch.from_arrays(columns, schema=self._input).slice(start, stop - start)
                part = late.slice(start, stop - start)
                train = Train(
                    batch=rows,
                    times=times.slice(start, stop - start),
                    late=part if part.true_count else None,
                )
                after_us = int(marks[start])
                self._came[input].append(
                    self._waits(train, after_us, until_us if until_us > after_us else None)
                )


def _marks(train: Train) -> pa.Array:
    return pa.array(np.zeros(len(train), np.bool_)) if train.late is None else train.late


def _runs(marks: Ints) -> list[tuple[int, int]]:
    """(start, stop) of equal values that stand together."""
    if not len(marks):
        return []
    starts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(marks)]
    return [(starts[i], starts[i + 1]) for i in range(len(starts) - 1)]
