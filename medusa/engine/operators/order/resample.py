"""Resample: the values of each key at regular times, between its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator, show_time
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import KeyIds
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer, concat_timed, load_timed, save_timed
from medusa.engine.core.rows import as_bools, as_times, take_array
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Resample, Schema
from medusa.query.expressions.expression import Column
from medusa.query.types import DURATION, TIMESTAMP, schema_to_arrow, to_arrow

__all__ = ["ResampleBox"]

POINTS_MAX = 1 << 16
"""Points of the grid made at once, where time can be cut smaller."""


@dataclass(frozen=True, slots=True)
class _Points:
    """Rows to make: at ``at_us``, between row ``left`` and the next of its key, ``right``; where ``gap``
    is true there is none near enough."""

    at_us: Ints
    left: Ints
    right: Ints
    gap: npt.NDArray[np.bool_]


class ResampleBox(Operator):
    """At a boundary, all points of the grid before ``boundary - gap`` are known: the rows on both sides
    of them have come, or will come too far away. They leave by (time, position of the row before).

    Of the rows, those stay that are still on the left of a point to come, and those after them.
    """

    kind = "resample"

    def __init__(self, spec: Resample, *, input: Schema, output: Schema, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._spec = spec
        self._columns = Columns(self, letters, spec.keys, input) if spec.keys else None
        self._key_names = [key.name for key in spec.keys]
        self._schema = schema_to_arrow(input)
        self._output = schema_to_arrow(output)
        self._waiting = TimedRowBuffer(self._schema)
        self._held = Timed.none(self._schema)  # by (time, position)
        gone = {spec.time, *(key.expression.name for key in spec.keys if isinstance(key.expression, Column))}
        others = [(index, field) for index, field in enumerate(input) if field.name not in gone]
        self._others = [(index, field.type) for index, field in others]
        self._made = [field.type for field in output[1 + len(spec.keys) : -1]]

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        if self._columns is not None:
            kept, _ = self._columns.compute(kept)
        if len(kept):
            self._waiting.add(Timed.of(kept))

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._results(time_us))

    def _results(self, time_us: int) -> Iterator[None]:
        """Everything below a boundary, piece by piece, and then the boundary."""
        ended = time_us >= END_US
        end_us = time_us if ended else time_us - self._spec.gap_us
        # A point at every multiple of the step below `end_us`: nothing new before the next one.
        if ended or self._grid(end_us) > self._grid(self.boundary_us):
            yield from self._step(time_us, end_us)
        self.advance(end_us)

    def _grid(self, time_us: int) -> int:
        """The number of the first point at or after a time."""
        return -(-time_us // self._spec.every_us)

    def _step(self, time_us: int, end_us: int) -> Iterator[None]:
        ready = self._waiting.ready(time_us)
        if ready is not None:
            self._held = concat_timed([self._held, ready]) if len(self._held) else ready
        if not len(self._held):
            return
        ids = self._key_ids(self._held)
        series = _Series(self._held.times, ids, self._spec.every_us, self._spec.gap_us)
        stop = self._grid(end_us)
        for points in series.cuts(self._grid(self.boundary_us), stop):
            self.emit_train(self._train(points))
            if len(points.at_us) > POINTS_MAX // 4:
                yield
        self._held = self._held.pick(series.needed(stop))

    def _key_ids(self, rows: Timed) -> Ints:
        if self._columns is None:
            return np.zeros(len(rows), np.int64)
        _, keys = self._columns.compute(rows.train())
        # Only to tell keys apart here and now, so nothing is remembered of them.
        return KeyIds(self._key_names, self._columns.types).map(keys)

    def _train(self, points: _Points) -> Train:
        left, held = pa.array(points.left), self._held
        columns = [as_times(points.at_us)]
        if self._columns is not None:
            _, keys = self._columns.compute(held.train())
            columns += [take_array(key, left) for key in keys]
        for (index, type), made in zip(self._others, self._made, strict=True):
            column = held.batch.column(index)
            if self._spec.how == "linear" and (made == "float64" or type in (TIMESTAMP, DURATION)):
                columns.append(_between(column, held.times, points, to_arrow(made)))
            else:
                masked = pa.array(points.left, mask=points.gap) if points.gap.any() else left
                columns.append(take_array(column, masked))
        columns.append(pa.array(points.gap))
        return Train(batch=pa.RecordBatch.from_arrays(columns, schema=self._output), times=columns[0])

    # What is asked about it

    def state_bytes(self) -> int:
        return int(self._held.batch.nbytes) + 8 * len(self._held)

    def queue_bytes(self) -> int:
        return self._waiting.nbytes()

    def queue_rows(self) -> int:
        return len(self._waiting)

    def waits_open(self, names: Sequence[str]) -> str:
        return f"points up to {show_time(self.boundary_us)} have left; {self.held(names)}"

    def save_more(self, state: BoxState) -> None:
        self._waiting.save(state, "waiting")
        save_timed(state, "held", [self._held] if len(self._held) else [], self._schema)

    def load_more(self, state: BoxState) -> None:
        self._waiting.load(state, "waiting")
        held = load_timed(state, "held", self._schema)
        self._held = concat_timed(held).sorted() if held else self._held


class _Series:
    """The rows of each key by time, one per time: of several the last.

    The points of a row are the multiples of the step from its time up to the next row of its key. If
    that is too far away, they are the row's own time, if on the grid, and the mark of the gap, which
    is the first point after it.
    """

    def __init__(self, times: Ints, ids: Ints, every_us: int, gap_us: int) -> None:
        order = np.argsort(ids, kind="stable")
        ours, at_us = ids[order], times[order]
        same = ours[1:] == ours[:-1]
        last = np.append(~(same & (at_us[1:] == at_us[:-1])), True)
        rows, ours, at_us = order[last], ours[last], at_us[last]
        follows = np.append(ours[1:] == ours[:-1], False)
        until_us = np.where(follows, np.append(at_us[1:], 0), int(END_US))
        apart = until_us - at_us > gap_us
        mark = at_us // every_us + 1
        self._every_us = every_us
        self._rows = rows
        self._nexts = np.where(follows, np.append(rows[1:], 0), rows)
        self._begin = -(-at_us // every_us)
        self._end = np.where(apart, mark + (mark * every_us < until_us), -(-until_us // every_us))
        self._mark = np.where(apart, mark, np.int64(-(1 << 62)))

    def needed(self, stop: int) -> Ints:
        """Rows that have points from number ``stop`` on, ascending."""
        return np.sort(self._rows[self._end > stop])

    def cuts(self, first: int, stop: int) -> Iterator[_Points]:
        """The points numbered [first, stop), by (time, row), in pieces of bounded size."""
        first, stop = max(first, int(self._begin.min())), min(stop, int(self._end.max()))
        stack = [(first, stop)]
        while stack:
            first, stop = stack.pop()
            begin = np.maximum(self._begin, first)
            counts = np.maximum(np.minimum(self._end, stop) - begin, 0)
            total = int(counts.sum())
            if total > POINTS_MAX and stop - first > 1:
                middle = (first + stop) // 2
                stack += [(middle, stop), (first, middle)]
            elif total:
                yield self._points(begin, counts, total)

    def _points(self, begin: Ints, counts: Ints, total: int) -> _Points:
        of = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts) + begin[of]
        order = np.lexsort((self._rows[of], number))
        of, number = of[order], number[order]
        return _Points(number * self._every_us, self._rows[of], self._nexts[of], number == self._mark[of])


def _between(column: pa.Array, times: Ints, points: _Points, made: pa.DataType) -> pa.Array:
    """Values on the lines between rows; null at a gap, and where an end of the line is null."""
    left_us, right_us = times[points.left], times[points.right]
    inner = points.at_us > left_us
    share = np.where(inner, points.at_us - left_us, 0) / np.maximum(right_us - left_us, 1)
    nulls = points.gap.copy()
    if column.null_count:
        missing = as_bools(column.is_null())
        nulls |= missing[points.left] | (inner & missing[points.right])
    if made == pa.float64():
        values = _numbers(column.cast(made, safe=False))
        with np.errstate(invalid="ignore", over="ignore"):
            line = values[points.left] + (values[points.right] - values[points.left]) * share
        return pa.array(np.where(inner, line, values[points.left]), mask=nulls)
    whole = _numbers(column.view(pa.int64()))
    start, stop = whole[points.left], whole[points.right]
    far = np.abs(stop.astype(np.float64) - start.astype(np.float64)) >= 2.0**62
    with np.errstate(over="ignore"):
        near = np.where(far, 0, stop - start)
        steps = np.where(far, stop * 1.0 - start * 1.0, near) * share
    line = np.where(far, start * (1 - share) + stop * share, 0).astype(np.int64)
    at = np.where(far, line, start + np.rint(np.where(far, 0, steps)).astype(np.int64))
    return pa.array(np.where(inner, at, start), mask=nulls).view(made)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Values as numpy; 0 for null."""
    return (column.fill_null(0) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]
