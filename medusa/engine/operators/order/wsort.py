"""WSort: sorts for a length of stream time; what comes too late for the order is dropped."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import END_US, START_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import KeyIds, one_batch, order_codes
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer, concat_timed, load_timed, save_timed
from medusa.engine.core.sorting import order_in_pieces
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.order.wsort_rule import Tops, judge, judging
from medusa.query.boxes import Schema, WSort
from medusa.query.expressions.expression import Column, Named
from medusa.query.types import schema_to_arrow

__all__ = ["WSortBox"]

Bools = npt.NDArray[np.bool_]

FEW_ROWS, STEPS = 4096, 16
"""With more rows than these, at most so many steps are made in the length of the timeout."""


class WSortBox(Operator):
    """Rows are taken by (time, position) once the boundary has passed their time, so that the answer
    depends on times and not on when boundaries came."""

    kind = "wsort"
    boundary_ports = ("", "dropped")

    def __init__(self, spec: WSort, *, input: Schema, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._timeout_us = spec.timeout_us
        self._columns = Columns(self, letters, [*spec.keys, Named(spec.column, Column(spec.column))], input)
        *key_types, self._type = self._columns.types
        self._ids = KeyIds([key.name for key in spec.keys], key_types)
        self._schema = schema_to_arrow(input)
        self._waiting = TimedRowBuffer(self._schema)
        # Rows taken that haven't left, by (time, position).
        self._held = Timed.none(self._schema)
        self._tops = Tops()
        self._stepped_us = int(START_US)

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        whole, _ = self._columns.compute(kept)
        if len(whole):
            self._waiting.add(Timed.of(whole))

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._stepping(time_us))

    def _stepping(self, time_us: int) -> Iterator[None]:
        """What leaves at a boundary, piece by piece, and then the boundary."""
        held_us = int(self._held.times[0]) if len(self._held) else int(END_US)
        least_us = min(held_us, self._waiting.least_us())
        if least_us < time_us and self._worth_a_step(time_us):
            self._stepped_us = time_us
            yield from self._step(self._waiting.ready(time_us), time_us)
            held_us = int(self._held.times[0]) if len(self._held) else int(END_US)
            least_us = min(held_us, self._waiting.least_us())
        self.advance(min(time_us, least_us))

    def _worth_a_step(self, time_us: int) -> bool:
        """A step looks at every row held. With many of them it is made a few times per timeout only, which
        changes when rows are sent and not which or in what order."""
        few = len(self._held) + len(self._waiting) <= FEW_ROWS
        return few or time_us >= END_US or time_us - self._stepped_us >= self._timeout_us // STEPS

    def _step(self, ready: Timed | None, time_us: int) -> Iterator[None]:
        """With pauses where rows are many: only the last part of it changes what is held."""
        old = len(self._held)
        many = old + (0 if ready is None else len(ready)) > output_pieces.ROWS_MAX
        if many:
            yield
        rows = self._held if ready is None else concat_timed([self._held, ready]) if old else ready
        groups, codes, nulls = yield from self._codes(rows)
        about = rows.times, groups, codes, nulls, self._tops, self._timeout_us, time_us
        if many:
            yield
        found = (yield from judging(*about)) if many else judge(*about)
        gone = found.below
        gone[:old] = False  # they were judged when they came
        if gone.any():
            dropped = rows.pick(np.flatnonzero(gone))
            self.dropped += len(dropped)
            self.emit(dropped.train(), "dropped")
        leaves = ~gone & (found.leaves_us <= time_us)
        chosen = np.flatnonzero(leaves)
        if len(chosen):
            at_us = found.leaves_us[chosen]
            # At one moment first those that waited, then those that came at it.
            came = at_us == rows.times[chosen]
            if many:
                yield
            order = yield from order_in_pieces([found.ranks[chosen], came.astype(np.int64), at_us])
            if many:
                yield
            order = chosen[order]
            for first, end in output_pieces.row_cuts(len(order)):
                if many:
                    yield
                self.emit_train(rows.pick(order[first:end]).train())
        self._held = rows.pick(np.flatnonzero(~gone & ~leaves))

    def _codes(self, rows: Timed) -> Generator[None, None, tuple[Ints, Ints, Bools | None]]:
        """Of each row its group, a number in the order of values, and whether that stands for null."""
        groups, codes = np.zeros(len(rows), np.int64), np.empty(len(rows), np.int64)
        nulls = np.zeros(len(rows), np.bool_)
        for first, end in output_pieces.row_cuts(len(rows)):
            if first:
                yield
            _, (*keys, column) = self._columns.compute(rows.slice(first, end).train())
            if keys:
                groups[first:end] = self._ids.map(keys)
            codes[first:end], null = order_codes(column, self._type)
            if null is not None:
                nulls[first:end] = null
        return groups, codes, nulls if nulls.any() else None

    # What is asked about it

    def state_bytes(self) -> int:
        return int(self._held.batch.nbytes) + 8 * len(self._held) + self._tops.nbytes()

    def queue_bytes(self) -> int:
        return self._waiting.nbytes()

    def queue_rows(self) -> int:
        return len(self._waiting)

    def waits_open(self, names: Sequence[str]) -> str:
        held = self.held(names)
        return f"sorts {len(self._held)} rows, {len(self._waiting)} more wait for their time; {held}"

    # State

    def _tops_schema(self) -> pa.Schema:
        return pa.schema([*self._ids.schema, ("@level", pa.int64()), ("@top", pa.int64())])

    def save_more(self, state: BoxState) -> None:
        self._waiting.save(state, "waiting")
        save_timed(state, "held", [self._held] if len(self._held) else [], self._schema)
        keys = self._ids.keys().columns if self._ids.schema else []
        groups = len(self._ids) if keys else 1
        self._tops.grow(groups)
        tops = [pa.array(self._tops.levels[:groups]), pa.array(self._tops.codes[:groups])]
        batch = pa.RecordBatch.from_arrays([*keys, *tops], schema=self._tops_schema())
        state.tables["tops"] = pa.Table.from_batches([batch])

    def load_more(self, state: BoxState) -> None:
        self._waiting.load(state, "waiting")
        held = load_timed(state, "held", self._schema)
        self._held = concat_timed(held).sorted() if held else self._held
        *keys, levels, codes = one_batch(expect_table(state.tables, "tops", self._tops_schema())).columns
        if levels.null_count or codes.null_count:
            raise ValueError("a null among the tops")
        if keys:
            self._ids.load(pa.RecordBatch.from_arrays(keys, schema=self._ids.schema))
        if not keys and len(levels) != 1:
            raise ValueError("expected one top")
        self._tops.load(levels.to_numpy(), codes.to_numpy())
