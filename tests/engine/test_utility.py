"""What sinks are worth, as ``run.qos()`` tells it, beside all rows of the interval looked at one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.core.box import Now
from medusa.engine.qos.output_utility import OVER_US, QOS_SCHEMA, SLOT_US, SinkMeter
from medusa.query.builder import Query
from medusa.testing import ManualClock
from tests.trace import TimedRows, VirtualRun

SECOND = 1_000_000
QOS = md.QoS(
    latency=[("100ms", 1), ("2s", 0)], loss=[(100, 1), (50, 0.3), (0, 0)], value=("v", [(0, 0.1), (50, 1)])
)


def interpolated(points: Any, x: float) -> float:
    return float(np.interp(x, [p[0] for p in points], [p[1] for p in points]))


@dataclass(frozen=True)
class Event:
    """After ``wait_us``: rows of these values leave, ``delay_us`` old; or so many are shed."""

    wait_us: int
    delay_us: int
    values: tuple[float | None, ...]
    shed: int
    importance: float


events = st.builds(
    Event,
    wait_us=st.integers(0, 3 * SECOND),
    delay_us=st.integers(0, 4 * SECOND),
    values=st.lists(st.none() | st.floats(-10, 80) | st.just(math.nan), max_size=4).map(tuple),
    shed=st.integers(0, 3),
    importance=st.floats(0, 1),
)


def batch(values: tuple[float | None, ...]) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.float64())})


@settings(max_examples=100)
@given(
    st.lists(events, max_size=30), st.integers(0, 3 * SECOND), st.sampled_from(["all", "latency", "value"])
)
def test_figures_are_those_of_the_rows_of_the_interval(
    happened: list[Event], wait_us: int, which: str
) -> None:
    qos = {"all": QOS, "latency": md.QoS(latency=QOS.latency), "value": md.QoS(value=QOS.value)}[which]
    clock, now = ManualClock(5), Now()
    meter = SinkMeter(qos, 0, clock, now)
    left: list[tuple[int, float, float, int]] = []  # moment, importance, worth, delay
    shed: list[tuple[int, float, float]] = []
    for each in happened:
        clock.advance(each.wait_us)
        at = clock.monotonic_us()
        if each.values:
            now.entered_us = at - each.delay_us
            meter.left(batch(each.values))
        for value in each.values:
            given_value = value is not None and not math.isnan(value)
            importance = 1.0
            if qos.value is not None:
                points = qos.value[1]
                assert value is not None or not given_value
                importance = interpolated(points, value) if given_value and value is not None else 0.1
            worth = 1.0 if qos.latency is None else interpolated(qos.latency, each.delay_us)
            left.append((at, importance, worth, each.delay_us))
        if each.shed:
            meter.shed(each.shed, each.importance)
            shed.append((at, float(each.shed), each.shed * each.importance))
    clock.advance(wait_us)
    at = clock.monotonic_us()
    figures = meter.figures(at)

    # The interval begins with the first step of time that lies in it, whole or in part.
    def recent(moment: int) -> bool:
        return 5 + (moment - 5) // SLOT_US * SLOT_US + SLOT_US > at - OVER_US

    left, shed = [e for e in left if recent(e[0])], [e for e in shed if recent(e[0])]
    weight, lost = sum(e[1] for e in left), sum(e[2] for e in shed)
    assert figures["rows"] == len(left)
    assert figures["shed"] == pytest.approx(sum(e[1] for e in shed))
    assert figures["over_us"] == min(OVER_US, at - 5)
    if not weight + lost:
        assert figures["utility"] is figures["delivered_percent"] is None
        return
    percent = 100 * weight / (weight + lost)
    kept = interpolated(qos.loss or [(0, 0), (100, 1)], percent)
    mean = sum(e[1] * e[2] for e in left) / weight if weight else 0.0
    assert figures["delivered_percent"] == pytest.approx(percent)
    assert figures["loss_utility"] == pytest.approx(kept)
    assert figures["utility"] == pytest.approx(mean * kept)
    if left:
        delays = sorted(e[3] for e in left)
        for name, share in (("delay_p50_us", 0.5), ("delay_p99_us", 0.99)):
            exact = delays[math.ceil(share * len(delays)) - 1]
            assert figures[name] == pytest.approx(exact, rel=0.011, abs=1)
    else:
        assert figures["delay_p50_us"] is figures["importance"] is None


def measured(qos: md.QoS | None = QOS, type: str = "float64") -> Query:
    q = md.Query("measured")
    cars = q.source("cars", {"ts": "timestamp", "v": type})
    q.sink("plain", cars)
    q.sink("fast", cars.filter("v >= 0"), qos=qos)
    q.sink("windows", cars.window("1s").aggregate(n=md.count()), qos=md.QoS(latency=[(0, 1), ("4s", 0)]))
    return q


FIELDS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])


def rows(at_us: int, *values: float) -> pa.RecordBatch:
    arrays = [pa.array([at_us] * len(values), FIELDS.types[0]), pa.array(values, FIELDS.types[1])]
    return pa.RecordBatch.from_arrays(arrays, schema=FIELDS)


def test_a_run_tells_of_its_sinks_with_quality_of_service() -> None:
    clock = ManualClock()
    with md.start(measured(), clock=clock) as run:
        assert run.qos().schema == QOS_SCHEMA
        assert run.qos()["sink"].to_pylist() == ["fast", "windows"]
        assert run.qos()["utility"].to_pylist() == [None, None]
        run.push("cars", rows(0, 50.0, -1.0, 0.0))
        found = run.qos().to_pylist()[0]
        assert (found["rows"], found["utility"], found["delivered_percent"]) == (2, 1.0, 100.0)
        assert found["importance"] == pytest.approx(0.55)
        clock.advance("20s")
        assert run.qos()["rows"].to_pylist() == [0, 0]
    with pytest.raises(md.StateError, match="closed"):
        run.qos()


def test_a_changed_query_goes_on_measuring_what_stays() -> None:
    """A sink keeps its meter; one with other graphs gets another, and one without them none."""
    with md.start(measured(), clock=ManualClock()) as run:
        run.push("cars", rows(0, 50.0))
        run.change(measured())
        assert run.qos()["rows"].to_pylist() == [1, 0]
        run.change(measured(md.QoS(latency=[(0, 0.5), ("1s", 0)])))
        run.push("cars", rows(1, 50.0, 60.0))
        assert run.qos()["rows"].to_pylist() == [2, 0]
        assert run.qos()["utility"].to_pylist() == [0.5, None]
        run.change(measured(None))
        assert run.qos()["sink"].to_pylist() == ["windows"]
        assert len(run.take("fast")) == 3


def test_nothing_is_measured_without_quality_of_service() -> None:
    with md.start(measured(None)) as run:
        boxes = run._fragment.sinks
        assert [id for id, box in boxes.items() if box.meter is not None] == ["windows"]


@pytest.mark.parametrize(
    ("type", "values"), [("int16", [25, None]), ("decimal128(9, 2)", [Decimal(25), None])]
)
def test_importance_by_columns_of_every_number(type: str, values: list[Any]) -> None:
    q = md.Query("kinds")
    q.sink("out", q.source("cars", {"v": type}, time=None), qos=md.QoS(value=("v", [(0, 0.1), (50, 1)])))
    with md.start(q) as run:
        run.push("cars", {"v": values})
        assert run.qos()["importance"].to_pylist() == [pytest.approx((0.55 + 0.1) / 2)]


def test_the_delay_counts_from_the_entry_of_what_caused_the_row() -> None:
    """A window leaves when the row that closes it comes: not the rows in it, but that one is waited for."""
    run = VirtualRun(measured().graph, {"fast": 0.0}, None)
    moments = [0, 300_000, 1_700_000]
    run.run([TimedRows(at, "cars", rows(at, 1.0)) for at in moments], finish=False)
    (window,) = run.delivered["windows"]
    assert (window.at_us, window.entered_us) == (1_700_000, 1_700_000)
    assert [each.delay_us for each in run.delivered["fast"]] == [0, 0, 0]


def test_waiting_outside_counts_and_so_does_the_work() -> None:
    """Two trains at once, each 100 ms of work: the second waits for the first."""
    q = measured()
    run = VirtualRun(q.graph, {q.graph.boxes[2].id: 100_000.0}, None)
    run.run([TimedRows(7, "cars", rows(7, 1.0)), TimedRows(7, "cars", rows(7, 2.0))], finish=False)
    assert [each.delay_us for each in run.delivered["fast"]] == [200_000, 200_000]
    found = run.fragment.sinks["fast"].meter
    assert found is not None
    assert found.figures(run.clock.monotonic_us())["delay_p99_us"] == pytest.approx(200_000, rel=0.011)
