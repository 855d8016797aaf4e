"""A box that was split, with parts on nodes of their own: rows and their order are those of one program."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine.fragment import Fragment as Running
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.spec.fragment_spec import check_fragment, fragment_from, fragment_to
from tests.engine.queries import batch_of, inputs
from tests.engine.test_splitting import BUILDS, ROWS, outcome, query, split_graph
from tests.nodes.test_placement import where
from tests.oracle.query import Promise, plain

KINDS = [kind for kind in BUILDS if kind not in ("route", "window_drop")]


class Links:
    """The fragments of a plan in one process; what goes from node to node comes in its own time."""

    def __init__(self, plan: PlacementPlan) -> None:
        self.specs = {spec.name + spec.node: spec for spec in plan.fragments}
        self.running = {key: Running(spec.graph) for key, spec in self.specs.items()}
        self.queues = {(key, feed.source): deque() for key, spec in self.specs.items() for feed in spec.feeds}
        self.out: dict[str, list[Train]] = {}

    def feed(self, source: str, element) -> None:
        for key, spec in self.specs.items():
            if source in spec.entries:
                self._into(key, source, element)

    def _into(self, key: str, source: str, element) -> None:
        spec, running = self.specs[key], self.running[key]
        running.feed(source, element)
        for sink, stream in spec.streams.items():
            for each in running.drain(sink):
                if sink not in spec.readers and isinstance(each, Train):
                    self.out.setdefault(sink, []).append(each)
                for other, reads in self.specs.items():
                    for feed in reads.feeds:
                        if (feed.node, feed.stream) == (spec.node, stream):
                            self.queues[other, feed.source].append(each)

    def deliver(self, choice: int) -> bool:
        """One element of one link; False: none waits."""
        waiting = [link for link, queue in self.queues.items() if queue]
        if waiting:
            key, source = waiting[choice % len(waiting)]
            self._into(key, source, self.queues[key, source].popleft())
        return bool(waiting)


def test_router_parts_and_merge_stand_where_they_are_told() -> None:
    q = query("tumbling").split("x", 2)
    plan = cut(q.graph, {"a": ["a", "b", "x-router"], "b": ["x-1"], "c": ["x-2", "x"]})
    assert where(plan) == {
        "a": [["a", "x-router", "x-router-out", "x-router-1-out"], ["b", "filter-1-ab97", "p"]],
        "b": [["x-router", "x-1", "x-1-out"]],
        "c": [["x-router-1-a", "x-2", "x-1", "x", "o"]],
    }
    for fragment in plan.fragments:
        check_fragment(fragment)
        assert fragment_from(fragment_to(fragment)) == fragment


@settings(max_examples=12)
@given(st.data())
def test_parts_on_nodes_give_the_same_sequence(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    q = query(kind, 40 if kind not in ROWS else data.draw(st.sampled_from([0, 3])))
    events = data.draw(inputs(["a", "b"]))
    parts = md.Query.from_graph(split_graph(q.graph, kind, data))
    at: dict[str, list[str]] = {"r": [], "m": []}
    for box in parts.graph.boxes:
        number = box.id.removeprefix("x-")
        behind = box.id == "x" or box.id.startswith("x-out-") or _below(parts, box.id)
        node = "m" if behind else f"p{number}" if number.isdigit() else "r"
        if box.id not in ("o", "p"):
            at.setdefault(node, []).append(box.id)
    links = Links(cut(parts.graph, at))
    choices = data.draw(st.randoms(use_true_random=False))
    for event in events:
        if isinstance(event, Promise):
            links.feed(event.source, Boundary(event.time))
        else:
            for start, stop in pairwise(sorted({0, 3, 7, len(event.rows)} & set(range(len(event.rows) + 1)))):
                links.feed(event.source, Train(batch=batch_of(event.rows[start:stop])))
        for _ in range(choices.randrange(6)):
            links.deliver(choices.randrange(100))
    for source in q.sources:
        links.feed(source, Boundary(END_US))
    while links.deliver(choices.randrange(100)):
        pass
    expected = outcome(q, events, [3, 7])
    for sink in expected:
        rows = [row for train in links.out.get(sink, []) for row in train.batch.to_pylist()]
        assert plain(rows) == expected[sink]


def _below(q: md.Query, id: str) -> bool:
    """Whether a box reads the merge: it stands beside it."""
    boxes = {box.id: box for box in q.graph.boxes}
    return any(arc.box == "x" or _below(q, arc.box) for arc in boxes[id].inputs)
