"""Readers of streams that are sold who haven't said from which row on they pay: how long they get rows, and
who is sold nothing for a while as it never said it. No IO.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

__all__ = ["ATTACHED_MIN_US", "ATTACH_US", "DISTRUST_US", "UnpaidReaders"]

Key = tuple[str, int]
"""A stream that is sold, and the number of the question by which its reader came."""

ATTACHED_MIN_US = 10_000_000
"""Who gets rows has at least so long to say that it pays, however short an interval is: a lost word is said
again after seconds."""

ATTACH_US = 40_000_000
"""Who gets none yet has at least so long to come: it may be reading the rows before them elsewhere, for
``SWITCH_WITHIN_US``. Too small: rows that it comes for are gone; too large: rows are kept for nobody."""

DISTRUST_US = 60_000_000
DISTRUST_US_MAX = 3_600_000_000
"""Who didn't say that it pays is sold nothing for so long, doubled each time."""


@dataclass(slots=True)
class _Reader:
    partner: str
    since_us: int
    interval_us: int
    attached_us: int | None = None
    first: int = 0

    def is_late(self, time_us: int) -> bool:
        if self.attached_us is None:
            return time_us - self.since_us >= max(self.interval_us, ATTACH_US)
        return time_us - self.attached_us >= max(self.interval_us, ATTACHED_MIN_US)


class UnpaidReaders:
    """Those of one node."""

    def __init__(self) -> None:
        self._readers: dict[Key, _Reader] = {}
        self._distrusted: dict[str, tuple[int, int]] = {}
        """Partner -> until when it is sold nothing, and for how long the next time."""

    def sees(self, time_us: int, key: Key, partner: str, interval_us: int, first: int | None) -> None:
        """It is there, and hasn't said that it pays.

        Args:
            first: the first row that it was sent as it attached; None: it hasn't.
        """
        reader = self._readers.setdefault(key, _Reader(partner, time_us, interval_us))
        if first is None:
            return
        if reader.attached_us is None:
            reader.attached_us = time_us
        reader.first = max(reader.first, first)

    def attached(self, key: Key) -> tuple[int, int] | None:
        """Since when it gets rows, and the first one; None: it gets none, or it pays."""
        reader = self._readers.get(key)
        return None if reader is None or reader.attached_us is None else (reader.attached_us, reader.first)

    def forget(self, key: Key) -> None:
        """It has said that it pays, or gets no more for another reason."""
        self._readers.pop(key, None)

    def end_late(self, time_us: int, key: Key) -> str:
        """Why it gets no more, as its time is over; empty: it may go on."""
        reader = self._readers.get(key)
        if reader is None or not reader.is_late(time_us):
            return ""
        del self._readers[key]
        if reader.attached_us is None:
            return f"participant {reader.partner!r} doesn't come for it"
        self._distrust(time_us, reader.partner)
        return f"participant {reader.partner!r} doesn't say from which row on it pays"

    def follow(self, time_us: int, here: Set[Key]) -> None:
        """Only these are there. Who is gone with rows has to say yet that it pays for them: else it would ask
        anew, by another number, before each time is over."""
        for key, reader in tuple(self._readers.items()):
            if key in here:
                continue
            if reader.attached_us is None:
                del self._readers[key]
            else:
                self.end_late(time_us, key)

    def is_distrusted(self, time_us: int, partner: str) -> bool:
        """Whether it is sold nothing just now."""
        return time_us < self._distrusted.get(partner, (0, 0))[0]

    def _distrust(self, time_us: int, partner: str) -> None:
        until_us, pause_us = self._distrusted.get(partner, (0, DISTRUST_US))
        if time_us >= until_us:
            self._distrusted[partner] = time_us + pause_us, min(2 * pause_us, DISTRUST_US_MAX)
