"""Question: what does one more query on the same source cost, with 1 to 333 of them in one ``md.Query``?

Data: each branch filters by another bound and counts per key and 1 s. Beside it: as many runs of one
branch each, which read and judge the source again (timed for at most 10 runs).
Not shown: branches that are the same, which cost as much as different ones.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md
from bench import data
from bench.growth import common

RUNS = 10
QUERIES = 333  # of three boxes each: a query has at most 1,000


def query(schema: pa.Schema, first: int, count: int) -> md.Query:
    q = md.Query("queries")
    events = q.source("events", schema, time="ts", unit="us", slack="100ms")
    for number in range(first, first + count):
        kept = events.filter(f"value > {(number % 100) / 100 + number / 1e6}")
        q.sink(f"out{number}", kept.window("1s").group_by("key").aggregate(n=md.count(), s=md.sum("value")))
    return q


def measure(full: bool, rows: int | None = None, counts: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = rows or (1_000_000 if full else 100_000)
    counts = counts or (1, 3, 10, 30, 100, *([QUERIES] if full else []))
    events = data.events(rows, 100)

    def apart(count: int) -> None:
        for number in range(min(count, RUNS)):
            md.collect(query(events.schema, number * count // RUNS, 1), events=events)

    together = common.turns(
        {n: lambda n=n: md.collect(query(events.schema, 0, n), events=events) for n in counts}
    )
    separate = common.turns({n: lambda n=n: apart(n) for n in counts})
    series = {
        "one run, all branches": [
            (n, common.least(times) / n * 1e3, common.spread(times)) for n, times in together.items()
        ],
        "a run each": [
            (n, common.least(times) / min(n, RUNS) * 1e3, common.spread(times))
            for n, times in separate.items()
        ],
    }
    sample = f"{rows:,} rows, building the query included, the best of {common.ROUNDS} rounds of CPU time."
    question = "What one more query on the same source costs."
    return common.result("queries", question, sample, "queries", "ms a query", series)


if __name__ == "__main__":
    common.main(__doc__ or "", measure)
