"""JOIN: equal keys, bounds on time, and what else stands in ON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.expressions.column import Expr
from medusa.query.expressions.expression import Call, Column, Expression
from medusa.query.shape import WINDOW_COLUMNS
from medusa.query.sql.bounds import JoinBounds, bounds_of
from medusa.query.sql.expressions import SqlReader
from medusa.query.sql.scope import Relation, Scope, TimeColumn
from medusa.query.sql.text import SqlText
from medusa.query.stream.stream import Stream

__all__ = ["SqlJoin", "join_kind", "read_join"]

EXAMPLE = "a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '30' SECOND AND b.ts + INTERVAL '30' SECOND"
_OUTER = ("left", "right", "full")


@dataclass(slots=True)
class SqlJoin:
    """One join, read: what to give the builder.

    Attributes:
        keys: pairs of names in the two streams.
        bounds: on the distance in time.
        where: the other conditions, in terms of ``left.x`` and ``right.x``.
        timed: the conditions that the bounds come from.
        windows: the names of window columns that were compared.
    """

    kind: str
    how: str
    keys: list[tuple[str, str]] = field(default_factory=list)
    bounds: JoinBounds = field(default_factory=JoinBounds)
    where: list[Expression] = field(default_factory=list)
    timed: list[tuple[JoinBounds, Expression]] = field(default_factory=list)
    windows: list[str] = field(default_factory=list)


def join_kind(node: Any, text: SqlText) -> tuple[str, str]:
    """(``interval`` or ``asof``, how)."""
    method = str(node.args.get("method") or "").upper()
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if method not in ("", "ASOF"):
        raise text.error(
            node.this,
            f"{method} JOIN is not supported",
            hint="name the keys: JOIN ... ON a.k = b.k",
            code="query.unsupported",
        )
    if node.args.get("on") is None and not node.args.get("using"):
        what = "CROSS JOIN" if kind == "CROSS" else "a join without ON"
        raise text.error(node.this, f"{what} is not supported", hint=EXAMPLE, code="query.unsupported")
    if kind in ("SEMI", "ANTI"):
        how = kind.lower()
        if side == "RIGHT":
            raise text.error(node.this, f"RIGHT {kind} JOIN is not supported", hint="swap the two tables")
    elif kind in ("", "INNER", "OUTER"):
        how = side.lower() or "inner"
    else:
        raise text.error(node.this, f"{kind} JOIN is not supported", hint=EXAMPLE, code="query.unsupported")
    if method == "ASOF" and how not in ("inner", "left"):
        raise text.error(
            node.this, f"ASOF {how.upper()} JOIN is not supported", hint="ASOF JOIN, ASOF LEFT JOIN"
        )
    return ("asof" if method else "interval"), how


def read_join(
    node: Any, left: Scope, right: Scope, wanted: set[tuple[str, str]], name: str | None, text: SqlText
) -> Scope:
    """The join of what stands before and a table.

    Args:
        wanted: (table, column) that the rest of the SELECT asks for by both names.
        name: of the box, or None.

    Raises:
        QueryError: conditions that a join can't have, or that miss a bound on time.
    """
    kind, how = join_kind(node, text)
    join = SqlJoin(kind, how)
    known = {relation.alias for relation in left.relations}
    for relation in right.relations:
        if relation.alias in known:
            raise text.error(
                node.this,
                f"two tables are called {relation.alias!r}",
                hint="give one another name: AS b",
                code="query.table",
            )
    reader = _PairReader(text, left, right)
    if node.args.get("using"):
        _read_using(node, join, left, right, text)
    else:
        for condition in _conjuncts(node.args["on"]):
            _classify(condition, join, reader, text)
    left, right = _keep_keys(join, left, right, wanted)
    return _built(node, join, left, right, name, text)


class _PairReader(SqlReader):
    """Reads conditions on pairs: columns are ``left.x`` and ``right.x``."""

    def __init__(self, text: SqlText, left: Scope, right: Scope) -> None:
        super().__init__(text, left, clause="ON")
        self.left, self.right = left, right
        self._both = Scope(left.stream, (*left.relations, *right.relations))

    def column(self, node: Any) -> Expression:
        table, name = node.args.get("table"), node.name
        if table is not None:
            alias = self._both.relation(table, self.text).alias
            left = any(relation.alias == alias for relation in self.left.relations)
        else:
            sides = [
                any(name in relation.columns for relation in scope.relations)
                for scope in (self.left, self.right)
            ]
            if sides[0] == sides[1]:
                made = self._both.resolve(node, self.text)
                if isinstance(made, Call):
                    raise self._no_time(node)
                why = f"{name!r} is in both tables"
                raise self.text.error(node, why, hint=f"say which: a.{name}", code="query.column")
            left = sides[0]
        side, scope = ("left", self.left) if left else ("right", self.right)
        made = scope.resolve(node, self.text)
        if not isinstance(made, Column):
            raise self._no_time(node)
        return Column(f"{side}.{made.name}")

    def _no_time(self, node: Any) -> QueryError:
        return self.text.error(
            node,
            "tuple_time can't stand in ON",
            hint="SELECT tuple_time AS at in a query of its own",
            code="query.expression",
        )


def _conjuncts(node: Any) -> list[Any]:
    """The conditions that AND joins; a chain may be thousands long."""
    found, stack = [], [node]
    while stack:
        node = stack.pop()
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.And):
            stack += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _classify(condition: Any, join: SqlJoin, reader: _PairReader, text: SqlText) -> None:
    made = reader.read(condition)
    if isinstance(made, Call) and made.function == "eq":
        sides = {
            arg.name.partition(".")[0]: arg.name.partition(".")[2]
            for arg in made.args
            if isinstance(arg, Column)
        }
        if len(sides) == 2:
            ours, theirs = sides["left"], sides["right"]
            if ours == theirs and ours in WINDOW_COLUMNS and _windowed(reader):
                join.windows.append(ours)
                return
            if ours not in reader.left.times or theirs not in reader.right.times:
                join.keys.append((ours, theirs))
                return
        elif _is_keys(made):
            raise text.error(
                condition,
                "a key of a join is a column of each side",
                hint="compute it in a query of its own: FROM (SELECT *, x + 1 AS k FROM a) AS a",
                code="query.join",
            )
    found = bounds_of(made, reader.left.times, reader.right.times)
    if found is None:
        join.where.append(made)
        return
    join.bounds = join.bounds.both(found)
    join.timed.append((found, made))


def _windowed(reader: _PairReader) -> bool:
    return reader.left.stream._shape.window is not None and reader.right.stream._shape.window is not None


def _is_keys(made: Call) -> bool:
    """Whether an equation has one side of the left only, the other of the right only."""
    from medusa.query.expressions.tree import walk

    sides = [{n.name.partition(".")[0] for n in walk(arg) if isinstance(n, Column)} for arg in made.args]
    return sides in ([{"left"}, {"right"}], [{"right"}, {"left"}])


def _read_using(node: Any, join: SqlJoin, left: Scope, right: Scope, text: SqlText) -> None:
    names = list(node.args["using"])
    for place, identifier in enumerate(names):
        column = exp.Column(this=identifier)
        ours, theirs = left.resolve(column, text), right.resolve(column, text)
        if not isinstance(ours, Column) or not isinstance(theirs, Column):
            raise text.error(identifier, "USING names columns", code="query.join")
        if join.kind == "asof" and place == len(names) - 1:
            pair = (Column(f"left.{ours.name}"), Column(f"right.{theirs.name}"))
            found = bounds_of(Call("ge", pair), left.times, right.times)
            if found is None:
                raise text.error(
                    identifier,
                    "the last column of ASOF JOIN ... USING is the time of the rows",
                    code="query.join",
                )
            join.bounds = found
            join.timed.append((found, Call("ge", pair)))
        elif ours.name in WINDOW_COLUMNS and left.stream._shape.window and right.stream._shape.window:
            join.windows.append(ours.name)
        else:
            join.keys.append((ours.name, theirs.name))


def _keep_keys(join: SqlJoin, left: Scope, right: Scope, wanted: set[tuple[str, str]]) -> tuple[Scope, Scope]:
    """Of an outer join a key appears once, whichever side has it: keep a copy of one that is asked for."""
    if join.how not in _OUTER and join.kind != "asof":
        return left, right
    if join.how == "inner":
        return left, right
    if join.how in ("left", "full"):
        right = _copied(right, [theirs for _, theirs in join.keys], wanted)
    if join.how in ("right", "full"):
        left = _copied(left, [ours for ours, _ in join.keys], wanted)
    return left, right


def _copied(scope: Scope, keys: list[str], wanted: set[tuple[str, str]]) -> Scope:
    relations, copies = [], {}
    for relation in scope.relations:
        columns = dict(relation.columns)
        for name, inner in relation.columns.items():
            if inner in keys and (relation.alias, name) in wanted:
                copy = f"{relation.alias}.{name}"
                copies[copy] = Expr(Column(inner))
                columns[name] = copy
        relations.append(Relation(relation.alias, columns))
    if not copies:
        return scope
    return replace(scope, stream=scope.stream.with_columns(copies), relations=tuple(relations))


def _built(node: Any, join: SqlJoin, left: Scope, right: Scope, name: str | None, text: SqlText) -> Scope:
    about = node.args.get("on") or node.this
    keys: list[Any] = [ours if ours == theirs else {ours: theirs} for ours, theirs in join.keys]
    suffix = _suffix(left.stream, right.stream, [theirs for _, theirs in join.keys])
    options: dict[str, Any] = {"name": name}
    if suffix != "_right":
        options["suffixes"] = ("", suffix)
    with text.at(about):
        if join.kind == "asof":
            made = _asof(about, join, keys, left, right, options, text)
        else:
            if join.how != "inner":
                options["how"] = join.how
            made = _joined(about, join, keys, left, right, options, text)
    return _after(join, left, right, made, suffix)


def _joined(
    about: Any,
    join: SqlJoin,
    keys: list[Any],
    left: Scope,
    right: Scope,
    options: dict[str, Any],
    text: SqlText,
) -> Stream:
    where = list(join.where)
    if join.windows:
        where += [condition for _, condition in join.timed]
        on: Any = "window" if not keys else ["window", *keys]
        return left.stream.join(right.stream, on=on, where=_all(where), **options)
    low, high = join.bounds.low, join.bounds.high
    if low is None or high is None:
        missing = "a bound on time" if low is None and high is None else "the other bound on time"
        raise text.error(about, f"the join needs {missing}", hint=EXAMPLE, code="query.join")
    if not keys:
        raise text.error(
            about, "the join needs at least one pair of equal keys", hint=EXAMPLE, code="query.join"
        )
    within = max(abs(low), abs(high))
    # What the distance alone says already needs no condition.
    where = [
        *(condition for each, condition in join.timed if not each.exact or _narrower(each, within)),
        *where,
    ]
    on = keys[0] if len(keys) == 1 else keys
    return left.stream.join(right.stream, on=on, within=within, where=_all(where), **options)


def _narrower(bounds: JoinBounds, within: int) -> bool:
    """Whether a condition excludes pairs that are at most ``within`` apart."""
    low, high = bounds.low, bounds.high
    return (low is not None and low > -within) or (high is not None and high < within)


def _asof(
    about: Any,
    join: SqlJoin,
    keys: list[Any],
    left: Scope,
    right: Scope,
    options: dict[str, Any],
    text: SqlText,
) -> Stream:
    if join.bounds.low != 0 or not join.bounds.exact:
        raise text.error(
            about,
            "ASOF JOIN needs a.ts >= b.ts on the times of the rows",
            hint="ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
            code="query.join",
        )
    if not keys:
        raise text.error(
            about,
            "ASOF JOIN needs at least one pair of equal keys",
            hint="ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
            code="query.join",
        )
    if join.bounds.high is not None:
        options["within"] = join.bounds.high
    if join.where:
        options["where"] = _all(join.where)
    on = keys[0] if len(keys) == 1 else keys
    made: Stream = left.stream.asof_join(right.stream, on=on, how=join.how, **options)
    return made


def _all(conditions: list[Expression]) -> Expr | None:
    if not conditions:
        return None
    parts: list[Expression] = []
    for condition in conditions:
        is_and = isinstance(condition, Call) and condition.function == "and"
        parts += condition.args if is_and and isinstance(condition, Call) else (condition,)
    return Expr(parts[0] if len(parts) == 1 else Call("and", tuple(parts)))


def _suffix(left: Stream, right: Stream, keys: list[str]) -> str:
    """What is added to names of the right that the left has too, so that all differ."""
    ours, theirs = set(left.schema), set(right.schema) - set(keys)
    suffix, count = "_right", 1
    while any(f"{name}{suffix}" in ours | theirs for name in theirs & ours):
        count += 1
        suffix = f"_right_{count}"
    return suffix


def _after(join: SqlJoin, left: Scope, right: Scope, made: Stream, suffix: str) -> Scope:
    """Where the columns of both sides stand in the result."""
    if join.how in ("semi", "anti"):
        return Scope(made, left.relations, left.times)
    pairs = {theirs: ours for ours, theirs in join.keys}
    ours, result = set(left.stream.schema), made.schema
    moved: dict[str, str] = {}
    for column in right.stream.schema:
        if column in pairs:
            moved[column] = pairs[column]
        elif join.windows and column in WINDOW_COLUMNS:
            moved[column] = column
        else:
            moved[column] = (
                f"{column}{suffix}" if column in ours and f"{column}{suffix}" in result else column
            )
    relations = [
        Relation(relation.alias, {name: moved[inner] for name, inner in relation.columns.items()})
        for relation in right.relations
    ]
    if join.kind == "asof":
        times = dict(left.times)
    elif join.windows:
        keep = join.how == "inner"
        times = {name: time for name, time in left.times.items() if keep and name in WINDOW_COLUMNS}
    else:
        low, high = join.bounds.low or 0, join.bounds.high or 0
        times = _later(left.times, {name: name for name in left.times}, max(0, -low))
        times |= _later(right.times, moved, max(0, high))
    return Scope(made, (*left.relations, *relations), times)


def _later(
    times: Mapping[str, TimeColumn], names: Mapping[str, str], spread_us: int
) -> dict[str, TimeColumn]:
    """The time columns of one side of a pair, whose time is up to so much later."""
    return {names[name]: replace(time, spread_us=time.spread_us + spread_us) for name, time in times.items()}
