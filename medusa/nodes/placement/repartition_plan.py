"""The fragments of a node when a box of them is split, or merged again. Pure: fragments in, fragments out.

    F ── split ──> {all that isn't below the box, router} {part 1} ... {part n} {merge, all below it}

The new ones have names that none had: until the catalog names them nothing is theirs, and from then on
nothing is the old one's. Streams that leave, and sources, keep their names: nobody elsewhere notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from medusa.errors import QueryError
from medusa.nodes.placement.delay_plan import merged_policies, refuse_mixed
from medusa.nodes.placement.placement import grouped
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec, check_fragment
from medusa.nodes.spec.spec_limits import check_limits
from medusa.query.boxes import Box, ConnectionPoint, Graph, Input, Sink, Source
from medusa.query.rewrite.split import find_split, in_order, merge, split

__all__ = ["Arcs", "Replan", "replan_merge", "replan_split", "set_of"]

ABOVE, BELOW = "above", "below"

Arcs = Mapping[str, Mapping[str, Input]]
"""Fragment -> its sources and sinks that only link it with others of the set -> arc of the whole graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """What takes the place of what.

    Attributes:
        box: that is split or merged.
        merges: else it is split.
        gone: the fragments that were.
        made: those that will be.
        whole: the graph of all of them, in which the box is split.
        arcs: of those that are in parts: of ``made`` when it is split, else of ``gone``.
    """

    box: str
    merges: bool
    gone: tuple[str, ...]
    made: tuple[FragmentSpec, ...]
    whole: Graph
    arcs: Arcs

    @property
    def gone_ends(self) -> Arcs:
        """Ends of the fragments that were which are no more."""
        return self.arcs if self.merges else {}


def replan_split(
    spec: FragmentSpec,
    box: str,
    parts: int,
    *,
    cuts: Sequence[int] | None = None,
    node: str,
    epoch: int,
    taken: Collection[str],
) -> Replan:
    """Split a box of a fragment.

    Args:
        cuts: where ranges of its keys end, but the last; None: even ones.
        node: where it runs, and all of it will.
        epoch: of the new fragments.
        taken: names of fragments that can't be used.

    Raises:
        QueryError: no such box; it can't be split, or what would be made is too large, or couldn't be forked
            where the fragment can.
    """
    if any(isinstance(each, ConnectionPoint) for each in spec.graph.boxes):
        raise QueryError(
            f"fragment {spec.name!r} has a connection point, whose history stays where it is",
            code="query.split",
        )
    whole = split(spec.graph, box, parts, cuts=cuts)
    made = find_split(whole, box)
    below = _below(whole, {each.id for each in made.merges})
    groups: dict[str, list[str]] = {ABOVE: []}
    groups |= {f"part{number}": [part.id] for number, part in enumerate(made.parts, start=1)}
    groups[BELOW] = []
    parted = {part.id for part in made.parts}
    for each in whole.boxes:
        if each.id not in parted:
            groups[BELOW if each.id in below else ABOVE].append(each.id)
    raw = grouped(whole, groups)
    fragments, arcs = [], {}
    used = set(taken) | {spec.name}
    renamed = _inner_streams(raw.values(), spec, box)
    for group, part in raw.items():
        first = {ABOVE: [router.id for router in made.routers], BELOW: [box]}.get(group, groups[group])
        name = _name(spec.query, [*first, *groups[group]], used)
        used.add(name)
        fragment = _as_of(part, spec, name=name, node=node, epoch=epoch, renamed=renamed)
        check_fragment(fragment)
        check_limits(fragment.graph)
        if fragment.delay_us:
            refuse_mixed(fragment)
        fragments.append(fragment)
        arcs[name] = _arcs_of(part, raw.values(), spec)
    return Replan(box=box, merges=False, gone=(spec.name,), made=tuple(fragments), whole=whole, arcs=arcs)


