"""What each aggregate is: what it takes, what it gives, what its state is. One entry of a table each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeAlias

from medusa.errors import QueryError
from medusa.query.expressions.user_aggregates import declared_by
from medusa.query.structs import AggregateCall, Field
from medusa.query.suggest import did_you_mean
from medusa.query.types import NULL, TIMESTAMP, decimal_parts, is_decimal, is_float, is_integer

__all__ = [
    "AGGREGATES",
    "ELSEWHERE",
    "NAMES",
    "SQL_SYNONYMS",
    "SYNONYMS",
    "AggregateKind",
    "combined",
    "fraction",
    "result_type",
    "state_fields",
]

Parts: TypeAlias = tuple[tuple[str, str], ...]
"""Columns of a state: the end of the name, and the type."""

DECIMAL_SCALES = range(39)


@dataclass(frozen=True, slots=True)
class AggregateKind:
    """An aggregate, but for how native code computes it.

    Attributes:
        takes: its arguments: ``any`` column, ``summable`` (numbers and bools) or ``numbers``.
        result: the type of its result, given that of its argument.
        state: the columns of its state, given the type of its argument.
        synonyms: other names of it in texts and in SQL.
        sql: names of it in SQL alone.
        elsewhere: what other libraries call it besides, for hints.
        fraction: its second argument is a fraction.
        keeps_argument: its state tells the type of its argument, in the column ``value``.
        as_float: it is computed of float64, whatever it takes.
        holds_values: its state grows with the values of its group.
    """

    takes: str
    result: Callable[[str], str]
    state: Callable[[str], Parts]
    _: KW_ONLY
    synonyms: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    fraction: bool = False
    keeps_argument: bool = False
    as_float: bool = False
    holds_values: bool = False


def _int64(arg: str) -> str:
    return "int64"


def _float64(arg: str) -> str:
    return "float64"


def _same(arg: str) -> str:
    return arg


def _sum_type(arg: str) -> str:
    if is_float(arg):
        return "float64"
    return f"decimal128(38, {decimal_parts(arg)[1]})" if is_decimal(arg) else "int64"


def _sum_state(arg: str) -> Parts:
    if is_float(arg):
        return ("n", "int64"), ("sum", "float64")
    whole = (("n", "int64"), ("lo", "int64"), ("hi", "int64"))
    return (*whole, (f"top{decimal_parts(arg)[1]}", "int64")) if is_decimal(arg) else whole


def _set_state(arg: str) -> Parts:
    # How values are packed depends on their type, which the receiver can't know otherwise.
    texts = arg in ("utf8", "binary") or is_decimal(arg)
    return (("texts" if texts else "set", "binary"),)


def _moments(arg: str) -> Parts:
    return ("n", "int64"), ("mean", "float64"), ("m2", "float64")


def _packed(column: str) -> Callable[[str], Parts]:
    return lambda arg: ((column, "binary"),)


_VALUE = AggregateKind("any", _same, lambda arg: (("value", arg or NULL),), keeps_argument=True)
_TIMED = replace(_VALUE, state=lambda arg: (("at", TIMESTAMP), ("value", arg or NULL)))
_MOMENTS = AggregateKind("summable", _float64, _moments, as_float=True)
_QUANTILE = AggregateKind("numbers", _float64, _packed("buckets"), fraction=True, as_float=True)

AGGREGATES: Mapping[str, AggregateKind] = {
    "count": AggregateKind(
        "any", _int64, lambda arg: (("n", "int64"),), sql=("count_if", "countif"), elsewhere=("len", "size")
    ),
    "sum": AggregateKind("summable", _sum_type, _sum_state, elsewhere=("total",)),
    "min": _VALUE,
    "max": _VALUE,
    "avg": AggregateKind("summable", _float64, _sum_state, synonyms=("mean",), elsewhere=("average",)),
    "variance": replace(_MOMENTS, synonyms=("var_samp",), elsewhere=("var",)),
    "stddev": replace(_MOMENTS, synonyms=("stddev_samp",), elsewhere=("std", "stdev")),
    "first": replace(_TIMED, sql=("any_value",), elsewhere=("first_value",)),
    "last": replace(_TIMED, elsewhere=("last_value",)),
    "count_distinct": AggregateKind(
        "any", _int64, _set_state, elsewhere=("n_unique", "nunique"), holds_values=True
    ),
    "approx_count_distinct": AggregateKind(
        "any", _int64, _packed("hll"), sql=("approx_distinct",), elsewhere=("approx_n_unique",)
    ),
    "quantile": replace(
        _QUANTILE,
        state=_packed("values"),
        synonyms=("quantile_cont",),
        sql=("percentile_cont",),
        elsewhere=("percentile",),
        holds_values=True,
    ),
    "approx_quantile": _QUANTILE,
}
"""All but those of users. Native code has a kind of accumulator for each."""

NAMES = (*AGGREGATES, "user")

SYNONYMS: Mapping[str, str] = {name: of for of, kind in AGGREGATES.items() for name in kind.synonyms}
SQL_SYNONYMS: Mapping[str, str] = {
    name: of for of, kind in AGGREGATES.items() for name in (*kind.synonyms, *kind.sql)
}
ELSEWHERE: Mapping[str, str] = {
    **{name: of for of, kind in AGGREGATES.items() for name in (*kind.synonyms, *kind.sql, *kind.elsewhere)},
    "count_if": "count(where=...)",
    "countif": "count(where=...)",
    "sum_if": "sum(..., where=...)",
}
"""What other libraries and SQL dialects call an aggregate -> what it is here."""


def fraction(value: object, function: str, what: str) -> float:
    """The second argument of a quantile; QueryError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        came = "none" if value is None else repr(value)[:40]
        raise QueryError(
            f"{what}: {function} takes a fraction from 0 to 1 as its second argument, got {came}",
            hint=f'md.{function}("column", 0.95)',
            code="query.aggregate",
        )
    return float(value)


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
