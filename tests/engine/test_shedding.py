"""Where rows may be shed, what is shed first, and that every row and window is accounted for."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.apps.workloads.demos.overload_query import Overloaded
from medusa.apps.workloads.virtual_boxes import TimedRows
from medusa.engine.fragment import Fragment
from medusa.engine.input.intake import IntakeEntry, IntakeQueue
from medusa.engine.overload.controller import OverloadController
from medusa.engine.overload.drop_sites import DropSite, WindowsBelow, arcs_of, find_places
from medusa.engine.overload.road_map import STEPS, LoadModel, RoadMap, coefficients
from medusa.engine.qos.delay_utility import Utility
from medusa.query.boxes import Input
from medusa.query.graph import check_graph

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}
LOSS = md.QoS(loss=[(100, 1), (0, 0)])
VALUE = md.QoS(value=("v", [(0, 0), (100, 1)]))


async def answered(batch: Any) -> Any:
    return {"v": batch["v"]}


def start(name: str = "q") -> tuple[md.Query, Any]:
    q = md.Query(name)
    return q, q.source("s", SCHEMA, time="ts", slack=3)


def places(q: md.Query) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.box, each.how, each.sinks) for each in find_places(check_graph(q.graph))]


class TestPlaces:
    def test_one_way_has_one_place_behind_its_source(self) -> None:
        q, s = start()
        q.sink("o", s.filter("v > 1").select("ts", w="v", name="m"), qos=LOSS)
        assert places(q) == [("s", "random", ("o",))]

    def test_a_split_has_a_place_on_each_arc(self) -> None:
        q, s = start()
        q.sink("a", s.filter("v > 1", name="f"), qos=VALUE)
        q.sink("w", s.window(10).aggregate(n=md.count(), name="n"), qos=LOSS)
        assert places(q) == [
            ("s", "windows", ("a", "w")),
            ("f", "value", ("a",)),
            ("n", "windows", ("w",)),
        ]

    def test_an_output_without_quality_of_service_keeps_all_its_rows(self) -> None:
        q, s = start()
        q.sink("a", s.filter("v > 1", name="f"), qos=LOSS)
        q.sink("b", s.filter("v < 1", name="g"))
        assert places(q) == [("f", "random", ("a",))]

    def test_each_port_of_a_route_is_apart(self) -> None:
        q, s = start()
        a, b, _ = s.route("v > 1", "v < 0", otherwise=True)
        q.sink("a", a, qos=LOSS)
        q.sink("b", b.filter("k = 1", name="g"), qos=LOSS)
        assert places(q) == [
            ("s", "random", ("a", "b")),
            ("a", "random", ("a",)),
            ("g", "random", ("b",)),
        ]

    def test_a_function_of_rows_is_spared_by_what_is_dropped_above_it(self) -> None:
        q, s = start()
        q.sink("o", s.apply(lambda batch: {"w": batch["v"]}, {"w": "float64"}, name="slow"), qos=LOSS)
        assert places(q) == [("s", "random", ("o",))]

    def test_a_connection_point_keeps_all_its_rows(self) -> None:
        q, s = start()
        q.sink("o", q.connection_point("recent", s, keep="1h").filter("v > 1", name="f"), qos=LOSS)
        assert places(q) == [("f", "random", ("o",))]

    def test_windows_go_by_what_fits_all_of_them(self) -> None:
        q, s = start()
        q.sink("a", s.window(10).aggregate(n=md.count()), qos=LOSS)
        q.sink("b", s.window(25).aggregate(n=md.count()), qos=LOSS)
        assert [each.window_us for each in find_places(check_graph(q.graph))] == [50, 10, 25]

    @pytest.mark.parametrize(
        "make",
        [
            lambda s, t: s.window(10).aggregate(n=md.count(), early="5us"),
            lambda s, t: s.window(10).aggregate(n=md.count(), name="a").session("5us").aggregate(m="sum(n)"),
            lambda s, t: s.session("5us").aggregate(n=md.count()),
            lambda s, t: s.group_by("k").running(n=md.count()),
            lambda s, t: s.join(t, on="k", within=5, how="left"),
            lambda s, t: s.bsort("v", slack=2),
            lambda s, t: s.apply(answered, {"v": "float64"}, in_flight=2),
            lambda s, t: s.distinct("k", within=5),
            lambda s, t: s.union(t).window(10).aggregate(n=md.count()),  # half of a window
            lambda s, t: s.join(t, on="k", within=5).window(10).aggregate(n=md.count()),
        ],
    )
    def test_nothing_is_shed_above_what_would_give_other_rows(self, make: Any) -> None:
        q, s = start()
        t = q.source("t", SCHEMA, time="ts", slack=3)
        q.sink("o", make(s, t), qos=LOSS)
        q.sink("p", t)
        assert places(q) == []

    def test_an_inner_join_of_thinned_rows_is_thinned(self) -> None:
        q, s = start()
        t = q.source("t", SCHEMA, time="ts", slack=3)
        q.sink("o", s.join(t, on="k", within=5), qos=LOSS)
        assert places(q) == [("s", "random", ("o",)), ("t", "random", ("o",))]

    @pytest.mark.parametrize(
        ("make", "column"),
        [
            (lambda s: s, 2),
            (lambda s: s.select("ts", v="k"), 1),
            (lambda s: s.with_columns(w="v * 2").filter("w > 1"), 2),
            (lambda s: s.with_columns(v="v * 2"), None),  # computed
        ],
    )
    def test_a_value_is_traced_to_the_column_it_comes_from(self, make: Any, column: int | None) -> None:
        q, s = start()
        q.sink("o", make(s), qos=VALUE)
        [place] = find_places(check_graph(q.graph))
        assert (None if place.value is None else place.value[0]) == column


@st.composite
def models(draw: st.DrawFn) -> tuple[LoadModel, list[list[Any]], list[Utility], dict[str, Utility]]:
    """A split into two or three ways with an output each, in rates and costs of small numbers."""
    q, s = start()
    ways = draw(st.integers(2, 3))
    for n in range(ways):
        q.sink(f"o{n}", s.filter(f"v > {n}", name=f"f{n}"), qos=LOSS)
    checked = check_graph(q.graph)
    boxes = [box.id for box in q.graph.boxes]
    small = st.integers(1, 8)
    model = LoadModel(
        boxes,
        list(arcs_of(checked)),
        {"s": float(draw(small))},
        {id: draw(small) * 1e5 for id in boxes},
        {(id, ""): draw(small) / 8 for id in boxes},
    )
    found = find_places(checked)
    lost = []
    for _ in found:
        ys = sorted(draw(st.lists(st.integers(0, 10), min_size=3, max_size=3)))
        lost.append(Utility([(0, 0), (0.25, ys[0] / 10), (0.5, ys[1] / 10), (0.75, ys[2] / 10), (1, 1)]))
    losses = {}
    for n in range(ways):
        ys = sorted(draw(st.lists(st.integers(0, 10), min_size=2, max_size=2)))
        losses[f"o{n}"] = Utility([(0, 0), (40, ys[0] / 10), (80, ys[1] / 10), (100, 1)])
    return model, [place.arcs(checked) for place in found], lost, losses


@settings(max_examples=40)
@given(models())
def test_loads_and_utilities_are_those_of_following_every_way(given: Any) -> None:
    """Beside a computation that knows the three ways and nothing of graphs."""
    model, arcs, lost, losses = given
    roads = RoadMap(model, arcs, lost, losses)
    rate, cost, gives = model.rates["s"], model.costs_us, model.gives
    ways = [f"f{n}" for n in range(len(losses))]
    each = {f: cost[f] + gives[f, ""] * cost[f"o{f[1:]}"] for f in ways}
    assert coefficients(model)["s"] == pytest.approx(cost["s"] + gives["s", ""] * sum(each.values()))
    assert model.load() == pytest.approx(rate * coefficients(model)["s"] / 1e6)
    for shares in itertools.product((0.0, 0.25, 1.0), repeat=len(arcs)):
        load, utility = rate * cost["s"], 0.0
        for f, share, own in zip(ways, shares[1:], lost[1:], strict=True):
            load += rate * gives["s", ""] * (1 - shares[0]) * (1 - share) * each[f]
            kept = (1 - float(lost[0].at(shares[0]))) * (1 - float(own.at(share)))
            utility += float(losses[f"o{f[1:]}"].at(100 * kept))
        plan = roads.plan(shares)
        assert plan.load == pytest.approx(load / 1e6)
        assert plan.utility == pytest.approx(utility)


def regret(roads: RoadMap, count: int) -> float:
    """How much more utility the best of all plans has than ours of the same load, at most."""
    grid = [roads.plan(shares) for shares in itertools.product(np.linspace(0, 1, 9).tolist(), repeat=count)]
    full = grid[0].load
    return max(
        each.utility - roads.down_to(each.load / full).utility
        for each in grid
        if each.load >= roads.plans()[-1].load
    )


@settings(max_examples=8, deadline=None)
@given(models().filter(lambda given: len(given[1]) == 3))
def test_no_plan_is_much_better_than_ours(given: Any) -> None:
    """Greedy by ratio is best but for the last step where graphs are concave; others cost a little."""
    roads = RoadMap(*given)
    plans = roads.plans()
    for before, after in itertools.pairwise(plans):
        assert after.load < before.load
        assert sum(after.shares) == pytest.approx(sum(before.shares) + 1 / STEPS)
    straight = dict.fromkeys(given[3], Utility([(0, 0), (100, 1)]))
    even = [Utility([(0, 0), (1, 1)])] * 3
    assert regret(RoadMap(given[0], given[1], even, straight), 3) < 2 / STEPS
    assert regret(roads, 3) < 1.0


def test_what_costs_least_utility_per_cycle_goes_first() -> None:
    q, s = start()
    q.sink("dear", s.filter("v > 0", name="a"), qos=md.QoS(loss=[(100, 1), (0, 0)]))
    q.sink("cheap", s.filter("v > 0", name="b"), qos=md.QoS(loss=[(100, 1), (50, 0.9), (0, 0)]))
    checked = check_graph(q.graph)
    found = find_places(checked)
    model = LoadModel(
        [box.id for box in q.graph.boxes],
        list(arcs_of(checked)),
        {"s": 1000.0},
        {"a": 500.0, "b": 500.0},
        {("s", ""): 1.0, ("a", ""): 1.0, ("b", ""): 1.0},
    )
    losses = {box.id: Utility(box.qos.loss) for box in q.graph.boxes if getattr(box, "qos", None)}
    even = [Utility([(0, 0), (1, 1)])] * 3
    roads = RoadMap(model, [place.arcs(checked) for place in found], even, losses)
    assert roads.down_to(1.0).shares == (0, 0, 0)
    assert roads.down_to(0.75).shares == pytest.approx((0, 0, 0.5))
    assert roads.down_to(0.75).utility == pytest.approx(1.9)
    # Then all of both loses 1.9 for 0.75: a is worth 2 for each processor, the rest of b 3.6, so a goes.
    assert roads.down_to(0.25).shares == pytest.approx((0, 1, 0.5))
    assert roads.down_to(0.0).load == 0


# -- rows and windows -------------------------------------------------------------------------------


def batch(rows: list[tuple[int, int, float | None]]) -> pa.RecordBatch:
    ts, k, v = ([row[n] for row in rows] for n in range(3))
    return pa.record_batch(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "k": pa.array(k, pa.int64()),
            "v": pa.array(v, pa.float64()),
        }
    )


def pushed(fragment: Fragment, rows: pa.RecordBatch) -> None:
    fragment.push_rows("s", [rows], fragment.check_rows("s", [rows]))


def out(fragment: Fragment, sink: str) -> list[dict[str, Any]]:
    return [row for each in fragment.drain(sink) if hasattr(each, "batch") for row in each.batch.to_pylist()]


def windows_query() -> md.Query:
    q, s = start()
    q.sink("w", s.window(10).group_by("k").aggregate(n=md.count(), v="sum(v)"), qos=LOSS)
    q.sink("big", s.filter("k > 0").window(20).aggregate(n=md.count(), top="max(v)"), qos=LOSS)
    q.sink("rows", s.filter("v >= 0"), qos=VALUE)
    return q


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_window_is_exact_or_absent_and_every_row_is_accounted_for(data: st.DataObject) -> None:
    """Random disorder, late rows, cuts, and shares that change at any moment."""
    whole, thinned = Fragment(windows_query().graph), Fragment(windows_query().graph)
    shedder = OverloadController(thinned, seed=data.draw(st.integers(0, 5)))
    tapped: dict[str, Counter[Any]] = {}
    for box in shedder.drops.boxes:
        tapped[box] = Counter()
        shedder.drops.tap(
            box,
            lambda table, box=box: tapped[box].update(
                map(tuple, zip(*table.to_pydict().values(), strict=True))
            ),
        )
    at = 0
    came: Counter[Any] = Counter()
    for _ in range(data.draw(st.integers(1, 8))):
        for valve in shedder.valves:
            valve.set(data.draw(st.sampled_from([0.0, 0.0, 0.3, 0.5, 1.0])))
        rows = []
        for _ in range(data.draw(st.integers(1, 20))):
            at += data.draw(st.integers(0, 4))
            rows.append(
                (max(0, at - data.draw(st.integers(0, 8))), data.draw(st.integers(0, 2)), float(at % 7))
            )
        made = batch(rows)
        came.update(map(tuple, zip(*pa.Table.from_batches([made]).to_pydict().values(), strict=True)))
        pushed(whole, made)
        pushed(thinned, made)
        shedder.drops.tell()
    for fragment in (whole, thinned):
        fragment.finish()
    for sink in ("w", "big"):
        exact = {tuple(row.values()) for row in out(whole, sink)}
        left = [tuple(row.values()) for row in out(thinned, sink)]
        assert set(left) <= exact
        # Absent windows are absent with all their keys.
        starts = {row[0] for row in left}
        assert {row for row in exact if row[0] in starts} == set(left)
    every = Counter(tuple(row.values()) for row in out(whole, "rows"))
    some = Counter(tuple(row.values()) for row in out(thinned, "rows"))
    stats = {each["box"]: each for each in thinned.figures()}
    names = {valve.place.sinks: valve.place.box for valve in shedder.valves}
    source, own = names["w", "big", "rows"], names["rows",]
    assert some + tapped[source] + tapped[own] == every == came
    for box in shedder.drops.boxes:
        assert stats[box]["shed"] == tapped[box].total()
    assert stats["rows"]["shed"] == tapped[source].total() + tapped[own].total()
    assert stats["rows"]["rows_in"] + stats["rows"]["shed"] == came.total()
    assert stats["w"]["shed"] == tapped[source].total() + tapped[names["w",]].total()


# -- deciding ---------------------------------------------------------------------------------------


def arrivals(load: float, seconds: int, cost_us: float = 500.0) -> list[TimedRows]:
    rows = round(load * 10_000 / cost_us)
    return [
        TimedRows(at, "s", batch([(at - n % 3, n % 4, float(n * 37 % 100)) for n in range(rows)]))
        for at in range(10_000, seconds * 1_000_000 + 1, 10_000)
    ]


def overloaded(load: float, qos: md.QoS, seconds: int = 5) -> Overloaded:
    q, s = start()
    q.sink("o", s.filter("v >= 0", name="f"), qos=qos)
    run = Overloaded(q.graph, {"f": 500.0}, OverloadController)
    run.run(arrivals(load, seconds))
    return run


LATENCY = md.QoS(latency=[("1s", 1), ("2s", 0)])


def test_what_it_can_bear_it_takes_whole() -> None:
    run = overloaded(0.9, LATENCY)
    assert run.stats()["o"]["shed"] == 0
    assert run.sheds is not None
    assert run.sheds.load == pytest.approx(0.9, abs=0.02)
    assert run.sheds.coefficients == {"s": pytest.approx(500.0)}


@pytest.mark.parametrize("load", [1.5, 3.0, 10.0])
def test_beyond_that_it_sheds_what_is_too_much_and_rows_are_in_time(load: float) -> None:
    run = overloaded(load, LATENCY)
    shed = run.stats()["o"]["shed"]
    # A quarter of what is allowed may wait at the end.
    came = run.queue.positions["s"]
    assert 1 - 1 / load - 0.05 < shed / came < 1 - 0.9 / load + 0.03
    assert max(each.at_us - each.entered_us for each in run.delivered["o"]) < 400_000
    assert run.stats()["o"]["rows_in"] + shed == came


def test_where_delays_cost_nothing_the_queue_is_what_bounds_them() -> None:
    q, s = start()
    q.sink("o", s.filter("v >= 0", name="f"), qos=LOSS)
    run = Overloaded(q.graph, {"f": 500.0}, OverloadController, queue_bytes=100_000)
    most = 0
    put = run.queue.put

    def watched(entry: IntakeEntry) -> None:
        nonlocal most
        put(entry)
        most = max(most, run.queue.held_bytes)

    run.queue.put = watched  # type: ignore[method-assign]
    run.run(arrivals(2.0, 6))
    assert run.stats()["o"]["shed"] > 0
    assert most < 100_000


def test_the_same_trace_sheds_the_same_rows() -> None:
    one, two = (overloaded(2.0, VALUE) for _ in range(2))
    assert one.delivered == two.delivered
    assert one.stats() == two.stats()


def test_after_the_overload_nothing_is_shed_any_more() -> None:
    q, s = start()
    q.sink("o", s.filter("v >= 0", name="f"), qos=LATENCY)
    run = Overloaded(q.graph, {"f": 500.0}, OverloadController)
    heavy = arrivals(3.0, 3)
    light = [TimedRows(each.at_us + 3_000_000, "s", each.batch) for each in arrivals(0.5, 6)]
    run.run(heavy + light)
    assert run.sheds is not None
    [place] = run.sheds.drops.table().to_pylist()
    assert place["share"] == 0
    assert place["shed"] > 0


@pytest.mark.parametrize("guard", [True, False])
def test_a_burst_after_a_rest_is_no_overload(guard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What few rows cost says little of many: trains have costs of their own."""
    if not guard:
        monkeypatch.setattr("medusa.engine.overload.controller.BUSY_MIN", 0.0)
    q, s = start()
    q.sink("o", s.filter("v >= 0", name="f"), qos=LATENCY)
    run = Overloaded(q.graph, {"f": 10_000.0}, OverloadController)
    few, burst = arrivals(0.25, 1)[0], arrivals(3.0, 1)[0]  # 5 rows, 60 rows
    run.run([few, TimedRows(700_000, "s", burst.batch)])
    shed = run.stats()["o"]["shed"]
    assert (shed == 0) is guard


