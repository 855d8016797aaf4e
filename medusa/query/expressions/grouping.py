"""Keys and aggregates as users write them, for every kind of window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.expressions.aggregates import aggregate_call
from medusa.query.named_columns import named_columns
from medusa.query.structs import AggregateCall

if TYPE_CHECKING:
    from medusa.query.expressions.expression import Named
    from medusa.query.stream.output import Output

__all__ = ["aggregate_calls", "group_keys", "named_values"]


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
