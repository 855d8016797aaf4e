"""Shapes of sessions, row windows, value windows, running aggregates and top-N."""

from __future__ import annotations

import math
from collections.abc import Sequence

from medusa.errors import QueryError
from medusa.query.boxes import AggregateCall, Field, RowWindow, Running, Schema, Session, Top, ValueWindow
from medusa.query.boxes.running import LAG
from medusa.query.expressions.aggregates import result_type
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import WINDOW_COLUMNS, Shape, WindowKind, expression_type, refuse_twice
from medusa.query.shapes.windows import OVERLAP_MAX, WINDOW_FIELDS, check_sizes, key_type, need_time
from medusa.query.types import DURATION, TIMESTAMP, check_column_name, is_float, is_integer
from medusa.units import DURATION_MAX_US

__all__ = ["running_shape", "row_window_shape", "session_shape", "top_shape", "value_window_shape"]

ROWS_MAX = 1 << 40
"""Rows in a row window."""

TOP_MAX = 1 << 20
LAG_MAX = 10_000
VALUE_MAX = 1 << 60


def session_shape(box: Session, row: Shape, label: str) -> Shape:
    need_time(row, label, "a session")
    if not 0 < box.gap_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: the gap of a session must be longer than 0", code="query.window")
    columns = _columns(box.keys, box.aggregates, WINDOW_FIELDS, row, label)
    return Shape(label, columns, timed=True, no_window=f"{label} makes sessions, whose ends differ")


def row_window_shape(box: RowWindow, row: Shape, label: str) -> Shape:
    _check_numbers(box.size, box.advance, ROWS_MAX, label)
    bounds = [Field(name, "int64") for name in WINDOW_COLUMNS]
    columns = _columns(box.keys, box.aggregates, bounds, row, label)
    return Shape(label, columns, timed=row.timed, no_window=f"{label} makes windows of rows")


def value_window_shape(box: ValueWindow, row: Shape, label: str) -> Shape:
    need_time(row, label, "a window")
    type = expression_type(box.value, row, box=f"{label}: value")
    if not (is_integer(type) or is_float(type) or type in ("date32", TIMESTAMP, DURATION)):
        raise QueryError(
            f"{label}: the value of a window must be an integer, a float, a date or a time, got {type}",
            code="query.type",
        )
    if is_float(type):
        _check_floats(box, label)
    else:
        _check_numbers(box.size, box.advance, VALUE_MAX, label)
    bounds = [Field(name, _bound_type(type)) for name in WINDOW_COLUMNS]
    columns = _columns(box.keys, box.aggregates, bounds, row, label)
    return Shape(label, columns, timed=True, no_window=f"{label} makes windows of values")


def _bound_type(type: str) -> str:
    """The column's own, where every bound fits: that of the last window may lie beyond its values."""
    if is_integer(type):
        return "int64"
    return "float64" if is_float(type) else type


def running_shape(box: Running, row: Shape, label: str) -> Shape:
    if box.expire_us is not None:
        need_time(row, label, "expire")
        if not 0 < box.expire_us <= DURATION_MAX_US:
            raise QueryError(f"{label}: expire is out of range", code="query.duration")
    for key in box.keys:
        key_type(key, row, label)
    columns = [*row.schema, *_results(box.aggregates, row, label, lags=True)]
    refuse_twice(
        [field.name for field in columns], label=label, hint="choose another name for the running aggregate"
    )
    return Shape(label, tuple(columns), timed=row.timed, window=row.window, no_window=row.no_window)


