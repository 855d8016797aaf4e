"""Splits and merges boxes of the queries that a node coordinates, where its ``[scale]`` says so. No IO.

    look is due ── StatusRequest ──> nodes that have a part of the query ── Reply ──> QueryScaler
    its order ── Split, Merge or Move ──> the node that has the fragment ── Reply ──> QueryScaler

Nodes refuse what can't be done just now, and each of these orders is done whole or not at all: so nothing
depends on who orders it, nor on whether they live to see it done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from medusa.decoders import json_decoder
from medusa.nodes.catalog.catalog import RUNNING, Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.names.lookup import NameLookup
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.nodes.requests import Request, Requests
from medusa.nodes.scaling.next_step import ScaleOrder
from medusa.nodes.scaling.policy import ScalePolicy, ScaleRules, WorkPolicy
from medusa.nodes.scaling.query_scaler import QueryScaler, rules_of
from medusa.ports import Buffer
from medusa.wire.messages.commands import Reply, StatusRequest
from medusa.wire.messages.load import WHOLE
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import NodeStatus, ScalingStatus

__all__ = ["NodeScaler"]

STATUS_US = 2_000_000
"""A node that hasn't told how it is by then is silent. Too small: one that is busy is never seen to."""

MOVE_MS = 20_000
"""Attempts to move a part begin so long."""

ORDER_US = 60_000_000
"""An order that isn't answered by then is given up; it may be carried out yet."""

SILENT_US = 5_000_000
"""Nor is one waited for whose node isn't heard for so long: another may have taken over by then."""

_STATUS = json_decoder(NodeStatus)


@dataclass(slots=True, kw_only=True)
class _Survey:
    """How the nodes are: asked for these queries, since they are due.

    Attributes:
        asked: node -> the number of the question.
        told: by node.
        until_us: then it is over.
    """

    queries: list[str]
    until_us: int
    asked: dict[str, int] = field(default_factory=dict)
    told: dict[str, NodeStatus] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.told.keys() >= self.asked.keys()


