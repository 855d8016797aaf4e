"""Shapes of sources and of the boxes that look at one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes import Field, Filter, Schema, Select, Source, WithColumns
from medusa.query.expression import Column
from medusa.query.shape import (
    WINDOW_COLUMNS,
    Shape,
    WindowKind,
    column_type,
    expression_type,
    refuse_twice,
    types_of,
)
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, check_column_name, is_integer, is_type
from medusa.units import DURATION_MAX_US

__all__ = ["filter_shape", "select_shape", "source_shape", "union_shape", "with_columns_shape"]

SOURCE_UNITS = ("s", "ms", "us", "ns")


def source_shape(box: Source, label: str, port: str) -> Shape:
    types = types_of(box.schema)
    _check_schema(box.schema, label)
    if box.judged and (box.time is not None or box.unit is not None or box.slack_us is not None):
        raise QueryError(
            f"{label}: a judged source has no time, unit or slack of its own", code="query.source"
        )
    if not box.judged and box.timed != (box.time is not None):
        raise QueryError(f"{label}: timed is for sources with a time column", code="query.source")
    if box.time is None:
        if box.unit is not None or box.slack_us is not None:
            raise QueryError(
                f"{label}: unit= and slack= are for sources with time=",
                hint="say which column is the time: time=...",
                code="query.source",
            )
    else:
        _check_time(box, types, label)
    if box.slack_us is not None and not 0 <= box.slack_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: slack is out of range", code="query.duration")
    if port not in ("", "late") or (port and (box.judged or box.time is None)):
        raise QueryError(
            f"{label}: has no port {port[:60]!r}",
            hint="a source with time= has .late; others judge no lateness",
            code="query.port",
        )
    if port:
        return Shape(f"source {box.id + '.late'!r}", box.schema, timed=False)
    return Shape(label, box.schema, timed=box.timed, window=_window_of(box, types, label))


def _window_of(box: Source, types: dict[str, str], label: str) -> WindowKind | None:
    """What the owner of a judged source says of its windows, where they were cut."""
    if box.window_us is None:
        return None
    size_us, advance_us = box.window_us
    if (
        not box.judged
        or not box.timed
        or not 0 < advance_us <= size_us <= DURATION_MAX_US
        or any(types.get(name) != TIMESTAMP for name in WINDOW_COLUMNS)
    ):
        raise QueryError(f"{label}: its rows are no results of windows", code="query.source")
    return WindowKind(size_us, advance_us)


def _check_schema(schema: Schema, label: str) -> None:
    names: set[str] = set()
    if not schema:
        raise QueryError(f"{label}: the schema has no columns", code="query.schema")
    for field in schema:
        check_column_name(field.name, what=label)
        if field.name in names:
            raise QueryError(f"{label}: column {field.name!r} stands twice", code="query.schema")
        names.add(field.name)
        if not is_type(field.type):
            raise QueryError(
                f"{label}: column {field.name!r}: type {field.type[:60]!r} is not supported",
                code="query.type",
            )


def _check_time(box: Source, types: dict[str, str], label: str) -> None:
    time = box.time or ""
    if time not in types:
        raise QueryError(
            f"{label}: the time column {time[:60]!r} is not in the schema",
            hint=did_you_mean(time, types),
            code="query.column",
        )
    if is_integer(types[time]):
        if box.unit not in SOURCE_UNITS:
            came = f", got {box.unit!r}" if box.unit is not None else ""
            raise QueryError(
                f'{label}: the time column {time!r} is {types[time]} and needs unit="s", "ms", "us" or'
                f' "ns"{came}',
                code="query.unit",
            )
    elif types[time] != TIMESTAMP:
        raise QueryError(
            f"{label}: the time column {time!r} is {types[time]}, expected a timestamp or an integer",
            code="query.type",
        )
    elif box.unit is not None:
        raise QueryError(f"{label}: unit= is for integer columns; {time!r} is a timestamp", code="query.unit")


def filter_shape(box: Filter, row: Shape, label: str) -> Shape:
    came = expression_type(box.predicate, row, box=label)
    if came != "bool":
        raise QueryError(
            f"{label}: the predicate must be bool, got {came}", hint="compare it: x > 0", code="query.type"
        )
    return replace(row, box=label)


def select_shape(box: Select, row: Shape, label: str) -> Shape:
    if not box.columns:
        raise QueryError(f"{label}: needs at least one column", code="query.schema")
    fields = tuple(Field(named.name, column_type(named, row, label=label)) for named in box.columns)
    refuse_twice([field.name for field in fields], label=label)
    kept = {named.name for named in box.columns if named.expression == Column(named.name)}
    return _after_columns(row, fields, kept, label)


def with_columns_shape(box: WithColumns, row: Shape, label: str) -> Shape:
    if not box.columns:
        raise QueryError(f"{label}: needs at least one column", code="query.schema")
    refuse_twice([named.name for named in box.columns], label=label)
    made = {named.name: Field(named.name, column_type(named, row, label=label)) for named in box.columns}
    replaced = tuple(made.pop(field.name, field) for field in row.schema)
    changed = {named.name for named in box.columns if named.expression != Column(named.name)}
    kept = {field.name for field in row.schema} - changed
    return _after_columns(row, (*replaced, *made.values()), kept, label)


def _after_columns(row: Shape, fields: Schema, kept: set[str], label: str) -> Shape:
    """Window results stay so while both window columns pass unchanged."""
    lost = [name for name in WINDOW_COLUMNS if name not in kept]
    if row.window is None or not lost:
        return replace(row, box=label, schema=fields)
    return replace(row, box=label, schema=fields, window=None, no_window=f"{label} doesn't keep {lost[0]}")


def union_shape(inputs: Sequence[Shape], label: str) -> Shape:
    first = inputs[0]
    for other in inputs[1:]:
        if other.timed != first.timed:
            timed, untimed = (first, other) if first.timed else (other, first)
            raise QueryError(
                f"{label}: {timed.box} has a time and {untimed.box} has none; a union needs one kind",
                code="query.untimed",
            )
        if other.schema != first.schema:
            difference = _difference(first, other)
            raise QueryError(
                f"{label}: {difference}",
                hint="a union needs the same columns, types and order: use select",
                code="query.union",
            )
    windows = {shape.window for shape in inputs}
    if len(windows) == 1:
        return replace(first, box=label)
    lost = next((shape.no_window for shape in inputs if shape.no_window), "")
    return replace(first, box=label, window=None, no_window=lost or f"{label} joins different windows")


def _difference(left: Shape, right: Shape) -> str:
    ours, theirs = types_of(left.schema), types_of(right.schema)
    for a, b in ((left, right), (right, left)):
        for field in a.schema:
            if field.name not in types_of(b.schema):
                return f"{a.box} has a column {field.name!r} that {b.box} lacks"
    for name, type in ours.items():
        if theirs[name] != type:
            return f"column {name!r} is {type} in {left.box} and {theirs[name]} in {right.box}"
    return f"{left.box} and {right.box} have the same columns in different order"
