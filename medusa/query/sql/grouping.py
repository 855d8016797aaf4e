"""GROUP BY: one window, keys, and what SELECT and HAVING may say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.boxes.window_function import WindowSpec
from medusa.query.boxes.windows_of_time import windows_of_length
from medusa.query.expressions.expression import Column, Expression
from medusa.query.expressions.show import show
from medusa.query.shape import WINDOW_COLUMNS
from medusa.query.sql.aggregates import GroupAggregates, is_aggregate
from medusa.query.sql.expressions import SqlReader, check_type, function_name
from medusa.query.sql.scope import Scope, TimeColumn
from medusa.query.sql.text import SqlText
from medusa.query.sql.window_functions import WINDOW_BOUNDS, WINDOW_FUNCTIONS
from medusa.query.sql.windows import read_window

__all__ = ["GroupedReader", "Grouping", "has_aggregate", "read_grouping", "window_of"]

NEED_WINDOW = "add TUMBLE(ts, INTERVAL '1' MINUTE), HOP(ts, slide, size) or SESSION(ts, gap) to GROUP BY"


@dataclass(frozen=True, slots=True)
class Grouping:
    """What GROUP BY says.

    Attributes:
        window: the one that it asks for.
        keys: names and expressions of the keys, in order.
    """

    window: WindowSpec
    keys: tuple[tuple[str, Expression], ...]

    @property
    def times(self) -> dict[str, TimeColumn]:
        """The window's columns that tell the time of its row."""
        times = {"window_end": TimeColumn(shift_us=1)}
        if self.window.length_us is not None:
            times["window_start"] = TimeColumn(shift_us=1 - self.window.length_us)
        return times


def has_aggregate(node: Any) -> bool:
    """Whether an aggregate stands in an expression (not one that belongs to a query inside it)."""
    return node is not None and any(is_aggregate(part) for part in node.walk())


def read_grouping(
    group: Any, items: Sequence[Any], scope: Scope, aliases: Mapping[str, Any], text: SqlText
) -> Grouping:
    """What the GROUP BY of a SELECT says.

    Args:
        group: the clause; None where there are only aggregates.
        items: what SELECT names.
        aliases: name -> expression, of SELECT.

    Raises:
        QueryError: no window, more than one, or a key that can't be one.
    """
    nodes = _nodes(group, items, text)
    window: WindowSpec | None = scope.window
    keys: list[tuple[str, Expression]] = []
    reader = SqlReader(text, scope, clause="GROUP BY")
    for node in nodes:
        node = _meant(node, items, scope, aliases, text)
        found = window_of(node, scope, text)
        if found is not None:
            if window is not None and window != found:
                raise text.error(
                    node,
                    "GROUP BY has one window",
                    hint="window the results again in a query around this one",
                    code="query.window",
                )
            window = found
            continue
        made = reader.read(node)
        check_type(made, scope, node, text)
        name = made.name if isinstance(made, Column) else _alias_of(node, aliases) or show(made)
        if not any(tree == made for _, tree in keys):
            keys.append((name, made))
    if window is None:
        about = group if group is not None else next(item for item in items if has_aggregate(item))
        what = "GROUP BY without a window" if group is not None else "an aggregate without a window"
        raise text.error(about, f"{what} would never give a row", hint=NEED_WINDOW, code="query.window")
    return Grouping(window, tuple(keys))


def _nodes(group: Any, items: Sequence[Any], text: SqlText) -> list[Any]:
    if group is None:
        return []
    for name, value in group.args.items():
        if value and name not in ("expressions", "all"):
            raise text.error(
                group,
                f"GROUP BY {name.upper().replace('_', ' ')} is not supported",
                hint="one query per grouping, then UNION ALL",
                code="query.unsupported",
            )
    if group.args.get("all"):
        return [
            item.this if isinstance(item, exp.Alias) else item for item in items if not has_aggregate(item)
        ]
    for node in group.expressions:
        if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
            raise text.error(
                node,
                "GROUPING SETS, ROLLUP and CUBE are not supported",
                hint="one query per grouping, then UNION ALL",
                code="query.unsupported",
            )
    return list(group.expressions)


