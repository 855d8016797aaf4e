"""The first moments of a node: what its peers know it hasn't heard yet, so "unknown" is no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["Early"]

NEWS_US = 3_000_000
"""From the start on; a peer that dials anew does so within a second, and has told us soon after. Too small: a
name that was given just before is unknown here; too large: one that nobody has given waits in vain where a
peer is away."""

LOOK_US = 20_000
WAITING_MAX = 100

Again = Callable[[int], None]
"""Asks once more, at a time."""


class Early:
    """Questions and orders of clients by a name that isn't known here: they wait until all peers have told
    what they know, for ``NEWS_US`` at most.

    Args:
        peers: of whom news may come.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._untold = set(peers)
        self._waiting: dict[tuple[str, int], Again] = {}
        """Client, its request -> how to ask again."""
        self._until_us: int | None = None
        self._look_at_us = 0

    def awaits(self, peer: str) -> bool:
        """A peer hasn't told yet what it knows."""
        return peer in self._untold

    def told(self, peer: str) -> None:
        """A peer has told what it knows."""
        self._untold.discard(peer)

    def waits(self, now_us: int, client: str, request: int, again: Again) -> bool:
        """Whether what a client asks waits, since the answer may come yet; else the caller refuses it."""
        key = client, request
        if not self._is_early(now_us) or (key not in self._waiting and len(self._waiting) >= WAITING_MAX):
            return False
        self._waiting[key] = again
        return True

    def tick(self, now_us: int) -> None:
        """Ask again what waits, now and then; all, where no more is to come."""
        early = self._is_early(now_us)
        if not self._waiting or (early and now_us < self._look_at_us):
            return
        self._look_at_us = now_us + LOOK_US
        waiting, self._waiting = self._waiting, {}
        for again in waiting.values():
            again(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._look_at_us if self._waiting else None

    def _is_early(self, now_us: int) -> bool:
        if self._until_us is None:
            self._until_us = now_us + NEWS_US
        return bool(self._untold) and now_us < self._until_us