def top_shape(box: Top, row: Shape, label: str) -> Shape:
    check_sizes(box.size_us, box.advance_us, label=label)
    need_time(row, label, "a window")
    if not 1 <= box.n <= TOP_MAX:
        raise QueryError(f"{label}: n must be 1 to {TOP_MAX:,}, got {box.n}", code="query.window")
    by = expression_type(box.by, row, box=f"{label}: by")
    if by == "null":
        raise QueryError(f"{label}: by is always null", code="query.type")
    keys = [Field(key.name, key_type(key, row, label)) for key in box.keys]
    gone = {key.expression.name for key in box.keys if isinstance(key.expression, Column)}
    others = [field for field in row.schema if field.name not in gone]
    columns = [*WINDOW_FIELDS, *keys, *others, Field("rank", "int64")]
    refuse_twice(
        [field.name for field in columns],
        label=label,
        hint="top gives window_start, window_end, the keys, the other columns and rank: rename columns of"
        " these names, or leave them out, in a select before",
    )
    return Shape(label, tuple(columns), timed=True, window=WindowKind(box.size_us, box.advance_us))


def _columns(
    keys: Sequence[Named], calls: Sequence[AggregateCall], bounds: Sequence[Field], row: Shape, label: str
) -> Schema:
    made = [
        *bounds,
        *(Field(key.name, key_type(key, row, label)) for key in keys),
        *_results(calls, row, label, lags=False),
    ]
    refuse_twice(
        [field.name for field in made],
        label=label,
        hint="a window gives window_start and window_end, then the keys, the aggregates",
    )
    return tuple(made)


def _results(calls: Sequence[AggregateCall], row: Shape, label: str, *, lags: bool) -> list[Field]:
    if not calls:
        raise QueryError(f"{label}: needs at least one aggregate", hint="n=md.count()", code="query.window")
    made = []
    for call in calls:
        check_column_name(call.name, what=label)
        what = f"{label}: aggregate {call.name!r}"
        arg_type = None if call.arg is None else expression_type(call.arg, row, box=what)
        if call.function == LAG:
            made.append(Field(call.name, _lag_type(call, arg_type, what, lags=lags)))
        else:
            more = tuple(expression_type(each, row, box=what) for each in call.more or ())
            made.append(Field(call.name, result_type(call, arg_type, box=label, more=more)))
    return made


def _lag_type(call: AggregateCall, arg_type: str | None, what: str, *, lags: bool) -> str:
    if not lags:
        raise QueryError(
            f"{what}: lag is for running(...)", hint="md.first or md.last", code="query.aggregate"
        )
    if call.version is not None or call.more is not None:
        raise QueryError(f"{what}: lag takes one argument and no version", code="query.aggregate")
    if arg_type is None or arg_type == "null":
        raise QueryError(f"{what}: lag needs a column", hint='md.lag("column")', code="query.aggregate")
    if type(call.parameter) is not int or not 1 <= call.parameter <= LAG_MAX:
        raise QueryError(
            f"{what}: the offset of lag must be 1 to {LAG_MAX:,}, got {call.parameter!r}",
            code="query.aggregate",
        )
    return arg_type


def _check_numbers(size: float, advance: float, largest: int, label: str) -> None:
    if type(size) is not int or type(advance) is not int:
        raise QueryError(f"{label}: size and advance must be whole numbers", code="query.window")
    if not 0 < size <= largest:
        raise QueryError(f"{label}: size must be 1 to {largest:,}, got {size}", code="query.window")
    _check_advance(size, advance, label)


def _check_floats(box: ValueWindow, label: str) -> None:
    for value in (box.size, box.advance):
        if not math.isfinite(value) or not 1e-300 < value < 1e300:
            raise QueryError(
                f"{label}: size and advance must be finite numbers above 0, got {value!r}",
                code="query.window",
            )
    _check_advance(box.size, box.advance, label)


def _check_advance(size: float, advance: float, label: str) -> None:
    if not 0 < advance <= size:
        raise QueryError(
            f"{label}: advance is {advance}, expected more than 0 and at most the size, {size}",
            hint="with a longer advance some rows would be in no window",
            code="query.window",
        )
    if size / advance > OVERLAP_MAX:
        raise QueryError(
            f"{label}: each row would be in {size // advance:,} windows, at most {OVERLAP_MAX:,}",
            hint="make advance longer",
            code="query.window",
        )
