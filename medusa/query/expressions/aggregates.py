"""The aggregates of a window: how they are written, what type they give, what their state is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import AGGREGATE_FUNCTIONS, AggregateCall, Field
from medusa.query.expressions.tree import filtered
from medusa.query.expressions.user_aggregates import declared_by
from medusa.query.suggest import AGGREGATES_ELSEWHERE, did_you_mean
from medusa.query.types import NULL, TIMESTAMP, decimal_parts, is_decimal, is_float, is_integer

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.expressions.expression import Expression

__all__ = [
    "AggregateSpec",
    "aggregate_call",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "combined",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "median",
    "min",
    "quantile",
    "result_type",
    "state_fields",
    "stddev",
    "sum",
    "user",
    "variance",
]

QUANTILES = ("quantile", "approx_quantile")
_SYNONYMS = {
    "mean": "avg",
    "var_samp": "variance",
    "stddev_samp": "stddev",
    "quantile_cont": "quantile",
}
_MEDIAN = 0.5
DECIMAL_SCALES = range(39)


@dataclass(frozen=True, slots=True, eq=False)
class AggregateSpec:
    """An aggregate waiting for its name: ``aggregate(n=md.count())``."""

    function: str
    arg: Expr | str | None = None
    parameter: float | str | None = None
    version: int | None = None
    more: tuple[Expr | str, ...] = ()
    where: Expr | str | None = None

    def __repr__(self) -> str:
        args = [repr(arg) for arg in (self.arg, *self.more) if arg is not None]
        args += [] if self.parameter is None else [repr(self.parameter)]
        args += [] if self.where is None else [f"where={self.where!r}"]
        return f"md.{self.function}({', '.join(args)})"


def count(arg: Expr | str | None = None, *, where: Expr | str | None = None) -> AggregateSpec:
    """Rows of the group; with an argument (other than ``"*"``), those where it isn't null. int64.

    Args:
        where: only rows for which this condition is true count, as SQL's ``FILTER (WHERE ...)``; every
            aggregate takes it. It makes ``CASE WHEN where THEN arg END`` of the argument.
    """
    counted = None if isinstance(arg, str) and arg.strip() == "*" else arg
    return AggregateSpec("count", counted, where=where)


def sum(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sum of the values that aren't null; null where there is none.

    int64 for integers and bools (kept in 128 bits; a sum that doesn't fit int64 fails its group),
    float64 for floats (added in row order), ``decimal128(38, s)`` for decimals (exact; one of more than 38
    digits fails its group).
    """
    return AggregateSpec("sum", arg, where=where)


