"""What the statuses of nodes say, put together: what each box waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from medusa.errors import LinkError
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.status.guarded_fragments import guarded_fragments
from medusa.wire.status_and_metrics import FragmentStatus, NodeStatus, status_of

__all__ = ["explanation", "whole"]

Status = Mapping[str, Any]


def whole(said: Status) -> NodeStatus:
    """The status of a node that shows this client all that it has.

    Raises:
        LinkError: a client that may use some streams sees those, and no boxes.
        DataError: it can't be read.
    """
    if "rows_in" not in said:
        raise LinkError(
            f"node {said['node']!r} shows this client no boxes",
            hint="the node's configuration would have to say status = true in its [clients.NAME]",
            code="E_ROLE",
        )
    return status_of(said)


def explanation(
    statuses: Sequence[Status], query: str | None, placed: Iterable[Status] = ()
) -> list[dict[str, Any]]:
    """Of each box what it waits for: see ``Federation.explain``.

    Args:
        placed: fragments that the catalog knows; those that no status has are at nodes that are away.

    Raises:
        LinkError: the caller sees no boxes, or no node has this query.
    """
    nodes = [whole(status) for status in statuses]
    there = [(status.node, fragment) for status in nodes for fragment in status.fragments]
    names = {fragment.fragment for _, fragment in there}
    known_nodes = [status.node for status in nodes]
    guarded = _guarded(nodes)
    undecided = [(query, of) for status in nodes for query, of in status.undecided.items()]
    votes = {"decision", "vote"}
    deciding = {query: {"undecided": of.waits_for} for query, of in undecided if votes & {*of.waits}}
    scaling = {
        query: {"scaling": f"by node {status.node}: {of.scaling.text}"}
        for status in nodes
        for query, of in status.queries.items()
        if of.scaling is not UNSET
    }
    found = [
        _why(node, fragment, id)
        | guarded.get(fragment.fragment, {})
        | deciding.get(fragment.query, {})
        | scaling.get(fragment.query, {})
        for node, fragment in there
        for id in fragment.boxes
    ]
    for each in placed:
        if each["name"] not in names and each["node"] not in known_nodes:
            told = (status.why_away(each["node"]) for status in nodes)
            stuck = (of.why for query, of in undecided if query == each["query"])
            whys = next(filter(None, told), ""), next(filter(None, stuck), "")
            why = "; ".join(filter(None, whys))
            found += [_lost(each, box, why) for box in each["boxes"]]
    found += [each for status in nodes for each in _gone(status)]
    found += [each | guarded.get(each["fragment"], {}) for each in _lent(nodes, names)]
    queries = sorted({fragment.query for _, fragment in there} | {each["query"] for each in found})
    if query is not None and query not in queries:
        raise LinkError(
            f"no fragment of a query {query!r:.100} at {', '.join(known_nodes)}",
            hint=did_you_mean(str(query), queries),
            code="E_QUERY",
        )
    chosen = (each for each in found if query is None or each["query"] == query)
    return sorted(chosen, key=lambda each: (each["query"], each["fragment"]))


def _guarded(statuses: Iterable[NodeStatus]) -> dict[str, dict[str, Any]]:
    """Of fragments that others stand by for who that is."""
    return {
        each.fragment: {"standby": {node: of.state for node, of in each.replicas.secondaries.items()}}
        for each in guarded_fragments(statuses)
    }


def _lent(nodes: Iterable[NodeStatus], told: Collection[str]) -> Iterator[dict[str, Any]]:
    """Fragments that a node of another participant runs by contract, whose boxes it alone sees.

    Args:
        told: fragments that are in these statuses.
    """
    for status in nodes:
        for query, of in status.queries.items():
            fragments = {} if of.configuration is UNSET else of.configuration.fragments
            for name, replicas in fragments.items():
                if name not in told and (whose := status.abroad.get(replicas.owner)):
                    why = f"its node, which is of participant {whose!r} and runs it by contract"
                    yield _without_boxes(query, name, replicas.owner, why)


def _gone(status: NodeStatus) -> Iterator[dict[str, Any]]:
    """Fragments that don't run, and why: they have ended here, or elsewhere for a query that this node
    coordinates, or are in doubt here. They have no boxes."""
    node = status.node
    ended: dict[tuple[str, str], tuple[str, str, str]] = {}
    for query, of in status.queries.items():
        ended |= {(name, end.node): (query, end.why, end.code) for name, end in of.ended.items()}
    for name, each in status.remote.get("ended", {}).items():
        ended[name, node] = each["query"], each["why"], each["code"]
    for (name, at), (query, why, code) in ended.items():
        yield _without_boxes(query, name, at, f"nothing: it has ended: {why} ({code})")
    doubtful = status.in_doubt.fragments
    for name, doubt in {} if doubtful is UNSET else doubtful.items():
        yield _without_boxes(doubt.query, name, node, f"an end of the doubt about it: {doubt.why}")


def _without_boxes(query: str, fragment: str, node: str, why: str) -> dict[str, Any]:
    known = {"query": query, "fragment": fragment, "node": node, "box": "", "kind": "", "waits_for": why}
    return {**known, "held_by": "", "since_us": None, "boundary_us": None, "lag_us": None}


def _lost(fragment: Status, box: str, why: str) -> dict[str, Any]:
    """A box whose node is away."""
    silent = "its node, which doesn't answer"
    return {
        **_without_boxes(
            fragment["query"], fragment["name"], fragment["node"], f"{silent}, {why}" if why else silent
        ),
        "box": box,
    }


def _why(node: str, fragment: FragmentStatus, id: str) -> dict[str, Any]:
    box = fragment.boxes[id]
    streams = [
        {"stream": each.stream, **msgspec.to_builtins(each.consistency)}
        for each in fragment.outputs
        if (each.of or each.sink) == id and each.consistency is not UNSET
    ]
    told = {
        "query": fragment.query,
        "fragment": fragment.fragment,
        "node": node,
        "box": id,
        "kind": box.kind,
        "waits_for": box.waits_for,
        "held_by": box.held_by,
        "since_us": box.unmoved_us,
        "boundary_us": box.boundary,
        "lag_us": box.lag_us,
    }
    return told | ({"streams": streams} if streams else {})
