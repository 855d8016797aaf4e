"""The aggregates of a box: the columns that they give, and how its parts tell their first row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.base import BoxData
from medusa.query.expressions.aggregate_types import result_type
from medusa.query.expressions.expression import Column
from medusa.query.shape import StreamShape, expression_type
from medusa.query.structs import AggregateCall, Field
from medusa.query.types import check_column_name

__all__ = ["LAG", "result_fields", "with_call", "without_calls"]

LAG = "lag"
"""The function of a call that gives an earlier row's value; its parameter: how many rows earlier."""

_Windows = TypeVar("_Windows", bound=BoxData)


LAG_MAX = 10_000


def result_fields(calls: Sequence[AggregateCall], row: StreamShape, label: str, *, lags: bool) -> list[Field]:
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


def with_call(box: _Windows, name: str, function: str) -> _Windows:
    """The box with one aggregate more, of the column of this name."""
    call = AggregateCall(name, function, Column(name))
    return msgspec.structs.replace(box, aggregates=(*box.aggregates, call))  # type: ignore[attr-defined]


def without_calls(box: _Windows, calls: Sequence[AggregateCall], hidden: Sequence[str]) -> _Windows:
    """The box without some of its aggregates."""
    kept = tuple(call for call in calls if call.name not in hidden)
    return msgspec.structs.replace(box, aggregates=kept)
