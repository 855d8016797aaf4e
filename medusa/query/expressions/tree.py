"""Expression trees as data: their limits, walking them, and making their literals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from medusa.errors import QueryError
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.expressions.text_casts import INTEGER_RANGES
from medusa.query.types import (
    DECIMAL_DIGITS_MAX,
    DURATION,
    FLOATS,
    NULL,
    TIMESTAMP,
    decimal_parts,
    is_decimal,
    is_integer,
    is_type,
    normalise,
)

__all__ = [
    "CHAINED",
    "DEPTH_MAX",
    "NODES_MAX",
    "chain",
    "check_limits",
    "check_literal",
    "children",
    "columns_of",
    "filtered",
    "literal",
    "measure",
    "negate",
    "reads_time",
    "walk",
]

DEPTH_MAX = 64
"""Nodes on the longest way from the root of a tree to a leaf, in memory and on links."""

NODES_MAX = 20_000
"""Nodes of a tree, a shared part counted wherever it stands."""

CHAINED = frozenset({"and", "or", "add", "mul", "concat"})
"""Functions of which ``(a f b) f c`` is one call with three operands."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
TIME_MAX = (1 << 63) - 1


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct parts of a node, left to right."""
    match node:
        case Call():
            return node.args
        case Cast():
            return (node.arg,)
        case Case():
            parts = [part for branch in node.branches for part in branch]
            return (*parts, node.otherwise) if node.otherwise is not None else tuple(parts)
    return ()


def reads_time(expression: Expression) -> bool:
    """Whether it reads the time of the row."""
    return any(isinstance(node, Call) and node.function == "tuple_time" for node in walk(expression))


def walk(tree: Expression) -> Iterator[Expression]:
    """Every node, a parent before its parts, parts left to right."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def measure(tree: Expression) -> tuple[int, int]:
    """(depth, nodes) of a tree; stops counting just above the limits."""
    deepest, nodes = 0, 0
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        deepest = max(deepest, depth)
        if deepest > DEPTH_MAX or nodes > NODES_MAX:
            break
        stack.extend((child, depth + 1) for child in children(node))
    return deepest, nodes


def check_limits(tree: Expression, *, box: str) -> None:
    """Refuse a tree that is too deep or too large.

    Raises:
        QueryError: names the box and the limit.
    """
    depth, nodes = measure(tree)
    if depth > DEPTH_MAX:
        raise QueryError(
            f"{box}: the expression is nested more than {DEPTH_MAX} deep",
            hint="compute parts of it in a with_columns before",
            code="query.limit",
        )
    if nodes > NODES_MAX:
        raise QueryError(f"{box}: the expression has more than {NODES_MAX:,} parts", code="query.limit")


def columns_of(tree: Expression) -> list[str]:
    """Names of the columns that a tree reads, in order of first use."""
    return list(dict.fromkeys(node.name for node in walk(tree) if isinstance(node, Column)))


def chain(function: str, left: Expression, right: Expression) -> Call:
    """``left f right``; a chain on the left side grows by one operand."""
    if function in CHAINED and isinstance(left, Call) and left.function == function:
        return Call(function, (*left.args, right))
    return Call(function, (left, right))


def filtered(value: Expression | None, condition: Expression) -> Case:
    """What an aggregate takes of the rows for which a condition is true: null elsewhere, which it skips.

    Args:
        value: its argument; None: it counts rows.
    """
    return Case(((condition, Literal("int64", 1) if value is None else value),))


def negate(arg: Expression) -> Expression:
    """Minus ``arg``; a number or duration becomes its negative."""
    if isinstance(arg, Literal) and not isinstance(arg.value, bool | str | None):
        if arg.type in FLOATS:
            return Literal(arg.type, -arg.value)
        target = "int64" if arg.type == "uint64" else arg.type
        low, high = (-TIME_MAX, TIME_MAX) if target == DURATION else INTEGER_RANGES.get(target, (1, 0))
        if low <= -arg.value <= high:
            return Literal(target, -arg.value)
    return Call("neg", (arg,))


def literal(value: Any, type: str | None = None, *, box: str = "literal") -> Literal:
    """The literal that a Python value means.

    Args:
        value: None, bool, int, float, str, bytes, Decimal, date, datetime (naive = UTC),
            timedelta, or a numpy scalar of one of these.
        type: a type to give it instead of the natural one (an int is int64, or uint64 where it
            only fits there; a float float64).

    Raises:
        QueryError: no such constant, or it doesn't fit the type.
    """
    natural = _natural(value, box)
    if type is None:
        return natural
    wanted = normalise(type, what=box)
    made = natural
    if natural.type == NULL or (is_integer(natural.type) and is_integer(wanted)):
        made = Literal(wanted, natural.value)
    elif wanted in FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        made = _float(float(value), wanted)
    elif is_decimal(wanted) and (is_decimal(natural.type) or is_integer(natural.type)):
        made = _decimal(Decimal(value), *decimal_parts(wanted), box=box)
    elif natural.type != wanted:
        raise QueryError(f"{box}: {value!r} is a {natural.type}, not a {wanted}", code="query.literal")
    check_literal(made, box=box)
    return made


