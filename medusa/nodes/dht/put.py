"""An entry on its way to the members that should hold it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.wire.messages.dht import DhtStored

__all__ = ["EntryPut", "OwnEntry", "PutOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOutcome:
    """How an entry was stored.

    Attributes:
        stored: members that hold it now.
        enough: these are most of those that should.
        newer: a younger entry of this name that one of them showed; empty: none.
    """

    stored: int
    enough: bool
    newer: bytes


@dataclass(slots=True)
class OwnEntry:
    """An entry that I publish, and when to say it again; ``then`` hears how it went."""

    data: bytes
    due_us: int
    then: Callable[[int, PutOutcome], None]

    def say_again(self, at_us: int) -> None:
        """It is due then."""
        self.due_us = at_us


class EntryPut:
    """An entry on its way to those that should hold it."""

    def __init__(self, wanted: int, then: Callable[[int, PutOutcome], None]) -> None:
        self._wanted = self._left = wanted
        self._then = then
        self._stored = 0
        self._newer = b""

    def one(self, now_us: int, answer: DhtStored | None) -> bool:
        """One has answered, or not; whether it is enough."""
        self._left -= 1
        if answer is not None and not answer.code:
            self._stored += 1
        elif answer is not None and answer.entry:
            self._newer = answer.entry
        if not self._left:
            self.end(now_us)
        return self._enough

    @property
    def _enough(self) -> bool:
        return self._stored > self._wanted // 2

    def end(self, now_us: int) -> None:
        self._then(now_us, PutOutcome(stored=self._stored, enough=self._enough, newer=self._newer))
