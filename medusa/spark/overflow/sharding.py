"""A fragment in pieces: a box with keys as a shard of them each, what stands above it, and below. Pure.

    above ──> router ──> shard 0 .. shard n-1 ──> merge ──> below

The pieces are fragments as a split over nodes makes them (``query/rewrite/split.py``), with their state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from medusa.errors import QueryError
from medusa.nodes.placement.placement import grouped
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Box, ConnectionPoint, Graph, Input, Sink, Table
from medusa.query.graph import CheckedGraph, check_graph
from medusa.query.rewrite.split import SplitBoxes, find_split, split
from medusa.spark.support import Way, way_of

__all__ = ["ABOVE", "BELOW", "Cutting", "cutting"]

ABOVE, BELOW = "above", "below"


@dataclass(frozen=True, slots=True)
class Cutting:
    """The pieces of a fragment.

    Attributes:
        box: that runs in shards.
        whole: the graph in which it is split.
        graphs: of the pieces: ``ABOVE``, the shards, ``BELOW``.
        shards: the names of the shards, in order of their ranges.
        arcs: piece -> its ends that only link it with others -> arc of ``whole``.
        links: (piece, sink) -> the piece that reads it, and its source there.
    """

    box: str
    whole: Graph
    graphs: Mapping[str, Graph]
    shards: tuple[str, ...]
    arcs: Mapping[str, Mapping[str, Input]]
    links: Mapping[tuple[str, str], tuple[str, str]]


def cutting(graph: Graph, shards: int) -> Cutting | None:
    """The pieces of a fragment; None: it stays in one, since no box of it can be in shards."""
    if shards < 2 or any(isinstance(box, Table | ConnectionPoint) for box in graph.boxes):
        return None  # look-ups see their table as it was when they came; a history is in one place
    checked = check_graph(graph)
    for box in graph.boxes:
        if not _keyed(box, checked):
            continue
        try:
            whole = split(graph, box.id, shards)
        except QueryError:
            continue  # such as one whose .dead is read
        return _cut(graph, whole, find_split(whole, box.id), box.id)
    return None


def _keyed(box: Box, checked: CheckedGraph) -> bool:
    timed = bool(box.inputs) and all(checked.shapes[arc].timed for arc in box.inputs)
    return way_of(box, "", timed=timed) is Way.KEYS


def _cut(graph: Graph, whole: Graph, made: SplitBoxes, box: str) -> Cutting:
    below = {each.id for each in made.merges}
    for each in whole.boxes:
        if any(arc.box in below for arc in each.inputs):
            below.add(each.id)
    names = tuple(f"shard-{number}" for number in range(len(made.parts)))
    of = {part.id: name for part, name in zip(made.parts, names, strict=True)}
    groups: dict[str, list[str]] = {ABOVE: [], **{name: [] for name in names}, BELOW: []}
    for each in whole.boxes:
        groups[of.get(each.id) or (BELOW if each.id in below else ABOVE)].append(each.id)
    raw = grouped(whole, groups)
    own = {each.id for each in graph.boxes if isinstance(each, Sink)}
    sent = {
        stream: (piece, sink)
        for piece, part in raw.items()
        for sink, stream in part.streams.items()
        if sink not in own
    }
    links = {sent[feed.stream]: (piece, feed.source) for piece, part in raw.items() for feed in part.feeds}
    arcs: dict[str, dict[str, Input]] = {piece: {} for piece in raw}
    for (piece, sink), (reader, source) in links.items():
        arcs[piece][sink] = arcs[reader][source] = _arc_into(raw[piece], sink)
    graphs = {piece: part.graph for piece, part in raw.items()}
    return Cutting(box=box, whole=whole, graphs=graphs, shards=names, arcs=arcs, links=links)


def _arc_into(part: FragmentSpec, sink: str) -> Input:
    return next(each for each in part.graph.boxes if each.id == sink).inputs[0]
