"""Queries that clients of this node deploy and undeploy, until the coordinator takes over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from medusa.errors import QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import Parsing
from medusa.nodes.deploy.coordinator import Coordinator
from medusa.nodes.deploy.query_plan import Asked, check_name, plan_of
from medusa.nodes.names.unreachable_peers import Away
from medusa.nodes.security.registry import Caller
from medusa.query.suggest import did_you_mean
from medusa.wire import limits
from medusa.wire.messages.links_and_commands import Deploy, Remove, Reply
from medusa.wire.outbox import Outbox

__all__ = ["ClientQueries", "refusal_of"]


def refusal_of(request: int, code: str, text: str, hint: str = "") -> Reply:
    """The answer to a question that is refused; texts are cut to what a message may have."""
    most = limits.TEXT_CHARS_MAX
    return Reply(request=request, code=code, text=text[:most], hint=hint[:most])


class ClientQueries:
    """Takes what clients ask about queries, each question once.

    Args:
        deployed_at: the node where a query was deployed, as far as is known here; empty: unknown.
        away: which nodes don't answer.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        coordinator: Coordinator,
        *,
        parsing: Parsing,
        outbox: Outbox,
        deployed_at: Callable[[str], str],
        away: Away,
    ) -> None:
        self._settings, self._catalog, self._coordinator = settings, catalog, coordinator
        self._parsing = parsing
        self._outbox = outbox
        self._deployed_at = deployed_at
        self._away = away

    def deploy(self, now_us: int, client: str, message: Deploy, graph: bytes, caller: Caller | None) -> None:
        def refuse(error: QueryError) -> None:
            self._outbox.send(client, refusal_of(message.request, error.code, error.message, error.hint))

        try:
            query = check_name(graph, caller)
        except QueryError as error:
            refuse(error)
            return
        self._parsing.read(
            now_us,
            client,
            caller,
            ("deploy", message.request),
            nbytes=len(graph),
            read=partial(
                plan_of, Asked(graph=graph, at=message.at, reads=message.reads, caller=caller), self._settings
            ),
            then=lambda now_us, plan: self._coordinator.deploy(now_us, client, message.request, plan),
            refuse=refuse,
            query=query,
        )

    def undeploy(self, now_us: int, client: str, message: Remove) -> None:
        query = message.query
        try:
            if self._parsing.holds(client, query, lambda now_us: self.undeploy(now_us, client, message)):
                return
        except QueryError as busy:
            self._outbox.send(client, refusal_of(message.request, busy.code, busy.message, busy.hint))
            return
        if query in self._catalog.deployments:
            self._coordinator.undeploy(now_us, client, message.request, query)
            return
        if self._coordinator.answered(client, message.request):
            return
        owner = self._catalog.owners.get(query) or self._deployed_at(query)
        away = self._away.told(now_us, [owner], {owner: query})
        text = f"no query {query[:100]!r} was deployed at node {self._settings.name!r}"
        hint = did_you_mean(query, self._catalog.deployments)
        if owner and owner != self._settings.name:
            text = away or f"query {query!r} was deployed at node {owner!r}"
            hint = "undeploy it when it is back" if away else "undeploy it there"
        self._outbox.send(client, refusal_of(message.request, "E_TIMEOUT" if away else "E_QUERY", text, hint))
