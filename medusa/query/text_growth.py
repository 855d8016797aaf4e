"""How many times longer texts may become by an expression, told from the expression alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusa.query.expressions.expression import Call, Column, Expression, Literal
from medusa.query.expressions.tree import children
from medusa.query.structs import expressions_of

__all__ = ["TEXT_CHARS", "TextGrowth", "grown", "grown_by"]

TEXT_CHARS = 64
"""A text of a source is taken to be so long."""


@dataclass(slots=True)
class TextGrowth:
    """Of one stream: how many times longer its texts are than those of the sources."""

    columns: dict[str, float]
    others: float = 1.0
    """Of a column whose name isn't here."""

    def of(self, name: str) -> float:
        plain = name.removeprefix("left.").removeprefix("right.")
        return self.columns.get(plain, self.others)

    def most(self) -> float:
        return max(self.columns.values(), default=self.others)


def grown(expression: Expression, came: TextGrowth) -> float:
    """Of what an expression makes of a stream with such texts; at least 1."""
    match expression:
        case Column(name=name):
            return came.of(name)
        case Literal(value=str() as text):
            return max(len(text) / TEXT_CHARS, 1.0)
        case Call(function="concat"):
            return sum(grown(arg, came) for arg in expression.args)
        case Call(function="replace" | "regexp_replace", args=(text, what, by, *_)):
            short = _length(what) if expression.function == "replace" else 1
            return grown(text, came) * max(_length(by) / max(short, 1), 1.0)
    return max((grown(part, came) for part in children(expression)), default=1.0)


def grown_by(box: object, came: Sequence[TextGrowth]) -> TextGrowth:
    """Of the output of a box that passes columns on; it may compute others by any of its expressions."""
    one = came[0] if len(came) == 1 else None
    merged = one or TextGrowth({}, max((max(each.most(), each.others) for each in came), default=1.0))
    made = [grown(expression, merged) for _, expression in expressions_of(box)]
    most = max([1.0, *(each.most() for each in came), *made])
    return TextGrowth({} if one is None else one.columns, most)


def _length(expression: Expression) -> int:
    """Of a text that a spec states; of another one nothing is known, so a long one."""
    value = expression.value if isinstance(expression, Literal) else None
    return len(value) if isinstance(value, str) else TEXT_CHARS
