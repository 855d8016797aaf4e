"""How text is read as a value, and a value written as text: the one definition of text casts.

``medusa.query.checker`` folds literals with it and the engine falls back to it for the rows that the
fast kernels refuse, so both sides agree by construction.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

from medusa.errors import QueryError
from medusa.query.expressions.expression import Literal
from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal, is_float, is_integer
from medusa.units import duration_us

__all__ = [
    "INTEGER_RANGES",
    "convert_literal",
    "decimal_fits",
    "float_of",
    "literal_text",
    "read_bool",
    "read_date",
    "read_decimal",
    "read_float",
    "read_integer",
    "read_text",
    "read_timestamp",
    "round_half_away",
]

INTEGER_RANGES = {
    f"{sign}int{bits}": (0, (1 << bits) - 1) if sign else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for bits in (8, 16, 32, 64)
    for sign in ("", "u")
}
"""Smallest and largest value of each integer type."""

WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1)
EPOCH_DATE = date(1970, 1, 1)

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
_FLOAT_NAMES = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_DECIMAL = re.compile(r"[+-]?([0-9]{1,60}(\.[0-9]{0,60})?|\.[0-9]{1,60})", re.ASCII)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?)?"
    r"(?:(Z)|([+-])([0-9]{2}):?([0-9]{2})?)?)?",
    re.ASCII,
)


def read_bool(text: str) -> bool | None:
    """``true`` or ``false`` in any case, ``1`` or ``0``; None: not a bool."""
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())


def read_integer(text: str) -> int | None:
    """Decimal digits with an optional sign; the range is not checked. None: not an integer."""
    return int(text) if _INTEGER.fullmatch(text) else None


def read_float(text: str) -> float | None:
    """Decimal notation, with or without exponent, or ``nan``, ``inf``, ``infinity`` in any case."""
    if _FLOAT.fullmatch(text):
        return float(text)
    sign = -1.0 if text[:1] == "-" else 1.0
    name = _FLOAT_NAMES.get(text.lstrip("+-").lower()) if text.count("-") + text.count("+") <= 1 else None
    return None if name is None else float(name) * sign


def read_decimal(text: str) -> Decimal | None:
    """Digits with an optional sign and point, exactly. None: not a decimal."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def read_date(text: str) -> int | None:
    """``YYYY-MM-DD`` as days since 1970-01-01. None: not a date."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        return (date(*map(int, found.groups())) - EPOCH_DATE).days
    except ValueError:
        return None


def read_timestamp(text: str) -> int | None:
    """``YYYY-MM-DD[( |T)hh[:mm[:ss[.f]]][Z|+hh:mm]]`` as microseconds since 1970 in UTC.

    ``f`` has 1 to 6 digits; without an offset the time is UTC. None: not a timestamp.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, offset_hour, offset_minute = found.groups()
    try:
        point = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return None
    if int(offset_hour or 0) > 23 or int(offset_minute or 0) > 59:
        return None
    offset_s = int(offset_hour or 0) * 3600 + int(offset_minute or 0) * 60
    past = point - EPOCH
    seconds = past.days * 86_400 + past.seconds - (offset_s if sign == "+" else -offset_s)
    return seconds * 1_000_000 + int((fraction or "0").ljust(6, "0"))


def read_text(text: str, type: str) -> bool | int | float | Decimal | None:
    """The value of type ``type`` (a literal's form; Decimal for decimals) or None where it is none."""
    if is_integer(type):
        whole = read_integer(text)
        low, high = INTEGER_RANGES[type]
        return whole if whole is not None and low <= whole <= high else None
    if type == "float32":
        wide = read_float(text)
        return None if wide is None else _single(wide)
    if is_decimal(type):
        exact = read_decimal(text)
        return None if exact is None else decimal_fits(exact, type)
    reader: Callable[[str], bool | int | float | None] | None = _READERS.get(type)
    return None if reader is None else reader(text)


_READERS: dict[str, Callable[[str], bool | int | float | None]] = {
    "bool": read_bool,
    "float64": read_float,
    "date32": read_date,
    TIMESTAMP: read_timestamp,
}


