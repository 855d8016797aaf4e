"""Removals that clients ask of a node which doesn't coordinate the query: passed on to the one that does.

Only of queries whose coordinator's role others take over: a client needn't know who has it now. No IO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.security.sessions import refusal_of
from medusa.wire.messages.links_and_commands import Remove, Reply
from medusa.wire.outbox import Outbox

__all__ = ["PassedOnRemovals"]

AGAIN_US = 1_000_000
"""What wasn't answered is passed on again after this: to who coordinates the query by then."""

PASSED_ON_MAX = 1000
"""That are not answered; of older ones who waits asks again."""


@dataclass(slots=True, kw_only=True)
class _PassedOn:
    client: str
    request: int
    query: str
    life: int
    node: str
    since_us: int
    said_us: int


class PassedOnRemovals:
    """Of one node.

    Args:
        patience_us: who coordinates may be away for so long before the client is refused.
        number: gives numbers for questions to nodes.
        here: does it at this node, which has come to coordinate the query meanwhile.
        away: which nodes don't answer.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        outbox: Outbox,
        patience_us: int,
        number: Callable[[], int],
        here: Callable[[int, str, int, str], None],
        away: UnreachablePeers,
    ) -> None:
        self._catalog = catalog
        self._outbox = outbox
        self._patience_us = patience_us
        self._number = number
        self._here = here
        self._away = away
        self._open: dict[int, _PassedOn] = {}

    def take(self, now_us: int, client: str, request: int, query: str) -> bool:
        """Pass it on, if another node coordinates this query; whether that is so."""
        kept = self._catalog.configuration(query)
        if kept is None or kept.current.parts is None or kept.current.coordinator == self._catalog.node:
            return False
        if not any((each.client, each.request) == (client, request) for each in self._open.values()):
            made = self._open[self._number()] = _PassedOn(
                client=client,
                request=request,
                query=query,
                life=kept.current.life,
                node=kept.current.coordinator,
                since_us=now_us,
                said_us=now_us,
            )
            if len(self._open) > PASSED_ON_MAX:
                del self._open[next(iter(self._open))]
            self._say(now_us, next(reversed(self._open)), made)
        return True

    def _say(self, now_us: int, number: int, each: _PassedOn) -> None:
        each.said_us = now_us
        self._outbox.send(each.node, Remove(request=number, query=each.query, life=each.life, asked=True))

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to one of these."""
        each = self._open.get(reply.request)
        if each is None:
            return False
        # Who has just lost the role, or doesn't know yet that it has it, isn't the one to refuse.
        if peer == each.node and reply.code not in ("E_QUERY", "E_MOVED"):
            del self._open[reply.request]
            self._outbox.send(each.client, msgspec.structs.replace(reply, request=each.request))
        return True

    def tick(self, now_us: int) -> None:
        """Pass on again; refuse what took too long."""
        for number, each in list(self._open.items()):
            if now_us - each.said_us < AGAIN_US:
                continue
            if self._catalog.is_buried(each.query, each.life):  # It is removed, whoever did it.
                del self._open[number]
                self._outbox.send(each.client, Reply(request=each.request))
                continue
            kept = self._catalog.configuration(each.query)
            current = None if kept is None or kept.current.life != each.life else kept.current
            if current is not None:
                each.node = current.coordinator
            if current is not None and each.node == self._catalog.node:
                del self._open[number]
                self._here(now_us, each.client, each.request, each.query)
            elif now_us - each.since_us >= self._patience_us:
                del self._open[number]
                self._refuse(now_us, each)
            else:
                self._say(now_us, number, each)

    def _refuse(self, now_us: int, each: _PassedOn) -> None:
        text = self._away.told(now_us, [each.node], {each.node: each.query})
        text = text or f"node {each.node!r}, which coordinates query {each.query!r}, hasn't removed it"
        hint = "ask again: another node takes its role over as soon as more than half of the voters agree"
        self._outbox.send(each.client, refusal_of(each.request, "E_TIMEOUT", text, hint))

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return min((each.said_us + AGAIN_US for each in self._open.values()), default=None)
