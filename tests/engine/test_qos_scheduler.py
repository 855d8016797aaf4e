"""The order of work between outputs, in virtual time on a recorded trace."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.engine.overload.qos_scheduler import (
    SKIPS_MAX,
    Ordering,
    OutputScheduler,
    QosScheduler,
    RoundRobinScheduler,
)
from medusa.query.builder import Query
from tests.trace import TimedRows, VirtualRun, load

Order = type[OutputScheduler] | None
SECOND = 1_000_000
FIELDS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])
URGENT = md.QoS(latency=[(0, 1), ("1s", 0)])
PATIENT = md.QoS(latency=[(0, 1), ("60s", 0)])


def rows(first: int, count: int, at_us: int) -> pa.RecordBatch:
    columns = [[at_us] * count, [n % 5 for n in range(count)], list(range(first, first + count))]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, FIELDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FIELDS)


def two_outputs(urgent: md.QoS | None = URGENT, patient: md.QoS | None = PATIENT) -> Query:
    q = md.Query("two")
    cars = q.source("cars", {"ts": "timestamp", "k": "int64", "v": "int64"})
    # Two boxes each, so that a traversal has somewhere to go; neither way shows in the other.
    alarm = cars.filter("v >= 0", name="alarm").distinct("v", within="1s", name="once")
    report = cars.filter("k >= 0", name="report").bsort("v", slack=3, name="sorted")
    q.sink("urgent", alarm, qos=urgent)
    q.sink("patient", report, qos=patient)
    return q


COSTS = {"alarm": 200.0, "once": 50.0, "report": 500.0, "sorted": 200.0}


def trace(seconds: int, share: float, seed: int = 7) -> list[TimedRows]:
    """Trains of 100 rows at random moments, as many as make this load over all."""
    count = round(share * seconds * SECOND / (100 * sum(COSTS.values())))
    chance = random.Random(seed)
    moments = sorted(chance.randrange(seconds * SECOND) for _ in range(count))
    return [TimedRows(at, "cars", rows(100 * n, 100, at)) for n, at in enumerate(moments)]


def ran(scheduler: Order, arrivals: list[TimedRows], q: Query | None = None) -> VirtualRun:
    run = VirtualRun((q or two_outputs()).graph, COSTS, scheduler)
    run.run(arrivals)
    return run


def values(run: VirtualRun, sink: str) -> list[Any]:
    return [v for each in run.delivered[sink] for v in each.batch["v"].to_pylist()]


@pytest.mark.parametrize("seed", [7, 8])
def test_two_outputs_near_capacity_are_worth_more_by_our_order(seed: int) -> None:
    arrivals = trace(30, 0.95, seed)
    assert load(arrivals, sum(COSTS.values()), 30 * SECOND) == pytest.approx(0.95, abs=0.01)
    ours, turns = (ran(each, arrivals) for each in (QosScheduler, RoundRobinScheduler))
    won = {sink: ours.utility(sink) - turns.utility(sink) for sink in ("urgent", "patient")}
    assert sum(won.values()) > 0.05
    assert ours.utility("urgent") > 0.9
    assert won["patient"] > -0.02  # what the patient output gives for it
    for run in (ours, turns):
        assert (
            sorted(values(run, "urgent"))
            == sorted(values(run, "patient"))
            == list(range(100 * len(arrivals)))
        )


def test_the_same_trace_gives_the_same_order_to_the_microsecond() -> None:
    arrivals = trace(8, 1.1)
    one, two = (ran(QosScheduler, arrivals) for _ in range(2))
    assert one.steps == two.steps
    assert one.delivered == two.delivered
    assert one.steps != ran(RoundRobinScheduler, arrivals).steps


@pytest.mark.parametrize("order", [QosScheduler, RoundRobinScheduler])
def test_the_answers_of_one_input_dont_depend_on_the_order_of_steps(order: Order) -> None:
    arrivals = trace(4, 1.5)
    plain, ordered = ran(None, arrivals), ran(order, arrivals)
    for sink in ("urgent", "patient"):
        assert ordered.rows(sink) == plain.rows(sink)
    assert ordered.order is None or not ordered.order.waits


@pytest.mark.parametrize("order", [QosScheduler, RoundRobinScheduler])
def test_rows_keep_the_time_when_they_entered(order: Order) -> None:
    q = md.Query("kept")
    cars = q.source("cars", {"ts": "timestamp", "k": "int64", "v": "int64"})
    q.sink("urgent", cars.filter("v >= 0", name="alarm").with_columns(w="v + 1"), qos=URGENT)
    q.sink("patient", cars.filter("k >= 0", name="report"), qos=PATIENT)
    arrivals = [TimedRows(at, "cars", rows(at, 10, at)) for at in range(0, SECOND, 9_000)]
    run = VirtualRun(q.graph, {"alarm": 500.0, "report": 900.0}, order)
    run.run(arrivals)
    for each in run.delivered.values():
        assert [made.entered_us for made in each] == [arrival.at_us for arrival in arrivals]
        assert [made.batch["v"][0].as_py() for made in each] == [arrival.at_us for arrival in arrivals]
    assert max(made.delay_us for made in run.delivered["patient"]) > 100_000  # they did wait


class Noting(QosScheduler):
    """Notes before each step which outputs work waited for, and which was chosen."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.noted: list[tuple[frozenset[str], str]] = []

    def _traverse(self, output: int) -> None:
        waiting = [id for id, above in self._above.items() if above & self._busy]
        names = [box.id for box in self._boxes]
        self.noted.append((frozenset(names[each] for each in waiting), names[output]))
        super()._traverse(output)


