"""Queries that another node deployed and this one coordinates now: was all of it ever there? No IO.

    role taken over ── Configure ──> each node that was to have a part by it
        ^── it has all of that; or it was never given some, and never will be (E_PART)

Whoever deployed it may have died before every node had its part, and nobody else has what those were to run.
A node that knows that the role is another's takes nothing more from the one before, so its word stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.nodes.agreement.missing_parts import missing_parts, never_given
from medusa.nodes.catalog.catalog import RUNNING, Catalog
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.requests import Requests
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import NEVER_GIVEN, Configuration, Configure
from medusa.wire.outbox import Outbox

__all__ = ["MissingPart", "TakenOverDeployments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPart:
    """A node was never given a part of a query, in its own words."""

    query: str
    node: str
    why: str


class TakenOverDeployments:
    """Of one node.

    Args:
        number: gives numbers for questions to nodes; they grow over all lives.
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        outbox: Outbox,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
    ) -> None:
        self._catalog = catalog
        self._outbox = outbox
        self._number = number
        self._is_up = is_up
        self._open: Requests[str] = Requests()
        self._missing: dict[str, MissingPart] = {}

    def resume(self, now_us: int) -> None:
        """After a start: what was answered before isn't known."""
        for query, deployment in self._catalog.deployments.items():
            if deployment.taken_over:
                self.begin(now_us, query)

    def begin(self, now_us: int, query: str) -> None:
        """The role is this node's: have each ask that was to have a part."""
        self.forget(query)
        current = self._current(query)
        if current is None or current.parts is None:
            return
        owners = [each.owner for each in current.fragments if each.epoch == FIRST_EPOCH and not each.gone]
        for node in dict.fromkeys((*owners, *(node for _, node in current.parts.streams))):
            self._open.open(now_us, self._number(), node, query, said=False)

    def _current(self, query: str) -> Configuration | None:
        """By which this node coordinates it; None: it doesn't."""
        deployment, kept = self._catalog.deployment(query), self._catalog.configuration(query)
        if deployment is None or deployment.state != RUNNING or kept is None:
            return None
        return kept.current if kept.current.coordinator == self._catalog.node else None

    def forget(self, query: str) -> None:
        """It is removed, or another node coordinates it."""
        self._open.forget(lambda of: of == query)
        self._missing.pop(query, None)

    def answered(self, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to one of these."""
        each = self._open.get(reply.request, peer)
        if each is None:
            return False
        if reply.code == NEVER_GIVEN:
            self._missing[each.order] = MissingPart(query=each.order, node=peer, why=reply.text)
        elif not reply.code:
            self._open.close(each)
        return True  # Of others it will hear a newer configuration, or we do.

    def incomplete(self) -> list[MissingPart]:
        """What was never there in full, by what was heard since the last call: it is heard again until the
        query is removed."""
        found, self._missing = list(self._missing.values()), {}
        return found

    def tick(self, now_us: int) -> None:
        """Ask again who hasn't answered."""
        for each in self._open.due(now_us):
            query, current = each.order, self._current(each.order)
            if current is None:
                self.forget(query)
                continue
            each.said(now_us)
            if each.to != self._catalog.node:
                if self._is_up(each.to):
                    self._outbox.send(each.to, Configure(request=each.number, configuration=current))
            elif missing := missing_parts(self._catalog, current):
                why = never_given(each.to, missing)
                self._missing[query] = MissingPart(query=query, node=each.to, why=why)
            else:
                self._open.close(each)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._open.wake_at_us()
