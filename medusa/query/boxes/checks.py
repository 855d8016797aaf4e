"""Checks that several kinds of boxes share."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.errors import QueryError
from medusa.query.expressions.expression import Named
from medusa.query.shape import WINDOW_COLUMNS, StreamShape, column_type, refuse_twice
from medusa.query.structs import Field, Schema
from medusa.query.types import COLUMNS_MAX, TIMESTAMP, check_column_name, is_decimal, is_type
from medusa.units import DURATION_MAX_US, duration_text

__all__ = [
    "OVERLAP_MAX",
    "WINDOW_FIELDS",
    "check_declared",
    "check_duration",
    "check_sizes",
    "key_fields",
    "key_type",
    "need_time",
    "with_place",
]


WINDOW_FIELDS = tuple(Field(name, TIMESTAMP) for name in WINDOW_COLUMNS)
OVERLAP_MAX = 100_000
"""Windows that a row may be in. Each of them may become a row of output: more is a slip of units."""


def check_sizes(size_us: int, advance_us: int, *, label: str) -> None:
    """Raises QueryError unless 0 < advance <= size."""
    if not 0 < size_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: the size of a window must be longer than 0", code="query.window")
    if not 0 < advance_us <= size_us:
        raise QueryError(
            f"{label}: advance is {duration_text(advance_us)}, expected more than 0 and at most the size,"
            f" {duration_text(size_us)}",
            hint="with a longer advance some rows would be in no window",
            code="query.window",
        )
    if -(-size_us // advance_us) > OVERLAP_MAX:
        raise QueryError(
            f"{label}: each row would be in {-(-size_us // advance_us):,} windows of {duration_text(size_us)}"
            f" every {duration_text(advance_us)}, at most {OVERLAP_MAX:,}",
            hint="a number without unit is microseconds: write advance='1 s'",
            code="query.window",
        )


def check_duration(value_us: int, label: str, what: str, *, minimum_us: int) -> None:
    """Raises QueryError unless it is a length of time that can be added to one."""
    if not minimum_us <= value_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: {what} is out of range: {value_us} us", code="query.duration")


def with_place(schema: Schema, name: str, inputs: Sequence[StreamShape], label: str) -> Schema:
    """The columns of a part of a split that gives for each row the number of the row it comes from.

    Raises:
        QueryError: an input hasn't that number as its last column, or the name is taken.
    """
    place = Field(check_column_name(name, what=label), "int64")
    for row in inputs:
        if row.schema[-1] != place:
            raise QueryError(
                f"{label}: expected {place.name!r} of type int64 as the last column of {row.box},"
                f" got {row.schema[-1].name!r} of type {row.schema[-1].type}",
                code="query.split",
            )
    refuse_twice((*schema, place), label=label)
    return (*schema, place)


def need_time(row: StreamShape, label: str, what: str) -> None:
    """Raises QueryError for a stream without time."""
    if not row.timed:
        late = row.box.endswith((".late'", ".ahead'"))
        raise QueryError(
            f"{label}: {what} needs a time, and the rows of {row.box} have none",
            hint="they pass filter, select, with_columns, union and sinks only"
            if late
            else "say which column is the time: source(..., time=...)",
            code="query.untimed",
        )


def key_type(key: Named, row: StreamShape, label: str) -> str:
    """The type of a key column; QueryError for one that can't be a key."""
    type = column_type(key, row, label=label, what="key")
    if is_decimal(type):
        raise QueryError(
            f"{label}: key {key.name!r}: {type} can't be a key",
            hint="cast it to utf8 or an integer",
            code="query.type",
        )
    return type


def key_fields(keys: Sequence[Named], row: StreamShape, label: str) -> list[Field]:
    """The columns that keys give; QueryError as ``key_type``."""
    return [Field(key.name, key_type(key, row, label)) for key in keys]


def check_declared(schema: Schema, label: str, *, reserved: Sequence[str] = ()) -> None:
    """Raises QueryError where a declared schema is none, or has a column that means something else."""
    if not 1 <= len(schema) <= COLUMNS_MAX:
        raise QueryError(f"{label}: a schema has 1 to {COLUMNS_MAX:,} columns", code="query.schema")
    refuse_twice(schema, label=label)
    for field in schema:
        check_column_name(field.name, what=label)
        if not is_type(field.type):
            raise QueryError(
                f"{label}: column {field.name!r}: type {field.type[:60]!r} is not supported",
                code="query.type",
            )
        if field.name in reserved:
            raise QueryError(
                f"{label}: {field.name!r} has a meaning of its own here and can't be declared",
                hint="choose another name",
                code="query.schema",
            )
