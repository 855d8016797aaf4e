"""The newest event for every browser that looks. One that is slow misses events and delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

__all__ = ["LOOKERS_MAX", "Hub"]

LOOKERS_MAX = 64


class Hub:
    """Hands each looker the newest event that it hasn't had. Used within one event loop.

    Attributes:
        wanted: set when somebody new looks.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._lookers: set[_Looker] = set()
        self._closed = False

    @property
    def lookers(self) -> int:
        """How many look."""
        return len(self._lookers)

    def publish(self, event: bytes) -> None:
        """Put an event in the place of the one before, for everybody."""
        for looker in self._lookers:
            looker.give(event)

    def close(self) -> None:
        """End all streams, at once for those who wait."""
        self._closed = True
        for looker in self._lookers:
            looker.give(None)

    def look(self) -> AsyncIterator[bytes] | None:
        """Events from now on, until ``close``; None: too many look, or it is closed."""
        if self._closed or len(self._lookers) >= LOOKERS_MAX:
            return None
        return self._events()

    async def _events(self) -> AsyncIterator[bytes]:
        looker = _Looker()  # not before somebody reads: a stream that nobody begins would never end
        self._lookers.add(looker)
        self.wanted.set()
        try:
            while not self._closed and (event := await looker.next()) is not None:
                yield event
        finally:
            self._lookers.discard(looker)


class _Looker:
    """One place for one event."""

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._bell = asyncio.Event()

    def give(self, event: bytes | None) -> None:
        self._newest = event
        self._bell.set()

    async def next(self) -> bytes | None:
        await self._bell.wait()
        self._bell.clear()
        return self._newest