def _single(value: float) -> float | None:
    """Rounded to float32; None where a finite value doesn't fit."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return None


def float_of(value: bool | int | float | str | None) -> float:
    """The value of a float literal, whose NaN and infinities are texts."""
    return float(value)  # type: ignore[arg-type]


def round_half_away(value: Decimal | float) -> int:
    """The nearest integer, halves away from zero; ``value`` is finite."""
    exact = Decimal(value)
    return int(WIDE.quantize(exact, Decimal(1))) if exact.adjusted() < 60 else int(exact)


def decimal_fits(value: Decimal, type: str) -> Decimal | None:
    """Rounded half away to the scale of the type, or None where the digits don't suffice."""
    precision, scale = decimal_parts(type)
    rounded = WIDE.quantize(value, Decimal(1).scaleb(-scale))
    return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def convert_literal(literal: Literal, type: str) -> Literal | None:
    """The same constant in another type, exactly; None where it can't be.

    Covers the implicit conversions of ``medusa.query.expressions.functions.unify`` (integers, floats,
    decimals, text as a point of time) and NULL as anything.
    """
    value, source = literal.value, literal.type
    if source == type or value is None:
        return Literal(type, value)
    if source == "utf8" and isinstance(value, str) and type in ("date32", TIMESTAMP, DURATION):
        point = _read_point(value, type)
        return None if point is None else Literal(type, point)
    if source == "date32" and type == TIMESTAMP and isinstance(value, int):
        return Literal(type, value * DAY_US)
    if is_integer(source) and isinstance(value, int):
        return _from_integer(value, type)
    if is_float(source):
        return _from_float(float_of(value), type)
    if is_decimal(source) and is_decimal(type):
        exact = Decimal(str(value))
        fitted = decimal_fits(exact, type)
        return Literal(type, str(fitted)) if fitted == exact else None
    return None


def _read_point(text: str, type: str) -> int | None:
    if type != DURATION:
        return read_timestamp(text) if type == TIMESTAMP else read_date(text)
    try:
        return duration_us(text)
    except QueryError:
        return None


def _from_integer(value: int, type: str) -> Literal | None:
    if is_integer(type):
        low, high = INTEGER_RANGES[type]
        return Literal(type, value) if low <= value <= high else None
    if type == "float64":
        # As the engine casts a column: to the nearest float64.
        return Literal(type, float(value))
    if type == "float32":
        return Literal(type, float(value)) if abs(value) <= 1 << 24 else None
    if is_decimal(type):
        fitted = decimal_fits(Decimal(value), type)
        return None if fitted is None else Literal(type, str(fitted))
    return None


def _from_float(value: float, type: str) -> Literal | None:
    if type == "float64":
        return Literal(type, _portable(value))
    if type == "float32":
        single = _single(value)
        same = single is not None and (single == value or value != value)
        return Literal(type, _portable(value)) if same else None
    if is_decimal(type) and value - value == 0:
        # The digits a person wrote are the shortest that read back as this float.
        exact = Decimal(repr(value))
        fitted = decimal_fits(exact, type)
        return Literal(type, str(fitted)) if fitted == exact else None
    return None


def _portable(value: float) -> float | str:
    """JSON has no NaN and no infinity: they travel as text."""
    if value != value:
        return "nan"
    return value if value - value == 0 else ("inf" if value > 0 else "-inf")


def literal_text(literal: Literal) -> str:
    """A date, timestamp, duration or binary literal as SQL would write it."""
    value = literal.value
    if literal.type == "binary":
        return f"X'{value}'"
    if not isinstance(value, int):
        return str(value)
    if literal.type == DURATION:
        return f"INTERVAL '{value} us'"
    try:
        if literal.type == "date32":
            return f"DATE '{EPOCH_DATE + timedelta(days=value)}'"
        return f"TIMESTAMP '{EPOCH + timedelta(microseconds=value)}'"
    except OverflowError:
        return f"{literal.type}({value})"
