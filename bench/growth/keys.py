"""Question: what does a row cost as the keys grow from 100 to 10,000,000?

Data: the events of W1 with other numbers of keys; count, sum, min, max, avg. Windows of 1 s hold few
rows of each key once there are many; in the one window of 100 s the state grows to a group per key.
Not shown: text keys (``bench/test_keys.py``), keys that come in bursts.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md
from bench import data
from bench.growth import common

SIZES = {"windows of 1 s": "1s", "one window of 100 s": "1000s"}


def query(schema: pa.Schema, size: str) -> md.Query:
    q = md.Query("keys")
    grouped = q.source("events", schema, time="ts", unit="us", slack="100ms").window(size).group_by("key")
    columns = {"s": md.sum("value"), "lo": md.min("value"), "hi": md.max("value"), "mean": md.avg("value")}
    q.sink("out", grouped.aggregate(n=md.count(), **columns))
    return q


def measure(full: bool, rows: int | None = None, powers: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = rows or (10_000_000 if full else 2_000_000)
    powers = powers or (2, 3, 4, 5, 6, 7)
    series: dict[str, list[Any]] = {label: [] for label in SIZES}
    for power in powers:  # one table at a time: together they would not fit
        events = data.events(rows, 10**power)
        cases = {
            label: lambda size=size, events=events: md.collect(query(events.schema, size), events=events)
            for label, size in SIZES.items()
        }
        for label, times in common.turns(cases).items():
            series[label].append((10**power, common.least(times) / rows * 1e9, common.spread(times)))
    sample = f"{rows:,} rows, the best of {common.ROUNDS} rounds of CPU time."
    return common.result("keys", "What a row costs as keys grow.", sample, "keys", "ns a row", series)


if __name__ == "__main__":
    common.main(__doc__ or "", measure)
