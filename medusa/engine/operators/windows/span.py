"""Windows of rows and windows of values: each group closes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from medusa._native import Spans
from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters, DeadRow
from medusa.engine.core.native_types import native_type, widen
from medusa.engine.core.rows import as_int64, only_chunk, take, take_array
from medusa.engine.operators.windows.groups import Groups, expect_integers
from medusa.engine.operators.windows.slot_results import Numbers, SlotResults
from medusa.query.boxes import Schema
from medusa.query.boxes.windows_per_group import RowWindow, ValueWindow
from medusa.query.expressions.expression import Named

__all__ = ["SpanBox"]

LATE, BAD = -1, -2
DATE_MAX = 1 << 30


class SpanBox(Operator):
    """Windows over a number that never decreases in its group: the count of its rows, or a value.

    Args:
        timed: whether the input has times.
    """

    kind = "window"
    state_format = 2

    def __init__(
        self,
        spec: RowWindow | ValueWindow,
        *,
        input: Schema,
        output: Schema,
        letters: DeadLetters,
        timed: bool,
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self.kind = "window_rows" if isinstance(spec, RowWindow) else "window_values"
        self._spec = spec
        self._timed = timed
        self._letters = letters
        self._key_names = [key.name for key in spec.keys]
        value = [] if isinstance(spec, RowWindow) else [Named("value", spec.value)]
        self._groups = Groups(
            self,
            letters,
            input,
            keys=spec.keys,
            calls=spec.aggregates,
            extra=value,
            latest=timed,
            by_time=False,
            timed=timed,
        )
        self._results = SlotResults(self, output, letters, spec.aggregates)
        self._value_type = self._groups.columns.types[len(spec.keys)] if value else ""
        self._native = native_type(self._value_type) if value else "rows"
        self._spans = Spans(self._native, spec.size, spec.advance)

    # Rows in

    def on_train(self, input: int, train: Train) -> None:
        whole, arrays = self._groups.compute(self.on_time(train))
        if not len(whole):
            return
        ids = self._groups.ids(arrays, len(whole))
        if self._value_type:
            slots = pa.array(self._spans.assign(ids, self._values(arrays[self._groups.width])))
            whole, arrays, slots, times = self._placed(whole, arrays, slots)
        else:
            slots, times = pa.array(self._spans.assign(ids)), None
        self._groups.add(slots, arrays, whole.times)
        self._send(times)

    def _values(self, array: pa.Array) -> pa.Array:
        if self._value_type == "date32":  # so that the bounds of its windows are dates too
            days = array.view(pa.int32())
            array = pc.if_else(pc.less_equal(pc.abs(days), DATE_MAX), days, None).view(pa.date32())
        return widen(array, self._value_type)

    def _placed(
        self, train: Train, arrays: list[pa.Array], slots: pa.Array
    ) -> tuple[Train, list[pa.Array], pa.Array, Numbers]:
        """The rows that have a slot, and the times of all."""
        numbers, times = as_int64(slots), as_int64(train.times)
        if not (numbers < 0).any():
            return train, arrays, slots, times
        self.late += int((numbers == LATE).sum())
        self._bury(train, np.flatnonzero(numbers == BAD))
        at = pa.array(np.flatnonzero(numbers >= 0))
        whole = Train(batch=take(train.batch, at), times=take_array(train.times, at))
        return whole, [take_array(array, at) for array in arrays], take_array(slots, at), times

    def _bury(self, train: Train, rows: Numbers) -> None:
        self.dead += len(rows)
        for row in rows[: max(1, self._letters.room(self.id))].tolist():
            names = train.batch.schema.names
            values = {name: train.batch.column(i)[row].as_py() for i, name in enumerate(names)}
            self._letters.add(DeadRow(self.id, "the value of a window is null, NaN or out of range", values))

    # Windows out

    def _send(self, row_times: Numbers | None, floor_us: int | None = None) -> None:
        """Send the windows that have closed.

        Args:
            row_times: of values: the times of the rows of the train, one of which closed each window.
            floor_us: at the end: no result is earlier, and they leave by the window.
        """
        parts = pa.record_batch(self._spans.closed())
        if not parts.num_rows:
            return
        window, key, row, position, slot, number = (as_int64(column) for column in parts.columns)
        if floor_us is not None:
            order = np.lexsort((position, window))
            window, key, row, slot, number = (a[order] for a in (window, key, row, slot, number))
            number = np.cumsum(np.diff(number, prepend=number[0]) != 0)
        begins = np.flatnonzero(np.diff(number, prepend=-1))
        numbers = None if len(begins) == len(number) else number
        finished = self._groups.finish(slot, numbers, len(begins))
        times: Numbers | None = None
        if self._timed:
            times = np.zeros(len(begins), dtype=np.int64)
            if len(finished.index):
                times[finished.index] = as_int64(finished.columns[-1])
            if row_times is not None:
                times = np.maximum(times, row_times[row[begins]])
            if floor_us is not None:
                times = np.maximum(times, floor_us)
        keys = self._groups.keys_of(key[begins])
        self.emit_train(self._results.train(finished, self._bounds(window[begins]), keys, times))
        if self._groups.settle(self._spans.position()[0], self._spans.parts()):
            self._spans.left()  # they are forgotten
            self._groups.keep(_slots_of(pa.record_batch(self._spans.panes())))

    def _bounds(self, window: Numbers) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """In float64 each bound is computed as the native code does, so that they agree."""
        start = window * self._spec.advance
        return start, start + self._spec.size

    def on_boundary(self, time_us: int) -> None:
        if time_us >= END_US and self._value_type:
            self._spans.finish()
            self._send(None, floor_us=self.boundary_us)
        self.advance(time_us)

    def state_bytes(self) -> int:
        return self._groups.nbytes() + self._spans.nbytes()

    def waits_open(self, names: Sequence[str]) -> str:
        close = "rows of their group beyond their end" if self._value_type else "the rest of their rows"
        return f"{self._spans.parts()} panes of open windows wait for {close}"

    # State

    def save_more(self, state: BoxState) -> None:
        self._groups.save_items(state, "keys", self._spans.copy_keys, len(self._spans), KEYS)
        state.put_items("panes", self._spans.copy_panes, self._spans.parts(), PANES)
        state.meta["slots"] = list(self._spans.position())
        if (left := self._spans.left()) is not None:
            self._groups.leave(as_int64(pa.array(left)))
        self._groups.save(state, self._spans.parts(), lambda: _slots_of(pa.record_batch(self._spans.panes())))

    def upgrade(self, state: BoxState, format: int) -> None:
        """Format 1 had the panes key by key."""

    def load_more(self, state: BoxState) -> None:
        keys = _one(expect_table(state.tables, "keys", _schema(self._groups.key_fields(), KEYS)))
        panes = _one(expect_table(state.tables, "panes", _schema([], PANES)))
        next_slot, taken = expect_integers(state.meta["slots"], 2)
        width = len(self._key_names)
        ids = self._groups.load_keys(keys.columns[:width], keys.num_rows)
        if not np.array_equal(ids, np.arange(keys.num_rows)):
            raise ValueError("keys: one stands there twice")
        spans = pa.RecordBatch.from_arrays(keys.columns[width:], names=list(KEYS))
        panes = take(
            panes, pa.array(np.lexsort([as_int64(panes.column(name)) for name in ("position", "key")]))
        )
        self._spans.load(spans, panes, next_slot=next_slot, taken=taken)
        self._groups.load(state, _slots_of(panes), next_slot)


KEYS = ("last", "next_window")
PANES = ("key", "low", "high", "slot", "position")


def _slots_of(panes: pa.RecordBatch) -> Numbers:
    return as_int64(panes.column(PANES.index("slot")))


def _schema(fields: Sequence[Any], names: Sequence[str]) -> pa.Schema:
    return pa.schema([*fields, *((name, pa.int64()) for name in names)])


def _one(table: pa.Table) -> pa.RecordBatch:
    columns = table.combine_chunks().columns
    arrays = [only_chunk(c) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
