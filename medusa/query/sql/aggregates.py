"""Aggregate calls of SQL, and the columns in which their values leave the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from medusa.query.boxes import Function
from medusa.query.expressions import aggregates
from medusa.query.expressions.aggregates import AggregateSpec
from medusa.query.expressions.column import Expr
from medusa.query.expressions.expression import Call, Expression
from medusa.query.expressions.show import show
from medusa.query.expressions.tree import filtered
from medusa.query.expressions.user_aggregates import registered_aggregate
from medusa.query.sql.text import SqlText
from medusa.query.sql_names import FUNCTION_NAMES
from medusa.query.suggest import did_you_mean

__all__ = ["AGGREGATES", "GroupAggregates", "is_aggregate"]

AGGREGATES = tuple(sorted({*aggregates.AGGREGATES, *aggregates.SQL_SYNONYMS, "median"}))
"""Names of aggregates in SQL, in lower case."""


def is_aggregate(node: Any) -> bool:
    """Whether a node is the call of an aggregate, with or without FILTER."""
    if isinstance(node, exp.Filter):
        node = node.this
    if not isinstance(node, exp.Anonymous):
        return False
    return str(node.this).lower() in AGGREGATES or _of_users(node) is not None


def _of_users(node: Any) -> Function | None:
    """The aggregate that a user registered under this name, in its latest version."""
    name = str(node.this)
    taken = name.lower() in AGGREGATES or name.lower() in FUNCTION_NAMES
    return None if taken else registered_aggregate(name)


class GroupAggregates:
    """The aggregates of one GROUP BY; equal calls are one.

    Args:
        taken: names of columns that stand before the aggregates.
    """

    def __init__(self, taken: Sequence[str]) -> None:
        self._taken = set(taken)
        self._names: dict[tuple[Any, ...], str] = {}
        self.specs: dict[str, AggregateSpec] = {}

    def add(
        self, node: Any, read: Callable[[Any], Expression], text: SqlText, alias: str | None = None
    ) -> str:
        """The name of the column that holds this aggregate.

        Args:
            read: reads an expression over the rows that go into the window.
            alias: the name it should have, where that is free.

        Raises:
            QueryError: an argument that the aggregate doesn't take.
        """
        function, args, parameter = _call(node, read, text)
        key = (function, repr(args), parameter)
        if key not in self._names:
            inner = ", ".join(map(show, args)) if args else "*"
            inner += f", {parameter}" if parameter is not None else ""
            called = function.name if isinstance(function, Function) else function
            name = alias if alias is not None and alias not in self._taken else f"{called}({inner})"
            name, plain, count = name, name, 1
            while name in self._taken:
                count += 1
                name = f"{plain}_{count}"
            self._taken.add(name)
            self._names[key] = name
            self.specs[name] = _spec(function, args, parameter)
        return self._names[key]

    def or_count(self) -> dict[str, AggregateSpec]:
        """The aggregates; a count where there are none, as a window needs one."""
        if not self.specs:
            name = next(n for n in ("count(*)", "count(*)_2", "count(*)_3") if n not in self._taken)
            return {name: AggregateSpec("count")}
        return self.specs


def _spec(function: str | Function, args: tuple[Expression, ...], parameter: float | None) -> AggregateSpec:
    given = [Expr(arg) for arg in args]
    if isinstance(function, Function):
        return AggregateSpec("user", given[0], function.name, function.version, tuple(given[1:]))
    inner = given[0] if given else None
    if parameter is None:
        return AggregateSpec(function, inner)
    return AggregateSpec(function, inner, parameter)


def _call(
    node: Any, read: Callable[[Any], Expression], text: SqlText
) -> tuple[str | Function, tuple[Expression, ...], float | None]:
    """The aggregate, its arguments, and the parameter that it has besides."""
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = read(node.expression.this), node.this
    function = _of_users(node)
    if function is None:
        name, arg, parameter = _known_call(node, condition, read, text)
        return name, () if arg is None else (arg,), parameter
    first, *more = _plain(node.expressions, read, text) or [None]
    if first is None:
        raise text.error(node, f"{function.name} needs an argument", code="query.aggregate")
    return function, (first if condition is None else filtered(first, condition), *more), None


def _plain(args: Sequence[Any], read: Callable[[Any], Expression], text: SqlText) -> list[Any]:
    for arg in args:
        if isinstance(arg, exp.Order | exp.Distinct | exp.Star):
            raise text.error(arg, "an aggregate of yours takes plain arguments", code="query.aggregate")
    return [read(arg) for arg in args]


def _known_call(
    node: Any, condition: Expression | None, read: Callable[[Any], Expression], text: SqlText
) -> tuple[str, Expression | None, float | None]:
    written = str(node.this).lower()
    function, args = aggregates.SQL_SYNONYMS.get(written, written), list(node.expressions)
    if args and isinstance(args[0], exp.Distinct):
        inner = list(args[0].expressions)
        kind = aggregates.AGGREGATES.get(function)
        if kind is None or not kind.distinct or len(args) != 1 or len(inner) != 1:
            raise text.error(
                node,
                f"{written}(DISTINCT ...) is not supported",
                hint="count(DISTINCT x)",
                code="query.aggregate",
            )
        function, args = kind.distinct, inner
    parameter = None
    if _takes_fraction(function) and len(args) == 2:
        parameter = _fraction(args.pop(), text)
    for arg in args:
        if isinstance(arg, exp.Order):
            raise text.error(
                arg,
                "ORDER BY inside an aggregate is not supported",
                hint="rows come in the order of the stream; first(x) and last(x) go by it",
                code="query.aggregate",
            )
    if written in ("count_if", "countif") and len(args) == 1:
        counted = read(args[0])
        condition = counted if condition is None else Call("and", (counted, condition))
        args = []
    if function == "count" and (not args or (len(args) == 1 and isinstance(args[0], exp.Star))):
        return "count", None if condition is None else filtered(None, condition), None
    if len(args) != 1:
        raise text.error(
            node,
            f"{written} takes one argument, got {len(args)}",
            hint=_usage(written),
            code="query.aggregate",
        )
    made = read(args[0])
    return function, made if condition is None else filtered(made, condition), parameter


def _fraction(node: Any, text: SqlText) -> float:
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    raise text.error(
        node, "the fraction of a quantile is a number", hint="quantile(x, 0.95)", code="query.aggregate"
    )


def _takes_fraction(function: str) -> bool:
    kind = aggregates.AGGREGATES.get(function)
    return kind is not None and kind.fraction


def _usage(name: str) -> str:
    if _takes_fraction(aggregates.SQL_SYNONYMS.get(name, name)):
        return f"{name}(x, 0.95)"
    return f"{name}(x)" if name in AGGREGATES else did_you_mean(name, AGGREGATES)
