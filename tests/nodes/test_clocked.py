"""Nodes that decide by their clock: what they decided holds after a crash, and one program agrees."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Silent, Train
from medusa.engine.fragment import Fragment
from medusa.nodes.fragment.clock_decisions import decides
from medusa.nodes.placement.placement import cut
from tests.nodes.clocked_run import SCHEMA, SPAN_US, ClockedRun, rows
from tests.nodes.test_decisions import Beginning

pytestmark = pytest.mark.filterwarnings("ignore::medusa.LateWarning")


def guarded() -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="1s", ahead="1s")
    q.sink("rows", cars)
    q.sink("ahead", cars.ahead)
    q.sink("counts", cars.window("100ms").group_by("k").aggregate(n=md.count()))
    return q


@pytest.mark.parametrize(("seed", "kills"), [(1, 0), (2, 3), (3, 3), (4, 6)])
def test_rows_ahead_of_the_clock_of_their_node_are_the_same_after_a_crash(seed, kills, monkeypatch):
    """Every row is near the limit, so a train that came again and was judged anew would be cut otherwise."""
    run = ClockedRun(seed, guarded(), monkeypatch)
    start_us = run.federation.world.now_us
    count = 400
    at_us = [start_us + 50_000 + SPAN_US * number // count for number in range(count)]
    data = rows([at + 1_000_000 + run.dice.randrange(-300_000, 300_000) for at in at_us], run.dice)
    run.publish("cars", data, {begin: at_us[begin] for begin in range(0, count, 10)})
    run.kill(kills)
    found = run.answer()
    assert sorted(row["v"] for row in [*found["rows"], *found["ahead"]]) == list(range(count))
    assert 50 < len(found["ahead"]) < 350
    assert found == run.embedded()
    counts = run.node.brain.installed.counts["q/cars"]["boxes"]
    assert counts["cars"]["ahead"] == len(found["ahead"])


def test_only_sources_whose_arrival_no_column_says_are_the_nodes_decision():
    assert decides(guarded().graph)
    q = md.Query("q")
    cars = q.source("cars", SCHEMA | {"at": "timestamp[us, UTC]"}, time="ts", ahead="1s", arrival="at")
    q.sink("rows", cars)
    assert not decides(q.graph)


# --- silence ------------------------------------------------------------------------------------


def pairs() -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="10ms")
    vans = q.source("vans", SCHEMA, time="ts", slack="10ms", idle="100ms")
    q.sink("pairs", cars.join(vans, on="k", within="150ms", how="left"))
    q.sink("all", vans)
    q.sink("late", vans.late)
    return q


def bursts(run: ClockedRun) -> None:
    """Cars all the time, vans now and then, and behind: how late they are is for the clock to say."""
    start_us = run.federation.world.now_us + 50_000
    dice = run.dice
    at_us = list(range(start_us, start_us + SPAN_US, 5_000))
    run.publish("cars", rows([at - 1_000 for at in at_us], dice), dict(enumerate(at_us)))
    begins = [dice.randrange(start_us, start_us + SPAN_US) // 5_000 * 5_000 + 2_500 for _ in range(6)]
    times = sorted({at + 5_000 * step for at in begins for step in range(6)})
    times = [each for each in times if each < start_us + SPAN_US]
    stamps = [at - dice.choice([0, 0, 40_000, 90_000]) for at in times]
    run.publish("vans", rows(stamps, dice), dict(enumerate(times)), ends=False)
    last = run.federation.clients["pub-vans"]
    columns = next(box.schema for box in run.q.graph.boxes if box.id == "vans")
    run.federation.world.at(start_us + SPAN_US + 1, lambda: last.finish("q.vans", columns))


@pytest.mark.parametrize(("seed", "kills"), [(1, 0), (2, 3), (3, 3), (4, 6)])
def test_a_silent_source_is_moved_on_the_same_after_a_crash(seed, kills, monkeypatch):
    run = ClockedRun(seed, pairs(), monkeypatch)
    bursts(run)
    run.kill(kills)
    found = run.answer()
    lifts = [each for _, source, each in run.fed.values() if source == "vans" and isinstance(each, Boundary)]
    assert len(lifts) > 20
    assert found["late"]
    assert len(found["late"]) < len(found["all"])
    assert found == run.embedded()


@pytest.mark.parametrize("seed", range(2))
def test_one_program_moves_a_silent_source_on_as_its_node_does(seed, monkeypatch):
    run = ClockedRun(seed, pairs(), monkeypatch)
    bursts(run)
    found = run.answer()
    clock = md.testing.ManualClock()
    with md.start(run.q, clock=clock) as alone:
        then_us = min(at_us for at_us, *_ in run.fed.values())
        for _, (at_us, source, element) in sorted(run.fed.items()):
            while then_us < at_us:
                step_us = min(500, at_us - then_us)
                clock.advance(step_us)
                then_us += step_us
                alone.tick()
            if isinstance(element, Train):
                alone.push(source, element.batch)
        alone.finish()
        assert found == {sink: alone.take(sink).to_pylist() for sink in run.sinks}


def test_a_source_that_nobody_publishes_into_is_silent_from_the_start(monkeypatch):
    run = ClockedRun(7, pairs(), monkeypatch)
    start_us = run.federation.world.now_us + 50_000
    at_us = list(range(start_us, start_us + SPAN_US, 5_000))
    run.publish("cars", rows(at_us, run.dice), dict(enumerate(at_us)), ends=False)
    run.kill(2)
    run.federation.run(for_us=3 * SPAN_US)
    came = [row["v"] for batch in run.reader.rows["q.pairs"] for row in batch.to_pylist()]
    late_us = 150_000 + 10_000
    assert came == list(range(len([each for each in at_us if each < at_us[-1] - late_us])))


def test_a_node_that_keeps_nothing_moves_a_silent_source_on_too(monkeypatch):
    run = ClockedRun(8, pairs(), monkeypatch, memory=True)
    bursts(run)
    found = run.answer()
    assert found["late"]
    assert len(found["pairs"]) >= SPAN_US // 5_000
    assert found == run.embedded()


def test_a_boundary_is_void_when_rows_came_before_it():
    """Asked, then fed rows, then answered: the source isn't silent any more."""
    begun = Beginning([], idle_us=100)
    begun.feeding.tick(0)
    begun.came("right", 5)
    assert begun.fed(50) == [("right", 5, 0)]
    assert begun.asked(100) == [Silent(("left",))]
    assert begun.asked(100) == []
    begun.came("left", 3)
    begun.feeding.answered([("left", Boundary(70))])
    assert begun.fed(50) == [("left", 3, 1), ("left", None, -1)]
    assert begun.asked(200) == [Silent(("left",))]
    begun.feeding.answered([("left", Boundary(80)), ("left", Boundary(75))])
    assert begun.fed(50) == [("left", 80, 2), ("left", None, -1)]
    assert begun.written.taken() == [(100, 0, [5, 3, 80])]


