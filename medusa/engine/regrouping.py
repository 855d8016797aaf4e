"""Fragments that take the place of others, with their state: when a box of one is split, or merged again.

At rest the states of its boxes are all there is to a fragment, so the new ones begin with those of the old
ones; that of the box itself is cut, or put together (``engine.repartition.partition``). The old ones are not
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from medusa.elements import Element
from medusa.engine.core.box import Operator
from medusa.engine.fragment import Fragment
from medusa.engine.operators.ordered_merge import OrderedMergeBox
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.source import SourceBox
from medusa.engine.query_change import carry
from medusa.engine.repartition.partition import combine_states, partition_state, rows_of
from medusa.engine.state.evolve import promise_of
from medusa.errors import StateError
from medusa.ports import Clock
from medusa.query.boxes import Graph, Input
from medusa.query.graph import check_graph
from medusa.query.rewrite.split import find_split

__all__ = ["Regrouped", "merge_fragments", "split_fragment"]

Arcs = Mapping[str, Mapping[str, Input]]
"""Fragment -> its sources and sinks that only link it with others of the set -> arc of the whole graph."""


@dataclass(frozen=True, slots=True)
class Regrouped:
    """New fragments.

    Attributes:
        made: by name.
        reached_us: fragment -> its ends that are new -> the boundary that stands there.
        outputs: (sink, element) that the merge had held back.
        rows: of each part, how many rows of its keys it holds.
    """

    made: dict[str, Fragment]
    reached_us: dict[str, dict[str, int]] = field(default_factory=dict)
    outputs: list[tuple[str, Element]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


def split_fragment(
    old: Fragment, box: str, whole: Graph, opened: Mapping[str, Graph], arcs: Arcs, *, clock: Clock
) -> Regrouped:
    """Fragments in which a box of one fragment is split.

    Args:
        whole: the graph of ``old`` in which the box is split.
        opened: the graphs of the new ones, by name.

    Raises:
        StateError, QueryError: nothing came of it, and ``old`` is as it was.
    """
    old.quiesce()
    made = {name: Fragment(graph, clock=clock) for name, graph in opened.items()}
    boxes = {id: each for name, one in made.items() for id, each in one.boxes.items() if id not in arcs[name]}
    parts = find_split(whole, box)
    inputs = [old.checked.shapes[arc] for arc in old.checked.boxes[box].inputs]
    fresh = {id: boxes[id].save() for id in parts.ids}
    states = partition_state(parts, inputs, old.boxes[box].save(), fresh)
    for id, each in boxes.items():
        if id in states:
            each.load(states[id])
        else:
            carry(old.boxes[id], each)
    reached = {
        name: {id: promise_of(boxes[arc.box], arc.port) for id, arc in arcs[name].items()} for name in made
    }
    for name, one in made.items():
        for id, reached_us in reached[name].items():
            _begin_at(one.boxes[id], reached_us)
        one.ruled.load(old.ruled.save())
        one.connections.open()
    return Regrouped(made, reached, rows=[rows_of(parts.whole, states[part.id]) for part in parts.parts])


def merge_fragments(
    olds: Mapping[str, Fragment],
    box: str,
    whole: Graph,
    opened: Mapping[str, Graph],
    arcs: Arcs,
    *,
    clock: Clock,
) -> Regrouped:
    """One fragment in which a box that was split over several is one again.

    Args:
        whole: the graph of all of ``olds``, in which it is split.
        opened: the graph of the new one, by name.

    Raises:
        StateError, QueryError: nothing came of it, and ``olds`` are as they were.
    """
    parts = find_split(whole, box)
    (name, graph) = next(iter(opened.items()))
    merges = {each.id for each in parts.merges}
    boxes: dict[str, Operator] = {}
    outputs: list[tuple[str, Element]] = []
    for old_name, old in olds.items():
        old.quiesce()
        here = _flushed(old, merges, outputs, clock) if merges & old.boxes.keys() else old
        boxes |= {id: each for id, each in here.boxes.items() if id not in arcs[old_name]}
    made = Fragment(graph, clock=clock)
    if any(sink not in made.sinks for sink, _ in outputs):
        raise StateError("what the merge held back goes to another fragment of the set", code="state.split")
    shapes = check_graph(whole).shapes
    inputs = [shapes[router.inputs[0]] for router in parts.routers]
    states = {id: boxes[id].save() for id in parts.ids}
    for id, each in made.boxes.items():
        if id == box:
            each.load(combine_states(parts, inputs, states, each.save()))
        else:
            carry(boxes[id], each)
    for old in olds.values():
        made.ruled.load(old.ruled.save())
    made.connections.open()
    return Regrouped({name: made}, outputs=outputs)


def _flushed(old: Fragment, merges: set[str], outputs: list[tuple[str, Element]], clock: Clock) -> Fragment:
    """A copy that has sent all that its merges held; the rows are added to ``outputs``."""
    copy = Fragment.restore(old.graph, old.snapshot(), clock=clock)
    for id in merges & copy.boxes.keys():
        merge = copy.boxes[id]
        if isinstance(merge, OrderedMergeBox):
            merge.flush()
    copy.quiesce()
    outputs += [(sink, element) for sink in copy.sinks for element in copy.drain(sink)]
    return copy


def _begin_at(box: Operator, reached_us: int) -> None:
    """A fresh source or sink as if it had stood there when this boundary passed."""
    assert isinstance(box, SourceBox | SinkBox)
    state = box.save()
    state.meta["inputs_us"] = [reached_us]
    state.meta["boundary_us"] = reached_us
    if isinstance(box, SourceBox):
        state.meta["promised_us"] = reached_us
    box.load(state)
