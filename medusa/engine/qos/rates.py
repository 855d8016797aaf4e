"""How fast counts grow. Nothing here reads a clock: the caller tells the time, which never runs back.

``Meter``: a mean over the last seconds. ``Smoothed``: a mean over all time, in which what happened a
half-life ago counts half. ``Recent``: growth by looks instead of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log

from medusa.errors import LocalProtocolError

__all__ = ["EVERY_US", "OVER_US", "Meter", "Recent", "Smoothed", "ratio"]

_LN_2 = log(2)

OVER_US = 5_000_000
"""Rates are means over so long. Shorter: they jump with each train; longer: they tell of the past."""

EVERY_US = 250_000
"""How often counts are noted: what a note costs is spread over so long."""


@dataclass(frozen=True, slots=True)
class _Note:
    us: int
    counts: Sequence[int]


class Meter:
    """Notes of counts that only grow, and the rates that follow from them.

    Between two notes counts are taken to have grown evenly.

    Attributes:
        due_us: when the next note is due.
    """

    def __init__(self, over_us: int = OVER_US, every_us: int = EVERY_US) -> None:
        self._over_us = over_us
        self._every_us = every_us
        self._notes: deque[_Note] = deque()
        self.due_us = -(1 << 62)

    def note(self, now_us: int, counts: Sequence[int], since_us: int | None = None) -> None:
        """Take note of where the counts stand.

        Args:
            counts: always as many.
            since_us: they have stood there since then: the time of the last change. None: nobody knows.
        """
        notes = self._notes
        if notes and since_us is not None and notes[-1].us <= since_us < now_us:
            notes.append(_Note(since_us, counts))
        notes.append(_Note(now_us, counts))
        self.due_us = now_us + self._every_us
        begin_us = now_us - self._over_us
        while len(notes) > 1 and notes[1].us < begin_us:
            notes.popleft()

    def rates(self, now_us: int, counts: Sequence[int], since_us: int | None = None) -> list[float] | None:
        """How much each count grew per second, over the last seconds or since the first note.

        Args:
            counts, since_us: as of ``note``, at ``now_us``.

        Returns:
            None: no time has passed since the first note.
        """
        notes = self._notes
        if not notes or now_us <= notes[0].us:
            return None
        begin_us = max(now_us - self._over_us, notes[0].us)
        if since_us is not None and since_us < begin_us:
            before: Sequence[float] = counts
        else:
            before = self._before(begin_us, _Note(now_us if since_us is None else since_us, counts))
        span_s = (now_us - begin_us) / 1e6
        return [(count - was) / span_s for count, was in zip(counts, before, strict=True)]

    def _before(self, us: int, last: _Note) -> Sequence[float]:
        """Where the counts stood just before a moment between the first note and ``last``."""
        low = self._notes[0]
        if us > low.us:
            for high in [*self._notes, last]:
                if high.us >= us:
                    share = (us - low.us) / (high.us - low.us)
                    pairs = zip(low.counts, high.counts, strict=True)
                    return [was + (count - was) * share for was, count in pairs]
                low = high
        return low.counts


class Smoothed:
    """Several counts and how fast each grows per second.

    An exponentially weighted mean over all time since the first moment, in which what is between two moments
    is taken to have come evenly. So it makes no difference how time is cut, and a mean of little time is that
    of what there was.

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


class Recent:
    """How much a count grew of late: at each look what was seen before counts ``KEPT`` of what it did.

    Attributes:
        last: where the count stood.
        grown: by how much it grew; to be compared with others that were looked at as often.
    """

    __slots__ = ("grown", "last")

    KEPT = 7 / 8
    """It follows a change within about eight looks."""

    def __init__(self, last: float = 0.0) -> None:
        self.last = last
        self.grown = 0.0

    def look(self, count: float) -> float:
        """The count stands here now; by how much it grew. One that is below what it was has begun anew."""
        grown = max(0.0, count - self.last)
        self.last = count
        self.add(grown)
        return grown

    def add(self, grown: float) -> None:
        """It grew by so much."""
        self.grown = self.grown * self.KEPT + grown


def ratio(value: float, of: float) -> float | None:
    """``value`` per ``of``; None where that is nothing, or as good as."""
    return value / of if of > 1e-9 else None
