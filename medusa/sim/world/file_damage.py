"""What becomes of the bytes of a file at rest."""

from __future__ import annotations

__all__ = ["HOW", "damaged"]

HOW = ("bit", "short", "zeros", "gone", "older")
"""One bit turns over; the end is cut off; the end is zeros; there is none; an older one is there."""


def damaged(data: bytes, how: str, pick: int) -> bytes:
    """The bytes after ``bit``, ``short`` or ``zeros``.

    Args:
        pick: which bit, or from which byte on.
    """
    if not data:
        return data
    if how == "bit":
        place = pick % (8 * len(data))
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        return bytes(flipped)
    kept = pick % len(data)
    return data[:kept] if how == "short" else data[:kept] + bytes(len(data) - kept)
