"""The aggregates of a window: how they are written, what type they give, what their state is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import AGGREGATE_FUNCTIONS, AggregateCall, Field
from medusa.query.suggest import did_you_mean
from medusa.query.types import NULL, is_decimal, is_float, is_integer

if TYPE_CHECKING:
    from medusa.query.column import Expr

__all__ = [
    "AggregateSpec",
    "aggregate_call",
    "avg",
    "combined",
    "count",
    "count_distinct",
    "max",
    "min",
    "result_type",
    "state_fields",
    "sum",
    "variance",
]


@dataclass(frozen=True, slots=True, eq=False)
class AggregateSpec:
    """An aggregate waiting for its name: ``aggregate(n=md.count())``."""

    function: str
    arg: Expr | str | None = None

    def __repr__(self) -> str:
        return f"md.{self.function}({'' if self.arg is None else repr(self.arg)})"


def count(arg: Expr | str | None = None) -> AggregateSpec:
    """Rows of the group; with an argument, those where it isn't null. int64."""
    return AggregateSpec("count", arg)


def sum(arg: Expr | str) -> AggregateSpec:
    """Sum of the values that aren't null; null where there is none.

    int64 for integers and bools (kept in 128 bits; a sum that doesn't fit int64 fails its group),
    float64 for floats (added in row order).
    """
    return AggregateSpec("sum", arg)


def min(arg: Expr | str) -> AggregateSpec:
    """Least value, of the argument's type; NaN is the greatest of floats. Null where there is none."""
    return AggregateSpec("min", arg)


def max(arg: Expr | str) -> AggregateSpec:
    """Greatest value, of the argument's type; NaN is the greatest of floats. Null where there is none."""
    return AggregateSpec("max", arg)


def avg(arg: Expr | str) -> AggregateSpec:
    """Mean of the values that aren't null, float64; null where there is none."""
    return AggregateSpec("avg", arg)


def variance(arg: Expr | str) -> AggregateSpec:
    """Sample variance (ddof 1), float64; null below two values."""
    return AggregateSpec("variance", arg)


def count_distinct(arg: Expr | str) -> AggregateSpec:
    """How many different values that aren't null there are, exactly. int64."""
    return AggregateSpec("count_distinct", arg)


def aggregate_call(name: str, value: object, *, box: str) -> AggregateCall:
    """The aggregate that a user gave: an ``AggregateSpec``, or text such as ``"sum(bytes)"``.

    Raises:
        QueryError: it is neither, or there is no such aggregate.
    """
    from medusa.query.column import as_tree

    what = f"{box}: aggregate {name!r}"
    if isinstance(value, str):
        from medusa.query.parse import parse_aggregate

        function, arg = parse_aggregate(value, box=what)
    elif isinstance(value, AggregateSpec):
        function = value.function
        arg = None if value.arg is None else as_tree(value.arg, box=what)
    else:
        raise QueryError(
            f"{what}: expected an aggregate, got {type(value).__name__}",
            hint='md.count(), md.sum("bytes") or the text "sum(bytes)"',
            code="query.aggregate",
        )
    return AggregateCall(name, function, arg)


def result_type(call: AggregateCall, arg_type: str | None, *, box: str) -> str:
    """The type of an aggregate's column.

    Args:
        arg_type: the type of its argument; None without one.

    Raises:
        QueryError: no such aggregate, or not for this type.
    """
    what = f"{box}: aggregate {call.name!r}"
    function = call.function
    if function not in AGGREGATE_FUNCTIONS:
        raise QueryError(
            f"{what}: there is no aggregate {function[:60]!r}",
            hint=did_you_mean(function, AGGREGATE_FUNCTIONS),
            code="query.aggregate",
        )
    if arg_type is None:
        if function != "count":
            raise QueryError(
                f"{what}: {function} needs an argument",
                hint=f'md.{function}("column")',
                code="query.aggregate",
            )
        return "int64"
    if _takes(function, arg_type):
        if function in ("count", "count_distinct"):
            return "int64"
        if function in ("min", "max"):
            return arg_type
        return "float64" if function != "sum" or is_float(arg_type) else "int64"
    expected = {
        "count": "any type but decimal",
        "count_distinct": "any type but decimal",
        "min": "numbers, bools, dates and times",
        "max": "numbers, bools, dates and times",
    }.get(function, "integers, floats and bools")
    raise QueryError(
        f"{what}: {function} takes {expected}, got {arg_type}",
        hint="cast it to float64" if is_decimal(arg_type) else "",
        code="query.aggregate",
    )


def _takes(function: str, type: str) -> bool:
    if is_decimal(type) or type == NULL:
        return False
    if function in ("count", "count_distinct"):
        return True
    if function in ("min", "max"):
        return type not in ("utf8", "binary")
    return type == "bool" or is_integer(type) or is_float(type)


def state_fields(call: AggregateCall, arg_type: str | None) -> tuple[Field, ...]:
    """The columns in which a ``partial`` window sends this aggregate: ``name.suffix``.

    count ``n``; sum and avg ``n`` and of integers and bools ``lo``, ``hi`` (a 128-bit two's
    complement sum: ``hi * 2**64 + lo``, ``lo`` read as unsigned), of floats ``sum``; min and max
    ``value`` (null: no value); variance ``n``, ``mean``, ``m2``; count_distinct ``set`` (the packed
    values; ``texts`` of utf8 and binary). ``n`` counts values that aren't null.
    """
    parts: tuple[tuple[str, str], ...]
    match call.function:
        case "count":
            parts = (("n", "int64"),)
        case "sum" | "avg" if is_float(arg_type or ""):
            parts = (("n", "int64"), ("sum", "float64"))
        case "sum" | "avg":
            parts = (("n", "int64"), ("lo", "int64"), ("hi", "int64"))
        case "min" | "max":
            parts = (("value", arg_type or NULL),)
        case "variance":
            parts = (("n", "int64"), ("mean", "float64"), ("m2", "float64"))
        case _:
            # How values are packed depends on their type, which the receiver can't know otherwise.
            parts = (("texts" if arg_type in ("utf8", "binary") else "set", "binary"),)
    return tuple(Field(f"{call.name}.{suffix}", type) for suffix, type in parts)


def combined(call: AggregateCall, states: Mapping[str, str], *, box: str) -> tuple[str, tuple[Field, ...]]:
    """The type of an aggregate's column where ``combine`` gives it, and the state columns it reads.

    Args:
        states: column name -> type, of the stream of partial results.

    Raises:
        QueryError: the columns aren't the state of this aggregate.
    """
    candidates: list[str | None] = ["int64", "float64", "utf8"]
    if call.function in ("min", "max"):
        candidates = [states.get(f"{call.name}.value")]
    if call.function == "count" and call.arg is None:
        candidates = [None]
    for arg_type in candidates:
        fields = state_fields(call, arg_type)
        if all(states.get(field.name) == field.type for field in fields):
            return result_type(call, arg_type, box=box), fields
    expected = ", ".join(field.name for field in state_fields(call, "int64"))
    raise QueryError(
        f"{box}: aggregate {call.name!r}: the input doesn't have its state columns {expected}",
        code="query.aggregate",
    )
