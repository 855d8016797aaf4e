"""Removals that clients ask of a node which doesn't coordinate the query: passed on to the one that does.

Only of queries whose coordinator's role others take over: a client needn't know who has it now. No IO.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.requests import Request, Requests
from medusa.nodes.security.sessions import refusal_of
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.outbox import Outbox

__all__ = ["PassedOnRemovals"]

PASSED_ON_MAX = 1000
"""That are not answered; of older ones who waits asks again."""


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
        self._open: Requests[Remove] = Requests(PASSED_ON_MAX)
        """Said again: to who coordinates the query by then."""

    def take(self, now_us: int, client: str, request: int, query: str) -> bool:
        """Pass it on, if another node coordinates this query; whether that is so."""
        kept = self._catalog.configuration(query)
        if kept is None or kept.current.parts is None or kept.current.coordinator == self._catalog.node:
            return False
        if not self._open.waits((client, request)):
            to, number = kept.current.coordinator, self._number()
            message = Remove(request=number, query=query, life=kept.current.life, asked=True)
            self._open.open(now_us, number, to, message, cause=(client, request))
            self._outbox.send(to, message)
        return True

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to one of these."""
        each = self._open.get(reply.request)
        if each is None:
            return False
        # Who has just lost the role, or doesn't know yet that it has it, isn't the one to refuse.
        if peer == each.to and reply.code not in ("E_QUERY", "E_MOVED"):
            self._open.close(each)
            client, request = each.cause
            self._outbox.send(client, msgspec.structs.replace(reply, request=request))
        return True

    def tick(self, now_us: int) -> None:
        """Pass on again; refuse what took too long."""
        for each in self._open.due(now_us):
            query, life, (client, request) = each.order.query, each.order.life, each.cause
            if self._catalog.is_buried(query, life):  # It is removed, whoever did it.
                self._open.close(each)
                self._outbox.send(client, Reply(request=request))
                continue
            kept = self._catalog.configuration(query)
            at = each.to if kept is None or kept.current.life != life else kept.current.coordinator
            if at == self._catalog.node:
                self._open.close(each)
                self._here(now_us, client, request, query)
            elif now_us - each.since_us >= self._patience_us:
                self._open.close(each)
                self._refuse(now_us, each, at)
            else:
                each.said(now_us, at)
                self._outbox.send(at, each.order)

    def _refuse(self, now_us: int, each: Request[Remove], at: str) -> None:
        query, (client, request) = each.order.query, each.cause
        text = self._away.told(now_us, [at], {at: query})
        text = text or f"node {at!r}, which coordinates query {query!r}, hasn't removed it"
        hint = "ask again: another node takes its role over as soon as more than half of the voters agree"
        self._outbox.send(client, refusal_of(request, "E_TIMEOUT", text, hint))

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._open.wake_at_us()
