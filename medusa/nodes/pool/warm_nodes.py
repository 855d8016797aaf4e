"""How many nodes are kept up that have nothing to do, so that nobody waits while one starts. Pure.

A node that is started once it is wanted comes too late by as long as it takes to start: minutes, in a cloud.
So as many are kept as were wanted at once within so long, of late (the pool of SEEP, Castro Fernandez et al.,
SIGMOD 2013, adapts its size too).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

__all__ = ["AdaptiveWarm", "SteadyWarm", "Warm", "WarmPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """So many are kept; ``why`` is for people."""

    count: int
    why: str


class WarmPolicy(Protocol):
    """What decides; a user may have one of their own."""

    def look(self, now_us: int, used: int) -> Warm:
        """How many to keep now.

        Args:
            used: nodes of the pool that have something, and those that are missing.
        """
        ...

    def started(self, now_us: int, took_us: int) -> None:
        """A node came up, so long after it was acquired."""
        ...


class SteadyWarm:
    """Always as many."""

    def __init__(self, count: int) -> None:
        self._count = count

    def look(self, now_us: int, used: int) -> Warm:
        """As ``WarmPolicy.look``."""
        return Warm(count=self._count, why=f"{self._count} are kept up always")

    def started(self, now_us: int, took_us: int) -> None:
        """That changes nothing."""


class AdaptiveWarm:
    """As many as were wanted more within the time that one takes to start, at worst in the last while.

    Args:
        least, most: never fewer, nor more.
        start_us: how long a node takes to start, until one was seen to.
        within_us: what is longer ago is forgotten.
    """

    def __init__(self, least: int, most: int, *, start_us: int, within_us: int) -> None:
        self._least, self._most = least, most
        self._start_us = start_us
        self._within_us = within_us
        self._used: deque[tuple[int, int]] = deque()
        """(since, how many were used): where that changed."""
        self._rises: deque[tuple[int, int]] = deque()
        """(when, how many more than within a start before): falling, so the first is the largest."""
        self._starts: deque[tuple[int, int]] = deque()
        """(when, how long one took): falling, too."""

    def look(self, now_us: int, used: int) -> Warm:
        """As ``WarmPolicy.look``."""
        self._forget(now_us)
        start_us = self._starts[0][1] if self._starts else self._start_us
        if not self._used or self._used[-1][1] != used:
            self._used.append((now_us, used))
        while len(self._used) > 1 and self._used[1][0] <= now_us - start_us:
            self._used.popleft()
        _falling(self._rises, now_us, used - min(count for _, count in self._used))
        rise = self._rises[0][1]
        count = min(max(rise, self._least), self._most)
        why = f"{rise} more were wanted within the {start_us / 1e6:g} s that one takes to start"
        return Warm(count=count, why=f"{why}, and {self._least} to {self._most} are kept up")

    def started(self, now_us: int, took_us: int) -> None:
        """As ``WarmPolicy.started``."""
        _falling(self._starts, now_us, took_us)

    def _forget(self, now_us: int) -> None:
        for each in (self._rises, self._starts):
            while each and each[0][0] < now_us - self._within_us:
                each.popleft()


def _falling(into: deque[tuple[int, int]], now_us: int, value: int) -> None:
    """Note a value; smaller ones before it are never the largest again."""
    while into and into[-1][1] <= value:
        into.pop()
    into.append((now_us, value))
