"""The aggregates: one function each, as users write it, below its kind. All else asks ``AGGREGATES``.

A new one: its function here, its name in ``medusa/__init__.py``, its row in ``native/aggregates/kinds.h`` and
its ``md_aggregate_kind`` in a file beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from medusa.errors import QueryError
from medusa.query.expressions.aggregate_kind import AggregateKind, Parts
from medusa.query.types import NULL, TIMESTAMP, decimal_parts, is_decimal, is_float

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr

__all__ = [
    "AGGREGATES",
    "ELSEWHERE",
    "MEDIAN",
    "NAMES",
    "SQL_SYNONYMS",
    "SYNONYMS",
    "AggregateSpec",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "count",
    "count_distinct",
    "first",
    "fraction",
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

MEDIAN = 0.5


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


_F = TypeVar("_F", bound=Callable[..., AggregateSpec])

_known: dict[str, AggregateKind] = {}

AGGREGATES: Mapping[str, AggregateKind] = _known
"""All but those of users."""


def _aggregate(kind: AggregateKind) -> Callable[[_F], _F]:
    """The kind of the aggregate that this function writes; both have its name."""

    def named(function: _F) -> _F:
        _known[function.__name__] = kind
        return function

    return named


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
_TIMED = replace(_VALUE, state=lambda arg: (("at", TIMESTAMP), ("value", arg or NULL)), ordered=True)
_MOMENTS = AggregateKind("summable", _float64, _moments, as_float=True)
_QUANTILE = AggregateKind("numbers", _float64, _packed("buckets"), fraction=True, as_float=True)


@_aggregate(
    AggregateKind(
        "any",
        _int64,
        lambda arg: (("n", "int64"),),
        sql=("count_if", "countif"),
        elsewhere=("len", "size"),
        spark="count",
        distinct="count_distinct",
    )
)
def count(arg: Expr | str | None = None, *, where: Expr | str | None = None) -> AggregateSpec:
    """Rows of the group; with an argument (other than ``"*"``), those where it isn't null. int64.

    Args:
        where: only rows for which this condition is true count, as SQL's ``FILTER (WHERE ...)``; every
            aggregate takes it. It makes ``CASE WHEN where THEN arg END`` of the argument.
    """
    counted = None if isinstance(arg, str) and arg.strip() == "*" else arg
    return AggregateSpec("count", counted, where=where)


@_aggregate(AggregateKind("summable", _sum_type, _sum_state, elsewhere=("total",), spark="sum"))
def sum(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sum of the values that aren't null; null where there is none.

    int64 for integers and bools (kept in 128 bits; a sum that doesn't fit int64 fails its group),
    float64 for floats (added in row order), ``decimal128(38, s)`` for decimals (exact; one of more than 38
    digits fails its group).
    """
    return AggregateSpec("sum", arg, where=where)


@_aggregate(replace(_VALUE, spark="min", distinct="min"))
def min(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Least value, of the argument's type: NaN is the greatest of floats, text and binary compare by
    bytes, false is less than true. Null where there is none."""
    return AggregateSpec("min", arg, where=where)


@_aggregate(replace(_VALUE, spark="max", distinct="max"))
def max(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Greatest value, of the argument's type, in the order of ``min``. Null where there is none."""
    return AggregateSpec("max", arg, where=where)


@_aggregate(
    AggregateKind(
        "summable",
        _float64,
        _sum_state,
        synonyms=("mean",),
        elsewhere=("average",),
        spark="avg",
        scaled=True,
    )
)
def avg(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Mean of the values that aren't null, float64 (of decimals too); null where there is none."""
    return AggregateSpec("avg", arg, where=where)


@_aggregate(replace(_MOMENTS, synonyms=("var_samp",), elsewhere=("var",)))
def variance(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sample variance (ddof 1), float64; null below two values. Decimals count as float64."""
    return AggregateSpec("variance", arg, where=where)


@_aggregate(replace(_MOMENTS, synonyms=("stddev_samp",), elsewhere=("std", "stdev")))
def stddev(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """Sample standard deviation (ddof 1): the square root of ``variance``. float64; null below two values."""
    return AggregateSpec("stddev", arg, where=where)


@_aggregate(replace(_TIMED, sql=("any_value",), elsewhere=("first_value",)))
def first(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """The value of the row with the least time among those where it isn't null; of equal times that of the
    earlier row. Any type; null where there is none."""
    return AggregateSpec("first", arg, where=where)


@_aggregate(replace(_TIMED, elsewhere=("last_value",)))
def last(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """The value of the row with the greatest time among those where it isn't null; of equal times that of
    the later row. Any type; null where there is none."""
    return AggregateSpec("last", arg, where=where)


@_aggregate(AggregateKind("any", _int64, _set_state, elsewhere=("n_unique", "nunique"), holds_values=True))
def count_distinct(
    arg: Expr | str, *, approximate: bool = False, where: Expr | str | None = None
) -> AggregateSpec:
    """How many different values that aren't null there are. int64.

    Args:
        approximate: by HyperLogLog: as ``approx_count_distinct``.
    """
    return AggregateSpec("approx_count_distinct" if approximate else "count_distinct", arg, where=where)


@_aggregate(
    AggregateKind("any", _int64, _packed("hll"), sql=("approx_distinct",), elsewhere=("approx_n_unique",))
)
def approx_count_distinct(arg: Expr | str, *, where: Expr | str | None = None) -> AggregateSpec:
    """About how many different values that aren't null there are. int64.

    HyperLogLog of 4,096 registers with Ertl's estimator: exact up to 256 different values (but for hashes
    of 64 bits that meet, of text), then with a standard error of 1.6 %, in at most 4 KiB a group.
    """
    return AggregateSpec("approx_count_distinct", arg, where=where)


@_aggregate(
    replace(
        _QUANTILE,
        state=_packed("values"),
        synonyms=("quantile_cont",),
        sql=("percentile_cont",),
        elsewhere=("percentile",),
        holds_values=True,
    )
)
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


@_aggregate(_QUANTILE)
def approx_quantile(arg: Expr | str, q: float, *, where: Expr | str | None = None) -> AggregateSpec:
    """An estimate of the value of rank floor(q (n - 1)), float64; null where there is none.

    Within 1/256 (0.4 %) of that value while the values of the group lie in at most 4,104 buckets, 128 of
    which span a factor of two; whenever there are more, the bound doubles. At most 64 KiB a group. The
    estimate depends on the values only, not on their order.
    """
    return AggregateSpec("approx_quantile", arg, q, where=where)


def median(arg: Expr | str, *, approximate: bool = False, where: Expr | str | None = None) -> AggregateSpec:
    """``quantile(arg, 0.5)``."""
    return quantile(arg, MEDIAN, approximate=approximate, where=where)


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
