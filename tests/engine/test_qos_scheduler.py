"""The order of work between outputs, in virtual time on a recorded trace."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.qos_scheduler import OutputScheduler, QosScheduler, RoundRobinScheduler
from medusa.query.builder import Query
from tests.trace import Arrival, VirtualRun, load

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


def trace(seconds: int, share: float, seed: int = 7) -> list[Arrival]:
    """Trains of 100 rows at random moments, as many as make this load over all."""
    count = round(share * seconds * SECOND / (100 * sum(COSTS.values())))
    chance = random.Random(seed)
    moments = sorted(chance.randrange(seconds * SECOND) for _ in range(count))
    return [Arrival(at, "cars", rows(100 * n, 100, at)) for n, at in enumerate(moments)]


def ran(scheduler: Order, arrivals: list[Arrival], q: Query | None = None) -> VirtualRun:
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
