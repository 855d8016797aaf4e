"""Keys and aggregates as users write them, for every kind of window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.expressions.aggregates import AGGREGATES, MEDIAN, SYNONYMS, AggregateSpec, fraction
from medusa.query.expressions.column import as_tree
from medusa.query.expressions.tree import filtered
from medusa.query.named_columns import named_columns
from medusa.query.structs import AggregateCall

if TYPE_CHECKING:
    from medusa.query.expressions.expression import Expression, Named
    from medusa.query.stream.output import Output

__all__ = ["aggregate_call", "aggregate_calls", "group_keys", "named_values"]


def named_values(
    aggregates: Sequence[Mapping[str, Any]], named: Mapping[str, Any], *, label: str
) -> dict[str, Any]:
    """What was given positionally, as mappings, and by name.

    Raises:
        QueryError: something has no name, or a name comes twice.
    """
    given: dict[str, Any] = {}
    for mapping in (*aggregates, named):
        if not isinstance(mapping, Mapping):
            raise QueryError(
                f"{label}: an aggregate needs a name",
                hint='n=md.count(), v=md.avg("speed")',
                code="query.aggregate",
            )
        for key, value in mapping.items():
            if not isinstance(key, str) or key in given:
                raise QueryError(f"{label}: {key!r} can't name an aggregate here", code="query.name")
            given[key] = value
    return given


def aggregate_calls(
    aggregates: Sequence[Mapping[str, Any]], named: Mapping[str, Any], *, label: str
) -> tuple[AggregateCall, ...]:
    """The aggregates of a box, in order."""
    given = named_values(aggregates, named, label=label)
    return tuple(aggregate_call(key, value, box=label) for key, value in given.items())


def aggregate_call(name: str, value: object, *, box: str) -> AggregateCall:
    """The aggregate that a user gave: an ``AggregateSpec``, or text such as ``"sum(bytes)"``.

    Raises:
        QueryError: it is neither, or there is no such aggregate.
    """
    what = f"{box}: aggregate {name!r}"
    if isinstance(value, str):
        from medusa.query.expressions.parse import parse_aggregate

        function, parsed, parameter = parse_aggregate(value, box=what)
        return _call(name, function, parsed, parameter, what)
    if not isinstance(value, AggregateSpec):
        raise QueryError(
            f"{what}: expected an aggregate, got {type(value).__name__}",
            hint='md.count(), md.sum("bytes") or the text "sum(bytes)"; md.lag is for running(...)',
            code="query.aggregate",
        )
    arg = None if value.arg is None else as_tree(value.arg, box=what)
    if value.where is not None:
        if arg is None and value.function != "count":
            raise QueryError(
                f"{what}: {value.function} needs an argument beside where",
                hint=f'md.{value.function}("column", where="...")',
                code="query.aggregate",
            )
        arg = filtered(arg, as_tree(value.where, box=f"{what}: where"))
    if value.function == "user":
        more = tuple(as_tree(each, box=what) for each in value.more)
        return AggregateCall(name, "user", arg, value.parameter, value.version, more or None)
    return _call(name, value.function, arg, value.parameter, what)


def _call(name: str, function: str, arg: Expression | None, parameter: object, what: str) -> AggregateCall:
    """Synonyms resolved; the fraction of a quantile checked."""
    function = SYNONYMS.get(function, function)
    if function == "median" and parameter is None:
        function, parameter = "quantile", MEDIAN
    kind = AGGREGATES.get(function)
    if kind is None or not kind.fraction:
        if parameter is not None and kind is not None:
            raise QueryError(f"{what}: {function} takes one argument, got 2", code="query.aggregate")
        return AggregateCall(name, function, arg, parameter)  # type: ignore[arg-type]  # of lag; checked there
    return AggregateCall(name, function, arg, fraction(parameter, function, what))


def group_keys(output: Output, keys: Sequence[Any], named: Mapping[str, Any]) -> tuple[Named, ...]:
    """The columns of a ``group_by``; at least one."""
    label = f"group_by after {output.name!r}"
    made = named_columns(keys, named, output.schema, box=label)
    if not made:
        raise QueryError(
            f"{label}: needs at least one key",
            hint="leave group_by out for one group a window",
            code="query.window",
        )
    return made
