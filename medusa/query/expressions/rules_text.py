"""The type rules of functions on text and on points of time."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.query.expressions.operands import (
    Mismatch,
    Operand,
    Rule,
    Signature,
    literal_integer,
    literal_text,
)
from medusa.query.types import DURATION, NULL, TIMESTAMP

DATE_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


def text(*literals: str, result: str = "utf8") -> Rule:
    """A rule for a text and literal texts; the names are for messages."""

    def rule(args: Sequence[Operand]) -> Signature:
        _want_text(args[0])
        for operand, what in zip(args[1:], literals, strict=False):
            literal_text(operand, what)
        return Signature(("utf8",) * len(args), result)

    return rule


def _want_text(operand: Operand) -> None:
    if operand.type not in ("utf8", NULL):
        raise Mismatch("text", "CAST to utf8")


def texts(args: Sequence[Operand]) -> Signature:
    for arg in args:
        _want_text(arg)
    return Signature(("utf8",) * len(args), "utf8")


def substr(args: Sequence[Operand]) -> Signature:
    _want_text(args[0])
    if literal_integer(args[1], "the start") == 0:
        raise Mismatch("a start of 1 or more, or below 0 to count from the end", "the first character is 1")
    if len(args) == 3 and literal_integer(args[2], "the length") < 0:
        raise Mismatch("a length of 0 or more")
    for arg in args[1:]:
        if abs(literal_integer(arg, "a position")) > 1 << 31:
            raise Mismatch("positions below 2^31")
    return Signature(("utf8", "int64", "int64")[: len(args)], "utf8")


def split_part(args: Sequence[Operand]) -> Signature:
    _want_text(args[0])
    if not literal_text(args[1], "the separator"):
        raise Mismatch("a separator that isn't empty")
    if literal_integer(args[2], "the number of the part") == 0:
        raise Mismatch("a part of 1 or more, or below 0 to count from the end")
    return Signature(("utf8", "utf8", "int64"), "utf8")


def regexp_replace(args: Sequence[Operand]) -> Signature:
    signature = text("the pattern", "the replacement", "the options")(args)
    if len(args) == 4 and literal_text(args[3], "the options") != "g":
        raise Mismatch("the option 'g' (replace all)")
    return signature


def regexp_extract(args: Sequence[Operand]) -> Signature:
    text("the pattern")(args[:2])
    if len(args) == 3 and not 0 <= literal_integer(args[2], "the group") <= 9:
        raise Mismatch("a group from 0 (the whole match) to 9")
    return Signature(("utf8", "utf8", "int64")[: len(args)], "utf8")


def _want_moment(operand: Operand) -> None:
    if operand.type not in ("date32", TIMESTAMP, NULL):
        raise Mismatch("a timestamp or a date")


def part(args: Sequence[Operand]) -> Signature:
    _want_moment(args[0])
    return Signature((TIMESTAMP,), "int64")


def epoch_us(args: Sequence[Operand]) -> Signature:
    if args[0].type == DURATION:
        return Signature((DURATION,), "int64")
    _want_moment(args[0])
    return Signature((TIMESTAMP,), "int64")


def date_trunc(args: Sequence[Operand]) -> Signature:
    unit = literal_text(args[0], "the unit")
    if unit not in DATE_UNITS:
        raise Mismatch("one of the units " + ", ".join(DATE_UNITS), f"got {unit[:40]!r}")
    _want_moment(args[1])
    return Signature(("utf8", TIMESTAMP), TIMESTAMP)


def tuple_time(args: Sequence[Operand]) -> Signature:
    return Signature((), TIMESTAMP)
