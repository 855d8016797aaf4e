"""Cars whose number a second rises tenfold and falls again: when each comes, and what it says. Pure.

        peak            ___________
                       /           \\
        a tenth  _____/             \\_____ ...
                0    rises         falls  seconds

The same shape gives the same rows in the same order, whoever makes them and in whatever pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SEGMENTS", "TICKS_PER_S", "TICK_S", "ScaleLoad"]

TICKS_PER_S = 25
TICK_S = 1 / TICKS_PER_S
"""Rows of so long are published at once, when it is over."""

SEGMENTS = 32
TIMES = 10
"""The peak is so many times what comes before and after it."""

CORNERS = ((0.15, 0.0), (0.45, 1.0), (0.65, 1.0), (0.7, 0.0))
"""Share of the run's seconds -> share of the way from the least to the most rows a second, linear between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLoad:
    """The load of one run.

    Attributes:
        seconds: from the first row until the load has been low again for a while; it stays low after that.
        peak: rows a second, at most.
    """

    seconds: float
    peak: int

    @property
    def base(self) -> float:
        """Rows a second, at least."""
        return self.peak / TIMES

    @property
    def rises_s(self) -> tuple[float, float]:
        """From when until when the load rises."""
        return CORNERS[0][0] * self.seconds, CORNERS[1][0] * self.seconds

    @property
    def falls_s(self) -> tuple[float, float]:
        """From when until when it falls."""
        return CORNERS[2][0] * self.seconds, CORNERS[3][0] * self.seconds

    def rate(self, at_s: float) -> float:
        """Rows a second at a moment."""
        if at_s <= self._corners[0][0]:
            return self.base
        for (begin_s, first), (end_s, last) in pairwise(self._corners):
            if at_s <= end_s:
                return first + (last - first) * (at_s - begin_s) / (end_s - begin_s)
        return self.base

    def rows(self, until_s: float) -> int:
        """How many rows come before a moment."""
        came, before_s = 0.0, 0.0
        for corner_s, _ in self._corners:
            if until_s <= corner_s:
                break
            came += (self.rate(before_s) + self.rate(corner_s)) / 2 * (corner_s - before_s)
            before_s = corner_s
        came += (self.rate(before_s) + self.rate(until_s)) / 2 * (until_s - before_s)
        return floor(came + 1e-6)

    def traffic(self, begin: int, end: int) -> pa.Table:
        """The rows of these ticks: columns ``ts``, ``n`` (their numbers), ``segment``, ``speed``.

        The more cars there are the slower they are.
        """
        import numpy as np
        import pyarrow as pa

        bounds = [self.rows(tick / TICKS_PER_S) for tick in range(begin, end + 1)]
        counts = np.diff(bounds)
        numbers = np.arange(bounds[0], bounds[-1])
        within = numbers - np.repeat(bounds[:-1], counts)
        ticks = np.repeat(np.arange(begin, end), counts)
        times_us = ticks * (1_000_000 // TICKS_PER_S)
        times_us += within * (1_000_000 // TICKS_PER_S) // np.repeat(counts, counts)
        slower = [round(60 * self._crowd(tick / TICKS_PER_S)) for tick in range(begin, end)]
        return pa.table(
            {
                "ts": pa.array(times_us, pa.timestamp("us", "UTC")),
                "n": numbers,
                "segment": numbers % SEGMENTS,
                "speed": 85 + numbers * 37 % 21 - np.repeat(np.array(slower, np.int64), counts),
            }
        )

    @property
    def _corners(self) -> tuple[tuple[float, float], ...]:
        """(second, rows a second)."""
        return tuple(
            (share * self.seconds, self.base + up * (self.peak - self.base)) for share, up in CORNERS
        )

    def _crowd(self, at_s: float) -> float:
        """0 at the least load, 1 at the most."""
        return (self.rate(at_s) - self.base) / (self.peak - self.base)