@pytest.mark.parametrize(
    "patient", [None, PATIENT, md.QoS(latency=[(0, 1), (1, 0)])], ids=["no graph", "60 s", "at its floor"]
)
def test_nothing_starves_though_something_else_always_gains(patient: md.QoS | None) -> None:
    """The urgent output alone is three times what can be done: the other one still gets its turns."""
    costs = {"alarm": 30_000.0, "report": 1_000.0}
    arrivals = [TimedRows(at, "cars", rows(at, 1, at)) for at in range(0, 2 * SECOND, 10_000)]
    # Its graph falls for ever, so there is always something to be gained.
    q = two_outputs(md.QoS(latency=[(0, 1), ("1h", 0)]), patient)
    run = VirtualRun(q.graph, costs, Noting)
    run.run(arrivals, finish=False)
    assert isinstance(run.order, Noting)
    waited = longest = 0
    for waiting, chosen in run.order.noted:
        waited = waited + 1 if "patient" in waiting and chosen != "patient" else 0
        longest = max(longest, waited)
    assert longest == (0 if patient is PATIENT else SKIPS_MAX)  # dear as the urgent one is
    assert {run.fragment.boxes[id].rows_in for id in ("alarm", "report")} == {len(arrivals)}


def waiting_since(q: Query, costs: dict[str, float], entered: dict[str, int], now_us: int) -> VirtualRun:
    """A run that knows its costs, before whose boxes a row waits that entered at these moments."""
    run = VirtualRun(q.graph, costs, QosScheduler)
    for at in range(SKIPS_MAX * 2):
        run.run(
            [TimedRows(run.clock.monotonic_us(), name, rows(at, 1, at)) for name in entered], finish=False
        )
    run.steps.clear()
    for each in run.delivered.values():
        each.clear()
    begin_us = run.clock.monotonic_us()
    run.clock.advance(now_us)
    for name, moment in entered.items():
        run._enter(TimedRows(begin_us + moment, name, rows(10**6, 1, 10**6)))
    return run


def apart(one: md.QoS | None, other: md.QoS | None) -> Query:
    """Two sources, each with two boxes and a sink."""
    q = md.Query("apart")
    for name, qos in (("a", one), ("b", other)):
        stream = q.source(name, {"ts": "timestamp", "k": "int64", "v": "int64"})
        first = stream.filter("v >= 0", name=f"{name}1")
        second = first.bsort("v", slack=0, name=f"{name}2")
        q.sink(f"{name}_out", second, qos=qos)
    return q


def first_of(run: VirtualRun) -> str:
    assert run.fragment.step()
    return next(id for id, rows_out in run.delivered.items() if rows_out)


ALIKE = {"a1": 1_000.0, "a2": 1_000.0, "b1": 1_000.0, "b2": 1_000.0}
STEEP, SHALLOW = md.QoS(latency=[(0, 1), ("1s", 0)]), md.QoS(latency=[(0, 1), ("10s", 0)])
LATER = md.QoS(latency=[("500ms", 1), ("1s", 0)])


@pytest.mark.parametrize(
    ("one", "other", "costs", "entered", "first"),
    [
        (STEEP, SHALLOW, {}, (0, 0), "a"),
        (SHALLOW, STEEP, {}, (0, 0), "b"),
        (STEEP, SHALLOW, {"a1": 30_000.0}, (0, 0), "b"),  # ten times as steep, sixteen times as dear
        (STEEP, SHALLOW, {}, (-5 * SECOND, 0), "b"),  # at its floor: nothing to gain any more
        (LATER, SHALLOW, {}, (0, 0), "b"),  # flat still
        (LATER, SHALLOW, {}, (-600_000, 0), "a"),  # twice as steep now
        (None, SHALLOW, {}, (-9 * SECOND, 0), "b"),
        # Nobody loses yet; whose graph begins to fall first is first.
        (LATER, md.QoS(latency=[("400ms", 1), ("1s", 0)]), {}, (0, 0), "b"),
        (LATER, md.QoS(latency=[("400ms", 1), ("1s", 0)]), {}, (-200_000, 0), "a"),
    ],
)
def test_the_output_that_loses_most_for_its_cost_is_first(
    one: md.QoS, other: md.QoS, costs: dict[str, float], entered: tuple[int, int], first: str
) -> None:
    moments = dict(zip(("a", "b"), entered, strict=True))
    for names in (("a", "b"), ("b", "a")):  # which source comes first makes no difference
        run = waiting_since(apart(one, other), ALIKE | costs, {name: moments[name] for name in names}, 1_000)
        assert first_of(run) == f"{first}_out"