def test_without_quality_of_service_there_is_no_place() -> None:
    q, s = start()
    q.sink("o", s)
    assert OverloadController(Fragment(q.graph)).valves == []


# -- the input queue --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abx."), st.integers(1, 9)), max_size=40), st.integers(0, 30))
def test_the_queue_is_a_list_with_a_bound(steps: list[tuple[str, int]], most: int) -> None:
    queue, model = IntakeQueue(most, {"a": 5, "b": 0}), []
    taken = Counter(a=5, b=0)
    for kind, size in steps:
        if kind == "x":
            if model:
                assert queue.head is model[0]
                queue.done()
                assert model.pop(0).done
        elif kind == ".":
            model.append(IntakeEntry(0, call=list))
            queue.put(model[-1])
        else:
            held = sum(each.nbytes for each in model)
            assert queue.has_room(size) == (not held or held + size <= most)
            if queue.has_room(size):
                model.append(IntakeEntry(0, kind, rows=size, nbytes=size))
                queue.put(model[-1])
                taken[kind] += size
        assert queue.positions == taken
        assert queue.held_bytes == sum(each.nbytes for each in model)
        for name in "ab":
            assert queue.rows[name] == sum(each.rows for each in model if each.source == name)
    left = queue.forget()
    assert left == {n: r for n in "ab" if (r := sum(each.rows for each in model if each.source == n))}
    assert queue.head is None
    assert all(each.left for each in model)


READS = Input("in", "")
WINDOWS = (WindowsBelow("w", 0), WindowsBelow("it's", 5, ("w", "v")), WindowsBelow("z", 1, ("w",)))


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (DropSite("in", READS, None, ("o",)), "in.>>>random>ed92873d"),
        (DropSite("in", READS, ("w", 1), ("o",), 60_000_000, WINDOWS[:1]), "in.>w>1>windows>f91ae546"),
        (DropSite("in", READS, None, ("o", "p"), 60_000_000, WINDOWS), "in.>>>windows>adb62af9"),
        (DropSite("in", READS, None, ("o",), value=(2, ((0.0, 1.0), (5.5, 0.25)))), "in.>>>value>e4fd0385"),
    ],
)
def test_the_key_of_a_place_is_that_of_logs_and_checkpoints_written_before(place: DropSite, key: str) -> None:
    assert place.key == key
