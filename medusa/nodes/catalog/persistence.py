"""The catalog on its way to disk, and the words that may go out only once it is there.

A write that fails is tried again after a pause that doubles up to a bound. What waited for it is
kept, and goes out when a later write holds what it promised.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.ports import Buffer
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Reply
from medusa.wire.outbox import Outbox, Persist, ReportLine, RunFragment, Send

__all__ = ["CatalogWriter", "PAUSE_US", "PAUSE_US_MAX"]

PAUSE_US = 200_000
"""A failed write is tried again after this, then after twice as long, and so on."""

PAUSE_US_MAX = 10_000_000
"""No pause is longer. Too short: a full disk is busy with us; too long: clients wait after it is free."""

ASIDE = (Send, ReportLine, RunFragment)
"""What no disk sees. Before all else the catalog is written as it is by then: others write what it names, or
close what it names no more."""

KEPT_MAX = 1000
"""Messages kept while writing fails; who asks more is told so."""


_Key: TypeAlias = tuple[str, str, int]
"""Who hears it, the kind of message, and the question that it asks or answers."""

_request: Callable[[Message], int] = attrgetter("request")


def _key(effect: Send) -> _Key:
    return effect.peer, type(effect.message).__name__, _request(effect.message)


class CatalogWriter:
    """Writes the catalog of a node.

    Attributes:
        failures: writes that failed.
    """

    def __init__(self, catalog: Catalog, *, outbox: Outbox, next_token: Callable[[], int]) -> None:
        self.failures = 0
        self._catalog = catalog
        self._outbox = outbox
        self._next_token = next_token
        self._durable = 0
        self._writing: dict[int, dict[_Key, Send]] = {}
        """Tokens under way -> what the driver holds back for them, and drops if they fail."""
        self._kept: dict[_Key, Send] = {}
        """What a failed write would have let go, by who hears it and which question it concerns."""
        self._newest: Persist | None = None
        """The write that was asked for last."""
        self._why = ""
        self._pause_us = 0
        self._retry: tuple[int, int] | None = None
        """When to write again, and the token that this write will have."""

    @property
    def durable(self) -> int:
        """The newest token whose write, or a later one, is on disk."""
        return self._durable

    @property
    def idle(self) -> bool:
        """All that was saved is on disk."""
        return not self._writing and self._retry is None

    @property
    def disk_error(self) -> str:
        """Why the last write failed; empty: it did not."""
        return self._why if self._pause_us else ""

    @property
    def resting(self) -> bool:
        """A write failed, and none is under way: what isn't durable now is nowhere on disk."""
        return self._retry is not None

    def save(self, *, joins: bool = False) -> int:
        """Write the catalog as it is, or as it will be when the pause is over; the token.

        Args:
            joins: not alone, where the last write that was asked for hasn't begun: then that holds this too,
                and the token is its. Each write takes its time, and they come one after the other.
        """
        if self._retry is not None:
            return self._retry[1]
        files, last = self._files(), self._newest
        if joins and last is not None:
            self._newest = Persist(token=last.token, fragment="", files=files)
            if self._outbox.replace(last, self._newest, ASIDE):
                return last.token
        return self._write(self._next_token(), files)

    def _files(self) -> dict[str, bytes]:
        return {CATALOG: self._catalog.to_bytes()}

    def _write(self, token: int, files: dict[str, bytes]) -> int:
        self._writing[token] = {}
        self._newest = Persist(token=token, fragment="", files=files)
        self._outbox.append(self._newest)
        return token

    def send(self, peer: str, message: Message, payload: Buffer | None = None, *, after: int) -> None:
        """Send a question or an answer, which bears a number, once the write of this token, or a later one,
        is durable."""
        effect = Send(peer=peer, message=message, payload=payload, after=after)
        if after <= self._durable:
            self._outbox.send(peer, message, payload)
        elif after in self._writing:
            key = _key(effect)
            if key not in self._writing[after]:
                self._writing[after][key] = effect
                self._outbox.append(effect)
        else:
            self._keep(effect)

    def drop(self, which: Callable[[Message], bool]) -> None:
        """Keep nothing of these for a later write; what waits for one under way goes if that succeeds."""
        for waiting in (self._kept, *self._writing.values()):
            for key in [key for key, effect in waiting.items() if which(effect.message)]:
                del waiting[key]

    def _keep(self, effect: Send) -> None:
        message, key = effect.message, _key(effect)
        if key in self._kept or len(self._kept) < KEPT_MAX:
            self._kept[key] = effect
        elif isinstance(message, Reply):
            refusal = Reply(
                request=message.request,
                code="E_DISK",
                text=f"node {self._catalog.node!r} can't write its catalog: {self._why}"[:2000],
                hint="make room in its data folder, then ask again",
            )
            self._outbox.send(effect.peer, refusal)

    def written(self, now_us: int, token: int, ok: bool, why: str = "") -> bool:
        """A write is durable, or failed; whether it was ours."""
        waiting = self._writing.pop(token, None)
        if waiting is None:
            return False
        if self._newest is not None and self._newest.token == token:
            self._newest = None
        if ok:
            if self._pause_us:
                self._outbox.report("info", "catalog written again")
            self._durable = max(self._durable, token)
            self._pause_us = 0
            kept, self._kept = self._kept, {}
            for effect in kept.values():
                self._outbox.send(effect.peer, effect.message, effect.payload)
            return True
        self.failures += 1
        self._why = why
        for effect in waiting.values():
            self._keep(effect)
        if not self._writing:  # Else a later write is under way and holds the same.
            self._pause_us = min(2 * self._pause_us or PAUSE_US, PAUSE_US_MAX)
            self._retry = now_us + self._pause_us, self._next_token()
            self._outbox.report("error", "catalog not written", why=why, again_ms=self._pause_us // 1000)
        return True

    def tick(self, now_us: int) -> None:
        """Write again when the pause is over."""
        if self._retry is not None and now_us >= self._retry[0]:
            token = self._retry[1]
            self._retry = None
            self._write(token, self._files())

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return None if self._retry is None else self._retry[0]
