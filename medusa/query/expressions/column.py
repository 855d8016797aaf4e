"""Expressions written in Python: ``md.col("speed") > 0`` gives the tree that ``"speed > 0"`` gives.

An operand is another ``Expr`` or a Python value, which becomes a constant: a text in Python is a
text, never SQL.
"""

from __future__ import annotations

from typing import Any, NoReturn

from medusa.errors import QueryError
from medusa.query.expressions import tree
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.types import normalise

__all__ = ["Expr", "When", "as_tree", "col", "lit", "time", "when"]


class Expr:
    """An expression being written; immutable. ``tree`` is what it is."""

    __slots__ = ("_depth", "_nodes", "tree")
    __hash__ = None  # type: ignore[assignment]  # == makes an expression
    __iter__ = None

    def __init__(self, made: Expression, *parts: Expr, grew: bool = False) -> None:
        """``parts``: what ``made`` was made of (none: measure it); ``grew``: a chain, by an operand."""
        # Sizes are kept rather than measured: e + e, sixty times over, has 2**60 nodes.
        self.tree = made
        self._depth: int
        self._nodes: int
        if not parts:
            self._depth, self._nodes = tree.measure(made)
        elif grew:
            self._depth = max(parts[0]._depth, *(1 + part._depth for part in parts[1:]))
            self._nodes = sum(part._nodes for part in parts)
        else:
            self._depth = 1 + max(part._depth for part in parts)
            self._nodes = 1 + sum(part._nodes for part in parts)
        if self._depth > tree.DEPTH_MAX or self._nodes > tree.NODES_MAX:
            raise QueryError(
                f"md.col: an expression is at most {tree.DEPTH_MAX} deep and has {tree.NODES_MAX:,} parts",
                hint="compute parts of it in a with_columns before",
                code="query.limit",
            )

    def __repr__(self) -> str:
        from medusa.query.expressions.show import show

        return f"<Expr {show(self.tree)}>"

    # -- what Python would do silently wrong --

    def __bool__(self) -> NoReturn:
        raise QueryError(
            "md.col: an expression is neither true nor false while the query is written",
            hint="combine with & | ~ in brackets, not with and, or, not; for a range use .between(a, b)",
            code="query.expression",
        )

    def __contains__(self, item: object) -> NoReturn:
        raise QueryError(
            "md.col: `in` asks at once, while the query is written",
            hint="use .is_in([...]) or .contains(text)",
            code="query.expression",
        )

    # -- comparisons --

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("ne", self, other)

    def __lt__(self, other: object) -> Expr:
        return _call("lt", self, other)

    def __le__(self, other: object) -> Expr:
        return _call("le", self, other)

    def __gt__(self, other: object) -> Expr:
        return _call("gt", self, other)

    def __ge__(self, other: object) -> Expr:
        return _call("ge", self, other)

    def between(self, low: object, high: object) -> Expr:
        """``low <= self <= high``."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Any) -> Expr:
        """Equal to one of some constants."""
        options = [Expr(tree.literal(value, box="is_in")) for value in values]
        if not options:
            raise QueryError("is_in: needs at least one value", code="query.expression")
        return _call("in", self, *options)

    def is_distinct_from(self, other: object) -> Expr:
        """Not equal, where null equals null."""
        return _call("is_distinct_from", self, other)

    def is_null(self) -> Expr:
        """Whether it is null: never null itself."""
        return _call("is_null", self)

    def is_not_null(self) -> Expr:
        """Whether it isn't null: never null itself."""
        return _call("is_not_null", self)

    def is_nan(self) -> Expr:
        """Whether it is NaN; null of null."""
        return _call("is_nan", self)

    # -- logic --

    def __and__(self, other: object) -> Expr:
        return _chain("and", self, other)

    def __rand__(self, other: object) -> Expr:
        return _chain("and", other, self)

    def __or__(self, other: object) -> Expr:
        return _chain("or", self, other)

    def __ror__(self, other: object) -> Expr:
        return _chain("or", other, self)

    def __invert__(self) -> Expr:
        return _call("not", self)

    # -- arithmetic --

    def __add__(self, other: object) -> Expr:
        return _chain("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return _chain("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return _call("sub", self, other)

    def __rsub__(self, other: object) -> Expr:
        return _call("sub", other, self)

    def __mul__(self, other: object) -> Expr:
        return _chain("mul", self, other)

    def __rmul__(self, other: object) -> Expr:
        return _chain("mul", other, self)

    def __truediv__(self, other: object) -> Expr:
        return _call("div", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return _call("div", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _call("floordiv", self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _call("floordiv", other, self)

    def __mod__(self, other: object) -> Expr:
        return _call("mod", self, other)

    def __rmod__(self, other: object) -> Expr:
        return _call("mod", other, self)

    def __pow__(self, other: object) -> Expr:
        return _call("power", self, other)

    def __rpow__(self, other: object) -> Expr:
        return _call("power", other, self)

    def __neg__(self) -> Expr:
        made = tree.negate(self.tree)
        return Expr(made) if isinstance(made, Literal) else Expr(made, self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return _call("abs", self)

    # -- the rest --

    def cast(self, type: str) -> Expr:
        """Convert; a row whose value doesn't fit fails alone."""
        return Expr(Cast(self.tree, normalise(type, what="cast")), self)

    def call(self, function: str, *args: object) -> Expr:
        """Any function of the list, by its SQL name, with this as its first argument.

        ``col("name").call("split_part", ".", 1)`` is ``split_part(name, '.', 1)``.
        """
        from medusa.query.sql_names import FUNCTION_NAMES
        from medusa.query.suggest import did_you_mean

        known = FUNCTION_NAMES.get(str(function).lower())
        if known is None:
            raise QueryError(
                f"md.col: there is no function {str(function)[:60]!r}",
                hint=did_you_mean(str(function), FUNCTION_NAMES),
                code="query.expression",
            )
        if known == "date_trunc":
            return _call(known, *args, self)
        return _chain(known, self, *args)

    def __getattr__(self, name: str) -> Any:
        """``col("x").sqrt()``: every function of the list is a method."""
        from medusa.query.sql_names import FUNCTION_NAMES

        if name in FUNCTION_NAMES:
            return lambda *args: self.call(name, *args)
        from medusa.query.expressions.aggregates import ELSEWHERE, NAMES
        from medusa.query.suggest import did_you_mean

        hint = "" if name.startswith("_") else did_you_mean(name, [*FUNCTION_NAMES, *METHODS])
        other = ELSEWHERE.get(name, "count")  # len and size are of texts too
        if name in NAMES or (other in NAMES and other != "count"):
            hint = f"aggregates stand outside: aggregate(x=md.{name if other == 'count' else other}(...))"
        raise AttributeError(f"an expression has no {name!r}" + (f": {hint}" if hint else ""))

    def like(self, pattern: str) -> Expr:
        """SQL's LIKE: ``%`` any text, ``_`` one character."""
        return _call("like", self, pattern)

    def __dir__(self) -> list[str]:
        from medusa.query.sql_names import FUNCTION_NAMES

        return sorted({*object.__dir__(self), *FUNCTION_NAMES})


METHODS = ("between", "is_in", "is_distinct_from", "is_null", "is_not_null", "cast", "call", "like")


class When(Expr):
    """``md.when(condition).then(value)``: an expression (null elsewhere) that can go on."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[Expr, Expr], ...]) -> None:
        parts = [part for branch in branches for part in branch]
        super().__init__(Case(tuple((a.tree, b.tree) for a, b in branches)), *parts)
        self._branches = branches

    def when(self, condition: Expr | str) -> Then:
        """Another branch, asked where none before it is true."""
        return Then(self._branches, _condition(condition))

    def otherwise(self, value: object) -> Expr:
        """The value where no branch is true."""
        last = _operand(value)
        parts = [part for branch in self._branches for part in branch]
        return Expr(Case(tuple((a.tree, b.tree) for a, b in self._branches), last.tree), *parts, last)


class Then:
    """A condition that waits for its value."""

    __slots__ = ("_branches", "_condition")

    def __init__(self, branches: tuple[tuple[Expr, Expr], ...], condition: Expr) -> None:
        self._branches = branches
        self._condition = condition

    def then(self, value: object) -> When:
        """The value where the condition is true; a Python text is a text."""
        return When((*self._branches, (self._condition, _operand(value))))

    def __repr__(self) -> str:
        return f"<when {self._condition!r}: .then(value) is missing>"


def col(name: str) -> Expr:
    """The column ``name`` of the input (``left.x`` and ``right.x`` in the ``where`` of a join)."""
    if not isinstance(name, str) or not name:
        raise QueryError(f"md.col: expected the name of a column, got {name!r}", code="query.expression")
    return Expr(Column(name))


def lit(value: object, type: str | None = None) -> Expr:
    """A constant, of its natural type or of ``type`` (``md.lit(1, "int8")``)."""
    return Expr(tree.literal(value, type, box="md.lit"))


def time() -> Expr:
    """The time of the row (``tuple_time`` in SQL): ``timestamp[us, UTC]``, whatever it was called."""
    return Expr(Call("tuple_time"))


def when(condition: Expr | str) -> Then:
    """``md.when("speed > 80").then("fast").otherwise("slow")``: a CASE.

    Conditions are SQL text or expressions; values are expressions or Python constants.
    """
    return Then((), _condition(condition))


def as_tree(value: object, *, box: str) -> Expression:
    """The tree of SQL text or an ``Expr``.

    Raises:
        QueryError: it is neither, or the text can't be read.
    """
    if isinstance(value, Expr):
        return value.tree
    if isinstance(value, str):
        from medusa.query.expressions.parse import parse

        return parse(value, box=box)
    hint = 'SQL text such as "speed > 0", or md.col("speed") > 0'
    if isinstance(value, Then):
        hint = "md.when(...) needs .then(value)"
    elif isinstance(value, bool | int | float):
        hint = "a constant is md.lit(value)"
    raise QueryError(
        f"{box}: expected an expression, got {type(value).__name__}", hint=hint, code="query.expression"
    )


def _condition(value: Expr | str) -> Expr:
    return value if isinstance(value, Expr) else Expr(as_tree(value, box="md.when"))


def _operand(value: object) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, Then):
        raise QueryError("md.when: .then(value) is missing", code="query.expression")
    return Expr(tree.literal(value, box="md.col"))


def _call(function: str, *args: object) -> Expr:
    parts = [_operand(arg) for arg in args]
    return Expr(Call(function, tuple(part.tree for part in parts)), *parts)


def _chain(function: str, *args: object) -> Expr:
    parts = [_operand(arg) for arg in args]
    first, rest = parts[0].tree, tuple(part.tree for part in parts[1:])
    if rest and function in tree.CHAINED and isinstance(first, Call) and first.function == function:
        return Expr(Call(function, (*first.args, *rest)), *parts, grew=True)
    return Expr(Call(function, (first, *rest)), *parts)
