"""What the type rules of functions see, what they decide, and which type mixed values meet in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from medusa.query.expressions.expression import Literal
from medusa.query.expressions.text_casts import convert_literal
from medusa.query.types import (
    DURATION,
    NULL,
    TIMESTAMP,
    common_type,
    decimal_parts,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
    is_signed,
)

__all__ = [
    "POINTS",
    "Mismatch",
    "Operand",
    "Rule",
    "Signature",
    "decimal_of",
    "literal_integer",
    "literal_text",
    "mixed_hint",
    "unify",
]

PATTERN_MAX = 1000


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument as the type rules see it: its type, and its value where it is a literal."""

    type: str
    literal: Literal | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What a rule decides: the type each argument is converted to first, and the result's type."""

    operands: tuple[str, ...]
    result: str


class Mismatch(Exception):
    """No rule for these arguments: what was expected, and what to do about it."""

    def __init__(self, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


Rule: TypeAlias = Callable[[Sequence[Operand]], Signature]


_INTEGER_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}
POINTS = ("date32", TIMESTAMP, DURATION)


def decimal_of(operand: Operand) -> tuple[int, int] | None:
    """(precision, scale) that hold every value of an integer or decimal operand."""
    if is_decimal(operand.type):
        return decimal_parts(operand.type)
    literal = operand.literal
    if literal is not None and literal.value is not None and operand.type != "bool":
        for scale in range(19):
            exact = convert_literal(literal, f"decimal128(38, {scale})")
            if exact is not None:
                shown = str(exact.value).lstrip("-").replace(".", "").lstrip("0")
                return max(len(shown), scale, 1), scale
        return None
    if is_integer(operand.type):
        digits = 20 if operand.type == "uint64" else _INTEGER_DIGITS["int" + operand.type.lstrip("uint")]
        return digits, 0
    return None


def common_decimal(operands: Sequence[Operand]) -> str | None:
    parts = [decimal_of(operand) for operand in operands]
    whole = scale = 0
    for part in parts:
        if part is None:
            return None
        whole, scale = max(whole, part[0] - part[1]), max(scale, part[1])
    return f"decimal128({whole + scale}, {scale})" if whole + scale <= 38 else None


def common_of_types(operands: Sequence[Operand]) -> str | None:
    types = [operand.type for operand in operands]
    if any(map(is_decimal, types)):
        return common_decimal(operands)
    if any(map(is_float, types)) and any(map(is_integer, types)):
        return "float64" if all(map(is_numeric, types)) else None
    if set(types) == {"date32", TIMESTAMP}:
        return TIMESTAMP
    common: str | None = types[0]
    for type in types[1:]:
        common = None if common is None else common_type(common, type)
    return common


def unify(operands: Sequence[Operand]) -> str | None:
    """The type in which values of all operands are compared or mixed; None: there is none.

    Columns and results decide first; a literal takes their type where it fits exactly, else it
    takes part with its own. NULL has no say. Integers with floats meet in float64; integers with
    decimals in a decimal; dates with timestamps in timestamps.
    """
    typed = [operand for operand in operands if operand.type != NULL]
    if not typed:
        return NULL
    # A NULL that was given a type keeps it.
    literals = [each for each in typed if each.literal is not None and each.literal.value is not None]
    columns = [each for each in typed if each.literal is None or each.literal.value is None]
    if not columns:
        # Among constants a text next to a time is that time.
        columns = [operand for operand in literals if operand.type != "utf8"] or literals
        literals = [operand for operand in literals if operand.type == "utf8"]
    common = common_of_types(columns)
    if common is None:
        return None
    rest = [each for each in literals if each.literal and convert_literal(each.literal, common) is None]
    return common_of_types([Operand(common), *rest]) if rest else common


def mixed_hint(args: Sequence[Operand]) -> str:
    types = [arg.type for arg in args]
    if "uint64" in types and any(map(is_signed, types)):
        return "no integer type holds all of int64 and uint64: CAST one side to the other's type"
    if any(map(is_decimal, types)) and any(map(is_float, types)):
        return "decimals and floats don't mix exactly: CAST one side"
    for arg in args:
        if arg.literal is not None and arg.type == "utf8" and any(type in POINTS for type in types):
            return f"{arg.literal.value!r} can't be read as one; write e.g. '2024-01-31 12:00:00' or '5 min'"
    return "CAST one side"


def literal_integer(operand: Operand, what: str) -> int:
    value = operand.literal.value if operand.literal is not None else None
    if not isinstance(value, int) or isinstance(value, bool) or not is_integer(operand.type):
        raise Mismatch(f"a literal integer as {what}")
    return value


def literal_text(operand: Operand, what: str) -> str:
    value = operand.literal.value if operand.literal is not None else None
    if not isinstance(value, str) or operand.type != "utf8":
        raise Mismatch(f"a literal text as {what}")
    if len(value) > PATTERN_MAX:
        raise Mismatch(f"at most {PATTERN_MAX:,} characters as {what}", f"got {len(value):,}")
    return value
