"""Rates of counts that only grow, smoothed over irregular moments. Pure: who drives it says the time.

What happened a half-life ago counts half of what happens now: an exponentially weighted mean over all time
since the first moment, in which what is between two moments is taken to have come evenly. So it makes no
difference how time is cut, and a mean of little time is that of what there was.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, log

from medusa.errors import LocalProtocolError

__all__ = ["Smoothed", "ratio"]

_LN_2 = log(2)


class Smoothed:
    """Several counts and how fast each grows per second.

    Args:
        half_life_us: at least 1.

    Attributes:
        rates: per second, as many as counts; None as long as no time has passed.
        noted_us: the last moment; None: there was none.
    """

    __slots__ = ("_counts", "_half_life_us", "_weight", "noted_us", "rates")

    def __init__(self, half_life_us: int) -> None:
        if half_life_us < 1:
            raise LocalProtocolError(f"a half-life of {half_life_us} us", hint="at least 1")
        self._half_life_us = half_life_us
        self._counts: Sequence[float] = ()
        self._weight = 0.0
        """Of all that was noted, were it endless 1."""
        self.noted_us: int | None = None
        self.rates: list[float] | None = None

    def note(self, now_us: int, counts: Sequence[float]) -> None:
        """Take note of where the counts stand; a moment that isn't later than the last one is no moment.

        Args:
            counts: always as many. One that is below what it was has begun anew, at 0.
        """
        if self.noted_us is None:
            self.noted_us, self._counts = now_us, list(counts)
            return
        span_us = now_us - self.noted_us
        if span_us <= 0:
            return
        new = -expm1(-_LN_2 * span_us / self._half_life_us)
        self._weight += (1 - self._weight) * new
        share = new / self._weight
        rates = self.rates or [0.0] * len(counts)
        for place, (was, count) in enumerate(zip(self._counts, counts, strict=True)):
            rate = (count - was if count >= was else count) * 1e6 / span_us
            rates[place] += (rate - rates[place]) * share
        self.rates = rates
        self.noted_us, self._counts = now_us, list(counts)


def ratio(value: float, of: float) -> float | None:
    """``value`` per ``of``; None where that is nothing, or as good as."""
    return value / of if of > 1e-9 else None
