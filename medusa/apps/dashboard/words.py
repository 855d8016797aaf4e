"""Numbers and names as the drawing and the page show them."""

from __future__ import annotations

from typing import Any
from unicodedata import east_asian_width

from medusa.runtime.client.status.guarded_fragments import GuardedFragment
from medusa.units import size_text
from medusa.wire.status_and_metrics import ConsistencyStatus, ReplicasStatus

__all__ = [
    "ago",
    "clipped",
    "columns",
    "count",
    "figure",
    "lag",
    "of_guarded",
    "per_second",
    "percent",
    "plain",
    "secondary",
    "size",
    "taken_over",
    "unstable_for",
]


def plain(text: str) -> str:
    """The text with a sign in place of each character that is none (control characters, half surrogates)."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def columns(text: str) -> int:
    """Width in characters; East Asian wide ones count two."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def clipped(text: str, most: int) -> str:
    """Plain, and no wider than ``most`` characters: the middle is left out, since ends tell names apart."""
    text = plain(text[: 4 * most] + text[max(4 * most, len(text) - 4 * most) :])
    if columns(text) <= most:
        return text
    head, tail = text, text
    while columns(head) > (most - 1) * 2 // 3:
        head = head[:-1]
    while columns(tail) > most - 1 - columns(head):
        tail = tail[1:]
    return f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"


def count(number: float | None) -> str:
    """``952``, ``1,234``, ``12.3k``, ``4.56M``; ``?`` where it is not known."""
    if number is None:
        return "?"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def per_second(number: float | None) -> str:
    return f"{count(number)}/s"


def percent(share: float | None) -> str:
    """``12 %``, ``0.4 %``, ``<0.1 %``; ``?`` where it is not known."""
    if share is None:
        return "?"
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"


def lag(us: int | None) -> str:
    """``0 s``, ``120 ms``, ``4.2 s``, ``3 min``, ``2 h``; ``?`` where it is not known."""
    if us is None:
        return "?"
    if 0 < us < 1_000_000:
        return f"{max(us // 1000, 1)} ms"
    return ago(us / 1e6)


def ago(seconds: float) -> str:
    """A duration for people."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds != int(seconds) else f"{seconds:.0f} s"
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(number: int) -> str:
    return size_text(number)


def figure(field: str, value: Any) -> str:
    """A field of a status, by the unit in its name; ``?`` where it is not known."""
    if value is None:
        return "?"
    if field.endswith("_us"):
        return lag(value)
    if "bytes" in field:
        return size(round(value))
    if field.endswith("share"):
        return percent(value)
    return count(value) if isinstance(value, int | float) else str(value)


def secondary(state: str, since_us: int | None, behind_bytes: int | None) -> str:
    """How one is that stands by: ``following for 3 min, 2 KiB behind``."""
    text = state if since_us is None else f"{state} for {ago(since_us // 1_000_000)}"
    return f"{text}, {size(behind_bytes)} behind" if behind_bytes else text


def of_guarded(guarded: GuardedFragment) -> list[str]:
    """Lines on a fragment that others stand by for: who does, what is wrong first, and who had it before."""
    taken = taken_over(guarded.replicas)
    return [_who_stands_by(guarded), *([f"taken over {taken}"] if taken else [])]


def _who_stands_by(guarded: GuardedFragment) -> str:
    replicas = guarded.replicas
    told = ", ".join(f"{node} {each.state}" for node, each in replicas.secondaries.items()) or "nobody"
    if not guarded.alone:
        return f"standby: {told}"
    since_us = replicas.alone_us
    return f"ALONE{'' if since_us is None else f' for {ago(since_us // 1_000_000)}'}, standby: {told}"


def taken_over(replicas: ReplicasStatus) -> str:
    """``from edge, 12 s ago``; empty: it wasn't, as far as its owner says."""
    if replicas.taken_over_us is None:
        return ""
    whose = f"from {plain(replicas.taken_over_from)}, " if replicas.taken_over_from else ""
    return f"{whose}{ago(replicas.taken_over_us // 1_000_000)} ago"


def unstable_for(of: ConsistencyStatus) -> str:
    """``tentative for 12 s``, ``being corrected for 3 s``: of a stream that isn't stable."""
    how = "being corrected" if of.state == "stabilization" else "tentative"
    return how if of.for_us is None else f"{how} for {ago(of.for_us // 1_000_000)}"
