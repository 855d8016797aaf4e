"""SQL text to expression trees: what each piece of syntax means.

Everything that isn't listed here is refused with its place in the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.expressions import tree
from medusa.query.expressions.aggregates import AGGREGATES
from medusa.query.expressions.dialect import clip, place, syntax_tree
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.expressions.text_casts import read_date, read_timestamp
from medusa.query.sql_names import FUNCTION_NAMES, SIDES
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION, NULL, TIMESTAMP, normalise
from medusa.units import duration_us

__all__ = ["ExpressionReader", "parse", "parse_aggregate"]

BINARY = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.Sub: "sub",
    exp.Div: "div",
    exp.IntDiv: "floordiv",
    exp.Mod: "mod",
    exp.Pow: "power",
    exp.NullSafeNEQ: "is_distinct_from",
}
CHAINS = {exp.And: "and", exp.Or: "or", exp.Add: "add", exp.Mul: "mul", exp.DPipe: "concat"}
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.DPipe)
EXTRACTED = ("year", "month", "day", "hour", "minute", "second")
TYPE_NAMES = {
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INT": "int32",
    "BIGINT": "int64",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINT": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "TEXT": "utf8",
    "VARCHAR": "utf8",
    "BOOLEAN": "bool",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "DATE": "date32",
    "INTERVAL": DURATION,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
}

SHORT_TEXT = 1_000
"""Characters up to which the trees of texts are remembered."""


def parse(text: str, *, box: str = "expression") -> Expression:
    """The expression tree of an SQL text.

    Args:
        text: an expression in DuckDB's syntax, at most 64 KiB.
        box: who asks, for messages.

    Raises:
        QueryError: not an expression that we know; says what and where. Columns and types are not
            checked here (``medusa.query.checker``).
    """
    return _parse_again(text, box) if type(text) is str and len(text) <= SHORT_TEXT else _parse(text, box)


def _parse(text: str, box: str) -> Expression:
    made = ExpressionReader(text, box).read(syntax_tree(text, box=box))
    tree.check_limits(made, box=box)
    return made


_parse_again = lru_cache(maxsize=256)(_parse)
"""A program that asks one query of many tables writes its texts again and again."""


def parse_aggregate(
    text: str, *, box: str = "aggregate"
) -> tuple[str, Expression | None, int | float | None]:
    """(function, argument, parameter) of the text of one aggregate call: ``sum(bytes)``, ``count(*)``,
    ``quantile(bytes, 0.9)``, ``count(*) FILTER (WHERE bytes > 9)``.

    Raises:
        QueryError: it is no call of one function.
    """
    node = syntax_tree(text, box=box)
    reader = ExpressionReader(text, box)
    if isinstance(node, exp.Filter):
        function, value, parameter = _aggregate(reader, node.this, box)
        if function == "lag":
            raise reader.refused(node, "FILTER is for aggregates, not for lag")
        some = tree.filtered(value, reader.read(node.expression.this))
        tree.check_limits(some, box=box)
        return function, some, parameter
    return _aggregate(reader, node, box)


def _aggregate(
    reader: ExpressionReader, node: Any, box: str
) -> tuple[str, Expression | None, int | float | None]:
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        raise reader.refused(node, "expected one aggregate call, such as sum(bytes) or count(*)")
    name, args = node.this.lower(), list(node.expressions)
    if args and isinstance(args[0], exp.Distinct):
        inner = list(args[0].expressions)
        if name != "count" or len(args) != 1 or len(inner) != 1 or args[0].args.get("on"):
            raise reader.refused(node, "DISTINCT is for count(DISTINCT column) only")
        name, args = "count_distinct", inner
    if name == "count" and (not args or (len(args) == 1 and isinstance(args[0], exp.Star))):
        return name, None, None
    second = reader.read(args[1]) if len(args) == 2 else None
    parameter = second.value if isinstance(second, Literal) else None
    if len(args) not in (1, 2) or (second is not None and not isinstance(parameter, int | float)):
        raise reader.refused(node, f"{name} takes one argument, got {len(args)}")
    arg = reader.read(args[0])
    tree.check_limits(arg, box=box)
    return name, arg, parameter  # type: ignore[return-value]


class ExpressionReader:
    """Turns one syntax tree into ours; knows the text for its messages."""

    def __init__(self, text: str, box: str) -> None:
        self._text = text
        self._box = box
        self._depth = 0

    def refused(self, node: Any, why: str, *, hint: str = "") -> QueryError:
        return QueryError(
            f"{self._box}: {why} {self.place(node)}".rstrip(), hint=hint, code="query.expression"
        )

    def place(self, node: Any) -> str:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta] if node else []
        return place(self._text, min(starts)) if starts else f"in {clip(self._text)}"

    def read(self, node: Any) -> Expression:
        """Raises QueryError for anything unlisted."""
        while isinstance(node, exp.Paren):
            node = node.this
        if self._depth >= tree.DEPTH_MAX:
            raise QueryError(
                f"{self._box}: the expression is nested more than {tree.DEPTH_MAX} deep", code="query.limit"
            )
        self._depth += 1
        try:
            return self._read(node)
        finally:
            self._depth -= 1

    def _read(self, node: Any) -> Expression:
        kind = type(node)
        if kind in BINARY:
            self._only(node, "this", "expression", "typed", "safe")
            self._no_bare_not(node)
            return Call(BINARY[kind], (self.read(node.this), self.read(node.expression)))
        if kind in CHAINS:
            return self._chain(node)
        reader = READERS.get(kind)
        if reader is None:
            raise self.refused(node, f"{_syntax_name(node)} is not supported in an expression")
        return reader(self, node)

    def _only(self, node: Any, *known: str) -> None:
        """Refuse a node with a part that we'd otherwise leave out silently."""
        for name, value in node.args.items():
            if name not in known and value:
                raise self.refused(node, f"{_syntax_name(node)} with {name.upper()} is not supported")

    def _no_bare_not(self, node: Any) -> None:
        """sqlglot lets NOT, which binds weakest, stand in arithmetic, where DuckDB doesn't."""
        if isinstance(node, ARITHMETIC) and exp.Not in (type(node.this), type(node.expression)):
            raise self.refused(node, "NOT and IS NOT NULL need brackets here")

    def _chain(self, node: Any) -> Expression:
        """A chain is left-deep in sqlglot's tree and may be thousands long: no recursion."""
        function, operands = CHAINS[type(node)], []
        while type(node) in CHAINS and CHAINS[type(node)] == function:
            self._only(node, "this", "expression", "safe")
            self._no_bare_not(node)
            operands.append(node.expression)
            node = node.this
            while isinstance(node, exp.Paren):
                node = node.this
        first = self.read(node)
        rest = tuple(self.read(operand) for operand in reversed(operands))
        if isinstance(first, Call) and first.function == function:
            return Call(function, (*first.args, *rest))
        return Call(function, (first, *rest))

    def _column(self, node: Any) -> Expression:
        self._only(node, "this", "table")
        if not isinstance(node.this, exp.Identifier):
            raise self.refused(node, "a column must be named")
        name, table = node.this.this, node.args.get("table")
        if table is not None:
            if table.this not in SIDES:
                raise self.refused(
                    node,
                    f"{table.this}.{name}: a name with a dot is for the two sides of a join",
                    hint='left.x or right.x in where=; a column whose name holds a dot is "in.quotes"',
                )
            return Column(f"{table.this}.{name}")
        if name == "tuple_time" and not node.this.args.get("quoted"):
            return Call("tuple_time")
        return Column(name)

    def _literal(self, node: Any) -> Expression:
        text = node.this
        if node.is_string:
            made = Literal("utf8", text)
            tree.check_literal(made, box=self._box)
            return made
        try:
            if text.isascii() and text.isdigit() and len(text) <= 20:
                whole = int(text)
                if whole < 1 << 64:
                    return Literal("int64" if whole < 1 << 63 else "uint64", whole)
            elif not text.isdigit():
                value = float(text)
                if math.isfinite(value):
                    return Literal("float64", value)
        except ValueError:
            raise self.refused(node, f"{text[:40]!r} is no number") from None
        raise self.refused(node, f"the number {text[:40]} is too large")

    def _not(self, node: Any) -> Expression:
        inner = self.read(node.this)
        # IS NOT NULL comes as NOT (x IS NULL).
        if isinstance(inner, Call) and inner.function == "is_null" and not isinstance(node.this, exp.Paren):
            return Call("is_not_null", inner.args)
        return Call("not", (inner,))

    def _is(self, node: Any) -> Expression:
        right = node.expression
        if isinstance(right, exp.Null):
            return Call("is_null", (self.read(node.this),))
        if isinstance(right, exp.Boolean):
            return Call("not", (Call("is_distinct_from", (self.read(node.this), self.read(right))),))
        raise self.refused(node, "IS takes NULL, TRUE or FALSE", hint="is_nan(x), x IS NOT DISTINCT FROM y")

    def _between(self, node: Any) -> Expression:
        self._only(node, "this", "low", "high")
        arg = self.read(node.this)
        return Call(
            "and",
            (Call("ge", (arg, self.read(node.args["low"]))), Call("le", (arg, self.read(node.args["high"])))),
        )

    def _in(self, node: Any) -> Expression:
        self._only(node, "this", "expressions")
        options = tuple(self.read(option) for option in node.expressions)
        if not options:
            raise self.refused(node, "IN needs at least one value in its brackets")
        if not all(isinstance(option, Literal) for option in options):
            raise self.refused(node, "IN takes constants only", hint="x = a OR x = b compares with columns")
        return Call("in", (self.read(node.this), *options))

    def _like(self, node: Any) -> Expression:
        self._only(node, "this", "expression", "negate")
        made = Call("like", (self.read(node.this), self.read(node.expression)))
        return Call("not", (made,)) if node.args.get("negate") else made

    def _case(self, node: Any) -> Expression:
        self._only(node, "this", "ifs", "default")
        operand = self.read(node.this) if node.this is not None else None
        # The operand stands in every branch, so it mustn't be large.
        if operand is not None and tree.measure(operand)[1] * len(node.args["ifs"]) > 1_000:
            raise self.refused(node, "the operand of CASE is too long", hint="write CASE WHEN a = b THEN ...")
        branches = []
        for branch in node.args["ifs"]:
            self._only(branch, "this", "true")
            condition = self.read(branch.this)
            if operand is not None:
                condition = Call("eq", (operand, condition))
            branches.append((condition, self.read(branch.args["true"])))
        default = node.args.get("default")
        return Case(tuple(branches), self.read(default) if default is not None else None)

    def _cast(self, node: Any) -> Expression:
        self._only(node, "this", "to")
        target = self._type(node, node.args["to"])
        arg = self.read(node.this)
        if isinstance(arg, Literal) and arg.type == "utf8" and target in ("date32", TIMESTAMP):
            point = (read_date if target == "date32" else read_timestamp)(str(arg.value))
            if point is None:
                raise self.refused(
                    node,
                    f"{str(arg.value)[:40]!r} is no {'date' if target == 'date32' else 'timestamp'}",
                    hint="write DATE '2024-05-01', TIMESTAMP '2024-05-01 12:30:00'",
                )
            return Literal(target, point)
        return Cast(arg, target)

    def _type(self, node: Any, made: Any) -> str:
        """The type after AS or ``::``; int8 has 8 bits here (as in Arrow), not 8 bytes."""
        written = self._type_text(made)
        if written is None:
            raise self.refused(node, f"can't cast to {made.sql(dialect='duckdb')[:60]}")
        return normalise(written, what=f"{self._box}: cast {self.place(node)}")

    def _type_text(self, made: Any) -> str | None:
        name = getattr(made.this, "name", str(made.this))
        parts = [part.this for part in made.expressions]
        if name in ("ARRAY", "LIST") and made.args.get("values"):
            # timestamp[us, UTC], duration[us]: our own texts look like arrays.
            inner = self._type_text(made.expressions[0]) if made.expressions else None
            units = ",".join(value.name for value in made.args["values"])
            if inner in (TIMESTAMP, "duration"):
                return f"{inner.partition('[')[0]}[{units}]"
            return None
        if name == "USERDEFINED" and not parts:
            return str(made.args.get("kind"))
        if name.startswith("DECIMAL") and all(isinstance(part, exp.Literal) for part in parts):
            return f"decimal128({','.join(part.this for part in parts) or '18,3'})"
        if name in TYPE_NAMES and not parts:
            return TYPE_NAMES[name]
        return None

    def _interval(self, node: Any) -> Expression:
        self._only(node, "this", "unit", "fraction_in_string")
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal) or not (unit is None or isinstance(unit, exp.Var)):
            raise self.refused(node, "an INTERVAL is a constant", hint="INTERVAL '5 minutes'")
        text = f"{amount.this} {unit.this if unit is not None else ''}".strip()
        return Literal(DURATION, duration_us(text, what=f"{self._box}: INTERVAL"))

    def _extract(self, node: Any) -> Expression:
        part = str(getattr(node.this, "this", "")).lower()
        if part not in EXTRACTED:
            raise self.refused(node, f"can't EXTRACT {part[:40]!r}", hint=f"there is: {', '.join(EXTRACTED)}")
        return Call(part, (self.read(node.expression),))

    def _function(self, node: Any) -> Expression:
        if not isinstance(node.this, str):
            raise self.refused(node, "the name of a function stands without quotes")
        name = node.this.lower()
        function = FUNCTION_NAMES.get(name)
        if function is None:
            raise self.refused(
                node,
                f"there is no function {node.this[:60]!r}",
                hint=HINTS.get(name) or did_you_mean(name, FUNCTION_NAMES),
            )
        made = Call(function, tuple(self.read(arg) for arg in node.expressions))
        if function in tree.CHAINED and made.args:
            first = made.args[0]
            if isinstance(first, Call) and first.function == function:
                return Call(function, (*first.args, *made.args[1:]))
        return made


