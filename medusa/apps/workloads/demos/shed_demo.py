"""``medusa demo shed``: one query at 1.5 and 3 times what it can bear, by three rules of what to drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.apps.workloads.demos.overload_query import Overloaded, at_random
from medusa.apps.workloads.virtual_boxes import TimedRows
from medusa.engine.fragment import Fragment
from medusa.engine.overload.controller import OverloadController
from medusa.engine.qos.delay_utility import Utility
from medusa.query.boxes import Sink
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count
from medusa.query.qos import QoS

__all__ = ["COSTS_US", "LOADS", "RULES", "ShedOutcome", "ran", "roads", "trace", "worth"]

SECOND = 1_000_000
SECONDS = 20
TRAIN_US = 20_000
OVER_S = 5
"""Utility is that of the last seconds, as many as these: what is delivered goes by whole windows of one."""

LOADS = (1.5, 3.0)

COSTS_US = {"reads": 80.0, "checks": 40.0, "counts": 80.0}
"""What boxes take per row: 200 us over all, so one processor bears 5,000 rows a second."""

RULES: dict[str, Callable[[Fragment], OverloadController] | None] = {
    "ours": OverloadController,
    "random": at_random,
    "none": None,
}

Floats = npt.NDArray[np.float64]


def roads() -> Query:
    """Alarms are worth something at once, and most for fast cars; the report may be thin, and late."""
    q = Query("roads")
    cars = q.source("cars", {"ts": "timestamp", "road": "int64", "speed": "float64"}, time="ts", slack=0)
    read = cars.with_columns(kmh="speed * 1.609", name="reads")
    alarms = read.with_columns(over="kmh - 80", name="checks")
    q.sink(
        "alarms",
        alarms,
        qos=QoS(latency=[("1s", 1), ("4s", 0)], value=("speed", [(0, 0), (50, 0.1), (100, 1)])),
    )
    report = cars.window("1s").group_by("road").aggregate(n=count(), v="avg(speed)", name="counts")
    q.sink("report", report, qos=QoS(latency=[("3s", 1), ("12s", 0)], loss=[(100, 1), (40, 0.85), (0, 0)]))
    return q


def trace(load: float, *, seconds: int = SECONDS, seed: int = 0) -> list[TimedRows]:
    """Trains that make this load: cars on ten roads, most of them slow."""
    chance = np.random.default_rng(seed)
    arrivals = []
    rows = round(load * TRAIN_US / sum(COSTS_US.values()))
    for at_us in range(TRAIN_US, seconds * SECOND + 1, TRAIN_US):
        times = np.sort(chance.integers(at_us - TRAIN_US, at_us, rows))
        batch = pa.record_batch(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "road": pa.array(chance.integers(0, 10, rows)),
                "speed": pa.array(chance.exponential(30.0, rows)),
            }
        )
        arrivals.append(TimedRows(at_us, "cars", batch))
    return arrivals


@dataclass(frozen=True)
class ShedOutcome:
    """What came of a trace by one rule.

    Attributes:
        utility: of each sink, second by second of the input, 0 to 1; by the rule of docs/qos.md.
        pushed: rows that came.
        accounts: of each sink, rows that went into what was delivered, and rows that were shed.
        delay_us: of each sink, the mean delay of what was delivered.
        places: rows of ``SHEDDING_SCHEMA``.
    """

    load: float
    rule: str
    utility: dict[str, Floats]
    pushed: int
    accounts: dict[str, tuple[int, int]]
    delay_us: dict[str, float]
    places: list[dict[str, Any]]

    @property
    def mean(self) -> float:
        """Over all seconds and outputs."""
        return float(np.mean(list(self.utility.values())))

    @property
    def adds_up(self) -> bool:
        """Every row that came was delivered or is counted as shed, for each output."""
        return all(sum(account) == self.pushed for account in self.accounts.values())


def ran(load: float, rule: str, *, seconds: int = SECONDS, seed: int = 0) -> ShedOutcome:
    """Run the trace of a load by one rule, in virtual time."""
    arrivals = trace(load, seconds=seconds, seed=seed)
    run = Overloaded(roads().graph, COSTS_US, RULES[rule])
    run.run(arrivals)
    stats = run.stats()
    accounts = {}
    for sink in run.delivered:
        column = "n" if sink == "report" else None
        went = [_weights(each.batch, column, None) for each in run.delivered[sink]]
        accounts[sink] = int(sum(float(each.sum()) for each in went)), stats[sink]["shed"]
    return ShedOutcome(
        load,
        rule,
        {sink: worth(run, sink, _all(load, seconds, seed)[sink]) for sink in run.delivered},
        sum(each.batch.num_rows for each in arrivals),
        accounts,
        {sink: _delay_us(run, sink) for sink in run.delivered},
        [] if run.sheds is None else run.sheds.drops.table().to_pylist(),
    )


def worth(run: Overloaded, sink: str, all: Floats) -> Floats:
    """What an output was worth, second by second of the input, by the rule of docs/qos.md.

    Args:
        all: of each second, the importance of everything that would have come.
    """
    qos = _qos(sink)
    latency = Utility(qos.latency or ((0.0, 1.0), (1.0, 1.0)))
    came, in_time = np.zeros(len(all)), np.zeros(len(all))
    graph = Utility(qos.loss or ((0.0, 0.0), (100.0, 1.0)))
    for each in run.delivered[sink]:
        seconds, weights = _seconds(each.batch), _weights(each.batch, _count(sink), qos)
        np.add.at(came, seconds, weights)
        np.add.at(in_time, seconds, weights * float(latency.at(each.at_us - each.entered_us)))
    came, in_time, due = (_lately(each) for each in (came, in_time, all))
    timely = np.divide(in_time, came, out=np.zeros(len(all)), where=came > 0)
    made: Floats = timely * graph.at(100.0 * came / due)
    return made


def _lately(counts: Floats) -> Floats:
    """Sums over the last seconds, ``OVER_S`` of them."""
    ends = np.cumsum(counts)
    made: Floats = ends - np.concatenate([np.zeros(OVER_S), ends[:-OVER_S]])
    return made


@lru_cache(maxsize=8)
def _all(load: float, seconds: int, seed: int) -> dict[str, Floats]:
    """Of each sink, the importance of all that comes where nothing is shed, by second."""
    found = {sink: np.zeros(seconds) for sink in ("alarms", "report")}
    for each in trace(load, seconds=seconds, seed=seed):
        np.add.at(found["alarms"], _seconds(each.batch), _weights(each.batch, None, _qos("alarms")))
        np.add.at(found["report"], _seconds(each.batch), np.ones(each.batch.num_rows))
    return found


@lru_cache(maxsize=8)
def _qos(sink: str) -> QoS:
    box = next(box for box in roads().graph.boxes if isinstance(box, Sink) and box.id == sink)
    assert box.qos is not None, "each has one"
    return box.qos


def _count(sink: str) -> str | None:
    return "n" if sink == "report" else None


def _seconds(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    name = "window_start" if "window_start" in batch.schema.names else "ts"
    times: npt.NDArray[np.int64] = batch.column(name).cast(pa.int64()).to_numpy() // SECOND
    return times


def _weights(batch: pa.RecordBatch, column: str | None, qos: QoS | None) -> Floats:
    """How much each row counts: a result of a window as the rows in it, others by their importance."""
    weights = np.ones(batch.num_rows) if column is None else batch.column(column).to_numpy().astype(float)
    if qos is not None and qos.value is not None:
        name, points = qos.value
        weights = weights * Utility(points).at(batch.column(name).to_numpy())
    return weights


def _delay_us(run: Overloaded, sink: str) -> float:
    rows = sum(each.batch.num_rows for each in run.delivered[sink])
    delays = sum((each.at_us - each.entered_us) * each.batch.num_rows for each in run.delivered[sink])
    return delays / rows if rows else 0.0
