"""What valves let pass, and what is told of the rest."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.shed_places import Place
from medusa.engine.shedder import Shedder
from medusa.engine.valves import WindowValve
from medusa.query.boxes import Input
from medusa.workloads.overload import Arrival, Overloaded


@pytest.mark.parametrize("looked_at", [False, True])
def test_late_rows_pass_a_window_that_goes(looked_at: bool) -> None:
    """They are in no window below, and are counted there as late, not as shed."""
    valve = WindowValve(Place("s", Input("s"), None, ("o",), window_us=10), 0)
    passed: list[Any] = []
    valve.stand_before([(passed, 0)])
    valve.set(1.0)
    times = pa.array([26, 21, 27, 4], pa.timestamp("us", "UTC"))
    late = pa.array([False, True, False, True])
    batch = pa.record_batch({"v": pa.array([1, 2, 3, 4])})
    valve.append((0, Train(batch=batch, times=times, late=late, extent=(4, 27) if looked_at else None)))
    [(_, train)] = passed
    assert train.batch["v"].to_pylist() == [2, 4]
    assert (valve.seen, valve.shed) == (4, 2)


def test_what_is_lost_of_an_output_is_what_would_have_come_of_the_rows_that_are_shed() -> None:
    """One row in four reaches the output, and twice as many come as can be worked on."""
    q = md.Query("q")
    source = q.source("s", {"ts": "timestamp", "k": "int64"}, time="ts")
    q.sink("o", source.filter("k = 0", name="f"), qos=md.QoS(latency=[("1s", 1), ("2s", 0)]))
    run = Overloaded(q.graph, {"f": 500.0}, Shedder)
    rows = pa.array([n % 4 for n in range(40)])
    run.run(
        [
            Arrival(
                at, "s", pa.record_batch({"ts": pa.array([at] * 40, pa.timestamp("us", "UTC")), "k": rows})
            )
            for at in range(10_000, 5_000_000, 10_000)
        ]
    )
    shed, came = run.stats()["o"]["shed"], run.queue.positions["s"]
    assert shed > came / 4
    meter = run.fragment.sinks["o"].meter
    assert meter is not None
    figures = meter.figures(run.clock.monotonic_us())
    assert figures["shed"] == pytest.approx(shed / 4, rel=0.02)
    assert figures["delivered_percent"] == pytest.approx(100 * (1 - shed / came), abs=2)