def _meant(node: Any, items: Sequence[Any], scope: Scope, aliases: Mapping[str, Any], text: SqlText) -> Any:
    """``1`` means the first item of SELECT; a name that is no column one of its aliases."""
    if isinstance(node, exp.Literal) and not node.is_string:
        number = int(node.this) if node.this.isdecimal() and len(node.this) < 6 else 0
        if not 1 <= number <= len(items):
            raise text.error(node, f"SELECT has no item {node.this[:20]}", code="query.sql")
        item = items[number - 1]
        return item.this if isinstance(item, exp.Alias) else item
    if isinstance(node, exp.Column) and node.args.get("table") is None:
        name = node.name
        known = any(name in relation.columns for relation in scope.relations)
        if not known and name in aliases:
            return aliases[name]
    return node


def window_of(node: Any, scope: Scope, text: SqlText) -> WindowSpec | None:
    """The window that an item of GROUP BY asks for, or None: it is a key."""
    if function_name(node) in WINDOW_FUNCTIONS:
        return read_window(node, scope, text)
    if not isinstance(node, exp.Column) or node.name not in WINDOW_COLUMNS:
        return None
    if scope.window is not None:
        return scope.window
    # Rows that are results of tumbling windows, grouped once more by their window.
    kind = scope.stream._shape.window
    if kind is None or not isinstance(scope.resolve(node, text), Column):
        return None
    size_us, advance_us = getattr(kind, "size_us", 0), getattr(kind, "advance_us", 1)
    if size_us == advance_us:
        return windows_of_length(size_us)
    raise text.error(
        node,
        "results of overlapping windows can't be grouped by their window again",
        hint="TUMBLE(tuple_time, ...) groups them by their time",
        code="query.window",
    )


def _alias_of(node: Any, aliases: Mapping[str, Any]) -> str | None:
    return next((name for name, item in aliases.items() if item == node), None)


class GroupedReader(SqlReader):
    """Reads expressions over the rows of closed windows: keys, aggregates, window_start, window_end."""

    def __init__(
        self,
        text: SqlText,
        scope: Scope,
        grouping: Grouping,
        calls: GroupAggregates,
        names: Mapping[str, str],
    ) -> None:
        super().__init__(text, scope, clause="SELECT")
        self._grouping = grouping
        self._calls = calls
        self._keys = [(tree, names[name]) for name, tree in grouping.keys]
        self._inner = SqlReader(text, scope, clause="an aggregate")
        self._by_expression = any(not isinstance(tree, Column) for tree, _ in self._keys)
        self.aliases: dict[str, Expression] = {}

    def aggregate_named(self, node: Any, alias: str | None) -> Expression:
        """An aggregate, under its alias where that is free."""
        with self.text.at(node):
            return Column(self._calls.add(node, self._inner.checked, self.text, alias))

    def aggregate(self, node: Any) -> Expression:
        return self.aggregate_named(node, None)

    def window(self, node: Any, name: str) -> Expression:
        wanted = node
        if name in WINDOW_BOUNDS:
            wanted = exp.Anonymous(this=name.rpartition("_")[0].upper(), expressions=node.expressions)
        elif name != "time_bucket":
            raise self.text.error(
                node, f"{node.this} has no value", hint="window_start, window_end", code="query.window"
            )
        if read_window(wanted, self.scope, self.text) != self._grouping.window:
            raise self.text.error(
                node, f"{node.this} differs from the window of GROUP BY", code="query.window"
            )
        return Column(WINDOW_BOUNDS.get(name, "window_start"))

    def column(self, node: Any) -> Expression:
        if node.args.get("table") is None:
            if node.name in WINDOW_COLUMNS:
                return Column(node.name)
            known = any(node.name in relation.columns for relation in self.scope.relations)
            if not known and node.name in self.aliases:
                return self.aliases[node.name]
        made = self.scope.resolve(node, self.text)
        for tree, name in self._keys:
            if tree == made:
                return Column(name)
        raise self.text.error(
            node,
            f"{show(made)} is neither a key of GROUP BY nor inside an aggregate",
            hint=f"add it to GROUP BY, or take max({show(made)})"
            if isinstance(made, Column)
            else "window_start, window_end",
            code="query.aggregate",
        )

    def _read(self, node: Any) -> Expression:
        if self._by_expression and not isinstance(node, exp.Column | exp.Literal) and not has_aggregate(node):
            try:
                whole = self._inner.read(node)
            except QueryError:
                whole = None
            for tree, name in self._keys:
                if tree == whole:
                    return Column(name)
        return super()._read(node)