class NodeScaler:
    """Of one node.

    Args:
        names: of the participant: which nodes have fragments of a query.
        number: gives the numbers of questions to nodes.
        is_up: whether a node is heard here; this node always is.
        nodes: as they are known here, by name.
        own_status: of this node.
        policy: makes what decides, for a query.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        names: NameLookup,
        loads: NodeLoads,
        *,
        outbox: Outbox,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
        nodes: Callable[[], Mapping[str, StandbyNode]],
        own_status: Callable[[int], NodeStatus],
        policy: Callable[[ScaleRules], ScalePolicy] = WorkPolicy,
    ) -> None:
        self._me = settings.name
        self._settings = settings
        self._rules = settings.scale
        self._catalog = catalog
        self._names = names
        self._loads = loads
        self._outbox = outbox
        self._number = number
        self._is_up = is_up
        self._nodes = nodes
        self._own_status = own_status
        self._policy = policy
        self._queries: dict[str, QueryScaler] = {}
        self._survey: _Survey | None = None
        self._orders: Requests[tuple[str, ScaleOrder]] = Requests()
        """(query, what)."""
        self._heard_us: dict[int, int] = {}
        """Number of an order -> when its node was there last."""

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        if self._rules is None:
            return
        self._follow(now_us)
        for each in self._orders.due(now_us):
            self._say_again(now_us, each)
        if self._survey is not None and (self._survey.is_over or now_us >= self._survey.until_us):
            self._look(now_us, self._survey)
        if self._survey is None and self._due(now_us):
            self._ask(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: never."""
        if self._rules is None:
            return None
        idle = (each for each in self._queries.values() if each.order is None)
        times = [self._survey.until_us] if self._survey is not None else [each.next_look_us for each in idle]
        times += [at_us for at_us in (self._orders.wake_at_us(),) if at_us is not None]
        return min(times, default=None)

    def _follow(self, now_us: int) -> None:
        """See to the queries that this node coordinates, and to no others."""
        assert self._rules is not None
        ours = {
            query: each
            for query, each in self._catalog.deployments.items()
            if each.state == RUNNING and not each.ended and not each.defined
        }
        for query in [query for query in self._queries if query not in ours]:
            del self._queries[query]
            self._orders.forget(lambda order, gone=query: order[0] == gone)  # type: ignore[misc]
            self._heard_us = {n: us for n, us in self._heard_us.items() if self._orders.get(n) is not None}
        for query in ours:
            if query not in self._queries:
                policy = self._policy(rules_of(self._rules))
                self._queries[query] = QueryScaler(
                    now_us,
                    query,
                    self._rules,
                    policy,
                    self._outbox,
                    half_life_us=self._settings.load.half_life_us,
                )

    def _due(self, now_us: int) -> list[str]:
        """Queries that are to be looked at, and for which nothing is under way."""
        return [
            query
            for query, each in self._queries.items()
            if each.order is None and now_us >= each.next_look_us
        ]

    # --- looking ----------------------------------------------------------------------------------

    def _ask(self, now_us: int) -> None:
        """How are you? Of nodes that have something of what is due."""
        self._survey = survey = _Survey(queries=self._due(now_us), until_us=now_us + STATUS_US)
        nodes = dict.fromkeys(node for query in survey.queries for node in self._places(query))
        for node in nodes:
            survey.asked[node] = number = self._number()
            if node == self._me:
                survey.told[node] = self._own_status(now_us)
            elif self._is_up(node):
                self._outbox.send(node, StatusRequest(request=number))
        if survey.is_over:
            self._look(now_us, survey)

    def _places(self, query: str) -> list[str]:
        """Nodes that have a fragment of it, as the catalog says; another participant's tell us nothing."""
        own = (self._me, *self._settings.own_peers)
        return [node for node in self._names.nodes_of(query) if node in own]

    def _look(self, now_us: int, survey: _Survey) -> None:
        self._survey = None
        for query in (query for query in survey.queries if query in self._queries):
            places = self._places(query)
            told = [survey.told[node] for node in places if node in survey.told]
            silent = [node for node in places if node not in survey.told]
            order = self._queries[query].look(now_us, told, silent, self._rooms())
            if order is not None:
                number, until_us = self._number(), now_us + ORDER_US
                self._orders.open(now_us, number, order.node, (query, order), deadline_us=until_us)
                self._send(number, order, order.node)

    def _rooms(self) -> dict[str, float]:
        """Nodes that take parts, and how much of each is used."""
        found: dict[str, float] = {}
        for name, node in self._takers().items():
            if not node.up:
                continue
            if name == self._me:
                found[name] = self._loads.load or 0.0
            elif name in self._loads.peers and not (said := self._loads.peers[name][1]).overloaded:
                found[name] = said.load / WHOLE
        return found

    def _takers(self) -> dict[str, StandbyNode]:
        """Nodes that may take parts, whether they are up or not."""
        assert self._rules is not None
        may = self._rules.nodes
        return {
            name: node
            for name, node in self._nodes().items()
            if (not may or name in may) and not (node.abroad or node.forgets or node.elsewhere)
        }

    # --- orders -----------------------------------------------------------------------------------

    def _say_again(self, now_us: int, request: Request[tuple[str, ScaleOrder]]) -> None:
        query, order = request.order
        request.said(now_us, self._place(order))
        if self._is_up(request.to):
            self._heard_us[request.number] = now_us
            self._send(request.number, order, request.to)
        silent_us = now_us - self._heard_us.get(request.number, request.since_us)
        if request.expired(now_us) or silent_us >= SILENT_US:
            self._orders.close(request)
            self._heard_us.pop(request.number, None)
            self._queries[query].unanswered(now_us)

    def _place(self, order: ScaleOrder) -> str:
        """Who is told of a move again: the node that has the fragment by now. It answers for one that was
        restarted meanwhile; a split or merge whoever has done it answers."""
        found = self._names.fragment_at(order.fragment) if order.what == "move" else None
        return found or order.node

    def _send(self, number: int, order: ScaleOrder, to: str) -> None:
        fragment, box = order.fragment, order.box
        message: Split | Merge | Move
        match order.what:
            case "split":
                message = Split(
                    request=number, fragment=fragment, box=box, parts=order.parts, ranges=order.ranges
                )
            case "merge":
                message = Merge(request=number, fragment=fragment, box=box)
            case "move":
                message = Move(request=number, fragment=fragment, to=order.to, timeout_ms=MOVE_MS)
        self._outbox.send(to, message)

    def answered(self, now_us: int, peer: str, reply: Reply, payload: Buffer | None) -> bool:
        """Take an answer; whether it was to a question of ours."""
        if self._survey is not None and self._survey.asked.get(peer) == reply.request:
            if payload is not None and not reply.code and (status := _read(payload)) is not None:
                self._survey.told[peer] = status
                self.tick(now_us)
            return True
        request = self._orders.get(reply.request)
        if request is None:
            return False
        # Who has it now may say so in place of who had it.
        if peer == request.to or not reply.code:
            self._orders.close(request)
            self._heard_us.pop(request.number, None)
            self._queries[request.order[0]].answered(now_us, reply)
        return True

    # --- what is seen -----------------------------------------------------------------------------

    def status(self, now_us: int, query: str) -> ScalingStatus | UnsetType:
        """``status()["queries"][query]["scaling"]``; unset: this node doesn't see to it."""
        found = self._queries.get(query)
        if found is None:
            return UNSET
        return found.status(now_us, [name for name, node in self._takers().items() if not node.up])


def _read(payload: Buffer) -> NodeStatus | None:
    try:
        return _STATUS.decode(payload)
    except msgspec.MsgspecError:
        return None
