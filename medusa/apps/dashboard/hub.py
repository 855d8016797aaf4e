"""The newest event for every browser that looks. One that is slow misses events and delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

__all__ = ["LOOKERS_MAX", "Hub"]

LOOKERS_MAX = 64

_Newest = asyncio.Queue[bytes | None]
"""The one event that a looker hasn't had; None ends its stream."""


class Hub:
    """Hands each looker the newest event that it hasn't had. Used within one event loop.

    Attributes:
        wanted: set when somebody new looks.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._lookers: set[_Newest] = set()
        self._closed = False

    @property
    def lookers(self) -> int:
        """How many look."""
        return len(self._lookers)

    def publish(self, event: bytes) -> None:
        """Put an event in the place of the one before, for everybody."""
        for looker in self._lookers:
            _replace(looker, event)

    def close(self) -> None:
        """End all streams, at once for those who wait."""
        self._closed = True
        for looker in self._lookers:
            _replace(looker, None)

    def look(self) -> AsyncIterator[bytes] | None:
        """Events from now on, until ``close``; None: too many look, or it is closed."""
        if self._closed or len(self._lookers) >= LOOKERS_MAX:
            return None
        return self._events()

    async def _events(self) -> AsyncIterator[bytes]:
        looker = _Newest(1)  # not before somebody reads: a stream that nobody begins would never end
        self._lookers.add(looker)
        self.wanted.set()
        try:
            while not self._closed and (event := await looker.get()) is not None:
                yield event
        finally:
            self._lookers.discard(looker)


def _replace(newest: _Newest, event: bytes | None) -> None:
    if newest.full():
        newest.get_nowait()
    newest.put_nowait(event)
