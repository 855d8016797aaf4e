"""Top-N: ROW_NUMBER() OVER (PARTITION BY a window ... ORDER BY x DESC) <= n."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from medusa.query.expressions.column import Expr
from medusa.query.expressions.expression import Column, Expression
from medusa.query.shape import WINDOW_COLUMNS
from medusa.query.sql.expressions import SqlReader, function_name
from medusa.query.sql.grouping import window_of
from medusa.query.sql.scope import Scope, TimeColumn
from medusa.query.sql.text import SqlText

__all__ = ["TopReader", "build_top", "with_inner_rank"]

FORM = (
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY TUMBLE(ts, INTERVAL '1' MINUTE), k ORDER BY x DESC) <= 3:"
    " the three largest of each window and key"
)
RANK = "rank"


def build_top(clause: Any, scope: Scope, name: str | None, text: SqlText) -> tuple[Scope, Any]:
    """The box of a QUALIFY.

    Args:
        clause: the condition.
        name: of the box, or None.

    Returns:
        What it gives, and the OVER whose value is the rank.

    Raises:
        QueryError: anything but the rank of a row in its window.
    """
    over, limit = _ranked(clause, text)
    window, keys = scope.window, []
    reader = SqlReader(text, scope, clause="PARTITION BY")
    for node in over.args.get("partition_by") or []:
        found = window_of(node, scope, text)
        if found is None:
            keys.append(reader.checked(node))
        else:
            window = found
    if window is None or window.length_us is None:
        raise text.error(
            over, "ROW_NUMBER() needs a window in its PARTITION BY", hint=FORM, code="query.window"
        )
    by, descending = _order(over, text)
    ordered = reader.checked(by)
    stream, star = scope.stream, tuple(scope.stream.schema)
    if any(column in WINDOW_COLUMNS for column in star):
        # Results of windows: the window gives both bounds anew.
        stream = stream.select(*(column for column in star if column not in WINDOW_COLUMNS))
    with text.at(over):
        windowed = window.of(stream)
        if keys:
            windowed = windowed.group_by(*(_key(key, by, text) for key in keys))
        made = windowed.top(limit, by=Expr(ordered), descending=descending, name=name)
    times = {"window_end": TimeColumn(shift_us=1), "window_start": TimeColumn(shift_us=1 - window.length_us)}
    return Scope(made, scope.relations, times, star=star), over


def _key(key: Expression, node: Any, text: SqlText) -> Any:
    if isinstance(key, Column):
        return key.name
    raise text.error(
        node,
        "PARTITION BY takes columns and a window",
        hint="compute the key in a query of its own",
        code="query.window",
    )


def _ranked(clause: Any, text: SqlText) -> tuple[Any, int]:
    """(OVER, n) of ``ROW_NUMBER() OVER (...) <= n``."""
    node = clause
    while isinstance(node, exp.Paren):
        node = node.this
    over, number = getattr(node, "this", None), getattr(node, "expression", None)
    whole = isinstance(number, exp.Literal) and not number.is_string and str(number.this).isdecimal()
    if (
        isinstance(over, exp.Window)
        and function_name(over.this) == "row_number"
        and whole
        and number is not None
    ):
        limit = int(number.this)
        if isinstance(node, exp.LT):
            limit -= 1
        if limit >= 1 and (isinstance(node, exp.LT | exp.LTE) or (isinstance(node, exp.EQ) and limit == 1)):
            return over, limit
    raise text.error(
        clause, "QUALIFY takes the rank of a row in its window", hint=FORM, code="query.unsupported"
    )


def _order(over: Any, text: SqlText) -> tuple[Any, bool]:
    order = over.args.get("order")
    if over.args.get("spec") is not None or order is None or len(order.expressions) != 1:
        raise text.error(
            over, "ROW_NUMBER() needs one ORDER BY, and no frame", hint=FORM, code="query.window"
        )
    ordered = order.expressions[0]
    if ordered.args.get("nulls_first"):
        raise text.error(ordered, "NULLS FIRST is not supported: null comes last", code="query.unsupported")
    return ordered.this, bool(ordered.args.get("desc"))


class TopReader(SqlReader):
    """Reads expressions over ranked rows: their columns, window_start, window_end, and the rank."""

    def __init__(self, text: SqlText, scope: Scope, over: Any) -> None:
        super().__init__(text, scope, clause="SELECT")
        self._over = over

    def column(self, node: Any) -> Expression:
        if node.args.get("table") is None and node.name in WINDOW_COLUMNS:
            return Column(node.name)
        return super().column(node)

    def _read(self, node: Any) -> Expression:
        if isinstance(node, exp.Window) and node == self._over:
            return Column(RANK)
        return super()._read(node)


def with_inner_rank(node: Any) -> Any:
    """``SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER (...) AS r FROM t) WHERE r <= n`` with the
    condition as QUALIFY of the inner query; any other SELECT as it is."""
    source, where = node.args["from_"].this, node.args.get("where")
    inner = source.this if isinstance(source, exp.Subquery) else None
    if (
        where is None
        or not isinstance(inner, exp.Select)
        or node.args.get("joins")
        or inner.args.get("qualify")
    ):
        return node
    ranks = {
        item.alias: item.this
        for item in inner.expressions
        if isinstance(item, exp.Alias) and isinstance(item.this, exp.Window)
    }
    kept, ranked = [], None
    for condition in _conditions(where.this):
        column = getattr(condition, "this", None)
        comparison = isinstance(condition, exp.LT | exp.LTE | exp.EQ) and isinstance(column, exp.Column)
        if comparison and ranked is None and column is not None and column.name in ranks:
            ranked = type(condition)(this=ranks[column.name].copy(), expression=condition.expression.copy())
        else:
            kept.append(condition)
    if ranked is None:
        return node
    made = node.copy()
    made.args["from_"].this.this.set("qualify", exp.Qualify(this=ranked))
    made.set("where", exp.Where(this=_together(kept)) if kept else None)
    return made


def _conditions(node: Any) -> list[Any]:
    found, stack = [], [node]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _together(conditions: list[Any]) -> Any:
    made = conditions[0].copy()
    for condition in conditions[1:]:
        made = exp.And(this=made, expression=condition.copy())
    return made
