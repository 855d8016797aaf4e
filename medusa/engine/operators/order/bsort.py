"""BSort: Aurora's bounded-pass sort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from medusa._native import BoundedSort
from medusa.elements import END_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import KeyIds, order_codes
from medusa.engine.core.row_buffer import PositionedRows, Timed
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import BSort, Schema
from medusa.query.expressions.expression import Column, Named
from medusa.query.types import schema_to_arrow

__all__ = ["BSortBox"]

ROW_COST = 4
"""What a row takes to leave at the end, in rows of other boxes: it is looked for twice."""


class BSortBox(Operator):
    """Of the ``slack + 1`` rows held per group the smallest leaves, as soon as there are so many.

    Which rows leave depends on the order in which they came and on nothing else. The boundary is the
    least of that of the input and of the times held, so it is true of rows that leave late.
    """

    kind = "bsort"

    def __init__(self, spec: BSort, *, input: Schema, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._spec = spec
        columns = [*spec.keys, Named(spec.column, Column(spec.column))]
        self._columns = Columns(self, letters, columns, input)
        *key_types, self._type = self._columns.types
        self._ids = KeyIds([key.name for key in spec.keys], key_types)
        self._sort = BoundedSort(spec.slack)
        self._held = PositionedRows(schema_to_arrow(input))
        self._seen = 0

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        whole, arrays = self._columns.compute(kept)
        if len(whole):
            self._leave(self._take(Timed.of(whole), arrays))

    def _take(self, rows: Timed, arrays: list[pa.Array]) -> pa.Array:
        """Positions of the rows that leave when these come."""
        *keys, values = arrays
        codes, nulls = order_codes(values, self._type)
        groups = pa.array(self._ids.map(keys).astype(np.int32)) if keys else None
        leaving = pa.array(self._sort.add(pa.array(codes, mask=nulls), groups, self._seen))
        self._held.add(self._seen, rows)
        self._seen += len(rows)
        return leaving

    def _leave(self, positions: pa.Array) -> None:
        if len(positions):
            self.emit_train(self._held.take(positions.to_numpy()).train())

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._ending(time_us))

    def _ending(self, time_us: int) -> Iterator[None]:
        """What leaves at the end, piece by piece, and then the boundary."""
        while time_us >= END_US and len(self._sort):
            self._leave(pa.array(self._sort.drain(max(output_pieces.ROWS_MAX // ROW_COST, 1))))
            if len(self._sort):
                yield
        least_us = self._held.least_us()
        self.advance(time_us if least_us is None else min(time_us, least_us))

    def state_bytes(self) -> int:
        return self._held.nbytes() + int(self._sort.nbytes())

    def waits_open(self, names: Sequence[str]) -> str:
        groups = f", {len(self._ids)} groups" if self._spec.keys else ""
        return f"waits for rows; holds {len(self._held)} ({self._spec.slack} of each group{groups})"

    def save_more(self, state: BoxState) -> None:
        self._held.save(state, "held")

    def load_more(self, state: BoxState) -> None:
        for rows in self._held.load(state, "held"):
            whole, arrays = self._columns.compute(rows.train())
            # No group holds more than the slack, so none of them leaves.
            if len(whole) != len(rows) or len(self._take(rows, arrays)):
                raise ValueError("more rows than a sort can hold")
