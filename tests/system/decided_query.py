"""The query of ``test_decided`` and its input: what a run decides outside its data shows in its output."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

import medusa as md

SINKS = ("rows", "running", "asked", "pairs", "late")
SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
SOURCES = ("a", "b", "c")


@md.register("test.decided.asked")
async def asked(batch: pa.RecordBatch) -> Any:
    """An answer that nobody gives twice."""
    answer = int.from_bytes(os.urandom(6), "little")
    return {"v": batch["v"], "answer": [answer] * batch.num_rows}


def query() -> md.Query:
    """Order of arrival in a sink and in sums, answers, and pairs that wait for a silent source."""
    q = md.Query("decided")
    a = q.source("a", SCHEMA, slack="5ms")
    b = q.source("b", SCHEMA, slack="5ms", ahead="10s")
    c = q.source("c", SCHEMA, slack="5ms", idle="2ms")
    both = a.union(b)
    q.sink("rows", both)
    q.sink("running", both.group_by("k").running(s=md.sum("v")))
    q.sink("asked", both.apply(asked, {"v": "int64", "answer": "int64"}, in_flight=4))
    q.sink("pairs", both.join(c, on="k", within="2ms"))
    q.sink("late", c.late)
    return q


def rows_of(source: str, first: int, count: int) -> pa.Table:
    """Rows by their numbers."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * 1_000 - n * 7 % 5 * 1_000 for n in numbers], pa.timestamp("us")),
            "k": [n * 31 % 5 for n in numbers],
            "v": [n * 10 + SOURCES.index(source) for n in numbers],
        }
    )
