"""The aggregates of a window as users write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.expressions.aggregate_kinds import AGGREGATES, SYNONYMS, fraction
from medusa.query.expressions.tree import filtered
from medusa.query.structs import AggregateCall

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.expressions.expression import Expression

__all__ = [
    "AggregateSpec",
    "aggregate_call",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "median",
    "min",
    "quantile",
    "stddev",
    "sum",
    "user",
    "variance",
]

_MEDIAN = 0.5


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
    function = SYNONYMS.get(function, function)
    if function == "median" and parameter is None:
        function, parameter = "quantile", _MEDIAN
    kind = AGGREGATES.get(function)
    if kind is None or not kind.fraction:
        if parameter is not None and kind is not None:
            raise QueryError(f"{what}: {function} takes one argument, got 2", code="query.aggregate")
        return AggregateCall(name, function, arg, parameter)  # type: ignore[arg-type]  # of lag; checked there
    return AggregateCall(name, function, arg, fraction(parameter, function, what))
