"""A query as a client sent it, read and cut as its placement says. Pure: it may run beside the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.errors import QueryError
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.cross_query_reads import feeds_from
from medusa.nodes.placement.checkpoint_intervals import IntervalWish, intervals_of, with_intervals
from medusa.nodes.placement.delay_plan import with_delays
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.placement.shedding_plan import with_shedding
from medusa.nodes.placement.standby_plan import (
    StandbyNode,
    StandbyWish,
    standby_warnings,
    voters,
    with_standby,
)
from medusa.nodes.security.registry import Caller, no_deploy
from medusa.nodes.spec.fragment_spec import SPEC_BYTES_MAX, fragment_to
from medusa.nodes.spec.spec_limits import check_limits
from medusa.query.codec import graph_from_msgpack, graph_to_msgpack
from medusa.wire.messages.standby import PlannedStandby

__all__ = ["DeployRequest", "check_name", "name_of", "plan_of", "planned_standby"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployRequest:
    """What a client asked.

    Attributes:
        at: node and boxes there.
        reads: where streams of other queries are: (source, node, stream there, epoch).
        caller: the client; None: this node has no keys.
        wish: who shall stand by.
        nodes: that may, as they are known here now.
        intervals: how often fragments take a checkpoint.
        noticed_us: after so long this node notices that a link is silent; 0: nothing is deployed yet.
    """

    graph: bytes
    at: tuple[tuple[str, tuple[str, ...]], ...]
    reads: tuple[tuple[str, str, str, int], ...] = ()
    caller: Caller | None
    wish: StandbyWish = field(default_factory=StandbyWish)
    nodes: Mapping[str, StandbyNode] = field(default_factory=dict)
    intervals: IntervalWish = ()
    noticed_us: int = 0


class _Head(msgspec.Struct):
    name: str


_HEADS = msgpack_decoder(_Head)


def name_of(graph: bytes) -> str:
    """What a graph says that it is called, with nothing else read.

    Raises:
        QueryError: it isn't one.
    """
    try:
        return _HEADS.decode(graph).name
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"query: not the msgpack of a query: {error}"[:500]
        raise QueryError(text, code="query.codec") from None


def check_name(graph: bytes, caller: Caller | None) -> str:
    """The name of a query that a client may deploy.

    Raises:
        QueryError: it may not (``E_ROLE``), or this is no query.
    """
    name = name_of(graph)
    if caller is not None and not caller.may("deploy", name):
        why = no_deploy(caller, name)
        raise QueryError(why.text, hint=why.hint, code=why.code)
    return name


def plan_of(asked: DeployRequest, settings: Settings) -> PlacementPlan:
    """Read a query and a placement that a client sent.

    Raises:
        QueryError: one of them doesn't hold, or the client may not deploy it.
    """
    at: dict[str, tuple[str, ...]] = {}
    for node, boxes in asked.at:
        if node in at:
            raise QueryError(f"node {node!r} is named twice", code="query.placement")
        at[node] = boxes
    check_name(asked.graph, asked.caller)
    graph = graph_from_msgpack(asked.graph)
    if graph_to_msgpack(graph) != asked.graph:
        raise QueryError("a query that is not in canonical form", code="E_MESSAGE")
    feeds = feeds_from(graph, asked.reads, settings.participant, asked.caller)
    plan = cut(graph, at, nodes=[settings.name, *settings.peers], reads=feeds)
    plan = with_delays(plan, noticed_us=asked.noticed_us, nodes=asked.nodes)
    plan = with_standby(plan, graph, asked.wish, here=settings.name, nodes=asked.nodes)
    plan = with_intervals(plan, graph, asked.intervals, nodes=asked.nodes)
    plan = with_shedding(plan, graph)
    for fragment in plan.fragments:
        check_limits(fragment.graph)
        if len(fragment_to(fragment)) > SPEC_BYTES_MAX:
            raise QueryError(
                f"fragment {fragment.name!r} has more than {SPEC_BYTES_MAX:,} bytes", code="query.limit"
            )
        if fragment.node == settings.name:  # What stands elsewhere is checked there.
            fragment.check()
    return plan


def planned_standby(
    plan: PlacementPlan, wish: StandbyWish, here: str, nodes: Mapping[str, StandbyNode]
) -> bytes:
    """What a client hears of its wishes, as JSON; arguments as for ``with_standby``."""
    who = voters(plan, here)
    said = PlannedStandby(
        standby={fragment.name: fragment.standby for fragment in plan.guarded()},
        backups={each.name: each.backup_nodes for each in plan.guarded() if each.backup_nodes},
        witnesses=plan.witnesses,
        voters=who,
        away=tuple(name for name in who if name in nodes and not nodes[name].up),
        warnings=standby_warnings(plan, wish, here=here, nodes=nodes),
        checkpoint_every=intervals_of(plan),
    )
    return msgspec.json.encode(said)
