"""Cuts a query into fragments, one per connected part of it on a node. Pure: a graph and names in,
fragments out.

    flows ── per_src ── heavy ── wide          at = edge-1: flows, per_src
                                                    edge-2: flows, per_src
                                                    core:   heavy, wide

    edge-1   flows ── per_src.partial ─┐
    edge-2   flows ── per_src.partial ─┴─ per_src (combine) ── heavy ── wide   core

A box named at several nodes is split. A source there is an instance per node, and each judges the
lateness of its own rows. Boxes without state are copied behind it. A window sends accumulators
from each node (stage ``partial``) and merges them where its consumers are (stage ``combine``). An
arc between nodes becomes a sink on one side and a judged source on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from medusa.errors import QueryError
from medusa.nodes.placement.idle_sources import check_idle
from medusa.nodes.placement.made_names import MadeNames
from medusa.nodes.placement.stream_reads import feeds_of, with_feeds
from medusa.nodes.spec.connected import connected
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec, refuse_undecided
from medusa.nodes.spec.user_objects import check_users
from medusa.query.boxes import (
    Aggregate,
    Box,
    Graph,
    Input,
    Sink,
    Source,
    SUnion,
    Union,
)
from medusa.query.boxes.base import shape_of
from medusa.query.graph import check_graph
from medusa.query.ids import kind_of
from medusa.query.shape import StreamShape
from medusa.query.suggest import did_you_mean

__all__ = ["PlacementPlan", "cut", "grouped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """All fragments of a query, by node in the order of ``at``.

    Attributes:
        witnesses: nodes that run nothing of it and vote on who takes over.
    """

    query: str
    fragments: tuple[FragmentSpec, ...]
    witnesses: tuple[str, ...] = ()

    def nodes(self) -> tuple[str, ...]:
        """The nodes that run something, each once."""
        return tuple(dict.fromkeys(fragment.node for fragment in self.fragments))

    def guarded(self) -> tuple[FragmentSpec, ...]:
        """The fragments that others stand by for."""
        return tuple(fragment for fragment in self.fragments if fragment.standby)

    def idle(self) -> tuple[str, ...]:
        """The nodes that run nothing of it and only stand by or vote, each once."""
        standby = [node for fragment in self.fragments for node in fragment.standby]
        busy = self.nodes()
        return tuple(dict.fromkeys(node for node in (*standby, *self.witnesses) if node not in busy))

    def at(self, node: str) -> tuple[FragmentSpec, ...]:
        """The fragments of one node."""
        return tuple(fragment for fragment in self.fragments if fragment.node == node)


@dataclass(slots=True)
class _Instance:
    """A box as it will stand on a node, with the arcs it takes from elsewhere."""

    node: str
    box: Box
    origin: str
    crossing: dict[str, tuple[str, Input]] = field(default_factory=dict)
    """Id of the judged source to make -> (node, input there)."""


def cut(
    graph: Graph,
    at: Mapping[str, Sequence[str]],
    *,
    nodes: Iterable[str] | None = None,
    reads: Mapping[str, Feed] | None = None,
) -> PlacementPlan:
    """Cut ``graph`` as ``at`` says: node to the ids of the boxes there.

    A box that ``at`` leaves out stands where its input is. ``nodes`` are the nodes there are
    (default: those of ``at``). ``reads`` says where streams of other queries are read, by source (default:
    unknown, for a plan that isn't carried out).

    Raises:
        QueryError: an unknown node or box, a box with no place, or a split that would change the
            answer; names the box.
    """
    known = list(at) if nodes is None else list(nodes)
    homes = _homes(graph, at, known)
    check_users(graph, homes)
    graph = _without_dead_ends(graph)
    _refuse_gathered(graph, homes)
    check_graph(graph, require_sinks=True)
    refuse_undecided(graph)
    check_idle(graph, homes)
    feeds = feeds_of(graph, homes, reads)
    expander = _Expander(graph, homes)
    instances = expander.run()
    fragments: list[FragmentSpec] = []
    read = _read_elsewhere(instances)
    shapes = _Shapes(instances)
    for node in dict.fromkeys([*at, *(i.node for i in instances)]):
        mine = [i for i in instances if i.node == node]
        fragments += [_fragment(graph, node, part, read, shapes, expander.names) for part in _connected(mine)]
    fragments = [with_feeds(fragment, feeds) for fragment in fragments]
    return PlacementPlan(query=graph.name, fragments=tuple(fragments))


def grouped(graph: Graph, groups: Mapping[str, Sequence[str]]) -> dict[str, FragmentSpec]:
    """One fragment for each group of boxes, be they connected or not; each box is in one group."""
    expander = _Expander(graph, {id: (group,) for group, ids in groups.items() for id in ids})
    instances = expander.run()
    read, shapes = _read_elsewhere(instances), _Shapes(instances)
    of = {group: [each for each in instances if each.node == group] for group in groups}
    return {group: _fragment(graph, group, of[group], read, shapes, expander.names) for group in groups}


def _without_dead_ends(graph: Graph) -> Graph:
    """Only what leads to a sink runs: the rest could never be read. The embedded engine agrees."""
    wanted: dict[str, None] = {}
    for box in reversed(graph.boxes):
        if isinstance(box, Sink) or box.id in wanted:
            wanted[box.id] = None
            wanted.update(dict.fromkeys(arc.box for arc in box.inputs))
    return msgspec.structs.replace(graph, boxes=tuple(box for box in graph.boxes if box.id in wanted))


# --- where each box stands ------------------------------------------------------------------


def _homes(graph: Graph, at: Mapping[str, Sequence[str]], known: list[str]) -> dict[str, tuple[str, ...]]:
    """The nodes of each box, in the order of ``at``; boxes left out follow their inputs."""
    ids = [box.id for box in graph.boxes]
    named: dict[str, list[str]] = {}
    for node, boxes in at.items():
        if node not in known:
            raise QueryError(f"no node {node!r}", hint=did_you_mean(node, known), code="query.placement.node")
        if isinstance(boxes, str):
            raise QueryError(
                f"at[{node!r}] is the text {boxes!r}, expected a list of box names",
                hint=f"write at={{{node!r}: [{boxes!r}]}}",
                code="query.placement",
            )
        for box_id in boxes:
            if box_id not in ids:
                raise QueryError(
                    f"query {graph.name!r} has no box {box_id!r} (named at node {node!r})",
                    hint=did_you_mean(box_id, ids),
                    code="query.placement.box",
                )
            if node in named.setdefault(box_id, []):
                raise QueryError(f"box {box_id!r} is named twice at node {node!r}", code="query.placement")
            named[box_id].append(node)
    homes: dict[str, tuple[str, ...]] = {}
    for box in graph.boxes:
        homes[box.id] = tuple(named[box.id]) if box.id in named else _follow(box, homes, graph)
    return homes


def _follow(box: Box, homes: Mapping[str, tuple[str, ...]], graph: Graph) -> tuple[str, ...]:
    """Where a box that nobody placed stands: with its inputs, if they are at one place."""
    if isinstance(box, Source):
        raise QueryError(
            f"source {box.id!r} is at no node",
            hint=f"name it: at={{node: [{box.id!r}, ...]}}",
            code="query.placement.nowhere",
        )
    if not box.inputs:  # a table that nothing changes stands with those that read it
        raise QueryError(
            f"box {box.id!r} is at no node", hint="name it in at=", code="query.placement.nowhere"
        )
    kinds = {each.id: each for each in graph.boxes}
    places = list(dict.fromkeys(homes[arc.box] for arc in box.inputs))
    split = any(len(place) > 1 for place in places)
    from_window = any(isinstance(kinds[arc.box], Aggregate) for arc in box.inputs)
    copies = _stateless(box) and not from_window
    if len(places) == 1 and (not split or copies):
        return places[0]
    listed = ", ".join(dict.fromkeys(node for place in places for node in place))
    raise QueryError(
        f"box {box.id!r} is at no node, and its inputs are at several: {listed}",
        hint=f"name {box.id!r} at the node where it shall stand",
        code="query.placement.nowhere",
    )


def _refuse_gathered(graph: Graph, homes: Mapping[str, tuple[str, ...]]) -> None:
    """Copies of one stream have an order together that one program would give, and nodes don't.

    Behind a union the query itself says that rows come in any order, so what a node decides is right.
    """
    boxes = {box.id: box for box in graph.boxes}
    gathered: dict[str, str] = {}
    for box in graph.boxes:
        behind = next((gathered[arc.box] for arc in box.inputs if arc.box in gathered), None)
        if behind is not None and box.order_dependent:
            raise QueryError(
                f"box {box.id!r} depends on the order of the rows of {behind!r}, which are gathered from "
                f"several nodes: {', '.join(_split_homes(boxes[behind], homes))}",
                hint="window the rows where they are split, or unite a source for each node",
                code="query.placement.union",
            )
        gathers = len(homes[box.id]) == 1 and any(
            len(homes[arc.box]) > 1 and not isinstance(boxes[arc.box], Aggregate) for arc in box.inputs
        )
        if isinstance(box, Union):
            continue
        if behind is not None:
            gathered[box.id] = behind
        elif gathers and _stateless(box):
            gathered[box.id] = box.id


def _stateless(box: Box) -> bool:
    """Whether copies of it give together what it gives."""
    return box.sharing == "rows" or isinstance(box, Union)


def _split_homes(box: Box, homes: Mapping[str, tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(node for arc in box.inputs for node in homes[arc.box]))


# --- instances of boxes ---------------------------------------------------------------------


class _Expander:
    """Turns boxes with homes into boxes on nodes; an arc between nodes is left as ``crossing``."""

    def __init__(self, graph: Graph, homes: Mapping[str, tuple[str, ...]]) -> None:
        self._graph = graph
        self._homes = homes
        self._boxes = {box.id: box for box in graph.boxes}
        self._out: list[_Instance] = []
        self.names = MadeNames(box.id for box in graph.boxes)

    def run(self) -> list[_Instance]:
        for box in self._graph.boxes:
            if self._is_split_window(box):
                assert isinstance(box, Aggregate)
                self._split_window(box)
            elif len(self._homes[box.id]) > 1:
                self._copy(box)
            else:
                self._place(box, self._homes[box.id][0])
        return self._out

    def _is_split_window(self, box: Box) -> bool:
        return isinstance(box, Aggregate) and len(self._homes[box.id]) > 1

    def _copy(self, box: Box) -> None:
        """A source or a box without state, once per node."""
        nodes = self._homes[box.id]
        if not (isinstance(box, Source) or _stateless(box)):
            kind = kind_of(box)
            raise QueryError(
                f"{kind} {box.id!r} is named at {len(nodes)} nodes ({', '.join(nodes)}); a {kind} can't be "
                "split",
                hint=f"name {box.id!r} at one node",
                code="query.placement.split",
            )
        self._require_copies_of_inputs(box)
        self._out += [_Instance(node=node, box=box, origin=box.id) for node in nodes]

    def _split_window(self, box: Aggregate) -> None:
        """Accumulators per node, merged at each node that has a consumer."""
        if box.stage != "whole":
            raise QueryError(
                f"box {box.id!r} is part of a split window already", code="query.placement.split"
            )
        self._require_copies_of_inputs(box)
        part = msgspec.structs.replace(box, id=self.names.made(box.id, "partial"), stage="partial")
        nodes = self._homes[box.id]
        self._out += [_Instance(node=node, box=part, origin=box.id) for node in nodes]
        for node in self._consumers_of(box):
            merged = _Instance(node=node, box=box, origin=box.id)
            inputs = tuple(self._arc(merged, owner, Input(part.id), copies=True) for owner in nodes)
            merged.box = msgspec.structs.replace(box, inputs=inputs, stage="combine")
            self._out.append(merged)

    def _consumers_of(self, box: Aggregate) -> tuple[str, ...]:
        nodes: list[str] = []
        for other in self._graph.boxes:
            if all(arc.box != box.id for arc in other.inputs):
                continue
            homes = self._homes[other.id]
            if len(homes) > 1:
                raise QueryError(
                    f"box {other.id!r} is named at {len(homes)} nodes ({', '.join(homes)}), but it reads "
                    f"window {box.id!r}, which is split: each copy would see the whole result",
                    hint=f"name {other.id!r} at one node",
                    code="query.placement.split",
                )
            nodes += homes
        return tuple(dict.fromkeys(nodes))

    def _require_copies_of_inputs(self, box: Box) -> None:
        """A copy reads the copy beside it, so inputs must be split over the same nodes."""
        nodes = self._homes[box.id]
        for arc in box.inputs:
            source = self._homes[arc.box]
            if isinstance(self._boxes[arc.box], Aggregate) or sorted(source) != sorted(nodes):
                raise QueryError(
                    f"box {box.id!r} is split over {', '.join(nodes)}, but its input {arc.box!r} is at "
                    f"{', '.join(source)}",
                    hint=f"name both at the same nodes, or {box.id!r} at one node",
                    code="query.placement.split",
                )

    def _place(self, box: Box, node: str) -> None:
        """A box that stands once."""
        here = _Instance(node=node, box=box, origin=box.id)
        inputs: list[Input] = []
        for arc in box.inputs:
            homes = self._homes[arc.box]
            if self._is_split_window(self._boxes[arc.box]):
                _refuse_dead_of_parts(arc)
                inputs.append(arc)  # Its combine box stands here.
            elif len(homes) == 1:
                inputs.append(self._arc(here, homes[0], arc, copies=False))
            elif isinstance(box, Union | SUnion):
                inputs += [self._arc(here, owner, arc, copies=True) for owner in homes]
            else:
                inputs.append(self._merge(box, node, arc))
        if inputs != list(box.inputs):
            here.box = msgspec.structs.replace(box, inputs=tuple(inputs))
        self._out.append(here)

    def _merge(self, box: Box, node: str, arc: Input) -> Input:
        """A union of the copies of ``arc``, for a box that takes rows in any order."""
        homes = self._homes[arc.box]
        if box.order_dependent:
            what = "window" if isinstance(box, Aggregate) else kind_of(box)
            hint = (
                f"name {box.id!r} at {', '.join(homes)} too: each then sends partial results"
                if isinstance(box, Aggregate)
                else f"name {arc.box!r} at one node, or window it where it is split"
            )
            raise QueryError(
                f"{what} {box.id!r} at node {node!r} reads {arc.box!r}, which is split over "
                f"{', '.join(homes)}: its answer would depend on which rows come first",
                hint=hint,
                code="query.placement.split",
            )
        union_id = self.names.made(arc.box, arc.port, "merge")
        if not any(i.node == node and i.box.id == union_id for i in self._out):
            merged = _Instance(node=node, box=Union(id=union_id, inputs=()), origin=arc.box)
            inputs = tuple(self._arc(merged, owner, arc, copies=True) for owner in homes)
            merged.box = Union(id=union_id, inputs=inputs)
            self._out.append(merged)
        return Input(union_id)

    def _arc(self, reader: _Instance, owner: str, arc: Input, *, copies: bool) -> Input:
        """The arc as its reader sees it: itself on the same node, else a judged source."""
        if owner == reader.node:
            return arc
        source_id = self.names.made(arc.box, arc.port, owner) if copies or arc.port else arc.box
        reader.crossing[source_id] = (owner, arc)
        return Input(source_id)


def _refuse_dead_of_parts(arc: Input) -> None:
    """The rows that failed did so where the parts stand, and only accumulators come from there."""
    if arc.port == "dead":
        raise QueryError(
            f"window {arc.box!r} is split over nodes, so its failed rows are at several places",
            hint="compute what may fail in a with_columns before the window, and read .dead of that",
            code="query.placement.split",
        )


# --- fragments ------------------------------------------------------------------------------


Read = Mapping[tuple[str, Input], tuple[str, ...]]
"""(node, input) -> the other nodes that read it, in order."""


def _read_elsewhere(instances: Iterable[_Instance]) -> Read:
    read: dict[tuple[str, Input], dict[str, None]] = {}
    for instance in instances:
        for crossing in instance.crossing.values():
            read.setdefault(crossing, {})[instance.node] = None
    return {crossing: tuple(nodes) for crossing, nodes in read.items()}


def _connected(mine: list[_Instance]) -> list[list[_Instance]]:
    """The connected parts of a node's boxes; each keeps the order of the graph.

    Boxes that read the same stream of another node are connected by the source that brings it.
    """
    read = [
        (each.box.id, [f"from {arc.box}" if arc.box in each.crossing else arc.box for arc in each.box.inputs])
        for each in mine
    ]
    return [[mine[index] for index in part] for part in connected(read)]


class _Shapes:
    """What comes out of each box; copies of a box give the same."""

    def __init__(self, instances: Iterable[_Instance]) -> None:
        self._instances = {instance.box.id: instance for instance in instances}
        self._known: dict[Input, StreamShape] = {}

    def of(self, arc: Input) -> StreamShape:
        wanted = [arc]  # A stack: a query may be a thousand boxes deep.
        while wanted:
            of = wanted[-1]
            instance = self._instances[of.box]
            read = [instance.crossing.get(each.box, ("", each))[1] for each in instance.box.inputs]
            missing = [each for each in read if each not in self._known]
            if missing:
                wanted += missing
                continue
            wanted.pop()
            if of not in self._known:
                inputs = [self._known[each] for each in read]
                self._known[of] = shape_of(instance.box, inputs, label=of.box, port=of.port)
        return self._known[arc]


def _fragment(
    graph: Graph, node: str, part: list[_Instance], read: Read, shapes: _Shapes, names: MadeNames
) -> FragmentSpec:
    """The boxes of one part, with sources for what comes in and sinks for what others read."""
    boxes: list[Box] = []
    feeds: dict[str, Feed] = {}
    for instance in part:
        for source_id, (owner, arc) in instance.crossing.items():
            if source_id not in feeds:
                feeds[source_id] = Feed(source=source_id, node=owner, stream=_stream(graph, arc))
                shape = shapes.of(arc)
                kind = shape.window
                boxes.append(
                    Source(
                        id=source_id,
                        schema=shape.schema,
                        judged=True,
                        timed=shape.timed,
                        window_us=(kind.size_us, kind.advance_us) if kind else None,
                    )
                )
        boxes.append(instance.box)
    own = {instance.box.id for instance in part}
    streams = {box.id: f"{graph.name}.{box.id}" for box in boxes if isinstance(box, Sink)}
    readers: dict[str, tuple[str, ...]] = {}
    for (owner, arc), nodes in read.items():
        if owner == node and arc.box in own:
            sink_id = names.made(arc.box, arc.port, "out")
            readers[sink_id] = nodes
            boxes.append(Sink(id=sink_id, inputs=(arc,)))
            streams[sink_id] = _stream(graph, arc)
    return FragmentSpec(
        node=node,
        name=f"{graph.name}/{part[0].box.id}",
        graph=Graph(name=graph.name, boxes=tuple(boxes)),
        feeds=tuple(feeds.values()),
        entries={
            box.id: f"{graph.name}.{box.id}" for box in boxes if isinstance(box, Source) and not box.judged
        },
        streams=streams,
        readers=readers,
    )


def _stream(graph: Graph, arc: Input) -> str:
    return ".".join(part for part in (graph.name, arc.box, arc.port) if part)
