"""What the boxes of a query have to do, and in which parts they run: by the statuses of its nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from medusa.nodes.scaling.true_rates import BoxRates, work_of
from medusa.query.rewrite.split import routed_box
from medusa.wire.status_and_metrics import BoxStatus, FragmentStatus, NodeStatus

__all__ = ["BoxPart", "BoxWork", "measured_boxes"]

ENDS = ("source", "sink", "key_router", "ordered_merge", "union", "sunion", "connection_point")
"""Kinds that are never split, or are what is left of a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPart:
    """A part of a box, or all of it, at one node.

    Attributes:
        box: its own name: ``w-2`` of ``w``, ``w-2-1`` where that is split again.
        is_alone: no other box is in its fragment but the ends of that.
        work: threads that it would keep busy; None: not known.
    """

    node: str
    fragment: str
    box: str
    is_alone: bool
    work: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxWork:
    """A box of a query; ``parts``: those that aren't split again, in the order in which nodes told them."""

    id: str
    parts: tuple[BoxPart, ...]

    @property
    def work(self) -> float | None:
        """Of all parts together, as far as it is known; None: of none."""
        known = [each.work for each in self.parts if each.work is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class _Placed:
    """A fragment at one of the nodes where it runs: with sources of its own it runs at several."""

    node: str
    of: FragmentStatus

    def key(self, box: str) -> str:
        return f"{self.node} {self.of.fragment}:{box}"


def measured_boxes(
    statuses: Iterable[NodeStatus], query: str, *, rests: float | None = None
) -> dict[str, BoxWork]:
    """Boxes of a query by name; empty: these nodes have nothing of it.

    Args:
        rests: what a part has to do to which nothing comes, and for which nothing waits.
    """
    fragments = [
        _Placed(node=status.node, of=each)
        for status in statuses
        for each in status.fragments
        if each.query == query
    ]
    work = _work(fragments)
    boxes = [(id, of) for each in fragments for id, of in each.of.boxes.items()]
    split = dict.fromkeys(routed_box(id) for id, of in boxes if of.kind == "key_router")
    found: dict[str, list[BoxPart]] = {}
    for each in fragments:
        ours = [id for id, of in each.of.boxes.items() if of.kind not in ("source", "sink")]
        for id, of in each.of.boxes.items():
            if of.kind not in ENDS and id not in split:
                found.setdefault(_whole(id, split), []).append(
                    BoxPart(
                        node=each.node,
                        fragment=each.of.fragment,
                        box=id,
                        is_alone=ours == [id],
                        work=work.get(each.key(id), rests if _at_rest(each.of, of) else None),
                    )
                )
    return {id: BoxWork(id=id, parts=tuple(parts)) for id, parts in found.items()}


def _at_rest(fragment: FragmentStatus, box: BoxStatus) -> bool:
    return box.smoothed is not None and box.smoothed.rows_in_per_s == 0 and not fragment.queue_bytes


def _whole(id: str, split: Iterable[str]) -> str:
    """The box of which this one is a part, or a part of a part; else itself."""
    while (of := re.fullmatch("(.+)-[1-9][0-9]*", id)) and of[1] in split:
        id = of[1]
    return id


def _work(fragments: Sequence[_Placed]) -> dict[str, float]:
    """By key."""
    sinks = {(out.stream, each.node): each.key(out.sink) for each in fragments for out in each.of.outputs}
    rates = {key: of for each in fragments for key, of in _rates(each)}
    above: dict[str, list[str]] = {key: [] for key in rates}
    offered: dict[str, float] = {}
    for each in fragments:
        of = each.of
        ports: dict[str, set[str]] = {}
        for box, port, _ in of.arcs:
            ports.setdefault(box, set()).add(port)
        reads = [
            (each.key(i.source), sinks[i.stream, i.origin])
            for i in of.inputs
            if (i.stream, i.origin) in sinks
        ]
        # Of what leaves by one of several ports nobody counts how much that is: what comes of it is.
        arcs = [(each.key(to), each.key(box)) for box, _, to in of.arcs if len(ports[box]) == 1]
        for key, origin in (*reads, *arcs):
            if key in above and origin in rates:
                above[key].append(origin)
        counted = {to for box, _, to in of.arcs if len(ports[box]) > 1}
        for id in (id for id, box in of.boxes.items() if box.kind == "source" or id in counted):
            if (key := each.key(id)) in rates and (id in counted or not above[key]):
                above[key] = [f"{key} <"]
                offered[f"{key} <"] = rates[key].rows_in_per_s
    order = [key for key in TopologicalSorter(above).static_order() if key in above]
    return work_of({key: above[key] for key in order}, offered, rates)


def _rates(fragment: _Placed) -> Iterator[tuple[str, BoxRates]]:
    for id, of in fragment.of.boxes.items():
        if of.smoothed is not None:
            yield fragment.key(id), _box_rates(of)


def _box_rates(of: BoxStatus) -> BoxRates:
    told = of.smoothed
    assert told is not None
    leaves = told.rows_in_per_s if of.kind == "sink" else told.rows_out_per_s
    return BoxRates(rows_in_per_s=told.rows_in_per_s, rows_out_per_s=leaves, busy_share=told.busy_share)