def test_only_silent_sources_are_asked_to_go_on():
    q = md.Query("q")
    one, two = (q.source(name, SCHEMA, time="ts", idle="1s") for name in ("one", "two"))
    three = q.source("three", SCHEMA, time="ts")
    q.sink("all", one.sunion(two, three, bucket="1s"))
    fragment = Fragment(q.graph)
    for number, name in enumerate(("one", "two", "three")):
        fragment.feed(name, Boundary(10 + number))
    assert fragment.held_up([]) == []
    assert fragment.held_up(["one"]) == [("one", Boundary(11))]
    assert fragment.held_up(["one", "two"]) == [("one", Boundary(11))]
    fragment.feed("one", Boundary(11))
    assert fragment.held_up(["two"]) == []
    fragment.feed("one", Boundary(20))
    assert fragment.held_up(["one", "two"]) == [("two", Boundary(12))]
    fragment.feed("two", Boundary(END_US))
    assert fragment.held_up(["one", "two"]) == []


def join_of(q: md.Query) -> str:
    return next(box.id for box in q.graph.boxes if box.id.startswith("join"))


def test_who_waits_at_another_node_cant_ask():
    q = pairs()
    join = join_of(q)
    with pytest.raises(md.QueryError, match="join 'join.*waits for it, over a, b") as caught:
        cut(q.graph, {"a": ["cars", join], "b": ["vans"]})
    assert caught.value.code == "query.later"
    assert len(cut(q.graph, {"a": ["vans", join], "b": ["cars"]}).fragments) == 2
    q = md.Query("q")
    vans = q.source("vans", SCHEMA, idle="1s")
    q.sink("n", vans.window("1s").group_by("k").aggregate(n=md.count(), name="w"))
    with pytest.raises(md.QueryError, match="is at several nodes"):
        cut(q.graph, {"a": ["vans", "w", "n"], "b": ["vans", "w"]})
    assert len(cut(q.graph, {"a": ["vans"], "b": ["w"]}).fragments) == 2
    q = md.Query("q")
    q.sink("n", q.source("vans", SCHEMA, idle="1s", partition="k"))
    with pytest.raises(md.QueryError, match="idle= with partition="):
        cut(q.graph, {"a": ["vans"]})
