"""Connections that were refused or ended: counted by reason, and told seldom enough for a log."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

__all__ = ["AT_THE_DOOR", "ENDED", "Refusals", "Refused"]

TELL_EVERY_S = 1.0
"""Of each reason one line in so many seconds, with how many there were."""

AT_THE_DOOR = "refused at the door"
ENDED = "connection ended"


@dataclass(frozen=True, slots=True)
class Refused:
    """Connections that were refused, or ended since their peer broke a bound.

    Attributes:
        count: since the last time this reason was told.
        address, key: of the last of them, as far as they are known.
        what: ``AT_THE_DOOR``: nothing came in; ``ENDED``: the connection stood until then.
    """

    why: str
    count: int
    address: str
    key: str
    what: str = AT_THE_DOOR


class Refusals:
    """Refusals of one transport. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._untold: dict[str, Refused] = {}
        self._told_at: dict[str, float] = {}

    def note(self, why: str, address: str = "", key: str = "", *, what: str = AT_THE_DOOR) -> None:
        """One more."""
        with self._lock:
            self._counts[why] += 1
            before = self._untold.get(why)
            self._untold[why] = Refused(why, before.count + 1 if before else 1, address, key, what)

    def told(self) -> list[Refused]:
        """What is to be told now: at most one each second for each reason."""
        if not self._untold:
            return []
        now = time.monotonic()
        with self._lock:
            due = [why for why in self._untold if now - self._told_at.get(why, -TELL_EVERY_S) >= TELL_EVERY_S]
            self._told_at.update(dict.fromkeys(due, now))
            return [self._untold.pop(why) for why in due]

    def counts(self) -> dict[str, int]:
        """How many since the beginning, by reason."""
        with self._lock:
            return dict(self._counts)
