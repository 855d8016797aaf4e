"""Boxes that put rows in order: sunion, the two sorts, resample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, ROW_BYTES, BoxData
from medusa.query.boxes.checks import check_duration, key_fields, need_time
from medusa.query.boxes.rows import union_shape
from medusa.query.boxes.text import by_text
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import StreamShape, refuse_twice, types_of
from medusa.query.structs import Field, Input
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, check_column_name, is_decimal, is_float, is_integer
from medusa.units import duration_text

__all__ = ["BSort", "Resample", "SLACK_MAX", "SUnion", "WSort", "resampled_type"]


SLACK_MAX = 10_000_000
"""Rows that a bounded sort may hold per group."""


HOWS = ("linear", "previous")
GRID_MAX = 100_000
"""Points of the grid between two neighbours. Each is a row of output: more is a slip of units."""


class SUnion(BoxData, frozen=True, tag_field="kind", tag="sunion", kw_only=True):
    """Borealis' serializing union: rows leave bucket by bucket, by (time, input, position)."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = MANY
    stays_whole = "it has no state, and no key"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of all inputs to reach the end of the bucket"

    inputs: tuple[Input, ...]
    bucket_us: int

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        check_duration(self.bucket_us, label, "bucket", minimum_us=1)
        for row in inputs:
            need_time(row, label, "a sunion")
        return union_shape(inputs, label)

    def describe(self) -> str:
        return f"by time, in buckets of {duration_text(self.bucket_us)}"


class BSort(BoxData, frozen=True, tag_field="kind", tag="bsort", kw_only=True):
    """Aurora's bounded-pass sort: of the ``slack + 1`` rows held per group, the smallest leaves.

    Attributes:
        column: what to sort by, ascending.
        keys: the groups; may be empty.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    stays_whole = "its order is that of all groups together"
    waits = "slack more rows of its group"

    inputs: tuple[Input, ...]
    column: str
    slack: int
    keys: tuple[Named, ...] = ()

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        need_time(row, label, "a sort")
        _check_column(self.column, row, label)
        key_fields(self.keys, row, label)
        if not 0 <= self.slack <= SLACK_MAX:
            raise QueryError(
                f"{label}: slack is a number of rows from 0 to {SLACK_MAX:,}, got {self.slack}",
                code="query.sort",
            )
        return replace(row, box=label)

    def describe(self) -> str:
        return f"by {self.column}, slack {self.slack} rows{by_text(self.keys)}"

    @property
    def kept_bytes(self) -> int:
        return self.slack * ROW_BYTES


class WSort(BoxData, frozen=True, tag_field="kind", tag="wsort", kw_only=True):
    """Sorts for at most ``timeout_us`` of stream time; a row that comes after a later one left is dropped."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    stays_whole = "its order is that of all groups together"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundary to be the timeout beyond the row, or a greater row that leaves"

    inputs: tuple[Input, ...]
    column: str
    timeout_us: int
    keys: tuple[Named, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        need_time(row, label, "a sort")
        _check_column(self.column, row, label)
        key_fields(self.keys, row, label)
        check_duration(self.timeout_us, label, "timeout", minimum_us=1)
        return replace(row, box=f"{label}, {port}" if port else label)

    def describe(self) -> str:
        return f"by {self.column}, timeout {duration_text(self.timeout_us)}{by_text(self.keys)}"


class Resample(BoxData, frozen=True, tag_field="kind", tag="resample", kw_only=True):
    """Values on a grid of times aligned to the epoch, per key, between neighbours at most ``gap_us`` apart.

    Attributes:
        how: ``linear`` or ``previous``.
        time: name of the output column that holds the times of the grid.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    stays_whole = "a point of the grid is made of two rows, and has the number of neither"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundary to be the gap beyond the point"

    inputs: tuple[Input, ...]
    every_us: int
    gap_us: int
    how: str = "linear"
    time: str = "ts"
    keys: tuple[Named, ...] = ()

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        """The time of the grid, the keys, the other columns, and ``gap``."""
        need_time(row, label, "a resample")
        check_duration(self.every_us, label, "every", minimum_us=1)
        check_duration(self.gap_us, label, "gap", minimum_us=0)
        if self.gap_us // self.every_us > GRID_MAX:
            raise QueryError(
                f"{label}: two neighbours may have {self.gap_us // self.every_us:,} points between them,"
                f" at most {GRID_MAX:,}",
                hint="a number without unit is microseconds: write '1 s'",
                code="query.resample",
            )
        if self.how not in HOWS:
            raise QueryError(
                f"{label}: there is no how={self.how[:40]!r}",
                hint=did_you_mean(self.how, HOWS),
                code="query.resample",
            )
        check_column_name(self.time, what=label)
        types = types_of(row.schema)
        if types.get(self.time, TIMESTAMP) != TIMESTAMP:
            raise QueryError(
                f"{label}: column {self.time!r} is {types[self.time]}; the times of the grid can't take its"
                " place",
                hint="name another for them: time='at'",
                code="query.resample",
            )
        keys = key_fields(self.keys, row, label)
        gone = {self.time, *(key.expression.name for key in self.keys if isinstance(key.expression, Column))}
        others = [
            Field(field.name, resampled_type(field.type, self.how))
            for field in row.schema
            if field.name not in gone
        ]
        schema = (Field(self.time, TIMESTAMP), *keys, *others, Field("gap", "bool"))
        refuse_twice(
            schema,
            label=label,
            hint="a resample gives its time, the keys, the other columns and gap: rename with select",
        )
        return StreamShape(label, schema, timed=True, no_window=f"{label} makes rows of its own")

    def describe(self) -> str:
        gap = f"no further than {duration_text(self.gap_us)}"
        return f"every {duration_text(self.every_us)}{by_text(self.keys)}, {self.how}, {gap}"

    @property
    def rows_made(self) -> float:
        return max(self.gap_us / self.every_us, 1.0)


def _check_column(name: str, row: StreamShape, label: str) -> None:
    types = types_of(row.schema)
    if name not in types:
        raise QueryError(
            f"{label}: there is no column {name[:60]!r} to sort by",
            hint=did_you_mean(name, types),
            code="query.column",
        )
    if types[name] in ("utf8", "binary") or is_decimal(types[name]):
        raise QueryError(
            f"{label}: column {name!r} is {types[name]}, expected a number or a time to sort by",
            hint="cast it, or sort by another column",
            code="query.type",
        )


def resampled_type(type: str, how: str) -> str:
    """Between two numbers there are fractions; what isn't a number keeps its type."""
    return "float64" if how == "linear" and (is_integer(type) or is_float(type)) else type
