"""The boxes that look at one row at a time, and union."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, BoxData, Sharing, SplitPlan
from medusa.query.boxes.text import named_text
from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.expressions.show import show
from medusa.query.expressions.tree import reads_time
from medusa.query.shape import (
    WINDOW_COLUMNS,
    StreamShape,
    column_type,
    expression_type,
    refuse_twice,
    types_of,
)
from medusa.query.structs import Field, Input, Schema
from medusa.query.text_growth import TextGrowth, grown

__all__ = ["Filter", "Select", "Union", "WithColumns", "union_shape"]


class Filter(BoxData, frozen=True, tag_field="kind", tag="filter", kw_only=True):
    """Keeps the rows for which the predicate is true (not false, not null)."""

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"

    inputs: tuple[Input, ...]
    predicate: Expression

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        came = expression_type(self.predicate, row, box=label)
        if came != "bool":
            raise QueryError(
                f"{label}: the predicate must be bool, got {came}",
                hint="compare it: x > 0",
                code="query.type",
            )
        return replace(row, box=label)

    def describe(self) -> str:
        return show(self.predicate)

    def reads_time(self, below: bool) -> bool:
        return below or reads_time(self.predicate)

    def column_from(self, name: str) -> str | None:
        return name

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]


class Select(BoxData, frozen=True, tag_field="kind", tag="select", kw_only=True):
    """Aurora's Map: rows of exactly these columns."""

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"

    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if not self.columns:
            raise QueryError(f"{label}: needs at least one column", code="query.schema")
        fields = tuple(Field(named.name, column_type(named, row, label=label)) for named in self.columns)
        refuse_twice(fields, label=label)
        kept = {named.name for named in self.columns if named.expression == Column(named.name)}
        return _after_columns(row, fields, kept, label)

    def describe(self) -> str:
        return named_text(self.columns)

    def reads_time(self, below: bool) -> bool:
        return below or any(reads_time(named.expression) for named in self.columns)

    def column_from(self, name: str) -> str | None:
        return _passed(self.columns, name, None)

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        number = name("")
        part = msgspec.structs.replace(self, columns=(*self.columns, Named(number, Column(number))))
        return SplitPlan(keys=[()], part=part, positions=(number,), arrival=True)

    def without(self, hidden: Sequence[str]) -> Select:
        columns = tuple(column for column in self.columns if column.name not in hidden)
        return msgspec.structs.replace(self, columns=columns)

    def texts(self, came: Sequence[TextGrowth]) -> TextGrowth:
        return TextGrowth(_grown(self.columns, came[0]))

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return _renamed(above[0], self.columns, {})


class WithColumns(BoxData, frozen=True, tag_field="kind", tag="with_columns", kw_only=True):
    """Adds columns, or replaces those of the same name in their place; keeps the others."""

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"

    inputs: tuple[Input, ...]
    columns: tuple[Named, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if not self.columns:
            raise QueryError(f"{label}: needs at least one column", code="query.schema")
        refuse_twice(self.columns, label=label)
        made = {named.name: Field(named.name, column_type(named, row, label=label)) for named in self.columns}
        replaced = tuple(made.pop(field.name, field) for field in row.schema)
        changed = {named.name for named in self.columns if named.expression != Column(named.name)}
        kept = {field.name for field in row.schema} - changed
        return _after_columns(row, (*replaced, *made.values()), kept, label)

    def describe(self) -> str:
        return named_text(self.columns)

    def reads_time(self, below: bool) -> bool:
        return below or any(reads_time(named.expression) for named in self.columns)

    def column_from(self, name: str) -> str | None:
        return _passed(self.columns, name, name)

    def texts(self, came: Sequence[TextGrowth]) -> TextGrowth:
        made = _grown(self.columns, came[0])
        return TextGrowth({**came[0].columns, **made}, came[0].others)

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return _renamed(above[0], self.columns, {name: name for name in above[0]})


class Union(BoxData, frozen=True, tag_field="kind", tag="union", kw_only=True):
    """The rows of several streams of one schema, in the order of arrival."""

    determinism: ClassVar[str] = "arbitrary"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = MANY
    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"
    stays_whole = "it has no state, and no key"

    inputs: tuple[Input, ...]

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        return union_shape(inputs, label)

    def describe(self) -> str:
        return "in order of arrival"

    def reads_time(self, below: bool) -> bool:
        return below


def _after_columns(row: StreamShape, fields: Schema, kept: set[str], label: str) -> StreamShape:
    """Window results stay so while both window columns pass unchanged."""
    lost = [name for name in WINDOW_COLUMNS if name not in kept]
    if row.window is None or not lost:
        return replace(row, box=label, schema=fields)
    return replace(row, box=label, schema=fields, window=None, no_window=f"{label} doesn't keep {lost[0]}")


def union_shape(inputs: Sequence[StreamShape], label: str) -> StreamShape:
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


def _difference(left: StreamShape, right: StreamShape) -> str:
    ours, theirs = types_of(left.schema), types_of(right.schema)
    for a, b in ((left, right), (right, left)):
        for field in a.schema:
            if field.name not in types_of(b.schema):
                return f"{a.box} has a column {field.name!r} that {b.box} lacks"
    for name, type in ours.items():
        if theirs[name] != type:
            return f"column {name!r} is {type} in {left.box} and {theirs[name]} in {right.box}"
    return f"{left.box} and {right.box} have the same columns in different order"


def _passed(columns: Sequence[Named], name: str, others: str | None) -> str | None:
    """The column that is ``name`` in the output; ``others``: where none of these makes it."""
    made = {each.name: each.expression for each in columns}.get(name)
    if made is None:
        return others
    return made.name if isinstance(made, Column) else None


def _grown(columns: Sequence[Named], came: TextGrowth) -> dict[str, float]:
    return {named.name: grown(named.expression, came) for named in columns}


def _renamed(key: tuple[str, ...], columns: Sequence[Named], shown: dict[str, str]) -> tuple[str, ...]:
    """The columns of a key by the names that they have in the output; empty where one is missing."""
    for named in columns:
        shown = {old: new for old, new in shown.items() if new != named.name}
        if isinstance(named.expression, Column):
            shown.setdefault(named.expression.name, named.name)
    return tuple(shown[name] for name in key) if all(name in shown for name in key) else ()
