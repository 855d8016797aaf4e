"""Shapes of the boxes that put rows in order: sunion, the two sorts, resample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes.base import Field
from medusa.query.boxes.order import BSort, Resample, SUnion, WSort
from medusa.query.expressions.expression import Column
from medusa.query.shape import Shape, refuse_twice, types_of
from medusa.query.shapes.flow import check_duration, check_keys
from medusa.query.shapes.rows import union_shape
from medusa.query.shapes.windows import need_time
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, check_column_name, is_decimal, is_float, is_integer

__all__ = ["SLACK_MAX", "bsort_shape", "resample_shape", "resampled_type", "sunion_shape", "wsort_shape"]

SLACK_MAX = 10_000_000
"""Rows that a bounded sort may hold per group."""

HOWS = ("linear", "previous")
GRID_MAX = 100_000
"""Points of the grid between two neighbours. Each is a row of output: more is a slip of units."""


def sunion_shape(box: SUnion, inputs: Sequence[Shape], label: str) -> Shape:
    check_duration(box.bucket_us, label, "bucket", minimum_us=1)
    for row in inputs:
        need_time(row, label, "a sunion")
    return union_shape(inputs, label)


def bsort_shape(box: BSort, row: Shape, label: str) -> Shape:
    need_time(row, label, "a sort")
    _check_column(box.column, row, label)
    check_keys(box.keys, row, label)
    if not 0 <= box.slack <= SLACK_MAX:
        raise QueryError(
            f"{label}: slack is a number of rows from 0 to {SLACK_MAX:,}, got {box.slack}", code="query.sort"
        )
    return replace(row, box=label)


def wsort_shape(box: WSort, row: Shape, label: str, port: str) -> Shape:
    need_time(row, label, "a sort")
    _check_column(box.column, row, label)
    check_keys(box.keys, row, label)
    check_duration(box.timeout_us, label, "timeout", minimum_us=1)
    return replace(row, box=f"{label}, {port}" if port else label)


def _check_column(name: str, row: Shape, label: str) -> None:
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


def resample_shape(box: Resample, row: Shape, label: str) -> Shape:
    """The time of the grid, the keys, the other columns, and ``gap``."""
    need_time(row, label, "a resample")
    check_duration(box.every_us, label, "every", minimum_us=1)
    check_duration(box.gap_us, label, "gap", minimum_us=0)
    if box.gap_us // box.every_us > GRID_MAX:
        raise QueryError(
            f"{label}: two neighbours may have {box.gap_us // box.every_us:,} points between them, at most"
            f" {GRID_MAX:,}",
            hint="a number without unit is microseconds: write '1 s'",
            code="query.resample",
        )
    if box.how not in HOWS:
        raise QueryError(
            f"{label}: there is no how={box.how[:40]!r}",
            hint=did_you_mean(box.how, HOWS),
            code="query.resample",
        )
    check_column_name(box.time, what=label)
    types = types_of(row.schema)
    if types.get(box.time, TIMESTAMP) != TIMESTAMP:
        raise QueryError(
            f"{label}: column {box.time!r} is {types[box.time]}; the times of the grid can't take its place",
            hint="name another for them: time='at'",
            code="query.resample",
        )
    keys = check_keys(box.keys, row, label)
    gone = {box.time, *(key.expression.name for key in box.keys if isinstance(key.expression, Column))}
    others = [
        Field(field.name, resampled_type(field.type, box.how))
        for field in row.schema
        if field.name not in gone
    ]
    schema = (Field(box.time, TIMESTAMP), *keys, *others, Field("gap", "bool"))
    refuse_twice(
        [field.name for field in schema],
        label=label,
        hint="a resample gives its time, the keys, the other columns and gap: rename with select",
    )
    return Shape(label, schema, timed=True, no_window=f"{label} makes rows of its own")


def resampled_type(type: str, how: str) -> str:
    """Between two numbers there are fractions; what isn't a number keeps its type."""
    return "float64" if how == "linear" and (is_integer(type) or is_float(type)) else type
