"""Clients that have lost the node of a stream: they are told where it is once another node has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.nodes.security.registry import Caller
from medusa.wire.messages.directory import Lookup

__all__ = ["AWAITED_MAX", "AWAITED_US", "AwaitedEpochs", "AwaitedLookup"]

AWAITED_US = 1_000_000
"""After this a client is told what is known. Too small: it asks again and again; too large: what is kept of
clients that have gone stays."""

AWAITED_MAX = 1000
"""Who asks beyond it is told at once what is known, and asks again."""


@dataclass(frozen=True, slots=True)
class AwaitedLookup:
    """A question that is to be answered now."""

    client: str
    message: Lookup
    caller: Caller | None
    until_us: int


class AwaitedEpochs:
    """Questions of clients where something is, once it is in a higher epoch than they know.

    Args:
        epoch: the highest in which what is asked for is known, 0: it isn't.
    """

    def __init__(self, epoch: Callable[[Lookup], int]) -> None:
        self._epoch = epoch
        self._waiting: dict[tuple[str, int], AwaitedLookup] = {}
        """By client and its request, the oldest first."""

    def waits(self, now_us: int, client: str, message: Lookup, caller: Caller | None) -> bool:
        """Whether a question is kept; else it is to be answered now."""
        if not message.above or self._epoch(message) > message.above or len(self._waiting) >= AWAITED_MAX:
            return False
        self._waiting.pop((client, message.request), None)  # Asked again it is the newest.
        self._waiting[client, message.request] = AwaitedLookup(client, message, caller, now_us + AWAITED_US)
        return True

    def drop(self, client: str) -> None:
        """Nothing that a client asked so far holds: it has gone, or lost the right to."""
        for key in [key for key in self._waiting if key[0] == client]:
            del self._waiting[key]

    def take(self, now_us: int) -> list[AwaitedLookup]:
        """What is to be answered now: it is in a higher epoch, or has waited long enough."""
        due = [
            key
            for key, each in self._waiting.items()
            if now_us >= each.until_us or self._epoch(each.message) > each.message.above
        ]
        return [self._waiting.pop(key) for key in due]

    def wake_at_us(self) -> int | None:
        """When ``take`` gives something, whatever becomes known."""
        return next((each.until_us for each in self._waiting.values()), None)