def replan_merge(specs: Sequence[FragmentSpec], box: str, *, node: str, taken: Collection[str]) -> Replan:
    """Merge a box that was split; ``specs`` are the fragments with its routers, parts and merges.

    Raises:
        QueryError: it isn't split, or one of its parts isn't among them.
    """
    inner = _links(specs, node)
    arcs = {spec.name: _own_arcs(spec, inner) for spec in specs}
    boxes: list[Box] = []
    for spec in specs:
        instead = {Input(id): arc for id, arc in arcs[spec.name].items()}
        for each in spec.graph.boxes:
            if each.id not in arcs[spec.name]:
                inputs = tuple(instead.get(arc, arc) for arc in each.inputs)
                boxes.append(each if inputs == each.inputs else msgspec.structs.replace(each, inputs=inputs))
    whole = Graph(name=specs[0].query, boxes=tuple(in_order(boxes)))
    graph = merge(whole, box)
    ids = {each.id for each in graph.boxes}
    ends = {each.id for each in graph.boxes if isinstance(each, Sink) or getattr(each, "judged", False)}
    opened = [each.id for each in graph.boxes if each.id not in ends]
    used = set(taken) | {spec.name for spec in specs}
    guests = {id: guest for spec in specs for id, guest in spec.guests.items() if guest.sink in ids}
    kept = ids | guests.keys()
    readers = {sink: nodes for spec in specs for sink, nodes in spec.readers.items() if sink in kept}
    read = {source: version for spec in specs for source, version in spec.read_versions.items()}
    guarded = next((spec for spec in specs if spec.standby), specs[0])
    failure, stabilization = merged_policies(specs)
    fragment = FragmentSpec(
        node=node,
        name=_name(
            specs[0].query, [*opened, *(each.id for each in graph.boxes if isinstance(each, Sink))], used
        ),
        graph=graph,
        feeds=tuple(feed for spec in specs for feed in spec.feeds if feed.source not in arcs[spec.name]),
        entries={source: name for spec in specs for source, name in spec.entries.items()},
        streams={sink: name for spec in specs for sink, name in spec.streams.items() if sink in kept},
        readers=readers,
        guests=guests,
        sold={id: sold for spec in specs for id, sold in spec.sold.items() if id in guests},
        stream_version=max(spec.stream_version for spec in specs),
        read_versions={source: version for source, version in read.items() if source in ids},
        standby=guarded.standby,
        backup_nodes=guarded.backup_nodes,
        method=guarded.method,
        method_reason=guarded.method_reason,
        checkpoint_every_us=min(
            (spec.checkpoint_every_us for spec in specs if spec.checkpoint_every_us), default=0
        ),
        delay_us=min((spec.delay_us for spec in specs if spec.delay_us), default=0),
        delay_failure=failure,
        delay_stabilization=stabilization,
    )
    check_fragment(fragment)
    check_limits(fragment.graph)
    gone = tuple(spec.name for spec in specs)
    return Replan(box=box, merges=True, gone=gone, made=(fragment,), whole=whole, arcs=arcs)


def set_of(specs: Iterable[FragmentSpec], first: FragmentSpec, box: str, node: str) -> list[FragmentSpec]:
    """The fragments of this node that have routers, parts and merges of a box: from that with the router on.

    Raises:
        QueryError: it isn't split there, or a part is at another node: says which and where; one of them but
            the first reads something from outside.
    """
    by_stream = {name: spec for spec in specs if spec.query == first.query for name in spec.streams.values()}
    found = {first.name: first}
    last = next((s for s in by_stream.values() if any(_is_merge(each, box) for each in s.graph.boxes)), None)
    if last is None:
        raise QueryError(f"box {box!r} isn't split at node {node!r}", code="query.split")
    wanted = [last]
    while wanted:
        spec = wanted.pop()
        if spec.name in found:
            continue
        found[spec.name] = spec
        for feed in spec.feeds:
            above = by_stream.get(feed.stream) if feed.node == node else None
            if above is None and feed.stream in by_stream:
                text = f"what reads {feed.stream!r} hasn't heard yet that it is here again"
                raise QueryError(text, hint="try again in a moment", code="E_BUSY")
            if above is None:
                raise QueryError(
                    f"fragment {spec.name!r} reads {feed.stream!r} from node {feed.node!r}",
                    hint=f"to merge {box!r} all of its parts are to be at one node: move them there",
                    code="E_ELSEWHERE",
                )
            wanted.append(above)
    outside = next((spec.name for spec in found.values() if spec.entries and spec.name != first.name), None)
    if outside is not None:
        raise QueryError(
            f"fragment {outside!r} takes rows from outside beside those of the router of {box!r}",
            hint="deploy the query anew without the split",
            code="query.split",
        )
    return _by_links(list(found.values()))


def _is_merge(box: Box, id: str) -> bool:
    return box.id == id and not isinstance(box, Source)


def _by_links(specs: list[FragmentSpec]) -> list[FragmentSpec]:
    """In an order in which who is read comes first."""
    made: list[FragmentSpec] = []
    while specs:
        sent = {name for spec in specs for name in spec.streams.values()}
        ready = next((s for s in specs if not any(feed.stream in sent for feed in s.feeds)), None)
        if ready is None:
            raise QueryError("these fragments read each other in a circle", code="query.split")
        specs.remove(ready)
        made.append(ready)
    return made


# --- splitting ----------------------------------------------------------------------------------


def _below(graph: Graph, roots: set[str]) -> set[str]:
    """These boxes, and all that come after them."""
    found = set(roots)
    for each in graph.boxes:
        if any(arc.box in found for arc in each.inputs):
            found.add(each.id)
    return found


