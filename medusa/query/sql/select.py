"""One SELECT to boxes: filter, window, filter, select; only those that it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlglot import exp

from medusa.query.expressions.column import Expr
from medusa.query.expressions.expression import Call, Column, Expression
from medusa.query.expressions.show import show
from medusa.query.shape import WINDOW_COLUMNS
from medusa.query.sql.aggregates import GroupAggregates, is_aggregate
from medusa.query.sql.expressions import SqlReader, check_type
from medusa.query.sql.grouping import GroupedReader, Grouping, has_aggregate, read_grouping
from medusa.query.sql.joins import read_join
from medusa.query.sql.refuse import refuse_clauses
from medusa.query.sql.scope import Scope, TimeColumn
from medusa.query.sql.text import SqlText
from medusa.query.sql.top import TopReader, build_top, with_inner_rank
from medusa.query.types import NULL

__all__ = ["Tables", "build_select"]

_PARTS = (
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "with_",
    "kind",
    "operation_modifiers",
)


class Tables(Protocol):
    """Who knows the tables of a statement."""

    text: SqlText

    def table(self, node: Any) -> Scope:
        """What an item of FROM or JOIN is: a table, a query in brackets, a table function."""

    def opened(self, node: Any) -> Any:
        """A SELECT, with the named part that it reads in place of its name where that ranks its rows."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An item of SELECT: its syntax, its name where it has one."""

    node: Any
    alias: str | None


def build_select(node: Any, tables: Tables, name: str | None) -> Scope:
    """The boxes of a SELECT.

    Args:
        name: of its last box, where it makes one.

    Raises:
        QueryError: something is unknown, of the wrong type or not supported; says where.
    """
    text = tables.text
    refuse_clauses(node, _PARTS, text, "SELECT")
    source = node.args.get("from_")
    if source is None:
        raise text.error(node, "SELECT needs FROM", code="query.sql")
    node = with_inner_rank(tables.opened(node))
    items = [_item(each, text) for each in node.expressions]
    if not items:
        raise text.error(source, "SELECT names no columns", hint="SELECT * FROM ...", code="query.sql")
    where, having, group = (node.args.get(part) for part in ("where", "having", "group"))
    grouped = group is not None or has_aggregate(having) or any(has_aggregate(item.node) for item in items)
    only_star = len(items) == 1 and _is_plain_star(items[0].node)
    joins = node.args.get("joins") or []
    qualify = node.args.get("qualify")
    rest = where is not None or grouped or not only_star or qualify is not None
    scope = _from(node, tables, name if joins and not rest else None)
    if scope.window is not None and not grouped and qualify is None:
        raise text.error(
            source, "a window in FROM needs GROUP BY window_start, window_end", code="query.window"
        )
    if qualify is not None:
        if grouped:
            raise text.error(
                qualify,
                "QUALIFY can't stand beside GROUP BY",
                hint="a query around this one",
                code="query.sql",
            )
        return _build_ranked(node, scope, items, name, text)
    if grouped:
        return _build_grouped(node, scope, items, name, text)
    if having is not None:
        raise text.error(having, "HAVING needs GROUP BY", hint="WHERE filters rows", code="query.sql")
    columns = None if only_star else _columns(items, SqlReader(text, scope, clause="SELECT"))
    if where is not None:
        scope = _filtered(where, scope, name if columns is None else None, text)
    if columns is None:
        return scope
    return _selected(columns, scope, name, must=where is None, node=node, text=text)


def _item(node: Any, text: SqlText) -> _Item:
    if isinstance(node, exp.Alias):
        return _Item(node.this, node.alias)
    if isinstance(node, exp.Aliases):
        raise text.error(node, "one item has one name", code="query.sql")
    return _Item(node, None)


def _is_star(node: Any) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _is_plain_star(node: Any) -> bool:
    return isinstance(node, exp.Star) and not any(node.args.values())


# -- FROM and WHERE -------------------------------------------------------------------------------


def _from(node: Any, tables: Tables, name: str | None) -> Scope:
    scope = tables.table(node.args["from_"].this)
    joins = node.args.get("joins") or []
    for place, join in enumerate(joins):
        refuse_clauses(join, ("this", "on", "using", "method", "side", "kind"), tables.text, "JOIN")
        right = tables.table(join.this)
        for side in (scope, right):
            if side.window is not None:
                raise tables.text.error(
                    join.this,
                    "a window in FROM can't be joined",
                    hint="GROUP BY it in a query of its own",
                    code="query.window",
                )
        last = place == len(joins) - 1
        scope = read_join(join, scope, right, _wanted(node, join), name if last else None, tables.text)
    return scope


