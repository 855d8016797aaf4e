"""Question: what does a longer slack cost, from none to 100 s?

Data: the events of W1 in order of time, so that no row is late at any slack; a longer slack keeps more
windows open. State: the most that the window held after any push of 65,536 rows.
Not shown: disorder (W1 has it), outputs' delay (it is the slack).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import medusa as md
from bench import data
from bench.growth import common

KEYS = 1_000


def query(schema: pa.Schema, slack_us: int) -> md.Query:
    q = md.Query("slack")
    events = q.source("events", schema, time="ts", unit="us", slack=slack_us)
    columns = {"s": md.sum("value"), "lo": md.min("value"), "hi": md.max("value"), "mean": md.avg("value")}
    q.sink("out", events.window("1s").group_by("key").aggregate(n=md.count(), **columns))
    return q


def held(events: pa.Table, slack_us: int) -> int:
    """Bytes, the most after any push."""
    most = 0
    with md.start(query(events.schema, slack_us)) as run:
        for batch in events.to_batches(max_chunksize=65_536):
            run.push("events", batch)
            run.take("out")
            most = max(most, pc.sum(run.stats()["state_bytes"]).as_py())
    return most


def measure(full: bool, rows: int | None = None, slacks: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = rows or (10_000_000 if full else 2_000_000)
    slacks = slacks or (0, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    events = data.events(rows, KEYS).sort_by("ts")
    cases = {
        slack: lambda slack=slack: md.collect(query(events.schema, slack), events=events) for slack in slacks
    }
    spent = common.turns(cases)
    series = {
        "ns a row": [
            (slack / 1e6, common.least(times) / rows * 1e9, common.spread(times))
            for slack, times in spent.items()
        ],
        "KB held": [(slack / 1e6, held(events, slack) / 1e3) for slack in slacks],
    }
    sample = f"{rows:,} rows, {KEYS:,} keys, the best of {common.ROUNDS} rounds of CPU time."
    return common.result("slack", "What slack costs.", sample, "slack in s", "ns a row, KB held", series)


if __name__ == "__main__":
    common.main(__doc__ or "", measure)
