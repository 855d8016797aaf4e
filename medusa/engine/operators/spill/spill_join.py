"""How joins lie in parts: results leave by (release, left position, right position), a missing one last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.native_types import native_type, widen
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64
from medusa.engine.core.site import Site
from medusa.engine.operators.joins.join import JoinBox, join_options
from medusa.engine.operators.spill.spill_kind import (
    POSITION,
    SpillKind,
    least_us,
    moved,
    moved_last,
    single,
    with_position,
)
from medusa.query import boxes as query

__all__ = ["JoinKind"]

NONE = 1 << 62
"""The position of a row that is missing."""

KEYS_SPARE = 1 << 12
"""As that of a whole join, but of a part."""

_SIDES = ("left", "right")


class PartJoin(JoinBox):
    """A join whose rows have positions, and whose results say by what they are in order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = [side.kept.schema.get_field_index(POSITION) for side in self._sides]
        self._others = tuple(
            [index for index in others if index != place]
            for others, place in zip(self._others, self._places, strict=True)
        )

    def _train(self, rows: pa.RecordBatch) -> Train:
        made = super()._train(rows)
        release, _, left, right = rows.columns
        first, second = (
            self._sides[side].kept.take(numbers, [self._places[side]])[0]
            for side, numbers in enumerate((left, right))
        )
        # A row without its left one is last among its release, by its own position.
        order = np.where(_null(first), NONE + _filled(second), _filled(first))
        batch = made.batch.append_column("@release", release).append_column("@order", pa.array(order))
        return Train(batch=batch, times=made.times)


def _null(array: pa.Array) -> Any:
    return np.asarray(array.is_null())


def _filled(positions: pa.Array) -> Ints:
    return as_int64(positions.fill_null(0))


class JoinKind(SpillKind):
    """Interval joins of all kinds, window joins and as-of joins."""

    tables = _SIDES
    sorted_by: Mapping[str, Sequence[str]] = {"left": (POSITION,), "right": (POSITION,)}
    order = 2

    def __init__(
        self, spec: query.Join | query.WindowJoin | query.AsofJoin, site: Site, plain: Operator
    ) -> None:
        super().__init__(plain)
        self._spec = spec
        self._options = join_options(spec, site)
        self._types = self.plain._sides[0].types
        self.key_types = [native_type(type) for type in self._types]
        self._widths = [len(schema) for schema in site.schemas]
        self._options["sides"] = tuple(map(with_position, site.schemas))

    def make(self, letters: DeadLetters) -> Operator:
        return PartJoin(self._spec, **(self._options | {"letters": letters, "keys_spare": KEYS_SPARE}))

    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        side = self.plain._sides[input]
        kept = self.plain.on_time(train)
        whole, keys = side.columns.compute(kept)
        return whole, self._wide(side.typed(keys))

    def _wide(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        return [widen(key, type) for key, type in zip(keys, self._types, strict=True)]

    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        *columns, release, left = train.batch.columns
        return pa.RecordBatch.from_arrays(columns, schema=self.plain._schema), [release, left]

    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        return time_us if time_us >= END_US else time_us - int(self.plain._delay_us)

    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        """Rows that wait, and those that may leave without a partner."""
        found = int(END_US)
        alone = self.plain._delay_us > 0 and self._spec.how != "semi"
        for name in _SIDES:
            table = state.tables[name]
            rows = single(table.select(["@time", "@matched"]))
            times = as_int64(rows.column(0))
            found = min(found, least_us(table, 1, np.flatnonzero(times >= boundary_us)))
            if alone:
                single_rows = np.flatnonzero(~np.asarray(rows.column(1)))
                found = min(found, least_us(table, int(self.plain._delay_us) + 1, single_rows))
        return found

    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        side = self.plain._sides[_SIDES.index(name)]
        return self._wide([rows.column(index) for index in side.key_columns])

    def localise(self, state: BoxState) -> BoxState:
        tables = {}
        for number, name in enumerate(_SIDES):
            rows = moved(single(state.tables[name]), self._widths[number])
            tables[name] = pa.Table.from_batches([rows])
        return BoxState(tables=tables)

    def held(self, name: str, rows: pa.RecordBatch, boundary_us: int) -> pa.RecordBatch:
        within_us = self.plain._within_us
        if within_us is None:
            return rows
        times = as_int64(rows.column(rows.schema.get_field_index("@time")))
        return rows.filter(pa.array(times >= boundary_us - within_us))

    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        rows = single(state.tables[name])
        return pa.Table.from_batches([moved_last(rows, self._widths[_SIDES.index(name)])])
