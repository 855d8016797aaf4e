"""Shapes of sources and of the boxes that look at one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes import Field, Filter, Schema, Select, WithColumns
from medusa.query.expressions.expression import Column
from medusa.query.shape import (
    WINDOW_COLUMNS,
    Shape,
    column_type,
    expression_type,
    refuse_twice,
    types_of,
)

__all__ = ["filter_shape", "select_shape", "union_shape", "with_columns_shape"]


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
