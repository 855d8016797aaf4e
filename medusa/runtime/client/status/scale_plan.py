"""In how many parts the boxes of a query should run, by the statuses of its nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from medusa.errors import LinkError
from medusa.nodes.scaling.policy import Resize, ScaleRules, WorkPolicy
from medusa.nodes.scaling.true_rates import BoxRates, work_of
from medusa.wire.status_and_metrics import BoxStatus, FragmentStatus, NodeStatus

__all__ = ["scale_plan"]

RULES = ScaleRules(looks=1)
"""Rates are smoothed already, and whoever asks looks again before they act."""

ENDS = ("source", "sink", "key_router", "ordered_merge", "union", "sunion", "connection_point")
"""Kinds that are never split, or are what is left of a split."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A fragment at one of the nodes where it runs: with sources of its own it runs at several."""

    node: str
    of: FragmentStatus

    def key(self, box: str) -> str:
        return f"{self.node} {self.of.fragment}:{box}"


def scale_plan(statuses: Iterable[NodeStatus], query: str) -> list[dict[str, Any]]:
    """As ``Federation.scale_plan``.

    Raises:
        LinkError: these nodes have nothing of that query (``E_FRAGMENT``).
    """
    fragments = [
        _Placed(node=status.node, of=each)
        for status in statuses
        for each in status.fragments
        if each.query == query
    ]
    if not fragments:
        raise LinkError(
            f"no query {query!r:.80} runs here", hint="fed.queries() lists them", code="E_FRAGMENT"
        )
    work = _work(fragments)
    parts, found = _parts(fragments), dict[str, float | None]()
    for box, of in parts.items():
        known = [work[each] for each in of if each in work]
        found[box] = sum(known) if known else None
    known_work = {box: of for box, of in found.items() if of is not None}
    now = {box: len(of) for box, of in parts.items()}
    said = {each.box: each for each in WorkPolicy(RULES).look(0, known_work, now)}
    boxes = sorted(parts, key=lambda box: (-(found[box] or 0.0), box))
    return [
        {
            "box": f"{query}/{box}",
            "parts": now[box],
            "work": found[box],
            **_says(found[box], now[box], said.get(box)),
        }
        for box in boxes
    ]


def _says(work: float | None, parts: int, resize: Resize | None) -> dict[str, Any]:
    if resize is not None:
        return {"wanted": resize.parts, "why": resize.why}
    if work is None:
        return {"wanted": parts, "why": "nothing is known of it: no rows came of late, or none through"}
    share = f"{work / parts:.2f} of a thread in each of {parts}"
    if parts == 1 and work < RULES.low:
        return {"wanted": 1, "why": f"{share}: one is enough"}
    return {"wanted": parts, "why": f"{share}, between {RULES.low:g} and {RULES.high:g} or nearest to it"}


def _parts(fragments: Sequence[_Placed]) -> dict[str, list[str]]:
    """Box of the query -> its parts, or itself, as keys of ``_work``."""
    boxes = [(each.key(id), id, of.kind) for each in fragments for id, of in each.of.boxes.items()]
    split = {re.sub("-router(-left)?$", "", id) for _, id, kind in boxes if kind == "key_router"}
    found: dict[str, list[str]] = {}
    for key, id, kind in boxes:
        if kind not in ENDS and id not in split:
            of = re.fullmatch("(.+)-[1-9][0-9]*", id)
            found.setdefault(of[1] if of and of[1] in split else id, []).append(key)
    return found


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