def _natural(value: Any, box: str) -> Literal:
    item = getattr(value, "item", None)
    if callable(item) and hasattr(value, "dtype"):
        value = item()
    made: Literal | None = None
    match value:
        case None:
            made = Literal(NULL, None)
        case bool():
            made = Literal("bool", value)
        case int():
            made = Literal("int64" if value < 1 << 63 else "uint64", value)
        case float():
            made = _float(value, "float64")
        case str():
            made = Literal("utf8", value)
        case bytes() | bytearray():
            made = Literal("binary", bytes(value).hex())
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            made = Literal(TIMESTAMP, (aware - _EPOCH) // timedelta(microseconds=1))
        case date():
            made = Literal("date32", (value - _EPOCH_DAY).days)
        case timedelta():
            made = Literal(DURATION, value // timedelta(microseconds=1))
        case Decimal() if value.is_finite():
            _, digits, exponent = value.as_tuple()
            scale = max(0, -int(exponent))
            made = _decimal(value, max(len(digits) + max(0, int(exponent)), scale, 1), scale, box=box)
    if made is None:
        raise QueryError(
            f"{box}: a constant can't be a {type(value).__name__}",
            hint="bool, int, float, str, bytes, Decimal, date, datetime, timedelta or None",
            code="query.literal",
        )
    check_literal(made, box=box)
    return made


def _float(value: float, type: str) -> Literal:
    if math.isfinite(value):
        return Literal(type, value)
    return Literal(type, "nan" if math.isnan(value) else "inf" if value > 0 else "-inf")


def _decimal(value: Decimal, precision: int, scale: int, *, box: str) -> Literal:
    text = f"{value:f}" if abs(value.adjusted()) <= 2 * DECIMAL_DIGITS_MAX else ""
    whole, _, fraction = text.partition(".")
    fraction, lost = fraction.ljust(scale, "0")[:scale], fraction[scale:].strip("0")
    digits = len((whole.lstrip("-") + fraction).lstrip("0"))
    if not text or lost or digits > precision or precision > DECIMAL_DIGITS_MAX:
        raise QueryError(f"{box}: {value} doesn't fit decimal128({precision}, {scale})", code="query.literal")
    return Literal(f"decimal128({precision}, {scale})", f"{whole}.{fraction}" if scale else whole)


def check_literal(node: Literal, *, box: str) -> None:
    """Refuse a literal whose value isn't one of its type, in the one form that we write.

    Raises:
        QueryError: names the box, the type and the value.
    """
    type, value = node.type, node.value
    if type != NULL and not is_type(type):
        normalise(type[:100], what=box)
        raise QueryError(f"{box}: {type[:100]!r} is no type of a literal", code="query.type")
    if value is None or (type != NULL and _fits(type, value)):
        return
    raise QueryError(f"{box}: {str(value)[:60]!r} is no {type} literal", code="query.literal")


def _fits(type: str, value: object) -> bool:
    if type == "bool" or isinstance(value, bool):
        return type == "bool" and isinstance(value, bool)
    if is_integer(type):
        low, high = INTEGER_RANGES[type]
        return isinstance(value, int) and low <= value <= high
    if type in FLOATS:
        return value in ("nan", "inf", "-inf") or (isinstance(value, float) and math.isfinite(value))
    if type in (TIMESTAMP, DURATION):
        return isinstance(value, int) and -TIME_MAX <= value <= TIME_MAX
    if type == "date32":
        return isinstance(value, int) and -(1 << 31) <= value < 1 << 31
    if not isinstance(value, str):
        return False
    if type == "utf8":
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    if type == "binary":
        return _hex(value)
    return _decimal_text(value, *decimal_parts(type))


def _hex(text: str) -> bool:
    try:
        return bytes.fromhex(text).hex() == text
    except ValueError:
        return False


def _decimal_text(text: str, precision: int, scale: int) -> bool:
    whole, point, fraction = text.removeprefix("-").partition(".")
    return (
        (whole + fraction).isascii()
        and (whole + fraction).isdigit()
        and len(fraction) == scale
        and bool(point) == bool(scale)
        and len((whole + fraction).lstrip("0")) <= precision
    )
