"""How numbers and others' text stand in a terminal."""

from __future__ import annotations

from typing import Any

from medusa.units import duration_text, size_text

__all__ = ["TENTATIVE", "figure", "number", "plain", "share"]

TENTATIVE = "yellow"
"""The colour of what may be wrong."""


def number(value: float | None) -> str:
    """``950``, ``12.3k``, ``4.56M``: three digits and a unit; ``-``: unknown."""
    if value is None:
        return "-"
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """``42%``; ``-``: unknown."""
    return "-" if value is None else f"{value:.0%}"


def plain(text: str) -> str:
    """Of others' text what a terminal shows and doesn't obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def figure(field: str, value: Any) -> str:
    """A field of a status, by the unit in its name; ``-``: unknown."""
    if value is None:
        return "-"
    if field.endswith("_us"):
        return duration_text(value // 1000 * 1000)
    if "bytes" in field:
        return size_text(round(value))
    if field.endswith("share"):
        return share(value)
    return number(value) if isinstance(value, int | float) else str(value)