def _name(query: str, boxes: Iterable[str], used: Collection[str]) -> str:
    name = next((name for id in boxes if (name := f"{query}/{id}") not in used), None)
    if name is None:
        raise QueryError(
            "all names that its boxes give are those of other fragments",
            hint="deploy the query with other names of boxes",
            code="query.split",
        )
    return name


def _inner_streams(raw: Iterable[FragmentSpec], spec: FragmentSpec, box: str) -> dict[str, str]:
    """Streams between the new fragments that have the name of another stream already -> their own name.

    That is one that the fragment sends to other nodes, or one that it reads from another, and hands on.
    """
    theirs, fed = set(spec.streams.values()), {feed.source for feed in spec.feeds}
    renamed: dict[str, str] = {}
    for each in raw:
        for sink, stream in each.streams.items():
            if sink in spec.streams:
                continue
            if _arc_into(each, sink).box in fed:
                renamed[stream] = f"{stream}.{BELOW}.{box}"
            elif stream in theirs:
                renamed[stream] = f"{stream}.{BELOW}"
    return renamed


def _as_of(
    raw: FragmentSpec, spec: FragmentSpec, *, name: str, node: str, epoch: int, renamed: Mapping[str, str]
) -> FragmentSpec:
    """As ``grouped`` gives it, with the ends that the fragment had."""
    sources = {each.id for each in raw.graph.boxes if isinstance(each, Source)}
    ours = {feed.source: feed for feed in spec.feeds if feed.source in sources}
    inner = [
        Feed(source=feed.source, node=node, stream=renamed.get(feed.stream, feed.stream), epoch=epoch)
        for feed in raw.feeds
    ]
    taken = {feed.source for feed in inner}
    versions = dict.fromkeys(taken, spec.stream_version) if spec.stream_version > 1 else {}
    versions |= {source: of for source, of in spec.read_versions.items() if source in ours.keys() - taken}
    kept = {sink: None for sink in raw.streams if sink in spec.streams}
    streams = {
        sink: spec.streams[sink] if sink in kept else renamed.get(stream, stream)
        for sink, stream in raw.streams.items()
    }
    readers: dict[str, tuple[str, ...]] = {sink: (node,) for sink in raw.streams if sink not in kept}
    guests = {id: guest for id, guest in spec.guests.items() if guest.sink in kept}
    streams |= {id: spec.streams[id] for id in guests}
    readers |= {sink: nodes for sink, nodes in spec.readers.items() if sink in kept or sink in guests}
    return FragmentSpec(
        node=node,
        name=name,
        graph=raw.graph,
        feeds=(*inner, *(feed for source, feed in ours.items() if source not in taken)),
        entries={source: spec.entries[source] for source in raw.entries},
        streams=streams,
        readers=readers,
        guests=guests,
        sold={id: sold for id, sold in spec.sold.items() if id in guests},
        stream_version=spec.stream_version,
        read_versions=versions,
        standby=spec.standby,
        backup_nodes=spec.backup_nodes,
        method=spec.method,
        method_reason=spec.method_reason,
        checkpoint_every_us=spec.checkpoint_every_us,
        delay_us=spec.delay_us,
        delay_failure=spec.delay_failure,
        delay_stabilization=spec.delay_stabilization,
    )


def _arcs_of(raw: FragmentSpec, all_: Collection[FragmentSpec], spec: FragmentSpec) -> dict[str, Input]:
    """Of a new fragment, its ends between the new ones."""
    by_stream = {
        stream: _arc_into(each, sink)
        for each in all_
        for sink, stream in each.streams.items()
        if sink not in spec.streams
    }
    found = {feed.source: by_stream[feed.stream] for feed in raw.feeds}
    return found | {sink: _arc_into(raw, sink) for sink in raw.streams if sink not in spec.streams}


def _arc_into(spec: FragmentSpec, sink: str) -> Input:
    return next(each for each in spec.graph.boxes if each.id == sink).inputs[0]


# --- merging ------------------------------------------------------------------------------------


def _links(specs: Iterable[FragmentSpec], node: str) -> dict[str, Input]:
    """Streams that these fragments read of each other -> the arc."""
    specs = list(specs)
    read = {feed.stream for spec in specs for feed in spec.feeds if feed.node == node}
    return {
        stream: _arc_into(spec, sink)
        for spec in specs
        for sink, stream in spec.streams.items()
        if stream in read
    }


def _own_arcs(spec: FragmentSpec, inner: Mapping[str, Input]) -> dict[str, Input]:
    found = {feed.source: inner[feed.stream] for feed in spec.feeds if feed.stream in inner}
    for sink, stream in spec.streams.items():
        if stream in inner:
            if set(spec.readers.get(sink, ())) != {spec.node}:
                raise QueryError(
                    f"stream {stream!r} is read at other nodes too",
                    hint="deploy the query anew without the split",
                    code="query.split",
                )
            found[sink] = inner[stream]
    return found
