"""``md.sql``: statements to a query of boxes."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.builder import Query
from medusa.query.expressions.column import Expr
from medusa.query.expressions.expression import Cast, Column
from medusa.query.ids import check_name
from medusa.query.sql.expressions import function_name
from medusa.query.sql.read import statements
from medusa.query.sql.refuse import refuse_clauses
from medusa.query.sql.scope import Relation, Scope, times_of_source
from medusa.query.sql.select import build_select
from medusa.query.sql.sources import add_source, time_columns
from medusa.query.sql.text import BOX, SqlText
from medusa.query.sql.top import with_inner_rank
from medusa.query.sql.window_functions import WINDOW_FUNCTIONS
from medusa.query.sql.windows import read_table_function
from medusa.query.stream.stream import Stream
from medusa.query.suggest import did_you_mean
from medusa.query.types import common_type

__all__ = ["sql"]

NESTED_MAX = 32


def sql(text: str, /, *, into: str = "out", name: str = "sql", **sources: Any) -> Query:
    """The query of an SQL text: the same boxes as the builder makes.

    Args:
        text: one SELECT, or several statements: ``CREATE VIEW x AS SELECT ...`` names a part,
            ``INSERT INTO sink SELECT ...`` is another sink. At most 64 KiB.
        into: the sink of a SELECT that stands alone.
        name: of the query.
        sources: name -> ``md.source(schema, time="ts", slack="2s")``; a schema alone is enough when
            the text names the time column in a window, or the column is called ``ts``.

    Returns:
        A ``Query``; go on with ``md.collect``, ``md.start``, ``.explain()`` or ``.to_json()``.

    Raises:
        QueryError: the text can't be read, names something unknown, or asks for something that
            streams don't have: says line and column, and the nearest thing there is.
    """
    known, found = statements(text)
    query = Query(name)
    times = time_columns(found)
    tables: dict[str, Scope] = {}
    for each, given in sources.items():
        stream = add_source(query, each, given, times, known)
        box = query._boxes[stream.arc.box]
        tables[each] = Scope(stream, (), times_of_source(box)).named(each)  # type: ignore[arg-type]
    try:
        _Statements(query, tables, known, into).run(found)
    except RecursionError:
        raise QueryError(f"{BOX}: the query is nested too deeply", code="query.limit") from None
    return query


_OPENED = "medusa.opened"
"""Mark of a query in brackets: the named part that it is."""


class _View:
    """A named part: built where it is first read."""

    def __init__(self, node: Any, planner: _Planner, made: Scope | None = None) -> None:
        self.node = node
        self.planner = planner
        self.made = made
        self.opened = False  # stands in the place of its name

    def open(self) -> None:
        """It stands in the place of its name."""
        self.opened = True

    def scope(self, name: str) -> Scope:
        """What it is, under its name."""
        if self.made is None:
            self.made = self.planner.build(self.node, name)
        return self.made

    def try_with(self, planner: _Planner) -> None:
        """Build it, for its errors, where it changes nothing."""
        self.made = planner.build(self.node, None)


class _Planner:
    """Builds queries; knows the tables that they may read.

    Args:
        views: named parts, which hide tables of that name.
    """

    def __init__(
        self, query: Query, tables: dict[str, Scope], views: dict[str, _View], text: SqlText, depth: int = 0
    ) -> None:
        self.query = query
        self.text = text
        self._tables = tables
        self._views = views
        self._depth = depth

    def build(self, node: Any, name: str | None) -> Scope:
        """The boxes of a query: SELECT, UNION ALL, with its WITH.

        Args:
            name: of the last box, or None.
        """
        while isinstance(node, exp.Subquery) and not node.args.get("alias"):
            refuse_clauses(node, ("this",), self.text, "a query in brackets")
            node = node.this
        if self._depth > NESTED_MAX:
            raise self.text.error(
                node, f"more than {NESTED_MAX} queries inside each other", code="query.limit"
            )
        planner = self._with(node)
        if isinstance(node, exp.Select):
            made = build_select(node, planner, name)
        elif isinstance(node, exp.SetOperation):
            made = planner._union(node, name)
        else:
            raise self.text.error(node, "expected SELECT ... FROM", code="query.sql")
        planner._check_unread(self._views)
        return made

    def _with(self, node: Any) -> _Planner:
        clause = node.args.get("with_")
        planner = _Planner(self.query, self._tables, dict(self._views), self.text, self._depth + 1)
        if clause is None:
            return planner
        if clause.args.get("recursive"):
            raise self.text.keyword(None, "RECURSIVE", "WITH RECURSIVE is not supported")
        for cte in clause.expressions:
            planner.define(cte, cte.args["alias"], cte.this)
        return planner

    def define(self, node: Any, alias: Any, body: Any) -> None:
        """Take in a named part: WITH x AS (...), CREATE VIEW x AS ..."""
        name = alias.this.this if isinstance(alias, exp.TableAlias) else alias.this
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            raise self.text.error(alias, "names of columns stand in its SELECT: x AS y", code="query.sql")
        with self.text.at(alias):
            check_name(name, what=BOX)
        if name in self._views or name in self._tables or name in self.query._boxes:
            raise self.text.error(alias, f"there is a table {name!r} already", code="query.name")
        # It may read those before it, not itself.
        inner = _Planner(self.query, self._tables, dict(self._views), self.text, self._depth + 1)
        self._views[name] = _View(body, inner)

    def _check_unread(self, outer: dict[str, _View]) -> None:
        """A part that nothing reads makes no boxes, but has to be right."""
        for name, view in self._views.items():
            if name not in outer and view.made is None and not view.opened:
                check_view(view)

    # -- FROM --

    def table(self, node: Any) -> Scope:
        """What an item of FROM or JOIN is."""
        if isinstance(node, exp.Subquery):
            refuse_clauses(node, ("this", "alias"), self.text, "a query in brackets")
            alias = self._alias(node)
            inner = _Planner(self.query, self._tables, self._views, self.text, self._depth + 1)
            name = node.meta.get(_OPENED)
            made = inner.build(node.this, None if name in self.query._boxes else name)
            return made.named(alias if alias is not None else made.relations[0].alias)
        if not isinstance(node, exp.Table):
            kind = type(node).__name__.upper()
            raise self.text.error(node, f"{kind} can't stand in FROM", code="query.unsupported")
        refuse_clauses(node, ("this", "alias", "joins"), self.text, "a table")
        if node.args.get("joins"):
            raise self.text.error(
                node, "a join in brackets is not supported", hint="FROM (SELECT * FROM a JOIN b ...)"
            )
        alias = self._alias(node)
        if isinstance(node.this, exp.Identifier):
            name = node.this.this
            return self._named(name, node).named(alias if alias is not None else name)
        if function_name(node.this):
            made = read_table_function(node.this, self._of_column, self.text)
            if alias is None:
                return made
            columns = made.relations[0].columns
            return Scope(made.stream, (Relation(alias, columns),), made.times, made.window)
        raise self.text.error(node, "expected the name of a table", code="query.table")

    def opened(self, node: Any) -> Any:
        """``SELECT ... FROM x WHERE r <= n`` where a named part x ranks its rows as r: with x in place of
        its name, and the condition in it. Any other SELECT as it is."""
        source = node.args["from_"].this
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            return node
        view = self._views.get(source.this.this)
        body = view.node if view is not None else None
        while isinstance(body, exp.Subquery) and not body.args.get("alias"):
            body = body.this
        if view is None or not isinstance(body, exp.Select):
            return node
        alias = source.args.get("alias") or exp.TableAlias(this=source.this)
        part = exp.Subquery(this=body.copy(), alias=alias.copy())
        part.meta[_OPENED] = source.this.this
        made = node.copy()
        made.args["from_"].set("this", part)
        ranked = with_inner_rank(made)
        if ranked is made:
            return node
        view.open()
        return ranked

    def _alias(self, node: Any) -> str | None:
        alias = node.args.get("alias")
        if alias is None or alias.this is None:
            return None
        if alias.args.get("columns"):
            raise self.text.error(alias, "names of columns stand in its SELECT: x AS y", code="query.sql")
        return str(alias.this.this)

    def _of_column(self, node: Any) -> Scope:
        """A table that stands where sqlglot expects a column: TUMBLE(cars, ...)."""
        return self._named(node.name, node).named(node.name)

    def _named(self, name: str, node: Any) -> Scope:
        view = self._views.get(name)
        if view is not None:
            return view.scope(name)
        if name in self._tables:
            return self._tables[name]
        known = [*self._tables, *self._views]
        hint = did_you_mean(name, known) or f"md.sql(text, {name[:40]}=schema)"
        if name.lower() in WINDOW_FUNCTIONS:
            hint = f"{name}(TABLE cars, DESCRIPTOR(ts), INTERVAL ...)"
        raise self.text.error(node, f"there is no table {name[:100]!r}", hint=hint, code="query.table")

    # -- UNION ALL --

    def _union(self, node: Any, name: str | None) -> Scope:
        parts: list[Any] = []
        while isinstance(node, exp.SetOperation):
            if not isinstance(node, exp.Union):
                what = type(node).__name__.upper()
                hint = {"EXCEPT": "ANTI JOIN ... ON keys AND time bounds"}.get(
                    what, "SEMI JOIN ... ON keys AND time bounds"
                )
                raise self.text.keyword(node.expression, what, f"{what} is not supported", hint=hint)
            if node.args.get("distinct"):
                raise self.text.keyword(
                    node.expression, "UNION", "UNION without ALL is not supported", hint="UNION ALL"
                )
            if node.args.get("by_name"):
                raise self.text.keyword(
                    node.expression, "UNION", "UNION ALL BY NAME is not supported", hint="UNION ALL"
                )
            refuse_clauses(
                node, ("this", "expression", "distinct", "with_", "by_name"), self.text, "UNION ALL"
            )
            parts.append(node.expression)
            node = node.this
        parts.append(node)
        parts.reverse()
        scopes = [_Planner.build(self, part, None) for part in parts]
        first = scopes[0]
        types = self._common(parts, scopes)
        aligned = [self._aligned(part, scope, types) for part, scope in zip(parts, scopes, strict=True)]
        with self.text.at(parts[1]):
            stream = aligned[0].union(*aligned[1:], name=name)
        times = {
            column: time
            for column, time in first.times.items()
            if all(_time_at(scope, list(types).index(column)) == time for scope in scopes)
        }
        return Scope(stream, first.relations, times).named(first.relations[0].alias)

    def _common(self, parts: list[Any], scopes: list[Scope]) -> dict[str, str]:
        """The columns of a union: names of the first, types that hold all."""
        columns = dict(scopes[0].stream.schema)
        for part, scope in zip(parts[1:], scopes[1:], strict=True):
            theirs = scope.stream.schema
            if len(theirs) != len(columns):
                raise self.text.error(
                    part, f"UNION ALL: {len(columns)} columns above, {len(theirs)} here", code="query.union"
                )
            for (name, ours), type in zip(list(columns.items()), theirs.values(), strict=True):
                common = common_type(ours, type)
                if common is None:
                    raise self.text.error(
                        part,
                        f"UNION ALL: column {name!r} is {ours} above and {type} here",
                        hint="CAST one of them",
                        code="query.union",
                    )
                columns[name] = common
        return columns

    def _aligned(self, part: Any, scope: Scope, types: dict[str, str]) -> Stream:
        """With these names and types; columns go by position."""
        theirs = scope.stream.schema
        if theirs == types and list(theirs) == list(types):
            return scope.stream
        columns = {
            name: Expr(Column(own) if theirs[own] == type else Cast(Column(own), type))
            for own, (name, type) in zip(theirs, types.items(), strict=True)
        }
        with self.text.at(part):
            return scope.stream.select(columns)


def check_view(view: _View) -> None:
    """Build a part in a copy of the query, for its errors."""
    planner = view.planner
    copy = Query.from_graph(planner.query.graph)

    def moved(scope: Scope) -> Scope:
        return Scope(copy._stream(scope.stream.arc), scope.relations, scope.times, scope.window)

    tables = {name: moved(scope) for name, scope in planner._tables.items()}
    views: dict[str, _View] = {}
    for name, each in planner._views.items():
        inner, made = _Planner(copy, tables, views, planner.text, planner._depth + 1), each.made
        if made is not None:
            made = moved(made) if made.stream.query is planner.query else None
        views[name] = _View(each.node, inner, made)
    view.try_with(_Planner(copy, tables, views, planner.text, planner._depth))


def _time_at(scope: Scope, place: int) -> Any:
    return scope.times.get(list(scope.stream.schema)[place])


class _Statements:
    """The statements of a text, in order."""

    def __init__(self, query: Query, tables: dict[str, Scope], text: SqlText, into: str) -> None:
        self._query = query
        self._text = text
        self._into = into
        self._planner = _Planner(query, tables, {}, text)

    def run(self, found: list[Any]) -> None:
        plain = [node for node in found if not isinstance(node, exp.Create | exp.Insert)]
        if len(plain) > 1:
            raise self._text.error(
                plain[1], "a second SELECT has no sink", hint="INSERT INTO name SELECT ...", code="query.sql"
            )
        for node in found:
            if isinstance(node, exp.Create):
                self._create(node)
            elif isinstance(node, exp.Insert):
                self._insert(node)
            elif isinstance(node, exp.Query):
                self._sink(self._into, node, node)
            else:
                what = type(node).__name__.upper()
                raise self._text.error(
                    node,
                    f"{what} is not supported",
                    hint="SELECT ..., CREATE VIEW x AS SELECT ..., INSERT INTO sink SELECT ...",
                    code="query.unsupported",
                )
        self._planner._check_unread({})
        if not self._query.sinks:
            raise self._text.error(
                found[-1],
                "nothing leaves the query",
                hint="end with SELECT ... FROM a view",
                code="query.sql",
            )

    def _create(self, node: Any) -> None:
        kind = str(node.args.get("kind") or "").upper()
        if kind != "VIEW" or not isinstance(node.expression, exp.Query):
            raise self._text.error(
                node,
                f"CREATE {kind} is not supported",
                hint="CREATE VIEW x AS SELECT ...; sources are given to md.sql",
                code="query.unsupported",
            )
        target = node.this
        if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier) or target.db:
            raise self._text.error(node, "CREATE VIEW x AS SELECT ...: x is one name", code="query.sql")
        self._planner.define(node, target.this, node.expression)

    def _insert(self, node: Any) -> None:
        target = node.this
        if (
            not isinstance(target, exp.Table)
            or not isinstance(target.this, exp.Identifier)
            or target.db
            or not isinstance(node.expression, exp.Query)
        ):
            raise self._text.error(node, "expected INSERT INTO sink SELECT ...", code="query.sql")
        refuse_clauses(node, ("this", "expression", "is_function", "with_"), self._text, "INSERT")
        if node.args.get("with_") is not None:
            raise self._text.error(node, "WITH stands after INSERT INTO sink", code="query.sql")
        self._sink(target.this.this, node.expression, target)

    def _sink(self, name: str, node: Any, about: Any) -> None:
        scope = self._planner.build(node, None)
        with self._text.at(about):
            self._query.sink(name, scope.stream)
