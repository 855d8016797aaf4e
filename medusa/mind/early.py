"""The first moments of a node: what its peers know it hasn't heard yet, so not every answer is final."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from medusa.mind.security import Caller
from medusa.wire.messages import Lookup

__all__ = ["Early", "Question"]

NEWS_US = 3_000_000
"""From the start on; a peer that dials us anew does so within a second, and is heard soon after. Too small: a
name that was given just before is unknown here; too large: one that nobody has given waits in vain where a
peer is away."""

LOOK_US = 20_000
WAITING_MAX = 100


@dataclass(frozen=True, slots=True)
class Question:
    """A client asks for a name that isn't known here."""

    client: str
    message: Lookup
    caller: Caller | None


class Early:
    """Questions that wait until all peers were heard, for ``NEWS_US`` at most.

    Args:
        peers: of whom news may come.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._unheard = set(peers)
        self._waiting: dict[tuple[str, int], Question] = {}
        self._until_us: int | None = None
        self._look_at_us = 0

    def heard(self, peer: str) -> None:
        """A peer is up, and tells what it knows."""
        self._unheard.discard(peer)

    def waits(self, now_us: int, question: Question) -> bool:
        """Whether a question waits, since the answer may come yet; else it is for the caller to refuse."""
        key = question.client, question.message.request
        if not self._is_early(now_us) or (key not in self._waiting and len(self._waiting) >= WAITING_MAX):
            return False
        self._waiting[key] = question
        return True

    def due(self, now_us: int) -> list[Question]:
        """What waited and is to be looked up again; it waits no more."""
        early = self._is_early(now_us)
        if not self._waiting or (early and now_us < self._look_at_us):
            return []
        self._look_at_us = now_us + LOOK_US
        found = list(self._waiting.values())
        self._waiting.clear()
        return found

    def wake_at_us(self) -> int | None:
        """When ``due`` has something."""
        return self._look_at_us if self._waiting else None

    def _is_early(self, now_us: int) -> bool:
        if self._until_us is None:
            self._until_us = now_us + NEWS_US
        return bool(self._unheard) and now_us < self._until_us
