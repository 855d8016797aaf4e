"""Where the boxes of a query shall stand, by their load; and what is expected of a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medusa.errors import QueryError
from medusa.nodes.placement.balance import NodeCapacity, PlacedPiece, host_loads, place
from medusa.nodes.placement.delay_plan import DelayedOutput, delay_warnings, delayed_outputs
from medusa.nodes.placement.estimating import Estimate, MeasuredBox, estimate, traffic_of
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.recovered_outputs import RecoveredOutput, recovered_outputs
from medusa.nodes.placement.standby_plan import cost_of, guarded_as, with_methods
from medusa.query.boxes import Graph
from medusa.query.suggest import did_you_mean
from medusa.units import byte_count, duration_text
from medusa.wire.messages.standby import PlannedStandby

__all__ = ["Balance", "Expected", "balance", "expected", "with_standby"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A wish for a placement: what ``md.balance`` gives."""

    pins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nodes: tuple[str, ...] | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    bandwidth: Mapping[str, float] = field(default_factory=dict)


def balance(
    *,
    pins: Mapping[str, Sequence[str]] | None = None,
    nodes: Sequence[str] | None = None,
    rates: Mapping[str, float] | None = None,
    bandwidth: Mapping[str, int | str] | None = None,
) -> Balance:
    """For ``fed.deploy(q, at=md.balance(...))``: put the boxes where the largest load of a node is small.

    Args:
        pins: node -> boxes that must stand there, such as sources where their publishers are. A source that
            no pin names stands at the node that is asked.
        nodes: those that may be used; None: the asked one and those of its peers that are there and of the
            same participant. Nodes of others stand in ``pins`` or here by name.
        rates: rows per second that sources will bring; else what was measured, or 10,000.
        bandwidth: node -> bytes per second that it can send and receive, such as ``"10 MB"``; of others the
            link never counts.

    Raises:
        QueryError: pins or nodes that are no lists of names.
    """
    for what, given in [
        ("nodes", nodes),
        *((f"pins[{node!r}]", boxes) for node, boxes in (pins or {}).items()),
    ]:
        if isinstance(given, str):
            raise QueryError(
                f"balance: {what} is the text {given!r:.60}, expected a list of names",
                hint=f"write [{given!r:.60}]",
                code="query.placement",
            )
    for source, rate in (rates or {}).items():
        if not isinstance(rate, (int, float)) or not 0 <= rate < 1e12:
            raise QueryError(
                f"balance: rates[{source!r}] is {rate!r:.60}, no rows per second", code="query.placement"
            )
    return Balance(
        pins={node: tuple(boxes) for node, boxes in (pins or {}).items()},
        nodes=None if nodes is None else tuple(nodes),
        rates=dict(rates or {}),
        bandwidth={
            node: float(byte_count(given, what=f"balance: bandwidth[{node!r}]", error=QueryError))
            for node, given in (bandwidth or {}).items()
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a placement is expected to bring; ``str()`` shows it as a table.

    Attributes:
        at: node -> boxes; ``deploy`` takes it as it is.
        loads: node -> its expected load, what it is busy with now included: 1.0 is all that it can do.
        before: node -> its load now.
        bytes_per_s: of all streams between nodes.
        measured: of so many boxes costs and rates were measured; those of the others are estimates.
        boxes: so many there are.
        undefined: node of another participant -> fragments of the query that would stand there and of which
            the asked node has made no remote definition: ``deploy`` is refused until it has.
        outputs: how the outputs are recovered; none where nobody stands by.
        voters: nodes that would decide together on who takes over.
        warnings: what is less than one might think.
        checkpoint_every: (fragment, node, us) of the fragments that have an interval of their own.
        delays: what the outputs are promised that bound what a failure may add.
    """

    at: Mapping[str, tuple[str, ...]]
    loads: Mapping[str, float]
    before: Mapping[str, float]
    bytes_per_s: float
    measured: int
    boxes: int
    undefined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: tuple[RecoveredOutput, ...] = ()
    voters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpoint_every: tuple[tuple[str, str, int], ...] = ()
    delays: tuple[DelayedOutput, ...] = ()

    def __str__(self) -> str:
        width = max(len("node"), *(len(node) for node in self.loads))
        lines = [f"{'node':<{width}}  load now  expected  boxes"]
        lines += [
            f"{node:<{width}}  {before:>8.1%}  {load:>8.1%}  {' '.join(self.at.get(node, '-'))}"
            for node, load in self.loads.items()
            for before in [self.before.get(node, 0.0)]
        ]
        kind = f"{self.measured} of {self.boxes} boxes measured, the others estimated"
        lines.append(f"{self.bytes_per_s / 1e6:,.3f} MB/s between nodes; {kind}")
        lines += [
            f"{node} is another owner's: medusa remote define {', '.join(names)} there first"
            for node, names in self.undefined.items()
        ]
        lines += map(str, self.outputs)
        lines += map(str, self.delays)
        lines += [f"voters: {', '.join(self.voters)}"] if self.voters else []
        lines += [
            f"{name} at {node}: a checkpoint every {duration_text(us)}"
            for name, node, us in self.checkpoint_every
        ]
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join(lines)


def expected(
    graph: Graph, at: Mapping[str, Sequence[str]] | Balance | None, status: Mapping[str, Any]
) -> Expected:
    """What a placement, given or wished for, is expected to bring.

    Args:
        status: of the node that is asked to deploy.

    Raises:
        QueryError: the placement doesn't hold.
    """
    here = str(status["node"])
    wish = at if isinstance(at, Balance) else Balance()
    abroad = status.get("abroad", {})  # Where others' nodes run is said by name, since they may refuse it.
    known = [here, *(peer for peer, how in status["peers"].items() if how == "up" and peer not in abroad)]
    nodes = list(wish.nodes if wish.nodes is not None else known)
    nodes += [node for node in wish.pins if node not in nodes]
    for node in (*nodes, *wish.bandwidth):
        if node not in (here, *status["peers"]):
            hint = did_you_mean(node, [here, *status["peers"]])
            raise QueryError(
                f"no node {node!r:.100} is known to {here!r}", hint=hint, code="query.placement.node"
            )
    if not isinstance(at, Balance) and at is not None:
        nodes = list(dict.fromkeys([*at, *known]))
    elif here not in nodes and not {box.id for box in graph.boxes} <= _named(wish.pins):
        nodes.append(here)  # Sources without a pin stand there.
    before = {node: _load(status, node, graph.name) for node in nodes}
    hosts = [NodeCapacity(name=node, load=before[node], bandwidth=wish.bandwidth.get(node)) for node in nodes]
    found = estimate(graph, wish.pins, here=here, rates=wish.rates, measured=_measured(graph.name, status))
    if at is None or isinstance(at, Balance):
        homes = (
            place(found.pieces, found.arcs, hosts) if at is not None else {p.name: here for p in found.pieces}
        )
        where = {
            node: tuple(
                box for piece in found.pieces if homes[piece.name] == node for box in found.boxes[piece.name]
            )
            for node in nodes
        }
        where = {node: boxes for node, boxes in where.items() if boxes}
        cut(graph, where)
    else:
        where = {node: tuple(boxes) for node, boxes in at.items()}
        homes, found = _given(graph, where, found, here)
    plan = cut(graph, where)
    crossing = sum(arc.bytes_per_s for arc in found.arcs if homes[arc.source] != homes[arc.target])
    return Expected(
        at=where,
        loads=host_loads(found.pieces, found.arcs, hosts, homes),
        before={host.name: host.load / host.capacity for host in hosts},
        bytes_per_s=crossing,
        measured=found.measured,
        boxes=len(graph.boxes),
        undefined=_undefined(graph, where, status),
        delays=delayed_outputs(plan, graph),
        warnings=(*_silent_warnings(where, status), *delay_warnings(plan, graph)),
    )


def _silent_warnings(at: Mapping[str, tuple[str, ...]], status: Mapping[str, Any]) -> tuple[str, ...]:
    """Of nodes that would have a part and that the asked node doesn't hear."""
    silent = [node for node, boxes in at.items() if boxes and status["peers"].get(node, "up") != "up"]
    if not silent:
        return ()
    return (f"no answer from {', '.join(map(repr, silent))}: a deployment would be refused (E_TIMEOUT)",)


def _undefined(
    graph: Graph, at: Mapping[str, tuple[str, ...]], status: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Fragments at nodes of others that the asked node hasn't had kept there, by node."""
    found: dict[str, tuple[str, ...]] = {}
    abroad = status.get("abroad", {})
    if not any(node in abroad for node in at):
        return found
    made = status["remote"]["defined"].values()
    kept = [(each["node"], each["fragment"]) for each in made]
    for fragment in cut(graph, at).fragments:
        if fragment.node in abroad and (fragment.node, fragment.name) not in kept:
            found[fragment.node] = (*found.get(fragment.node, ()), fragment.name)
    return found


def _named(pins: Mapping[str, Sequence[str]]) -> set[str]:
    return {box for boxes in pins.values() for box in boxes}


def _given(
    graph: Graph, at: Mapping[str, tuple[str, ...]], found: Estimate, here: str
) -> tuple[dict[str, str], Estimate]:
    """A placement by hand: of a box at several nodes the first counts for all of it."""
    plan = cut(graph, at)
    homes: dict[str, str] = {}
    for fragment in plan.fragments:
        for box in fragment.graph.boxes:
            homes.setdefault(box.id, fragment.node)
    for node, boxes in at.items():
        for box_id in boxes:
            homes[box_id] = min(homes.get(box_id, node), node)
    of = {piece.name: homes.get(piece.name, here) for piece in found.pieces}
    pieces = tuple(PlacedPiece(name=piece.name, cost=piece.cost, at=of[piece.name]) for piece in found.pieces)
    return of, Estimate(pieces=pieces, arcs=found.arcs, boxes=found.boxes, measured=found.measured)


def _load(status: Mapping[str, Any], node: str, query: str) -> float:
    """What a node is busy with now, this query left out; unknown counts as nothing."""
    own = status.get("load") or {}
    if node == status["node"]:
        total = own.get("load") or 0.0
        shares = [
            sum(b.get("load") or 0.0 for b in f["boxes"].values())
            for f in status["fragments"]
            if f["query"] == query
        ]
    else:
        said = (own.get("peers") or {}).get(node) or {}
        total = said.get("load") or 0.0
        fragments = (said.get("fragments") or {}).items()
        shares = [each["busy_share"] for name, each in fragments if name.startswith(f"{query}/")]
    return max(total - sum(shares), 0.0)


def _measured(query: str, status: Mapping[str, Any]) -> dict[str, MeasuredBox]:
    """Boxes of a query of this name that this node runs; only this node knows them one by one."""
    return {
        box: MeasuredBox(
            share=figures.get("load") or 0.0,
            rows_in_per_s=figures["rows_in_per_s"],
            rows_out_per_s=figures["rows_out_per_s"],
        )
        for fragment in status["fragments"]
        if fragment["query"] == query
        for box, figures in fragment["boxes"].items()
        if figures.get("rows_in_per_s")
    }


def with_standby(
    found: Expected, graph: Graph, rates: Mapping[str, float], status: Mapping[str, Any], said: PlannedStandby
) -> Expected:
    """What it is expected to bring where others stand by, who feed what the owners feed.

    Args:
        found: what is expected of the owners.
        rates: rows per second that sources will bring.
        said: who would stand by, as the node says that is asked to deploy.
    """
    traffic = traffic_of(graph, rates=rates, measured=_measured(graph.name, status))
    plan = with_methods(guarded_as(cut(graph, found.at), said.standby, said.backups))
    outputs = recovered_outputs(plan, graph, traffic, voters=len(said.voters), away=said.away)
    loads = dict(found.loads)
    for fragment in plan.guarded():
        for name in fragment.standby:
            loads[name] = loads.get(name, 0.0) + cost_of(fragment, traffic)
    return replace(
        found, loads=loads, outputs=outputs, voters=said.voters, warnings=(*found.warnings, *said.warnings)
    )
