"""Durations and byte counts, as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from medusa.errors import MedusaError, QueryError

__all__ = [
    "DURATION_MAX_US",
    "TIME_UNITS_US",
    "Duration",
    "byte_count",
    "duration_text",
    "duration_us",
    "size_text",
]

Duration: TypeAlias = str | int | timedelta
"""Text such as ``"100ms"`` or ``"1h 30min"``, a timedelta, or whole microseconds."""

DURATION_MAX_US = 1 << 56
"""Longer durations (2,283 years) are refused, so that time plus duration stays in 64 bits."""

TIME_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}

_DURATION_NAMES = {
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

_PART = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-zµμ]+)")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*)")


def duration_us(
    value: Duration, *, what: str = "duration", minimum_us: int = 0, error: type[MedusaError] = QueryError
) -> int:
    """A duration in whole microseconds.

    Args:
        value: ``"100ms"``, ``"5 min"``, ``"1h 30min"``, ``"0.5 s"``, a timedelta, or microseconds.
        what: what has this duration, for the message, e.g. ``window: size``.
        minimum_us: the least that is allowed.
        error: the kind of error to raise.

    Raises:
        MedusaError: (``error``) no duration, below the minimum, not whole microseconds, or above
            ``DURATION_MAX_US``.
    """
    exact = _exact_us(value)
    if exact is None:
        shown = repr(value) if isinstance(value, str) else f"{type(value).__name__} {value!r}"
        hint = 'write "100ms", "5 min", "1h 30min" or "2 days"; a timedelta; or whole microseconds'
        if isinstance(value, str) and re.search(r"\d\s*m\b", value):
            hint = 'minutes are "min", months are not supported'
        elif isinstance(value, str) and value.strip().isdigit():
            hint = f'say which unit: "{value.strip()}s", "{value.strip()}ms"'
        raise error(f"{what}: {shown[:100]} is no duration", hint=hint, code="query.duration")
    if exact.denominator != 1:
        raise error(f"{what}: {value!r} is no whole number of microseconds", code="query.duration")
    us = int(exact)
    if us < minimum_us:
        least = "longer than 0" if minimum_us == 1 else f"at least {duration_text(minimum_us)}"
        raise error(f"{what}: expected a duration of {least}, got {value!r}", code="query.duration")
    if us > DURATION_MAX_US:
        raise error(f"{what}: {value!r} is longer than 2,283 years", code="query.duration")
    return us


def _exact_us(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1))
    if not isinstance(value, str) or len(value) > 100:
        return None
    total = Fraction(0)
    text, at = value.strip().lower(), 0
    while at < len(text):
        found = _PART.match(text, at)
        unit = _DURATION_NAMES.get(found[2]) if found else None
        if found is None or unit is None:
            return None
        total += Fraction(found[1]) * TIME_UNITS_US[unit]
        at = found.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return total if text else None


def duration_text(us: int) -> str:
    """The shortest exact text of a duration: ``5 min``, ``1h 30min``, ``100ms``; reads back."""
    if us == 0:
        return "0s"
    parts, rest = [], abs(us)
    for unit in ("d", "h", "min", "s", "ms", "us"):
        count, rest = divmod(rest, TIME_UNITS_US[unit])
        if count:
            parts.append(f"{count} min" if unit == "min" else f"{count}{unit}")
    return ("-" if us < 0 else "") + " ".join(parts)


def byte_count(value: str | int, *, what: str = "size", error: type[MedusaError] = QueryError) -> int:
    """A number of bytes: an int, or text such as ``"64 MiB"``, ``"1.5 GB"``, ``"4096"``.

    Raises:
        MedusaError: (``error``) no such number, or it isn't whole.
    """
    exact: Fraction | None = None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        exact = Fraction(value)
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value.strip().lower())):
        scale = _BYTES.get(found[2] or "b")
        exact = Fraction(found[1]) * scale if scale else None
    if exact is None or exact.denominator != 1:
        raise error(
            f"{what}: {str(value)[:100]!r} is no number of bytes",
            hint='write "64 MiB", "1 GB" or a whole number',
            code="query.size",
        )
    return int(exact)


def size_text(count: int) -> str:
    """A byte count for people: ``64 MiB``, ``1.5 GiB``, ``12 B``."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
