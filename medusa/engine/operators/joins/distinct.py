"""Distinct: the first row of each key, and again the first one a length of time after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.captured_slots import CapturedSlots
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import KeyIds, one_batch
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer
from medusa.engine.core.rows import TIME, as_int64, as_times
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Distinct, Schema
from medusa.query.types import schema_to_arrow

__all__ = ["DistinctBox"]

PASSED = pa.schema([("@passed", TIME)])

NEVER_US = -(1 << 62)
"""When a key passed that never did."""

KEYS_SPARE = 1 << 12
"""Keys known beyond twice those that still matter, before the others are forgotten."""


class DistinctBox(Operator):
    """Rows are taken by (time, position) once the boundary has passed them: the first row of a key is
    the earliest, not the one that came first.

    A row that passes starts a period ``[time, time + within)``; rows of its key in it are repeats and
    change nothing.
    """

    kind = "distinct"

    def __init__(self, spec: Distinct, *, input: Schema, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._within_us = spec.within_us
        self._columns = Columns(self, letters, spec.keys, input)
        self._ids = KeyIds([key.name for key in spec.keys], self._columns.types)
        self._passed_us = np.full(0, NEVER_US)
        self._captured = CapturedSlots(PASSED, self._passed)
        self._waiting = TimedRowBuffer(schema_to_arrow(input))

    def on_train(self, input: int, train: Train) -> None:
        whole, _ = self.readable(train)
        if len(whole):
            self._waiting.add(Timed.of(whole))

    def readable(self, train: Train) -> tuple[Train, list[pa.Array]]:
        """The rows that are in time and don't fail, and their keys."""
        return self._columns.compute(self.on_time(train))

    def keys_of(self, batch: pa.RecordBatch, times: pa.Array) -> list[pa.Array]:
        """The keys of rows that wait; ValueError: one has none."""
        keys, failed, _ = self._columns.evaluate(batch, times)
        if failed is not None:
            raise ValueError("a row that waits has no key")
        return keys

    def on_boundary(self, time_us: int) -> None:
        rows = self._waiting.ready(time_us)
        if rows is not None:
            _, keys = self._columns.compute(rows.train())
            ids = self._ids.map(keys)
            self._grow()
            keep = self._first(ids, rows.times)
            if keep.any():
                self.emit_train((rows if keep.all() else rows.pick(np.flatnonzero(keep))).train())
        self._forget(time_us)
        self.advance(time_us)

    def _grow(self) -> None:
        missing = len(self._ids) - len(self._passed_us)
        if missing > 0:
            fresh = np.full(max(missing, len(self._passed_us)), NEVER_US)
            self._passed_us = np.concatenate([self._passed_us, fresh])

    def _first(self, ids: Ints, times: Ints) -> npt.NDArray[np.bool_]:
        """Which rows pass, of rows by time; notes when each key passed last.

        The row after one that passes is the first of its key at least ``within`` later. Those that
        are reached from the first of each key are found in log(n) rounds, each twice as far as the last.
        """
        rows = len(ids)
        order = np.argsort(ids, kind="stable")
        ours, at_us = ids[order], times[order]
        moments = np.unique(times)
        span = len(moments) + 1
        places = ours * span + moments.searchsorted(at_us)

        def reach(keys: Ints, from_us: Ints) -> Ints:
            """The first row of a key at or after a time; ``rows`` where there is none."""
            found = places.searchsorted(keys * span + moments.searchsorted(from_us))
            there = np.minimum(found, rows - 1)
            return np.where((found < rows) & (ours[there] == keys), found, rows)

        known = np.unique(ours)
        starts = reach(known, self._passed_us[known] + self._within_us)
        passes = np.zeros(rows + 1, np.bool_)
        passes[starts] = True
        step = np.append(reach(ours, at_us + self._within_us), rows)
        while True:
            more = step[np.flatnonzero(passes[:rows])]
            if passes[more].all():
                break
            passes[more] = True
            step = step[step]
        passes[rows] = False
        chosen = np.flatnonzero(passes[:rows])
        self._captured.come(ours[chosen])  # of each new key a row passes
        # Ascending in time within a key: the last one stays.
        self._passed_us[ours[chosen]] = at_us[chosen]
        keep = np.zeros(rows, np.bool_)
        keep[order[chosen]] = True
        return keep

    def _forget(self, time_us: int) -> None:
        """Forget keys whose period is over, now and then."""
        known = len(self._ids)
        if known <= KEYS_SPARE:
            return
        live = np.flatnonzero(self._passed_us[:known] + self._within_us > time_us)
        if known > 2 * len(live) + KEYS_SPARE:
            self._captured.renumber(len(live))
            self._ids.keep(live)
            self._passed_us = self._passed_us[live]

    # What is asked about it

    def state_bytes(self) -> int:
        return int(self._passed_us.nbytes) + int(self._ids.nbytes()) + self._captured.nbytes()

    def queue_bytes(self) -> int:
        return self._waiting.nbytes()

    def queue_rows(self) -> int:
        return len(self._waiting)

    def waits_open(self, names: Sequence[str]) -> str:
        held = self.held(names)
        return f"{len(self._waiting)} rows wait for their time; knows {len(self._ids)} keys; {held}"

    # State

    def _keys_schema(self) -> pa.Schema:
        return pa.schema([*self._ids.schema, *PASSED])

    def save_more(self, state: BoxState) -> None:
        self._waiting.save(state, "waiting")
        known, schema = len(self._ids), self._keys_schema()
        if state.patient or state.capture is not None:
            self._captured.save(state, "keys", known, self._ids.picking(), schema)
            return
        passed = as_times(self._passed_us[:known].copy())
        state.put("keys", pa.Table.from_arrays([*self._ids.keys().columns, passed], schema=schema))

    def _passed(self, ids: Ints) -> list[pa.Array]:
        """When rows of some keys passed last."""
        return [as_times(self._passed_us[ids])]

    def load_more(self, state: BoxState) -> None:
        self._waiting.load(state, "waiting")
        *keys, passed = one_batch(expect_table(state.tables, "keys", self._keys_schema())).columns
        if passed.null_count:
            raise ValueError("a null among the times of keys")
        self._ids.load(pa.RecordBatch.from_arrays(keys, schema=self._ids.schema))
        self._captured.come(np.arange(len(passed)))
        self._passed_us = as_int64(passed).copy()
        if len(self._passed_us) and int(self._passed_us.min()) < NEVER_US:
            raise ValueError("a time of a key is out of range")
