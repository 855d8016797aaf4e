"""Question: what does a box of a chain cost, with 1 to 1,000 boxes?

Data: one source, a chain of filters that keep every row (each has another bound), one sink. Large
trains: a whole table by ``md.collect``; small: 64 rows a push. ``building``: ``md.start`` of the query.
Not shown: boxes with state.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md
from bench import data
from bench.growth import common

PUSHES = 30
BOXES = 998  # with source and sink as many as a query may have


def query(schema: pa.Schema, boxes: int) -> md.Query:
    q = md.Query("boxes")
    stream = q.source("events", schema, time="ts", unit="us", slack="100ms")
    for number in range(boxes):
        stream = stream.filter(f"value > {-number - 1.5}")
    q.sink("out", stream)
    return q


def pushed(asked: md.Query, batch: pa.RecordBatch) -> Any:
    """(what pushes PUSHES small trains, the run to close)."""
    run = md.start(asked)

    def push() -> None:
        for _ in range(PUSHES):
            run.push("events", batch)
            run.take("out")

    return push, run


def measure(full: bool, rows: int | None = None, counts: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = rows or (1_000_000 if full else 100_000)
    counts = counts or (1, 3, 10, 30, 100, 300, BOXES)
    events = data.events(rows, 1_000)
    batch = events.slice(0, 64).combine_chunks().to_batches()[0]
    queries = {count: query(events.schema, count) for count in counts}
    large = common.turns({n: lambda q=q: md.collect(q, events=events) for n, q in queries.items()})
    built = common.turns({n: lambda q=q: md.start(q).close() for n, q in queries.items()})
    open_runs = {n: pushed(q, batch) for n, q in queries.items()}
    small = common.turns({n: push for n, (push, _) in open_runs.items()})
    for _, run in open_runs.values():
        run.close()
    series = {
        "large trains: ns a row and box": [
            (n, common.least(times) / rows / n * 1e9, common.spread(times)) for n, times in large.items()
        ],
        "64 rows: us a push and box": [
            (n, common.least(times) / PUSHES / n * 1e6, common.spread(times)) for n, times in small.items()
        ],
        "building: us a box": [
            (n, common.least(times) / n * 1e6, common.spread(times)) for n, times in built.items()
        ],
    }
    sample = f"{rows:,} rows; {PUSHES} pushes; the best of {common.ROUNDS} rounds of CPU time."
    return common.result("boxes", "What a box of a chain costs.", sample, "boxes", "ns or us a box", series)


if __name__ == "__main__":
    common.main(__doc__ or "", measure)
