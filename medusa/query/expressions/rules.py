"""The type rules of logic and arithmetic.

Integers are computed in int64 (uint64 where one side is), floats in float64, decimals exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from medusa.query.expressions.operands import (
    POINTS,
    Mismatch,
    Operand,
    Rule,
    Signature,
    decimal_of,
    literal_integer,
    mixed_hint,
    unify,
)
from medusa.query.expressions.text_casts import convert_literal
from medusa.query.types import DURATION, NULL, TIMESTAMP, is_decimal, is_float, is_integer, is_unsigned

DIGITS_MAX = 15


def compare(args: Sequence[Operand]) -> Signature:
    common = unify(args)
    if common is None:
        raise Mismatch("two values of comparable types", mixed_hint(args))
    common = "bool" if common == NULL else common
    return Signature((common,) * len(args), "bool")


def logic(args: Sequence[Operand]) -> Signature:
    if any(arg.type not in ("bool", NULL) for arg in args):
        raise Mismatch("bools", "compare the value with something, e.g. x <> 0")
    return Signature(("bool",) * len(args), "bool")


def any_to_bool(args: Sequence[Operand]) -> Signature:
    type = args[0].type
    return Signature(("bool" if type == NULL else type,), "bool")


def is_nan(args: Sequence[Operand]) -> Signature:
    if not (is_float(args[0].type) or args[0].type == NULL):
        raise Mismatch("a float", "only floats can be NaN")
    return Signature(("float64" if args[0].type == NULL else args[0].type,), "bool")


def wide(type: str) -> str:
    if is_integer(type):
        return "uint64" if type == "uint64" else "int64"
    return "float64" if is_float(type) else type


def _wide_common(args: Sequence[Operand], what: str) -> str:
    """int64, uint64 or float64 in which plain numbers are computed."""
    types = [arg.type for arg in args if arg.type != NULL]
    if not all(is_integer(type) or is_float(type) for type in types):
        raise Mismatch(what, _number_hint(types))
    if any(map(is_float, types)):
        return "float64"
    if "uint64" not in types:
        return "int64"
    for arg in args:
        fits = arg.literal is not None and convert_literal(arg.literal, "uint64") is not None
        if arg.type != NULL and not is_unsigned(arg.type) and not fits:
            raise Mismatch(what, mixed_hint(args))
    return "uint64"


def _number_hint(types: Sequence[str]) -> str:
    if any(map(is_decimal, types)):
        return "decimals are only added, subtracted, multiplied and compared: CAST to float64"
    if "bool" in types or "utf8" in types:
        return "CAST to a number"
    return ""


def plain(what: str, result: str | None = None) -> Rule:
    """A rule for plain numbers in their wide type."""

    def rule(args: Sequence[Operand]) -> Signature:
        common = _wide_common(args, what)
        return Signature((common,) * len(args), result or common)

    return rule


def to_float(args: Sequence[Operand]) -> Signature:
    what = "a number" if len(args) == 1 else "two numbers"
    _wide_common([Operand("float64"), *args], what)
    return Signature(("float64",) * len(args), "float64")


def _moment(operand: Operand) -> str:
    """A date counts as its midnight."""
    return TIMESTAMP if operand.type == "date32" else operand.type


def add(args: Sequence[Operand]) -> Signature:
    left, right = map(_moment, args)
    if (left, right) in ((TIMESTAMP, DURATION), (DURATION, TIMESTAMP)):
        return Signature((left, right), TIMESTAMP)
    if left == right == DURATION:
        return Signature((DURATION, DURATION), DURATION)
    return _numbers(args, "two numbers, or a timestamp and a duration")


def sub(args: Sequence[Operand]) -> Signature:
    left, right = map(_moment, args)
    if left == TIMESTAMP and right == DURATION:
        return Signature((left, right), TIMESTAMP)
    if left == right and left in (TIMESTAMP, DURATION):
        return Signature((left, right), DURATION)
    return _numbers(args, "two numbers, two timestamps, or a timestamp and a duration")


def _numbers(args: Sequence[Operand], what: str) -> Signature:
    if not any(is_decimal(arg.type) for arg in args):
        if any(arg.type in POINTS for arg in args):
            raise Mismatch(what, "a duration is written INTERVAL '5' SECOND, a time TIMESTAMP '2024-01-31'")
        common = _wide_common(args, what)
        return Signature((common, common), common)
    (p1, s1), (p2, s2) = _decimals(args, what)
    scale = max(s1, s2)
    result = _decimal_result(max(p1 - s1, p2 - s2) + scale + 1, scale)
    return Signature((f"decimal128({p1}, {s1})", f"decimal128({p2}, {s2})"), result)


def _decimals(args: Sequence[Operand], what: str) -> tuple[tuple[int, int], tuple[int, int]]:
    parts = [(1, 0) if arg.type == NULL else decimal_of(arg) for arg in args]
    left, right = parts
    if left is None or right is None:
        raise Mismatch(what, mixed_hint(args))
    return left, right


def _decimal_result(precision: int, scale: int) -> str:
    if precision > 38:
        raise Mismatch(
            "a result of at most 38 digits",
            f"the exact result needs {precision}: CAST an argument to fewer digits or to float64",
        )
    return f"decimal128({precision}, {scale})"


def mul(args: Sequence[Operand]) -> Signature:
    what = "two numbers, or a duration and an integer"
    left, right = (arg.type for arg in args)
    if (left == DURATION and is_integer(right)) or (right == DURATION and is_integer(left)):
        if "uint64" in (left, right):
            raise Mismatch(what, "CAST the uint64 to int64")
        return Signature(tuple(DURATION if arg.type == DURATION else "int64" for arg in args), DURATION)
    if not any(is_decimal(arg.type) for arg in args):
        common = _wide_common(args, what)
        return Signature((common, common), common)
    (p1, s1), (p2, s2) = _decimals(args, what)
    result = _decimal_result(p1 + p2 + 1, s1 + s2)
    return Signature((f"decimal128({p1}, {s1})", f"decimal128({p2}, {s2})"), result)


def div(args: Sequence[Operand]) -> Signature:
    if all(arg.type == DURATION for arg in args):
        return Signature((DURATION, DURATION), "float64")
    return to_float(args)


def signed(args: Sequence[Operand]) -> Signature:
    """neg and abs: the wide type; also decimals and durations."""
    type = args[0].type
    if type == DURATION or is_decimal(type):
        return Signature((type,), type)
    common = _wide_common(args, "a number or a duration")
    return Signature((common,), common)


def neg(args: Sequence[Operand]) -> Signature:
    if args[0].type == "uint64":
        raise Mismatch("a signed number", "CAST to int64")
    return signed(args)


def rounding(args: Sequence[Operand]) -> Signature:
    common = _wide_common(args[:1], "a number")
    if len(args) == 1:
        return Signature((common,), common)
    digits = literal_integer(args[1], "digits")
    least = -DIGITS_MAX if common == "float64" else 0
    if not least <= digits <= DIGITS_MAX:
        raise Mismatch(f"digits from {least} to {DIGITS_MAX}", f"got {digits}")
    return Signature((common, "int64"), common)


def mixed(what: str, *, ordered: bool = False) -> Rule:
    """A rule for values of one common type, which is also the result's."""

    def rule(args: Sequence[Operand]) -> Signature:
        common = unify(args)
        if common is None or (ordered and common == "bool"):
            raise Mismatch(what, "" if common else mixed_hint(args))
        return Signature((common,) * len(args), common)

    return rule


def member(args: Sequence[Operand]) -> Signature:
    if any(arg.literal is None for arg in args[1:]):
        raise Mismatch("a list of literals", "compare with columns by = and OR")
    return compare(args)
