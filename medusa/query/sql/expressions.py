"""Expressions inside a statement: names go through the tables of FROM."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.checker import infer
from medusa.query.expressions.expression import Expression
from medusa.query.expressions.parse import ExpressionReader
from medusa.query.sql.aggregates import AGGREGATES, is_aggregate
from medusa.query.sql.scope import Scope
from medusa.query.sql.text import BOX, SqlText
from medusa.query.sql.window_functions import WINDOW_BOUNDS, WINDOW_FUNCTIONS
from medusa.query.sql_names import FUNCTION_NAMES
from medusa.query.suggest import did_you_mean

__all__ = ["SqlReader", "check_type", "function_name"]

_REFUSED: dict[type, tuple[str, str]] = {
    exp.Subquery: ("a query inside an expression", "JOIN it, with time bounds in ON"),
    exp.Select: ("a query inside an expression", "JOIN it, with time bounds in ON"),
    exp.Exists: ("EXISTS", "SEMI JOIN ... ON keys AND time bounds; NOT EXISTS: ANTI JOIN"),
    exp.Any: ("ANY", "SEMI JOIN ... ON keys AND time bounds"),
    exp.All: ("ALL", "ANTI JOIN ... ON keys AND time bounds"),
    exp.Window: (
        "OVER",
        "GROUP BY with a window; top 3: QUALIFY ROW_NUMBER() OVER (PARTITION BY TUMBLE(ts, ...) ORDER BY x"
        " DESC) <= 3; running aggregates: .group_by(...).running(...) of the builder",
    ),
    exp.WithinGroup: ("WITHIN GROUP", "quantile(x, 0.5)"),
    exp.Placeholder: ("a parameter", "write the value"),
    exp.Parameter: ("a parameter", "write the value"),
}


def function_name(node: Any) -> str:
    """The name of a call in lower case; empty for anything else."""
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
        return node.this.lower()
    return ""


class SqlReader(ExpressionReader):
    """Reads expressions over the rows of a scope; aggregates have no place here."""

    def __init__(self, text: SqlText, scope: Scope, *, clause: str = "an expression") -> None:
        super().__init__(text.text, BOX)
        self.text = text
        self.scope = scope
        self.clause = clause

    def refused(self, node: Any, why: str, *, hint: str = "") -> QueryError:
        return self.text.error(node, why, hint=hint, code="query.expression")

    def place(self, node: Any) -> str:
        return "to a type"

    def checked(self, node: Any) -> Expression:
        """An expression that is known to have a type."""
        made = self.read(node)
        check_type(made, self.scope, node, self.text)
        return made

    def _read(self, node: Any) -> Expression:
        with self.text.at(node):
            if isinstance(node, exp.Column):
                return self.column(node)
            known = _REFUSED.get(type(node))
            if known is not None:
                raise self.refused(node, f"{known[0]} is not supported", hint=known[1])
            if isinstance(node, exp.In) and node.args.get("query") is not None:
                raise self.refused(
                    node, "IN (SELECT ...) is not supported", hint="SEMI JOIN ... ON keys AND time bounds"
                )
            if is_aggregate(node):
                return self.aggregate(node)
            name = function_name(node)
            if name in WINDOW_FUNCTIONS or name in WINDOW_BOUNDS:
                return self.window(node, name)
            if name and name not in FUNCTION_NAMES:
                self._unknown(node, name)
            return super()._read(node)

    def column(self, node: Any) -> Expression:
        """The meaning of a name."""
        return self.scope.resolve(node, self.text)

    def aggregate(self, node: Any) -> Expression:
        """The meaning of an aggregate."""
        raise self.text.error(
            node,
            f"an aggregate can't stand in {self.clause}",
            hint="aggregates stand in SELECT and HAVING, with GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
            code="query.aggregate",
        )

    def window(self, node: Any, name: str) -> Expression:
        """The meaning of TUMBLE(...), TUMBLE_START(...) and their like."""
        raise self.text.error(
            node,
            f"{node.this} can't stand in {self.clause}",
            hint=f"GROUP BY {node.this.removesuffix('_START').removesuffix('_END')}(...), then SELECT"
            " window_start, window_end",
            code="query.window",
        )

    def _unknown(self, node: Any, name: str) -> None:
        from medusa.query.expressions.parse import HINTS

        if name in HINTS:
            return
        known = [*FUNCTION_NAMES, *AGGREGATES]
        raise self.refused(node, f"there is no function {node.this[:60]!r}", hint=did_you_mean(name, known))


def check_type(made: Expression, scope: Scope, node: Any, text: SqlText, wanted: str = "") -> str:
    """The type of an expression; its errors point at ``node``.

    Args:
        wanted: the type that it must have.
    """
    with text.at(node):
        found = infer(made, scope.stream.schema, box=BOX, timed=scope.stream.timed)
        if wanted and found != wanted:
            raise QueryError(
                f"{BOX}: expected {wanted} here, got {found}",
                hint="compare it: x > 0" if wanted == "bool" else "",
                code="query.type",
            )
    return found
