"""A stream of its own for each guarded fragment that reads what others read too. Pure.

    e: first ── q.first.to.kind ──> kind      guarded by s
             ── q.first.to.other ─> other     guarded by s
             ── q.first ──────────> rest      guarded by nobody

A node has one place in a stream. So any node can have any of these fragments, beside whatever it runs: each
has its own position, acknowledgements and kept rows. Rows have the same numbers in all of these streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from medusa.nodes.placement.made_names import MadeNames
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.spec.stream_names import stream_for
from medusa.query.boxes import Box, Sink

__all__ = ["with_own_streams"]

_Own = Mapping[tuple[str, str], Mapping[str, str]]
"""(node, stream there) -> node of a reader that has a stream of its own -> the box that names it."""


def with_own_streams(plan: PlacementPlan) -> PlacementPlan:
    """The plan in which no stream that a guarded fragment reads has another reader."""
    own = _own(plan)
    names = MadeNames(box.id for fragment in plan.fragments for box in fragment.graph.boxes)
    fragments = (_reading(_sending(each, own, names), own) for each in plan.fragments)
    return replace(plan, fragments=tuple(fragments)) if own else plan


def _own(plan: PlacementPlan) -> _Own:
    shared = {
        (fragment.node, fragment.streams[sink])
        for fragment in plan.fragments
        for sink, nodes in fragment.readers.items()
        if len(nodes) > 1
    }
    own: dict[tuple[str, str], dict[str, str]] = {}
    for fragment in plan.guarded():
        for feed in fragment.feeds:
            if (feed.node, feed.stream) in shared:
                box = fragment.name.partition("/")[2]
                own.setdefault((feed.node, feed.stream), {})[fragment.node] = box
    return own


def _sending(fragment: FragmentSpec, own: _Own, names: MadeNames) -> FragmentSpec:
    boxes: list[Box] = []
    streams, readers = dict(fragment.streams), dict(fragment.readers)
    for box in fragment.graph.boxes:
        stream = fragment.streams[box.id] if isinstance(box, Sink) else ""
        apart = own.get((fragment.node, stream), {})
        if not apart:
            boxes.append(box)
            continue
        left = tuple(node for node in readers.pop(box.id) if node not in apart)
        del streams[box.id]
        if left:
            boxes.append(box)
            streams[box.id], readers[box.id] = stream, left
        for node, reader in apart.items():
            sink = names.made(box.id, reader)
            boxes.append(msgspec.structs.replace(box, id=sink))
            streams[sink], readers[sink] = stream_for(stream, reader), (node,)
    graph = msgspec.structs.replace(fragment.graph, boxes=tuple(boxes))
    return msgspec.structs.replace(fragment, graph=graph, streams=streams, readers=readers)


def _reading(fragment: FragmentSpec, own: _Own) -> FragmentSpec:
    feeds = tuple(
        feed
        if (box := own.get((feed.node, feed.stream), {}).get(fragment.node)) is None
        else msgspec.structs.replace(feed, stream=stream_for(feed.stream, box))
        for feed in fragment.feeds
    )
    return msgspec.structs.replace(fragment, feeds=feeds)
