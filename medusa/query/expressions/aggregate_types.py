"""The types of what aggregates give, and of the columns in which their states travel."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.errors import QueryError
from medusa.query.expressions.aggregate_kind import Parts
from medusa.query.expressions.aggregates import AGGREGATES, ELSEWHERE, NAMES, fraction
from medusa.query.expressions.user_aggregates import declared_by
from medusa.query.structs import AggregateCall, Field
from medusa.query.suggest import did_you_mean
from medusa.query.types import NULL, is_decimal, is_float, is_integer

__all__ = ["combined", "result_type", "state_fields"]

DECIMAL_SCALES = range(39)


def result_type(call: AggregateCall, arg_type: str | None, *, box: str, more: tuple[str, ...] = ()) -> str:
    """The type of an aggregate's column.

    Args:
        arg_type: the type of its argument; None without one.
        more: those of the further arguments of a ``user`` aggregate.

    Raises:
        QueryError: no such aggregate, or not for this type.
    """
    what = f"{box}: aggregate {call.name!r}"
    function = call.function
    if function == "user":
        if arg_type is None:
            raise _needs_argument(function, what)
        return declared_by(call, what=what).check((arg_type, *more), what=what)
    kind = AGGREGATES.get(function)
    if kind is None:
        other = ELSEWHERE.get(function)
        hint = f"did you mean {other!r}?" if other else did_you_mean(function, NAMES)
        raise QueryError(
            f"{what}: there is no aggregate {function[:60]!r}",
            hint="lag is for running(...)" if function == "lag" else hint,
            code="query.aggregate",
        )
    if kind.fraction:
        fraction(call.parameter, function, what)
    elif call.parameter is not None:
        raise QueryError(f"{what}: {function} takes no parameter", code="query.aggregate")
    if call.version is not None or call.more is not None:
        raise QueryError(f"{what}: {function} takes one argument and no version", code="query.aggregate")
    if arg_type is None:
        if function != "count":
            raise _needs_argument(function, what)
        return "int64"
    number = is_integer(arg_type) or is_float(arg_type) or is_decimal(arg_type)
    fits = {
        "any": arg_type != NULL,
        "summable": number or arg_type == "bool",
        "numbers": number,
    }
    if not fits[kind.takes]:
        raise QueryError(
            f"{what}: {function} takes {EXPECTED[kind.takes]}, got {arg_type}", code="query.aggregate"
        )
    return kind.result(arg_type)


EXPECTED = {
    "any": "a column, not a bare NULL",
    "summable": "integers, floats, decimals and bools",
    "numbers": "integers, floats and decimals",
}


def _needs_argument(function: str, what: str) -> QueryError:
    return QueryError(
        f"{what}: {function} needs an argument", hint=f'md.{function}("column")', code="query.aggregate"
    )


def state_fields(call: AggregateCall, arg_type: str | None) -> tuple[Field, ...]:
    """The columns in which a ``partial`` window sends this aggregate: ``name.suffix``.

    count ``n``; sum and avg ``n`` and of integers and bools ``lo``, ``hi`` (a 128-bit two's
    complement sum: ``hi * 2**64 + lo``, ``lo`` read as unsigned), of decimals of scale s besides
    ``top<s>`` (192 bits; in units of the last digit), of floats ``sum``; min and max ``value`` (null: no
    value); first and last ``at`` (the row's time) and ``value``; variance and stddev ``n``, ``mean``,
    ``m2``; count_distinct ``set`` (the packed values; ``texts`` of utf8, binary and decimals);
    approx_count_distinct ``hll``, quantile ``values``, approx_quantile ``buckets`` (the bytes that
    native/aggregates/sketch_kinds.h describes); user aggregates what their class declares. ``n`` counts
    values that aren't null.
    """
    if call.function == "user":
        parts: Parts = tuple((each.name, each.type) for each in declared_by(call, what=call.name).state)
    else:
        parts = AGGREGATES[call.function].state(arg_type or "")
    return tuple(Field(f"{call.name}.{suffix}", type) for suffix, type in parts)


def combined(call: AggregateCall, states: Mapping[str, str], *, box: str) -> tuple[str, tuple[Field, ...]]:
    """The type of an aggregate's column where ``combine`` gives it, and the state columns it reads.

    Args:
        states: column name -> type, of the stream of partial results.

    Raises:
        QueryError: the columns aren't the state of this aggregate.
    """
    if call.function == "user":
        user_fields = state_fields(call, None)
        if all(states.get(field.name) == field.type for field in user_fields):
            return declared_by(call, what=f"{box}: aggregate {call.name!r}").result, user_fields
    decimals = [f"decimal128(38, {scale})" for scale in DECIMAL_SCALES if f"{call.name}.top{scale}" in states]
    candidates: list[str | None] = [*decimals, "int64", "float64", "utf8"]
    if call.function != "user" and AGGREGATES[call.function].keeps_argument:
        candidates = [states.get(f"{call.name}.value")]
    if call.function == "count" and call.arg is None:
        candidates = [None]
    for arg_type in candidates:
        fields = state_fields(call, arg_type)
        if call.function != "user" and all(states.get(field.name) == field.type for field in fields):
            return result_type(call, arg_type, box=box), fields
    expected = ", ".join(field.name for field in state_fields(call, "int64"))
    raise QueryError(
        f"{box}: aggregate {call.name!r}: the input doesn't have its state columns {expected}",
        code="query.aggregate",
    )
