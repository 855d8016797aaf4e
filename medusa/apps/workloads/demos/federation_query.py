"""Two owners, one query: cars on roads, tolled by bob for alice. The query, where it runs, and its input.

    a1 cars ── moving ─┐                            ┌─ a1 billed ── a2 per_road ── a3 totals ── out
                       └─ b1 priced ── b2 owed ─────┘

Bob runs his two boxes by remote definitions, within what he offers alice. All of it is deterministic: the
same seed gives the same rows in the same order, so what came over the nodes is compared with the embedded
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.apps.workloads.owned_nodes import Owner
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AT", "DEFINED", "OUT", "OWNERS", "SOURCE", "TICK_US", "expected", "query", "traffic"]

OWNERS = {
    "alice": Owner(nodes=["a1", "a2", "a3"], publish=["traffic.out"], readers=["bob"]),
    "bob": Owner(nodes=["b1", "b2"], later=["b3"], offers={"alice": ["filter", "with_columns"]}),
}

AT = {
    "a1": ["cars", "moving", "billed"],
    "b1": ["priced"],
    "b2": ["owed"],
    "a2": ["per_road"],
    "a3": ["totals"],
}
DEFINED = {"pricing": "b1", "owing": "b2"}
"""Remote definitions: name -> the node of bob that keeps its part of the query."""

SOURCE = "traffic.cars"
OUT = "traffic.out"

TICK_US = 50_000
"""Of stream time, and of real time: rows of so long are published at once. Windows are as long."""

ROADS = 50


def query() -> Query:
    """What cars owe, by road: in each window, and so far."""
    q = Query("traffic")
    schema = {"ts": "timestamp[us, UTC]", "road": "int64", "lorry": "bool", "speed": "float64"}
    cars = q.source("cars", schema, time="ts", slack="50ms")
    moving = cars.filter("speed > 0", name="moving")
    priced = moving.with_columns(toll="case when lorry then 3.25 else 1.1 end", name="priced")
    owed = priced.filter("speed < 180", name="owed")
    billed = owed.with_columns(fast="speed > 130", name="billed")
    grouped = billed.window("50ms").group_by("road")
    per_road = grouped.aggregate(n=count(), toll="sum(toll)", speed="avg(speed)", name="per_road")
    totals = per_road.group_by("road").running(cars="sum(n)", tolls="sum(toll)", name="totals")
    q.sink("out", totals)
    return q


def traffic(seed: int, tick: int, rows: int) -> pa.Table:
    """The cars of one tick, disordered within it."""
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng([seed, tick])
    times = chance.integers(tick * TICK_US, (tick + 1) * TICK_US, rows)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "road": pa.array(chance.integers(0, ROADS, rows)),
            "lorry": pa.array(chance.random(rows) < 0.2),
            "speed": pa.array(chance.normal(90.0, 40.0, rows)),
        }
    )


def expected(seed: int, ticks: int, rows: int) -> pa.Table:
    """What the query gives in one process, where nothing moves."""
    import pyarrow as pa

    from medusa.runtime.embedded.embedded_run import collect

    return collect(query(), cars=pa.concat_tables(traffic(seed, tick, rows) for tick in range(ticks)))["out"]
