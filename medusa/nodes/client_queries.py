"""Queries that clients of this node deploy and undeploy, until the coordinator takes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from medusa.errors import QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.coordinator import DeploymentCoordinator
from medusa.nodes.deploy.passed_on import PassedOnRemovals
from medusa.nodes.deploy.query_plan import DeployRequest, check_name, plan_of, planned_standby
from medusa.nodes.fragments import Fragments
from medusa.nodes.message_table import Heard
from medusa.nodes.names.definitions import Definitions
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.placement.checkpoint_intervals import IntervalWish
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.standby_plan import StandbyNode, StandbyWish
from medusa.nodes.security.registry import Caller
from medusa.nodes.security.sessions import refusal_of
from medusa.query.suggest import did_you_mean
from medusa.wire.messages.commands import Deploy, Remove, Reply
from medusa.wire.messages.directory import Define
from medusa.wire.messages.standby import DeployGuarded
from medusa.wire.outbox import Outbox

__all__ = ["ClientQueries"]


class ClientQueries:
    """Takes what clients ask about queries, each question once; what a node has removed is the fragments'.

    Args:
        definitions: takes streams that clients define.
        nodes: those that are known here, with what speaks for and against their standing by.
        deployed_at: the node where a query was deployed, as far as is known here; empty: unknown.
        away: which nodes don't answer.
        number: gives numbers for questions to nodes.
        noticed_us: after so long this node notices that a link is silent.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        coordinator: DeploymentCoordinator,
        definitions: Definitions,
        fragments: Fragments,
        *,
        parsing: BackgroundParsing,
        outbox: Outbox,
        nodes: Callable[[], Mapping[str, StandbyNode]],
        deployed_at: Callable[[str], str],
        away: UnreachablePeers,
        number: Callable[[], int],
        noticed_us: int,
    ) -> None:
        self._settings, self._catalog, self._coordinator = settings, catalog, coordinator
        self._definitions, self._fragments = definitions, fragments
        self._parsing = parsing
        self._outbox = outbox
        self._nodes = nodes
        self._deployed_at = deployed_at
        self._away = away
        self._noticed_us = noticed_us
        self._passed_on = PassedOnRemovals(
            catalog,
            outbox=outbox,
            patience_us=settings.limits.deploy_timeout_us,
            number=number,
            here=coordinator.undeploy,
            away=away,
        )

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to what this node passed on for a client."""
        return self._passed_on.answered(now_us, peer, reply)

    def tick(self, now_us: int) -> None:
        """Pass on again what wasn't answered."""
        self._passed_on.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._passed_on.wake_at_us()

    def receive(self, heard: Heard) -> None:
        """Take a command about a query."""
        now_us, peer, message, payload = heard.now_us, heard.peer, heard.message, heard.payload or b""
        ours = heard.caller is None or heard.caller.participant == self._settings.participant
        match message:
            case Deploy() | DeployGuarded():
                self._deploy(now_us, peer, message, bytes(payload), heard.caller)
            case Define():
                self._definitions.define(now_us, peer, message, payload, heard.caller)
            case Remove() if heard.client or (message.asked and ours):
                self._undeploy(now_us, peer, message)
            case Remove():
                if ours:
                    self._ended(now_us, message)
                self._fragments.remove_for(peer, message, heard.caller)

    def _ended(self, now_us: int, message: Remove) -> None:
        """A query that this node coordinates was removed by one that did so before, or thinks it does."""
        kept = self._catalog.configuration(message.query)
        same = message.life != 0 and kept is not None and kept.current.life == message.life
        if kept is not None and same and message.query in self._catalog.deployments:
            self._coordinator.ended(now_us, message.query, kept.current.nodes())

    def _deploy(
        self,
        now_us: int,
        client: str,
        message: Deploy | DeployGuarded,
        graph: bytes,
        caller: Caller | None,
    ) -> None:
        def refuse(error: QueryError) -> None:
            self._outbox.send(client, refusal_of(message.request, error.code, error.message, error.hint))

        try:
            query = check_name(graph, caller)
        except QueryError as error:
            refuse(error)
            return
        wish, dry = StandbyWish(), False
        intervals: IntervalWish = ()
        if isinstance(message, DeployGuarded):
            wish = StandbyWish(standby=message.standby, witnesses=message.witnesses)
            intervals, dry = message.checkpoint_every, message.dry
        asked = DeployRequest(
            graph=graph,
            at=message.at,
            reads=message.reads,
            caller=caller,
            wish=wish,
            intervals=intervals,
            nodes=(nodes := self._nodes()),
            noticed_us=self._noticed_us,
        )

        def planned(now_us: int, plan: PlacementPlan) -> None:
            if dry:
                said = planned_standby(plan, wish, self._settings.name, nodes)
                self._outbox.send(client, Reply(request=message.request), said)
            else:
                self._coordinator.deploy(now_us, client, message.request, plan)

        self._parsing.read(
            now_us,
            client,
            caller,
            ("deploy", message.request),
            nbytes=len(graph),
            read=partial(plan_of, asked, self._settings),
            then=planned,
            refuse=refuse,
            query=query,
        )

    def _is_over(self, query: str, life: int) -> bool:
        """Whether this life of a query was removed; there may be another query of that name by now."""
        kept = self._catalog.configuration(query)
        same = kept is not None and kept.current.life == life
        return not same and (self._catalog.is_buried(query, life) or query in self._catalog.deployments)

    def _undeploy(self, now_us: int, client: str, message: Remove) -> None:
        query = message.query
        try:
            if self._parsing.holds(client, query, lambda now_us: self._undeploy(now_us, client, message)):
                return
        except QueryError as busy:
            self._outbox.send(client, refusal_of(message.request, busy.code, busy.message, busy.hint))
            return
        if message.asked and self._is_over(query, message.life):
            self._outbox.send(client, Reply(request=message.request))
            return
        if query in self._catalog.deployments:
            self._coordinator.undeploy(now_us, client, message.request, query)
            return
        if self._coordinator.answered(client, message.request):
            return
        if not message.asked and self._passed_on.take(now_us, client, message.request, query):
            return
        owner = self._catalog.coordinator_of(query) or self._deployed_at(query)
        away = self._away.told(now_us, [owner], {owner: query})
        text = f"no query {query[:100]!r} is deployed, as far as node {self._settings.name!r} knows"
        hint = did_you_mean(query, self._catalog.deployments)
        if owner and owner != self._settings.name:
            text = away or f"query {query!r} was deployed at node {owner!r}"
            hint = "undeploy it when it is back" if away else "undeploy it there"
        # A node that asks for a client looks for who coordinates by then, who may be there for it.
        code = "E_TIMEOUT" if away and not message.asked else "E_QUERY"
        self._outbox.send(client, refusal_of(message.request, code, text, hint))
