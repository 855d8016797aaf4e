"""Fragments that take the place of others, with their state: what is held back on the way comes out."""

from __future__ import annotations

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.regrouping import merge_fragments, split_fragment
from medusa.errors import QueryError, StateError
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.repartition_plan import replan_merge, replan_split, set_of
from medusa.query.types import schema_to_arrow
from medusa.runtime.machine.clock import SystemClock

SCHEMA = {"ts": "int64", "k": "int64"}
CLOCK = SystemClock()


def query():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="us", slack="10us")
    q.sink("out", rows.filter("k > 0", name="box").filter("k < 90", name="last"))
    return q


def train(times):
    source = next(box for box in query().graph.boxes if box.id == "rows")
    table = {"ts": times, "k": [time % 7 for time in times]}
    return Train(batch=pa.RecordBatch.from_pydict(table, schema=schema_to_arrow(source.schema)))


class Set:
    """The fragments of one node, and the links between them."""

    def __init__(self):
        [self.spec] = cut(query().graph, {"m": [box.id for box in query().graph.boxes]}).fragments
        self.specs = [self.spec]
        self.running = {self.spec.name: Fragment(self.spec.graph)}
        self.got = []

    def feed(self, times):
        self.running[self.specs[0].name].feed("rows", train(times))
        for spec in self.specs:
            one = self.running[spec.name]
            for sink, stream in spec.streams.items():
                for element in one.drain(sink):
                    self._bring(stream, element)

    def _bring(self, stream, element):
        if stream == "q.out":
            self.got += element.batch.to_pylist() if isinstance(element, Train) else []
        for spec in self.specs:
            for feed in spec.feeds:
                if feed.stream == stream:
                    self.running[spec.name].feed(feed.source, element)

    def plan(self, plan, make):
        about = plan.box, plan.whole, {each.name: each.graph for each in plan.made}, plan.arcs
        found = make(*about, clock=CLOCK)
        self.specs, self.running = list(plan.made), found.made
        for sink, element in found.outputs:
            assert sink == "out"
            self._bring("q.out", element)
        return found

    def split(self, parts):
        plan = replan_split(self.spec, "box", parts, node="m", epoch=2, taken=())
        [old] = self.running.values()
        return self.plan(plan, lambda *about, **more: split_fragment(old, *about, **more))

    def merge(self):
        specs = set_of(self.specs, self.specs[0], "box", "m")
        plan = replan_merge(specs, "box", node="m", taken=())
        olds = self.running
        return self.plan(plan, lambda *about, **more: merge_fragments(olds, *about, **more))


def test_what_the_merge_holds_back_leaves_when_it_goes():
    run = Set()
    whole = [list(range(start, start + 40)) for start in range(0, 400, 40)]
    same_time = [395, 394, 391, 396]  # They move no boundary, so the merge holds them.
    run.feed(whole[0])
    run.split(2)
    for times in whole[1:]:
        run.feed(times)
    run.feed(same_time)
    before = len(run.got)
    assert run.merge().outputs
    assert len(run.got) > before
    run.feed([500])
    times = [time for part in [*whole, same_time, [500]] for time in part]
    assert run.got == md.collect(query(), rows={"ts": times, "k": [t % 7 for t in times]})["out"].to_pylist()


def test_new_ends_stand_at_the_boundary_that_has_passed():
    run = Set()
    run.feed(list(range(40)))
    found = run.split(2)
    reached = {at_us for ends in found.reached_us.values() for at_us in ends.values()}
    assert reached == {29}
    for name, ends in found.reached_us.items():
        for id, at_us in ends.items():
            assert found.made[name].boxes[id].boundary_us == at_us


def test_names_are_new_streams_are_the_same_and_the_old_one_is_as_it_was():
    run = Set()
    [old] = run.running.values()
    run.feed(list(range(40)))
    state = {name: bytes(data) for name, data in old.snapshot().items()}
    run.split(3)
    assert {name: bytes(data) for name, data in old.snapshot().items()} == state
    assert list(run.running) == ["q/box-router", "q/box-1", "q/box-2", "q/box-3", "q/box"]
    assert [spec.streams["out"] for spec in run.specs if "out" in spec.streams] == ["q.out"]
    assert [spec.entries for spec in run.specs if spec.entries] == [{"rows": "q.rows"}]
    inner = [feed for spec in run.specs for feed in spec.feeds]
    assert {feed.epoch for feed in inner} == {2}
    assert {feed.node for feed in inner} == {"m"}
    run.running["q/box-router"].feed("rows", train([45]))
    with pytest.raises(StateError, match="have got further than others"):
        run.merge()


def test_parts_that_are_elsewhere_are_named():
    run = Set()
    run.split(2)
    away = [spec for spec in run.specs if spec.name != "q/box-1"]
    with pytest.raises(QueryError, match=r"'q/box' reads 'q.box-1' from node 'm'"):
        set_of(away, run.specs[0], "box", "m")
