"""Links of those who call us: by which route each is reached, and by which connection it came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from medusa.runtime.transport.caller_ends import CallerEnds
from medusa.runtime.transport.connection import Connection

__all__ = ["CALLERS_MAX", "SHUNNED_MAX", "Callers"]

CALLERS_MAX = 1024
SHUNNED_MAX = 4096

LAST_WORDS_S = 0.03
"""So long what a caller said before its connection ended is looked for, where others speak without a rest.
Too small: it is lost, and sent again; too large: the end is told late."""


class Callers:
    """Of one transport; its thread uses it. A link is named ``in-7``, and no other one ever is.

    Args:
        ends: tells which connections have ended.
    """

    def __init__(self, ends: CallerEnds) -> None:
        self._ends = ends
        self._links: dict[bytes, str] = {}
        """By route: what ZeroMQ calls the connection."""
        self._routes: dict[str, bytes] = {}
        self._brought: dict[str, Connection | None] = {}
        """Link -> the connection that brought its first message; None: nobody knows."""
        self._shunned: OrderedDict[bytes, None] = OrderedDict()
        self._calls = 0
        self._ended: dict[str, float] = {}
        """Link whose connection is closed, and when that was seen; something that it said may wait yet."""

    def __contains__(self, link: str) -> bool:
        return link in self._routes

    @property
    def full(self) -> bool:
        """No more links may begin."""
        return len(self._links) >= CALLERS_MAX

    def begin(self, route: bytes, connection: Connection | None) -> str:
        """A link by this route begins with a message of this connection; its name."""
        self._calls += 1
        link = f"in-{self._calls}"
        self._links[route] = link
        self._routes[link] = route
        self._brought[link] = connection
        return link

    def at(self, route: bytes) -> str | None:
        """The link by this route; None: there is none."""
        return self._links.get(route)

    def route(self, link: str) -> bytes | None:
        """That of a link; None: it is over, or none of ours."""
        return self._routes.get(link)

    def by(self, connections: Iterable[Connection]) -> list[str]:
        """The links that came by one of these connections."""
        wanted = set(connections)
        return [link for link, first in self._brought.items() if first in wanted] if wanted else []

    def forget(self, link: str) -> None:
        """It is over."""
        del self._links[self._routes.pop(link)]
        del self._brought[link]
        self._ended.pop(link, None)

    def shun(self, route: bytes) -> None:
        """Nothing that comes by this route is heard any more; of too many, the oldest is."""
        self._shunned[route] = None
        if len(self._shunned) > SHUNNED_MAX:
            self._shunned.popitem(last=False)

    def shuns(self, route: bytes) -> bool:
        """Whether nothing is heard that comes by this route."""
        return route in self._shunned

    # --- ends -------------------------------------------------------------------------------------

    def some_end(self, now_s: float) -> bool:
        """Before the socket is read: note whose connections are closed; whether to read without a rest."""
        closed = self._ends.closed()
        if numbers := self._ends.closed_unseen():
            brought = (each for each in self._brought.values() if each is not None and each.number in numbers)
            closed += [each for each in brought if not each.is_open()]
        for link in self.by(closed):
            self._ended.setdefault(link, now_s)
        return bool(self._ended) or self._ends.waits

    def over(self, now_s: float, *, drained: bool) -> list[str]:
        """After that: links that are over.

        Args:
            drained: nothing is left to read, so all that was said before an end that was noted has come.
        """
        return [link for link, at_s in self._ended.items() if drained or now_s - at_s >= LAST_WORDS_S]
