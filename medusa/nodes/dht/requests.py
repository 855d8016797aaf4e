"""Questions of one member of the catalog between participants that wait for their answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.wire.messages.dht import DhtFind, DhtFound, DhtStore, DhtStored
from medusa.wire.outbox import Outbox

__all__ = ["Answer", "DhtRequests", "Then"]

Answer = DhtFound | DhtStored
Then = Callable[[int, Answer | None], None]
"""Told when, and what was answered; None: nothing in time."""


@dataclass(slots=True)
class _Request:
    peer: str
    message: DhtFind | DhtStore
    deadline_us: int
    tries: int
    then: Then
    late: Callable[[int], None] | None


class DhtRequests:
    """Each is said again when it isn't answered in time, and given up after some tries.

    Args:
        gone: told (time, member) when one is given up, before the question's own ``then``.
        timeout_us: of one try.
    """

    def __init__(
        self, outbox: Outbox, *, timeout_us: int, tries: int, gone: Callable[[int, str], None]
    ) -> None:
        self._outbox = outbox
        self._timeout_us = timeout_us
        self._tries = tries
        self._gone = gone
        self._number = 0
        self._open: dict[int, _Request] = {}
        """In the order of their deadlines: all wait equally long."""

    def __len__(self) -> int:
        return len(self._open)

    def find(
        self,
        now_us: int,
        peer: str,
        place: int,
        name: str,
        then: Then,
        late: Callable[[int], None] | None = None,
    ) -> None:
        """Ask for members near a place, and for an entry.

        Args:
            late: told when it is said again.
        """
        self._number += 1
        message = DhtFind(request=self._number, place=place.to_bytes(20, "big"), name=name)
        self._ask(now_us, peer, message, then, late)

    def store(self, now_us: int, peer: str, data: bytes, then: Then) -> None:
        """Have an entry held."""
        self._number += 1
        self._ask(now_us, peer, DhtStore(request=self._number, entry=data), then)

    def _ask(
        self,
        now_us: int,
        peer: str,
        message: DhtFind | DhtStore,
        then: Then,
        late: Callable[[int], None] | None = None,
    ) -> None:
        self._open[message.request] = _Request(peer, message, now_us + self._timeout_us, 1, then, late)
        self._outbox.send(peer, message)

    def answered(self, now_us: int, peer: str, answer: Answer) -> bool:
        """An answer came; False: to nothing that was asked of this peer, or too late."""
        request = self._open.get(answer.request)
        if request is None or request.peer != peer:
            return False
        if isinstance(request.message, DhtFind) is not isinstance(answer, DhtFound):
            return False
        del self._open[answer.request]
        request.then(now_us, answer)
        return True

    def tick(self, now_us: int) -> None:
        """Say again, or give up, what is over time."""
        over: list[tuple[int, _Request]] = []
        for number, request in self._open.items():
            if request.deadline_us > now_us:
                break
            over.append((number, request))
        for number, request in over:
            if self._open.pop(number, None) is None:
                continue  # Given up while others were.
            if request.tries < self._tries:
                request.tries += 1
                request.deadline_us = now_us + self._timeout_us
                self._open[number] = request
                self._outbox.send(request.peer, request.message)
                if request.late is not None:
                    request.late(now_us)
                continue
            self._gone(now_us, request.peer)
            request.then(now_us, None)

    def give_up(self, now_us: int, peer: str) -> None:
        """A member is known to be gone: nothing more comes from it."""
        for number, request in [each for each in self._open.items() if each[1].peer == peer]:
            if self._open.pop(number, None) is not None:
                request.then(now_us, None)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        for request in self._open.values():
            return request.deadline_us
        return None
