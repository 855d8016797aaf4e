"""Running aggregates: each row with the aggregates of its group so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from medusa._native import Expiry
from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters, DeadRow
from medusa.engine.core.native_types import narrow
from medusa.engine.core.rows import as_int64, only_chunk, take, take_array
from medusa.engine.operators.windows.groups import Groups, expect_integers
from medusa.engine.operators.windows.lag import Lags
from medusa.engine.operators.windows.slot_results import Numbers
from medusa.engine.state.background_copy import capture_of
from medusa.engine.state.row_changes import GrowingRows
from medusa.query.boxes import AggregateCall, Running, Schema
from medusa.query.boxes.calls import LAG
from medusa.query.expressions.expression import Named
from medusa.query.types import schema_to_arrow, to_arrow

__all__ = ["RunningBox"]

SPARE = 4096


class RunningBox(Operator):
    """A row in, a row out. Slots are the numbers of keys or, with ``expire``, of their lives.

    Args:
        timed: whether the input has times.
    """

    kind = "running"

    def __init__(
        self, spec: Running, *, input: Schema, output: Schema, letters: DeadLetters, timed: bool
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self._expire = spec.expire_us
        self._letters = letters
        self._schema = schema_to_arrow(output)
        self._types = [field.type for field in output]
        self._calls = spec.aggregates
        self._key_names = [key.name for key in spec.keys]
        plain = [call for call in spec.aggregates if call.function != LAG]
        lags = [call for call in spec.aggregates if call.function == LAG]
        looked: list[Named] = []
        offsets: list[tuple[int, int]] = []
        for call in lags:
            known = [named.expression for named in looked]
            if call.arg not in known:
                looked.append(Named(call.name, call.arg))  # type: ignore[arg-type]
                known.append(call.arg)  # type: ignore[arg-type]
            offsets.append((known.index(call.arg), int(call.parameter or 1)))  # type: ignore[arg-type]
        self._groups = Groups(
            self,
            letters,
            input,
            keys=spec.keys,
            calls=plain or [AggregateCall("rows", "count")],
            extra=looked,
            latest=False,
            by_time=False,
            timed=timed,
        )
        self._plain = len(plain)
        width = len(spec.keys)
        self._looked = slice(width, width + len(looked))
        self._look_types = [to_arrow(type) for type in self._groups.columns.types[self._looked]]
        self._lags = Lags(self._look_types, offsets) if lags else None
        self._expiry = Expiry(spec.expire_us) if spec.expire_us is not None else None
        self._known = GrowingRows()

    def on_train(self, input: int, train: Train) -> None:
        whole, arrays = self.readable(train)
        rows = len(whole)
        if not rows:
            return
        self._started = True
        ids = self._groups.ids(arrays, rows)
        if self._expiry is None:
            slots = ids.cast(pa.int64())
        else:
            slots = pa.array(self._expiry.assign(ids, whole.times))
        earlier: list[pa.Array] = []
        if self._lags is not None:
            earlier = self._lags.take(as_int64(slots), arrays[self._looked])
        index = np.arange(rows)
        results: list[pa.Array] = []
        if self._plain:
            finished = self._groups.run(slots, arrays)
            index, results = finished.index, finished.columns
            self._bury(whole, finished.failed)
        self._leave()
        if self._plain and not len(index):
            return
        self._emit(whole, index, results, earlier)

    def readable(self, train: Train) -> tuple[Train, list[pa.Array]]:
        """The rows that are in time and don't fail, and the columns that are read of them, keys first."""
        return self._groups.compute(train if self._expire is None else self.on_time(train))

    def _leave(self) -> None:
        """Keys have new slots, and rows of the old ones have been told; the store forgets those."""
        left = self._expiry.left() if self._expiry is not None else None
        if left is not None:
            slots = as_int64(pa.array(left))
            if self._plain:
                self._groups.leave(slots)
            if self._lags is not None:
                self._lags.leave(slots)

    def _emit(self, whole: Train, index: Numbers, results: list[pa.Array], earlier: list[pa.Array]) -> None:
        batch, times, late = whole.batch, whole.times, whole.late
        if len(index) < len(whole):
            at = pa.array(index)
            batch = take(batch, at)
            times = None if times is None else take_array(times, at)
            late = None if late is None else take_array(late, at)
            earlier = [take_array(array, at) for array in earlier]
        plain, before = iter(results), iter(earlier)
        columns = list(batch.columns)
        for call, type in zip(self._calls, self._types[len(columns) :], strict=True):
            columns.append(next(before) if call.function == LAG else narrow(next(plain), type))
        made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.emit_train(Train(batch=made, times=times, late=late))

    def _bury(self, train: Train, failed: Sequence[tuple[int, int]]) -> None:
        names = [call.name for call in self._calls if call.function != LAG]
        before = -1
        for row, call in failed:
            if row == before:
                continue
            before = row
            self.dead += 1
            columns = zip(train.batch.schema.names, train.batch.columns, strict=True)
            values = {name: column[row].as_py() for name, column in columns}
            self._letters.add(DeadRow(self.id, f"aggregate {names[call]!r}: its sum doesn't fit", values))

    def on_boundary(self, time_us: int) -> None:
        self.advance(time_us)
        if self._expiry is not None and self._due():
            self._forget(time_us)

    def _due(self) -> bool:
        keys = len(self._groups.index)
        return keys > 2 * self._alive + SPARE or self._groups.settle(self._expiry_slots(), keys)

    _alive = 0
    _started = False

    def _expiry_slots(self) -> int:
        return self._expiry.next_slot() if self._expiry is not None else 0

    def _forget(self, time_us: int) -> None:
        """Drop the state that no later row can see."""
        assert self._expiry is not None
        assert self._expire is not None
        latest, slots = map(as_int64, map(pa.array, self._expiry.keys()))
        live = np.flatnonzero(latest + self._expire >= min(time_us, int(END_US)))
        self._alive = len(live)
        kept = slots[live]
        self._groups.keep(kept)
        if self._lags is not None:
            self._lags.keep(kept)
        self._groups.keep_keys(live)
        self._expiry.load(pa.array(latest[live]), pa.array(kept), next_slot=self._expiry.next_slot())

    def state_bytes(self) -> int:
        expiring = self._expiry.nbytes() if self._expiry is not None else 0
        return self._groups.nbytes() + (self._lags.nbytes() if self._lags is not None else 0) + expiring

    # State

    def save_more(self, state: BoxState) -> None:
        if self._expiry is None:
            rows = len(self._groups.index) if self._started else 0
            self._groups.save_grown_keys(state, "keys", rows, _numbered, self._known)
        else:
            rows = len(self._expiry)
            self._groups.save_items(state, "keys", self._expiry.copy, rows, ("latest", "slot"))
        state.meta["next_slot"] = self._expiry_slots()
        if self._plain:
            self._groups.save(state, rows, self._slots)
        if self._lags is not None:
            # With ``expire`` slots leave: what changed is found by comparing.
            capture = capture_of(state.capture, rows) if self._expiry is None else None
            state.put("lags", self._lags.later(rows, self._lag_schema(), capture))

    def _slots(self) -> Numbers | range:
        """Those of all keys."""
        if self._expiry is None:
            return range(len(self._groups.index) if self._started else 0)
        return as_int64(pa.array(self._expiry.keys()[1]))

    def _lag_schema(self) -> pa.Schema:
        return pa.schema(
            [("slot", pa.int64()), *((f"value{i}", type) for i, type in enumerate(self._look_types))]
        )

    def load_more(self, state: BoxState) -> None:
        schema = pa.schema([*self._groups.key_fields(), ("latest", pa.int64()), ("slot", pa.int64())])
        table = expect_table(state.tables, "keys", schema).combine_chunks()
        columns = [only_chunk(c) for c in table.columns]
        if columns[-1].null_count or columns[-2].null_count:
            raise ValueError("keys: a slot or a time is null")
        slots = as_int64(columns[-1])
        self._started = len(slots) > 0
        (next_slot,) = expect_integers([state.meta["next_slot"]], 1)
        ids = self._groups.load_keys(columns[:-2], len(slots))
        if not np.array_equal(ids, np.arange(len(slots))):
            raise ValueError("keys: one stands there twice")
        if self._expiry is None:
            if not np.array_equal(slots, ids):
                raise ValueError("keys: other slots than their numbers")
        else:
            if len(slots) and (slots.min() < 0 or slots.max() >= next_slot):
                raise ValueError("keys: a slot that was never given")
            self._expiry.load(columns[-2], columns[-1], next_slot=next_slot)
        if self._plain:
            self._groups.load(state, slots, next_slot)
        if self._lags is not None:
            held = expect_table(state.tables, "lags", self._lag_schema()).combine_chunks()
            parts = [only_chunk(c) for c in held.columns]
            if parts[0].null_count or not np.isin(as_int64(parts[0]), slots).all():
                raise ValueError("lags: a slot that no key has")
            self._lags.load(as_int64(parts[0]), parts[1:])


def _numbered(start: int, end: int) -> dict[str, pa.Array]:
    """Of keys that don't expire: no latest time, and their numbers as slots."""
    return {
        "latest": pa.array(np.zeros(end - start, dtype=np.int64)),
        "slot": pa.array(np.arange(start, end)),
    }
