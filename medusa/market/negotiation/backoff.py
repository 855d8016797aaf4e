"""Whom not to ask again yet: each failure doubles the rest, with jitter, so that no two keep step."""

from __future__ import annotations

from collections.abc import Callable, Hashable

__all__ = ["Backoff"]


class Backoff:
    """Failures by what they were about, such as a contract.

    Args:
        first_us, most_us: of a rest.
        pick: a number in [0, n), at random.
    """

    def __init__(self, first_us: int, most_us: int, pick: Callable[[int], int]) -> None:
        self._first_us, self._most_us, self._pick = first_us, most_us, pick
        self._rests: dict[Hashable, tuple[int, int]] = {}

    def failed(self, now_us: int, about: Hashable, *, first_us: int = 0, most_us: int = 0) -> int:
        """It rests from now on; until when.

        Args:
            first_us: the first rest, where it is longer than that of others.
            most_us: the longest one, where it is shorter; the next one is no longer than twice that.
        """
        first_us, most_us = max(first_us, self._first_us), min(most_us or self._most_us, self._most_us)
        delay_us = max(min(self._rests.get(about, (0, first_us // 2))[1] * 2, most_us), first_us)
        until_us = now_us + delay_us + self._pick(delay_us // 2 + 1)
        self._rests[about] = (until_us, delay_us)
        return until_us

    def succeeded(self, about: Hashable) -> None:
        """The next failure is a first one again."""
        self._rests.pop(about, None)

    def eased(self, now_us: int, about: Hashable) -> None:
        """There is news: it may be asked now. If it fails again, that counts as one more in a row."""
        rest = self._rests.get(about)
        if rest is not None and rest[0] > now_us:
            self._rests[about] = (now_us, rest[1])

    def until_us(self, about: Hashable) -> int:
        """It rests until then; 0: it never failed."""
        return self._rests.get(about, (0, 0))[0]

    def rests(self, now_us: int, about: Hashable) -> bool:
        return now_us < self.until_us(about)