HINTS = {
    "log": "ln(x) is the natural, log10(x) the decimal logarithm",
    "now": "a query knows no clock: tuple_time is the time of the row",
    "current_timestamp": "a query knows no clock: tuple_time is the time of the row",
    "if": "CASE WHEN condition THEN a ELSE b END",
    "try_cast": "cast(x AS type); a row that doesn't fit fails alone",
    **dict.fromkeys(AGGREGATES, "aggregates stand in window(...).aggregate(...)"),
}


def _syntax_name(node: Any) -> str:
    """What the user would call it: the class of the syntax, in capitals."""
    name = type(node).__name__
    return NAMED.get(name, name.upper())


NAMED = {
    "Window": "OVER",
    "Subquery": "a query in brackets",
    "Select": "SELECT",
    "Star": "*",
    "Bracket": "an index in brackets",
    "Array": "a list",
    "Struct": "a struct",
    "Tuple": "a list in brackets",
    "Concat": "text directly after text (write ||)",
    "Dot": "a name with a dot",
    "Placeholder": "a parameter",
    "ILike": "ILIKE (write lower(x) LIKE)",
    "RegexpLike": "~ (write regexp_matches(x, pattern))",
    "BitwiseNot": "~ (write NOT)",
    "JSONExtract": "->",
}

READERS: dict[type, Callable[[ExpressionReader, Any], Expression]] = {
    exp.Column: ExpressionReader._column,
    exp.Literal: ExpressionReader._literal,
    exp.Boolean: lambda reader, node: Literal("bool", bool(node.this)),
    exp.Null: lambda reader, node: Literal(NULL, None),
    exp.Neg: lambda reader, node: tree.negate(reader.read(node.this)),
    exp.Not: ExpressionReader._not,
    exp.Is: ExpressionReader._is,
    exp.NullSafeEQ: lambda reader, node: Call(
        "not", (Call("is_distinct_from", (reader.read(node.this), reader.read(node.expression))),)
    ),
    exp.Between: ExpressionReader._between,
    exp.In: ExpressionReader._in,
    exp.Like: ExpressionReader._like,
    exp.Case: ExpressionReader._case,
    exp.Cast: ExpressionReader._cast,
    exp.Interval: ExpressionReader._interval,
    exp.Extract: ExpressionReader._extract,
    exp.Anonymous: ExpressionReader._function,
}
