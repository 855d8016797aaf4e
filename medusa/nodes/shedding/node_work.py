"""What the fragments of a node have to do, as one model of boxes: rates, costs, and what leads to which
output.

A fragment that reads another one of the same node is joined to it: what is left out before the first isn't
done by the second either. Of an output at another node it is known what it is worth, and which of the rows
here lead to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from medusa.engine.overload.drop_sites import Arc
from medusa.engine.overload.road_map import LoadModel
from medusa.engine.qos.rates import Recent
from medusa.nodes.fragment.host import FragmentHost
from medusa.query.boxes import Input, Sink, Source
from medusa.query.boxes.shedding_rule import SheddingRule
from medusa.query.qos import QoS
from medusa.wire.status_and_metrics import SmoothedLoad

__all__ = ["Arrivals", "NodeWork", "RuledSource", "work_of"]


@dataclass(frozen=True, slots=True)
class RuledSource:
    """A source of a fragment here behind which rows may be left out.

    Attributes:
        arcs: that such a drop stands on, in the model.
    """

    fragment: str
    source: str
    rule: SheddingRule
    arcs: tuple[Arc, ...]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Attributes:
    places: where rows may be left out.
    outputs: what each output is worth, by its box in the model.
    waiting: rows that wait, by the box of their source in the model.
    """

    model: LoadModel
    places: Sequence[RuledSource]
    outputs: Mapping[str, QoS]
    waiting: Mapping[str, int]


class Arrivals:
    """How many rows came by each source of late, whether or not they could be fed."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Recent] = {}
        self._past_us = 0.0
        self._looked_us: int | None = None

    def look(self, now_us: int, hosted: Mapping[str, FragmentHost]) -> None:
        """Take note of where all inputs stand."""
        came = {(name, source): rows for name, each in hosted.items() for source, rows in _came(each).items()}
        for gone in self._counts.keys() - came.keys():
            del self._counts[gone]
        for key, rows in came.items():
            if key in self._counts:
                self._counts[key].look(rows)
            else:
                self._counts[key] = Recent(rows)
        if self._looked_us is not None:
            self._past_us = self._past_us * Recent.KEPT + now_us - self._looked_us
        self._looked_us = now_us

    def rate(self, fragment: str, source: str) -> float:
        """Rows per second."""
        known = self._counts.get((fragment, source))
        return 0.0 if known is None or not self._past_us else known.grown * 1e6 / self._past_us


def _came(hosted: FragmentHost) -> dict[str, int]:
    """Source -> rows that have come."""
    found: dict[str, int] = {}
    for input in hosted.inputs.values():
        found[input.source] = found.get(input.source, 0) + max(input.receiver.next_seq, 0)
    return found


def work_of(
    here: str,
    hosted: Mapping[str, FragmentHost],
    boxes: Mapping[str, Mapping[str, SmoothedLoad]],
    arrivals: Arrivals,
    ruled: Iterable[str],
) -> NodeWork:
    """The model of a node.

    Args:
        here: its name.
        boxes: fragment -> what was measured of its boxes.
        ruled: the fragments of which rows may be left out.
    """
    arcs: list[Arc] = []
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    gives: dict[tuple[str, str], float] = {}
    streams = {
        stream: f"{name}|{sink}"
        for name, each in hosted.items()
        for sink, stream in each.spec.streams.items()
    }
    for name, each in hosted.items():
        measured = boxes.get(name, {})
        fed_here = {
            feed.source: streams[feed.stream]
            for feed in each.spec.feeds
            if feed.node == here and feed.stream in streams
        }
        for box in each.spec.graph.boxes:
            id, load = f"{name}|{box.id}", measured.get(box.id)
            costs[id] = 0.0 if load is None or load.cost_us is None else load.cost_us
            if isinstance(box, Source):
                gives[id, ""] = 1.0
                if box.id in fed_here:
                    arcs.append((Input(fed_here[box.id]), id, 0))
                    rates[id] = 0.0  # beside what comes from there
                else:
                    rates[id] = arrivals.rate(name, box.id)
            elif isinstance(box, Sink):
                gives[id, ""] = 1.0
            elif load is not None and load.selectivity is not None:
                gives[id, ""] = load.selectivity
            for number, arc in enumerate(box.inputs):
                above = f"{name}|{arc.box}"
                arcs.append((Input(above, arc.port), id, number))
                if arc.port and load is not None and (of := measured.get(arc.box)) and of.rows_in_per_s:
                    gives.setdefault((above, arc.port), min(load.rows_in_per_s / of.rows_in_per_s, 1.0))
    rules = [
        (name, hosted[name], box)
        for name in ruled
        for box in hosted[name].spec.graph.boxes
        if isinstance(box, Source) and box.id in hosted[name].rules
    ]
    outputs = _join_outputs(rules, arcs)
    model = LoadModel(_ordered([*costs, *outputs], arcs), arcs, rates, costs, gives)
    waiting = {f"{name}|{box.id}": each.waiting_rows(box.id) for name, each, box in rules}
    places = [
        RuledSource(name, box.id, rule, tuple(arc for arc in arcs if arc[0] == Input(f"{name}|{box.id}")))
        for name, _, box in rules
        if (rule := box.shed) is not None
    ]
    return NodeWork(model, places, outputs, waiting)


def _join_outputs(rules: Sequence[tuple[str, FragmentHost, Source]], arcs: list[Arc]) -> dict[str, QoS]:
    """A box for each output that rows of these sources lead to, behind the last of them on each way to it."""
    leads: dict[str, list[str]] = {}
    worth: dict[str, QoS] = {}
    for name, each, box in rules:
        for output in () if box.shed is None else box.shed.outputs:
            out = f">{each.spec.query}.{output.sink}"
            leads.setdefault(out, []).append(f"{name}|{box.id}")
            worth[out] = output.qos
    below: dict[str, list[str]] = {}
    for stream, reader, _ in arcs:
        below.setdefault(stream.box, []).append(reader)
    for out, sources in leads.items():
        last = [id for id in sources if not (_reached(id, below) & set(sources))]
        arcs += [(Input(id), out, number) for number, id in enumerate(last)]
    return worth


def _reached(id: str, below: Mapping[str, Sequence[str]]) -> set[str]:
    """The boxes that rows of a box come to."""
    found: set[str] = set()
    stack = [*below.get(id, ())]
    while stack:
        if (each := stack.pop()) not in found:
            found.add(each)
            stack += below.get(each, ())
    return found


def _ordered(ids: Iterable[str], arcs: Iterable[Arc]) -> list[str]:
    """Boxes, inputs before those that read them; what reads itself in a circle comes last."""
    above: dict[str, set[str]] = {id: set() for id in ids}
    below: dict[str, list[str]] = {}
    for stream, reader, _ in arcs:
        if stream.box not in above[reader]:
            above[reader].add(stream.box)
            below.setdefault(stream.box, []).append(reader)
    ready = [id for id, waits in above.items() if not waits]
    done: list[str] = []
    while ready:
        id = ready.pop()
        done.append(id)
        for reader in below.get(id, ()):
            above[reader].discard(id)
            if not above[reader]:
                ready.append(reader)
    return done + [id for id in above if id not in set(done)]
