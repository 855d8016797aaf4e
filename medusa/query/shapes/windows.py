"""Shapes of windows."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.errors import QueryError
from medusa.query.boxes import Aggregate, AggregateCall, Field, Schema
from medusa.query.expressions.aggregates import combined, result_type, state_fields
from medusa.query.expressions.expression import Named
from medusa.query.shape import (
    WINDOW_COLUMNS,
    Shape,
    WindowKind,
    column_type,
    expression_type,
    refuse_twice,
    types_of,
)
from medusa.query.types import TIMESTAMP, check_column_name, is_decimal
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["WINDOW_FIELDS", "aggregate_shape", "check_sizes", "combine_shape", "key_type", "need_time"]

WINDOW_FIELDS = tuple(Field(name, TIMESTAMP) for name in WINDOW_COLUMNS)
STAGES = ("whole", "partial", "combine")


def aggregate_shape(box: Aggregate, row: Shape, label: str) -> Shape:
    """``whole`` or ``partial``."""
    _check_window(box, label)
    need_time(row, label, "a window")
    keys = tuple(Field(key.name, key_type(key, row, label)) for key in box.keys)
    columns: list[Field] = [*WINDOW_FIELDS, *keys]
    for call in box.aggregates:
        arg_type = _arg_type(call, row, label)
        what = f"{label}: aggregate {call.name!r}"
        more = tuple(expression_type(each, row, box=what) for each in call.more or ())
        result = result_type(call, arg_type, box=label, more=more)
        columns += state_fields(call, arg_type) if box.stage == "partial" else (Field(call.name, result),)
    return _window_result(box, tuple(columns), label)


def combine_shape(box: Aggregate, inputs: Sequence[Shape], label: str) -> Shape:
    """Merges what ``partial`` boxes of the same keys and aggregates send."""
    _check_window(box, label)
    first = inputs[0]
    for other in inputs:
        need_time(other, label, "a window")
        if other.schema != first.schema:
            raise QueryError(
                f"{label}: {first.box} and {other.box} send different columns", code="query.combine"
            )
    types = types_of(first.schema)
    results, states = [], []
    for call in box.aggregates:
        result, fields = combined(call, types, box=label)
        results.append(Field(call.name, result))
        states += [field.name for field in fields]
    expected = [*WINDOW_COLUMNS, *(key.name for key in box.keys), *states]
    if list(types) != expected or any(types[name] != TIMESTAMP for name in WINDOW_COLUMNS):
        raise QueryError(
            f"{label}: expected the columns {', '.join(expected)}, got {', '.join(types)}",
            code="query.combine",
        )
    keys = [Field(key.name, types[key.name]) for key in box.keys]
    return _window_result(box, (*WINDOW_FIELDS, *keys, *results), label)


def _check_window(box: Aggregate, label: str) -> None:
    if box.stage not in STAGES:
        raise QueryError(f"{label}: there is no stage {box.stage[:40]!r}", code="query.window")
    check_sizes(box.size_us, box.advance_us, label=label)
    if box.early_us is not None and (box.stage != "whole" or not 0 < box.early_us <= DURATION_MAX_US):
        raise QueryError(
            f"{label}: early is out of range" if box.stage == "whole" else f"{label}: has no early results",
            code="query.window",
        )
    if not box.aggregates:
        raise QueryError(f"{label}: needs at least one aggregate", hint="n=md.count()", code="query.window")


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


def _window_result(box: Aggregate, columns: Schema, label: str) -> Shape:
    names = [field.name for field in columns]
    refuse_twice(
        names, label=label, hint="a window gives window_start and window_end, then the keys, the aggregates"
    )
    return Shape(label, columns, timed=True, window=WindowKind(box.size_us, box.advance_us))


def need_time(row: Shape, label: str, what: str) -> None:
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


def key_type(key: Named, row: Shape, label: str) -> str:
    """The type of a key column; QueryError for one that can't be a key."""
    type = column_type(key, row, label=label, what="key")
    if is_decimal(type):
        raise QueryError(
            f"{label}: key {key.name!r}: {type} can't be a key",
            hint="cast it to utf8 or an integer",
            code="query.type",
        )
    return type


def _arg_type(call: AggregateCall, row: Shape, label: str) -> str | None:
    check_column_name(call.name, what=label)
    if call.arg is None:
        return None
    return expression_type(call.arg, row, box=f"{label}: aggregate {call.name!r}")