def min(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Least value, of the argument's type: NaN is the greatest of floats, text and binary compare by
    bytes, false is less than true. Null where there is none."""
    return AggregateSpec("min", arg, where=where)


def max(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Greatest value, of the argument's type, in the order of ``min``. Null where there is none."""
    return AggregateSpec("max", arg, where=where)


def avg(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Mean of the values that aren't null, float64 (of decimals too); null where there is none."""
    return AggregateSpec("avg", arg, where=where)


def variance(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sample variance (ddof 1), float64; null below two values. Decimals count as float64."""
    return AggregateSpec("variance", arg, where=where)


def stddev(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sample standard deviation (ddof 1): the square root of ``variance``. float64; null below two values."""
    return AggregateSpec("stddev", arg, where=where)


def first(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """The value of the row with the least time among those where it isn't null; of equal times that of the
    earlier row. Any type; null where there is none."""
    return AggregateSpec("first", arg, where=where)


def last(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """The value of the row with the greatest time among those where it isn't null; of equal times that of
    the later row. Any type; null where there is none."""
    return AggregateSpec("last", arg, where=where)


def count_distinct(
    arg: Expr | str, *, approximate: bool = False, where: Expr | str | None = None
) -> AggregateSpec:
    """How many different values that aren't null there are. int64.

    Args:
        approximate: by HyperLogLog: as ``approx_count_distinct``.
    """
    return AggregateSpec("approx_count_distinct" if approximate else "count_distinct", arg, where=where)


def approx_count_distinct(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """About how many different values that aren't null there are. int64.

    HyperLogLog of 4,096 registers with Ertl's estimator: exact up to 256 different values (but for hashes
    of 64 bits that meet, of text), then with a standard error of 1.6 %, in at most 4 KiB a group.
    """
    return AggregateSpec("approx_count_distinct", arg, where=where)


def quantile(
    arg: Expr | str, q: float, *, approximate: bool = False, where: Expr | str | None = None
) -> AggregateSpec:
    """The quantile of the values that aren't null, float64; null where there is none.

    Exactly, by linear interpolation between the two nearest values (DuckDB's ``quantile_cont``), from all
    values of the group: 8 bytes each are kept. NaN is the greatest.

    Args:
        q: the fraction, from 0 to 1.
        approximate: as ``approx_quantile``.
    """
    return AggregateSpec("approx_quantile" if approximate else "quantile", arg, q, where=where)


def approx_quantile(arg: Expr | str, q: float, *, where: Expr | str | None = None) -> AggregateSpec:
    """An estimate of the value of rank floor(q (n - 1)), float64; null where there is none.

    Within 1/256 (0.4 %) of that value while the values of the group lie in at most 4,104 buckets, 128 of
    which span a factor of two; whenever there are more, the bound doubles. At most 64 KiB a group. The
    estimate depends on the values only, not on their order.
    """
    return AggregateSpec("approx_quantile", arg, q, where=where)


def median(arg: Expr | str, *, approximate: bool = False, where: Expr | str | None = None) -> AggregateSpec:
    """``quantile(arg, 0.5)``."""
    return quantile(arg, _MEDIAN, approximate=approximate, where=where)


def user(
    aggregate: str | type, *args: Expr | str, version: int = 1, where: Expr | str | None = None
) -> AggregateSpec:
    """An aggregate of yours, a class registered with ``@md.register(name, version)``.

    See the documentation of aggregates for what the class has: ``inputs``, ``state``, ``result``,
    ``init``, ``add``, ``merge`` and ``finish``. Rows where any argument is null are skipped.

    Args:
        aggregate: its name, or the class.
        args: its arguments in order, at least one.
        version: of the name; a class tells its own.
    """
    from medusa.query.user_registry import reference

    name = aggregate
    if not isinstance(aggregate, str):
        known = reference(aggregate)
        if not known.name:
            raise QueryError(
                f"md.user: {getattr(aggregate, '__qualname__', aggregate)!s:.80} is not registered",
                hint='write @md.register("name", version=1) above the class',
                code="query.function",
            )
        name, version = known.name, known.version
    if not args:
        raise QueryError(
            f"md.user({name!r}): needs an argument", hint='md.user("name", "x")', code="query.aggregate"
        )
    return AggregateSpec("user", args[0], str(name), version, args[1:], where)


def aggregate_call(name: str, value: object, *, box: str) -> AggregateCall:
    """The aggregate that a user gave: an ``AggregateSpec``, or text such as ``"sum(bytes)"``.

    Raises:
        QueryError: it is neither, or there is no such aggregate.
    """
    from medusa.query.expressions.column import as_tree

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
    function = _SYNONYMS.get(function, function)
    if function == "median" and parameter is None:
        function, parameter = "quantile", _MEDIAN
    if function not in QUANTILES:
        if parameter is not None and function in AGGREGATE_FUNCTIONS:
            raise QueryError(f"{what}: {function} takes one argument, got 2", code="query.aggregate")
        return AggregateCall(name, function, arg, parameter)  # type: ignore[arg-type]  # of lag; checked there
    return AggregateCall(name, function, arg, _fraction(parameter, function, what))


def _fraction(value: object, function: str, what: str) -> float:
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
    if function not in AGGREGATE_FUNCTIONS:
        other = AGGREGATES_ELSEWHERE.get(function)
        hint = f"did you mean {other!r}?" if other else did_you_mean(function, AGGREGATE_FUNCTIONS)
        raise QueryError(
            f"{what}: there is no aggregate {function[:60]!r}",
            hint="lag is for running(...)" if function == "lag" else hint,
            code="query.aggregate",
        )
    if function in QUANTILES:
        _fraction(call.parameter, function, what)
    elif function != "user" and call.parameter is not None:
        raise QueryError(f"{what}: {function} takes no parameter", code="query.aggregate")
    if function != "user" and (call.version is not None or call.more is not None):
        raise QueryError(f"{what}: {function} takes one argument and no version", code="query.aggregate")
    if arg_type is None:
        if function != "count":
            raise QueryError(
                f"{what}: {function} needs an argument",
                hint=f'md.{function}("column")',
                code="query.aggregate",
            )
        return "int64"
    if function == "user":
        return declared_by(call, what=what).check((arg_type, *more), what=what)
    if _takes(function, arg_type):
        if function in ("count", "count_distinct", "approx_count_distinct"):
            return "int64"
        if function in ("min", "max", "first", "last"):
            return arg_type
        if function != "sum" or is_float(arg_type):
            return "float64"
        return f"decimal128(38, {decimal_parts(arg_type)[1]})" if is_decimal(arg_type) else "int64"
    if function in QUANTILES:
        expected = "integers, floats and decimals"
    else:
        numbers = function in ("sum", "avg", "variance", "stddev")
        expected = "integers, floats, decimals and bools" if numbers else "a column, not a bare NULL"
    raise QueryError(f"{what}: {function} takes {expected}, got {arg_type}", code="query.aggregate")


def _takes(function: str, type: str) -> bool:
    if type == NULL:
        return False
    number = is_integer(type) or is_float(type) or is_decimal(type)
    if function in QUANTILES:
        return number
    return number or type == "bool" or function not in ("sum", "avg", "variance", "stddev")


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
    parts: tuple[tuple[str, str], ...]
    match call.function:
        case "count":
            parts = (("n", "int64"),)
        case "sum" | "avg" if is_float(arg_type or ""):
            parts = (("n", "int64"), ("sum", "float64"))
        case "sum" | "avg":
            parts = (("n", "int64"), ("lo", "int64"), ("hi", "int64"))
            if is_decimal(arg_type or ""):
                parts = (*parts, (f"top{decimal_parts(arg_type or '')[1]}", "int64"))
        case "min" | "max":
            parts = (("value", arg_type or NULL),)
        case "first" | "last":
            parts = (("at", TIMESTAMP), ("value", arg_type or NULL))
        case "variance" | "stddev":
            parts = (("n", "int64"), ("mean", "float64"), ("m2", "float64"))
        case "approx_count_distinct":
            parts = (("hll", "binary"),)
        case "quantile":
            parts = (("values", "binary"),)
        case "approx_quantile":
            parts = (("buckets", "binary"),)
        case "user":
            parts = tuple((field.name, field.type) for field in declared_by(call, what=call.name).state)
        case _:
            # How values are packed depends on their type, which the receiver can't know otherwise.
            texts = arg_type in ("utf8", "binary") or is_decimal(arg_type or "")
            parts = (("texts" if texts else "set", "binary"),)
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
    if call.function in ("min", "max", "first", "last"):
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
