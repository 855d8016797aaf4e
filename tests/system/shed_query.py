"""The query of ``test_shed`` and its input."""

from __future__ import annotations

import pyarrow as pa

import medusa as md

SINKS = ("rows", "large", "windows")
SCHEMA = {"ts": "timestamp", "v": "int64"}


def query() -> md.Query:
    """By chance, by value and by windows; no row fails its filter, so that all that are shed are counted."""
    q = md.Query("shed")
    s = q.source("s", SCHEMA, slack="3ms")
    t = q.source("t", SCHEMA, slack="3ms")
    latency = [("10ms", 1.0), ("40ms", 0.0)]
    q.sink("rows", t.filter("v >= 0"), qos=md.QoS(latency=latency))
    q.sink("large", s.filter("v >= 0"), qos=md.QoS(latency=latency, value=("v", [(0, 0), (1_000, 1)])))
    counts = s.window("16ms").aggregate(n=md.count(), total=md.sum("v"))
    q.sink("windows", counts, qos=md.QoS(loss=[(100, 1), (50, 0.7), (0, 0)]))
    return q


def rows_of(source: str, first: int, count: int) -> pa.Table:
    """Rows by their numbers: out of order, never late."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * 1_000 - n * 7 % 4 * 1_000 for n in numbers], pa.timestamp("us")),
            "v": [n * 7919 % 1_009 for n in numbers],
        }
    )