def _wanted(node: Any, join: Any) -> set[tuple[str, str]]:
    """(table, column) that a SELECT names anywhere but in the ON of this join."""
    on = join.args.get("on")
    own = {id(part) for part in on.walk()} if on is not None else set()
    return {
        (column.table, column.name)
        for column in node.find_all(exp.Column)
        if id(column) not in own and column.table
    }


def _filtered(clause: Any, scope: Scope, name: str | None, text: SqlText) -> Scope:
    made = SqlReader(text, scope, clause="WHERE").read(clause.this)
    check_type(made, scope, clause.this, text, "bool")
    with text.at(clause.this):
        return replace(scope, stream=scope.stream.filter(Expr(made), name=name))


# -- SELECT without groups ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """What SELECT names: column -> expression; ``added``: all columns of before, and these."""

    columns: Mapping[str, Expression]
    added: bool = False


def _columns(items: list[_Item], reader: SqlReader) -> _Columns:
    scope, text = reader.scope, reader.text
    stars = [item for item in items if _is_star(item.node)]
    first = items[0].node
    if (
        len(stars) == 1
        and isinstance(first, exp.Star)
        and scope.star is None
        and not (first.args.get("except_") or first.args.get("rename"))
    ):
        made = _replaced(first, scope.stream.schema, reader, text)
        for item in items[1:]:
            tree = _typed(item.node, reader, text)
            name = _name(item, tree)
            if name in scope.stream.schema or name in made:
                raise _twice(item, name, text)
            made[name] = tree
        return _Columns(made, added=True)
    columns: dict[str, Expression] = {}
    for item in items:
        if _is_star(item.node):
            found = _star(item.node, scope, reader, text)
        else:
            tree = _typed(item.node, reader, text)
            found = {_name(item, tree): tree}
        for name, tree in found.items():
            if name in columns:
                raise _twice(item, name, text)
            columns[name] = tree
    return _Columns(columns)


def _typed(node: Any, reader: SqlReader, text: SqlText) -> Expression:
    made = reader.read(node)
    check_type(made, reader.scope, node, text)
    return made


def _name(item: _Item, tree: Expression) -> str:
    if item.alias is not None:
        return item.alias
    if isinstance(item.node, exp.Column):
        return str(item.node.name)
    return show(tree)


def _twice(item: _Item, name: str, text: SqlText) -> Exception:
    return text.error(
        item.node, f"two columns are called {name!r}", hint="give one another name: AS ...", code="query.name"
    )


def _star(node: Any, scope: Scope, reader: SqlReader, text: SqlText) -> dict[str, Expression]:
    star, table = (node.this, node.args.get("table")) if isinstance(node, exp.Column) else (node, None)
    if star.args.get("rename"):
        raise text.error(node, "* RENAME is not supported", hint="name the columns: x AS y")
    if table is not None:
        columns = scope.relation(table, text).columns
    else:
        columns = {name: name for name in scope.star or scope.stream.schema}
    made: dict[str, Expression] = {name: Column(inner) for name, inner in columns.items()}
    for gone in star.args.get("except_") or []:
        if gone.name not in made:
            raise text.error(gone, f"EXCLUDE: there is no column {gone.name!r}", code="query.column")
        del made[gone.name]
    return made | _replaced(star, made, reader, text)


def _replaced(star: Any, known: Collection[str], reader: SqlReader, text: SqlText) -> dict[str, Expression]:
    """The columns that ``* REPLACE (expression AS name)`` changes."""
    made: dict[str, Expression] = {}
    for alias in star.args.get("replace") or []:
        if not isinstance(alias, exp.Alias) or not alias.alias:
            raise text.error(alias, "REPLACE takes (expression AS name)", code="query.sql")
        if alias.alias not in known:
            raise text.error(alias, f"REPLACE: there is no column {alias.alias!r}", code="query.column")
        made[alias.alias] = _typed(alias.this, reader, text)
    return made