@pytest.mark.parametrize("dear", ["1", "2"])
def test_the_time_of_the_box_and_of_those_below_counts(dear: str) -> None:
    """Flat for half a second yet, and 400 ms of work to come: it can't wait for as much again."""
    costs = ALIKE | {f"a{dear}": 400_000.0, f"b{dear}": 400_000.0}
    run = waiting_since(apart(LATER, SHALLOW), costs, {"b": 0, "a": 0}, 1_000)
    assert run.order is not None
    times = run.order.times_us()
    assert times["a2"] == times["b2"] == pytest.approx(costs["a2"], rel=0.01)
    assert times["b1"] > 300_000 or times["a1"] > 300_000  # one waits while the other runs
    assert first_of(run) == "a_out"
    # With next to no work to come it can, though what it would wait for is as long.
    cheap = waiting_since(apart(LATER, SHALLOW), ALIKE | {f"b{dear}": 400_000.0}, {"b": 0, "a": 0}, 1_000)
    assert first_of(cheap) == "b_out"


class RandomScheduler(OutputScheduler):
    """Chooses by chance."""

    chance = random.Random(0)

    def choose(self, waiting: Any) -> int:
        return self.chance.choice(waiting)


def network() -> Query:
    q = md.Query("network")
    schema = {"ts": "timestamp", "k": "int64", "v": "int64"}
    cars, vans = q.source("cars", schema, slack="1s"), q.source("vans", schema, slack="1s")
    fast = cars.filter("v % 3 > 0").with_columns(w="v * 2")
    counts = fast.window("2s").group_by("k").aggregate(n=md.count(), s="sum(w)")
    others = vans.window("2s").group_by("k").aggregate(m=md.count())
    q.sink("counts", counts, qos=URGENT)
    q.sink("pairs", cars.join(vans, on="k", within="1s"), qos=PATIENT)
    q.sink("both", counts.join(others, on="k", within="2s"))
    q.sink("merged", cars.sunion(vans, bucket="1s"))
    q.sink("mixed", cars.union(vans))
    q.sink("late", cars.late)
    return q


def mixed_trace(chance: random.Random) -> list[TimedRows]:
    moments = sorted(chance.randrange(4 * SECOND) for _ in range(30))
    return [
        TimedRows(
            at,
            chance.choice(["cars", "vans"]),
            rows(10 * n, chance.randint(1, 9), at + chance.randrange(SECOND)),
        )
        for n, at in enumerate(moments)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_only_unions_see_the_order_of_steps(seed: int) -> None:
    chance = random.Random(seed)
    arrivals = mixed_trace(chance)
    q = network()
    costs = {box.id: chance.choice([0.0, 300.0, 5_000.0]) for box in q.graph.boxes}
    RandomScheduler.chance = chance
    plain = VirtualRun(q.graph, costs, None)
    plain.run(arrivals)
    for order in (QosScheduler, RoundRobinScheduler, RandomScheduler):
        run = VirtualRun(q.graph, costs, order)
        run.run(arrivals)
        for sink in run.delivered:
            if sink == "mixed":
                key = lambda row: (row["v"], row["ts"])  # noqa: E731
                assert sorted(run.rows(sink), key=key) == sorted(plain.rows(sink), key=key)
            else:
                assert run.rows(sink) == plain.rows(sink)


def test_a_failed_row_ends_the_run_and_nothing_waits_any_more() -> None:
    q = md.Query("fails")
    cars = q.source("cars", {"v": "int64"}, time=None)
    q.sink("one", cars.select(x="1 // v"), qos=URGENT)
    q.sink("two", cars)
    clock = md.testing.ManualClock()
    fragment = Fragment(q.graph, clock=clock, on_error="stop", scheduler=Ordering(clock))
    box = fragment.source("cars")
    for value in (1, 0, 2):
        box.accept(pa.record_batch({"v": [value]}), None)
    steps = [fragment.step]
    with pytest.raises(md.DataError, match="one|select"):
        list(iter(lambda: steps[0](), False))
    assert fragment.stopped
    with pytest.raises(md.DataError, match="has stopped"):
        fragment.step()
