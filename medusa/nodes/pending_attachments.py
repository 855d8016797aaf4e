"""Readers and publishers that ask for a stream while nobody knows yet whose it is.

They are answered when that is known, and not only when they ask again.
"""

from __future__ import annotations

from collections.abc import Callable

from medusa.nodes.message_table import Heard
from medusa.wire.messages.links import Attach, OpenPublisher

__all__ = ["PENDING_US", "PendingAttachments"]

PENDING_US = 1_000_000
"""A request waits for so long. Who still wants the stream has asked again by then; who doesn't may have gone
elsewhere without a word."""


class PendingAttachments:
    """The newest request of each peer for each stream."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str, type], Heard] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def add(self, heard: Heard, message: Attach | OpenPublisher) -> None:
        """It can't be answered yet."""
        self._heard[heard.peer, message.stream, type(message)] = heard

    def detached(self, peer: str, stream: str) -> None:
        """The reader doesn't want it any more."""
        self._heard.pop((peer, stream, Attach), None)

    def lost(self, peer: str) -> None:
        """Nothing that a peer asked in its life, or on a connection, before this one holds."""
        self._heard = {key: heard for key, heard in self._heard.items() if key[0] != peer}

    def take(self, now_us: int, rests: Callable[[str, type], bool]) -> list[Heard]:
        """Those that can be answered now, the oldest first; what has waited too long is dropped.

        Args:
            rests: whether nobody knows yet whose a stream (of a reader, of a publisher) is.
        """
        self._heard = {key: heard for key, heard in self._heard.items() if now_us - heard.now_us < PENDING_US}
        due = [key for key in self._heard if not rests(key[1], key[2])]
        return [self._heard.pop(key) for key in due]
