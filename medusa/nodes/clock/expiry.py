"""How long the name of a node is remembered that is heard of no more. Pure.

A node writes its own entry in the catalog anew in each period; the entry's epoch is the number of the period.
So whoever has the entry, from wherever, knows how old it is: what one node has forgotten, no other can bring
back, however long that was away. The periods of two nodes begin at different times, so that they don't all
write at once.
"""

from __future__ import annotations

from zlib import crc32

__all__ = ["PERIODS_KEPT", "is_over", "period"]

PERIOD_US = 30 * 24 * 3_600_000_000
PERIODS_KEPT = 3
"""A node of which nothing was heard for so many periods is forgotten, with all that it wrote. Too small: one
that was away for long comes back to readers who look elsewhere; and clocks may be wrong by so much."""

BEGIN = 655
"""The period, counted from 1970, that has the number 1: the end of 2023."""


def period(node: str, wall_us: int | None) -> int:
    """The number of a node's period; 1: its clock isn't known, or can't be right."""
    if wall_us is None:
        return 1
    shift_us = crc32(node.encode()) * PERIOD_US >> 32
    return 1 + max(0, (wall_us - shift_us) // PERIOD_US - BEGIN)


def is_over(node: str, written: int, wall_us: int | None) -> bool:
    """Whether what a node wrote of itself in that period is so old that the node is forgotten."""
    return written > 1 and period(node, wall_us) - written > PERIODS_KEPT
