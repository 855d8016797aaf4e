"""How plans and drawings show the parts of boxes."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.expressions.show import show
from medusa.query.structs import AggregateCall, Schema

__all__ = ["by_text", "calls_text", "columns_text", "listed", "named_text", "where_text"]

LISTED_MAX = 12


def listed(parts: Sequence[str]) -> str:
    """At most 12 of them."""
    more = f", ... {len(parts) - LISTED_MAX} more" if len(parts) > LISTED_MAX else ""
    return ", ".join(parts[:LISTED_MAX]) + more


def columns_text(schema: Schema) -> str:
    """``ts timestamp[us, UTC], vid int64``: at most 12 of them."""
    return listed([f"{field.name} {field.type}" for field in schema])


def named_text(columns: Sequence[Named]) -> str:
    """Columns, and what each is made of where that has another name."""
    return listed([_named(column) for column in columns])


def _named(named: Named) -> str:
    if named.expression == Column(named.name):
        return named.name
    return f"{named.name} = {show(named.expression, longest=60)}"


def by_text(keys: Sequence[Named]) -> str:
    """`` by vid, xway``, or nothing."""
    return f" by {named_text(keys)}" if keys else ""


def where_text(where: Expression | None) -> str:
    """`` where x > 0``, or nothing."""
    return "" if where is None else f" where {show(where, longest=60)}"


def calls_text(calls: Sequence[AggregateCall]) -> str:
    """``n = count(*), total = sum(bytes)``."""
    return listed([_call(call) for call in calls])


def _call(call: AggregateCall) -> str:
    arg = "*" if call.arg is None else show(call.arg, longest=60)
    if call.function == "user":
        arg = ", ".join([arg, *(show(each, longest=60) for each in call.more or ())])
        return f"{call.name} = {call.parameter} version {call.version}({arg})"
    parameter = "" if call.parameter is None else f", {call.parameter}"
    return f"{call.name} = {call.function}({arg}{parameter})"
