"""How fast counts grow, by a clock that is told: a moving average over the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EVERY_US", "OVER_US", "Meter"]

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

    Between two notes counts are taken to have grown evenly. It reads no clock; whoever drives it says
    the time, which never runs back.

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