def _selected(
    found: _Columns, scope: Scope, name: str | None, *, must: bool, node: Any, text: SqlText
) -> Scope:
    """Select, unless the stream has just these columns.

    Args:
        must: make a box all the same where it is to bear a name.
    """
    columns, before = found.columns, scope.stream
    plain = all(tree == Column(column) for column, tree in columns.items())
    same = plain and (found.added or list(columns) == list(before.schema))
    if same and not (must and name is not None and node.args.get("joins")):
        return scope.named(scope.relations[0].alias)
    made = {column: Expr(tree) for column, tree in columns.items()}
    with text.at(node.expressions[0]):
        stream = before.with_columns(made, name=name) if found.added else before.select(made, name=name)
    times = dict(scope.times) if found.added else {}
    for column, tree in columns.items():
        times.pop(column, None)
        if tree == Call("tuple_time"):
            times[column] = TimeColumn()
        elif isinstance(tree, Column) and tree.name in scope.times:
            times[column] = scope.times[tree.name]
    return Scope(stream, scope.relations, times).named(scope.relations[0].alias)


def _build_ranked(node: Any, scope: Scope, items: list[_Item], name: str | None, text: SqlText) -> Scope:
    where = node.args.get("where")
    if where is not None:
        scope = _filtered(where, scope, None, text)
    ranked, over = build_top(node.args["qualify"].this, scope, None, text)
    columns = _columns(items, TopReader(text, ranked, over))
    return _selected(columns, ranked, name, must=False, node=node, text=text)


# -- SELECT with groups ---------------------------------------------------------------------------


def _build_grouped(node: Any, scope: Scope, items: list[_Item], name: str | None, text: SqlText) -> Scope:
    for item in items:
        if _is_star(item.node):
            raise text.error(
                item.node,
                "* can't stand beside GROUP BY and aggregates",
                hint="name the columns",
                code="query.sql",
            )
    where = node.args.get("where")
    filtered = _filtered(where, scope, None, text) if where is not None else scope
    aliases = {item.alias: item.node for item in items if item.alias is not None}
    grouping = read_grouping(node.args.get("group"), node.expressions, filtered, aliases, text)
    names = _key_names(grouping)
    calls = GroupAggregates([*WINDOW_COLUMNS, *names.values()])
    reader = GroupedReader(text, filtered, grouping, calls, names)
    columns = _read_items(items, reader, text)
    having = node.args.get("having")
    condition = None if having is None else reader.read(having.this)
    specs = calls.or_count()
    result = [*WINDOW_COLUMNS, *names.values(), *specs]
    identity = list(columns) == result and all(tree == Column(column) for column, tree in columns.items())
    keys = [
        names[key] if tree == Column(names[key]) else {names[key]: Expr(tree)} for key, tree in grouping.keys
    ]
    with text.at(node.args.get("group") or node.expressions[0]):
        windowed = grouping.window.of(filtered.stream)
        if keys:
            windowed = windowed.group_by(*keys)
        stream = windowed.aggregate(specs, name=name if identity and having is None else None)
    made = Scope(stream, filtered.relations, grouping.times)
    if condition is not None:
        check_type(condition, made, having.this, text, "bool")
        with text.at(having.this):
            kept = stream.filter(Expr(condition), name=name if identity else None)
        made = replace(made, stream=kept)
    if identity:
        return made.named(scope.relations[0].alias)
    for item, tree in zip(items, columns.values(), strict=True):
        check_type(tree, made, item.node, text)
    return _selected(_Columns(columns), made, name, must=False, node=node, text=text)


def _read_items(items: list[_Item], reader: GroupedReader, text: SqlText) -> dict[str, Expression]:
    """Items that are one aggregate come first, so that it bears their name."""
    direct: dict[int, Expression] = {}
    for place, item in enumerate(items):
        if is_aggregate(item.node):
            direct[place] = reader.aggregate_named(item.node, item.alias)
    columns: dict[str, Expression] = {}
    for place, item in enumerate(items):
        tree = direct[place] if place in direct else reader.read(item.node)
        name = (
            _name(item, tree)
            if place not in direct or item.alias is not None
            else str(getattr(tree, "name", NULL))
        )
        if name in columns:
            raise _twice(item, name, text)
        columns[name] = tree
        if item.alias is not None:
            reader.aliases[item.alias] = tree
    return columns


def _key_names(grouping: Grouping) -> dict[str, str]:
    """Names of keys as they leave the window; one that the window has already gets another."""
    names: dict[str, str] = {}
    for key, _ in grouping.keys:
        name, count = key, 1
        while name in WINDOW_COLUMNS or name in names.values():
            count += 1
            name = f"{key}_{count}"
        names[key] = name
    return names
