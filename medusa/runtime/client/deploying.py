"""What a client orders of queries: to be deployed, and what would come of that."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.decoders import converter
from medusa.errors import LinkError, QueryError
from medusa.nodes.placement.checkpoint_intervals import IntervalWish
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.standby_plan import StandbyWish
from medusa.query.boxes import Graph
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.client.deployment_wishes import (
    CheckpointEvery,
    Standby,
    asks_delay,
    asks_recovery,
    deployment,
    interval_wish,
    standby_wish,
)
from medusa.runtime.client.home_node import HomeNode
from medusa.runtime.client.names import Names
from medusa.runtime.client.placement import Balance, Expected, expected, with_standby
from medusa.wire.messages.commands import Deploy
from medusa.wire.messages.standby import DeployGuarded, PlannedStandby

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["Deploying"]

_PLANNED = converter(PlannedStandby)

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Between attempts to deploy a query whose stream moves meanwhile."""


class Deploying:
    """Has the home node deploy queries, and says what is expected of their placement."""

    def __init__(self, home: HomeNode, names: Names) -> None:
        self._home = home
        self._names = names

    def deploy(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]] | Balance | None,
        *,
        standby: Standby | None,
        witness: Sequence[str],
        checkpoint_every: CheckpointEvery | None,
    ) -> dict[str, Any] | None:
        """As ``Federation.deploy``."""
        from medusa.query.builder import Query

        if not isinstance(q, Query):
            raise QueryError(f"deploy takes a md.Query, came {type(q).__name__}", code="query.kind")
        if isinstance(at, Balance):
            at = expected(q.graph, at, self._home.status()).at
        if at is not None and not isinstance(at, Mapping):
            raise QueryError(
                f"deploy: at is {type(at).__name__} {at!r:.60}, expected node -> list of box names",
                hint='at={"edge-1": ["cars"]}; left out, all stands at this node',
                code="query.placement",
            )
        graph = q.graph
        where = at if at is not None else {self._home.name: [box.id for box in graph.boxes]}
        cut(graph, where)  # What can be refused without asking is refused here, in the same words.
        wish, intervals = standby_wish(standby, witness), interval_wish(checkpoint_every)
        planned = None
        if wish != StandbyWish() or intervals:  # It is deployed as it was chosen, whatever changes meanwhile.
            planned = self._planned_standby(graph, where, wish, intervals)
            wish = StandbyWish(standby=tuple(planned.standby.items()), witnesses=planned.witnesses)
        content = graph_to_msgpack(graph)
        moved: tuple[str, ...] = ()
        for rest_s in (*PAUSES_S, None):
            deploy = deployment(where, self._names.reads(graph), wish, intervals)
            try:
                self._home.ask(partial(_numbered, deploy), content, spread=True)
            except LinkError as error:
                # What it reads has just moved: it is looked for anew, once all that was begun is undone.
                if rest_s is None or not deploy.reads or error.code not in ("E_MOVED", *moved):
                    raise
                moved = ("E_DEPLOYED",)
                time.sleep(rest_s)
            else:
                break
        return None if planned is None else msgspec.to_builtins(planned)

    def plan(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]] | Balance | None,
        *,
        standby: Standby | None,
        witness: Sequence[str],
        checkpoint_every: CheckpointEvery | None,
    ) -> Expected:
        """As ``Federation.plan``."""
        wish, intervals = standby_wish(standby, witness), interval_wish(checkpoint_every)
        status = self._home.status()
        found = expected(q.graph, at, status)
        unguarded = wish == StandbyWish() and not asks_recovery(q.graph)
        if unguarded and not intervals and not asks_delay(q.graph):
            return found
        said = self._planned_standby(q.graph, found.at, wish, intervals)
        found = replace(found, checkpoint_every=said.checkpoint_every)
        if unguarded:
            return found
        rates = at.rates if isinstance(at, Balance) else {}
        return with_standby(found, q.graph, rates, status, said)

    def _planned_standby(
        self, graph: Graph, at: Mapping[str, Sequence[str]], wish: StandbyWish, intervals: IntervalWish
    ) -> PlannedStandby:
        """Who would stand by, and how often fragments take a checkpoint, as the asked node says; nothing is
        deployed.

        Raises:
            LinkError: it would refuse the query, or didn't answer.
        """
        dry = deployment(at, self._names.reads(graph), wish, intervals, dry=True)
        planned = _PLANNED(self._home.ask(partial(_numbered, dry), graph_to_msgpack(graph)))
        if intervals and not planned.checkpoint_every:
            raise LinkError(
                f"the release of node {self._home.name!r} doesn't know checkpoint_every",
                hint="update it, or leave checkpoint_every out",
                code="E_VERSION",
            )
        return planned


def _numbered(message: Deploy | DeployGuarded, number: int) -> Deploy | DeployGuarded:
    return msgspec.structs.replace(message, request=number)
