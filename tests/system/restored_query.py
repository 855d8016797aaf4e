"""The query of ``test_restore`` and its input, the same in every process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import medusa as md

SINKS = ("per_key", "again", "near", "both", "late")
SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}


def query() -> md.Query:
    """Windows, a window of windows, an interval join, a window join, and what came too late."""
    q = md.Query("restored")
    a = q.source("a", SCHEMA, time="ts", slack="20ms")
    b = q.source("b", SCHEMA, time="ts", slack="20ms")
    w = (
        a.window("100ms", advance="30ms")
        .group_by("k")
        .aggregate(
            n=md.count(),
            total=md.sum("v"),
            mean=md.avg("v"),
            spread=md.variance("v"),
            d=md.count_distinct("v"),
        )
    )
    q.sink("per_key", w)
    q.sink("again", w.window("1s").group_by("k").aggregate(n=md.sum("n"), top=md.max("total")))
    q.sink("near", a.filter("v > 0.2").join(b, on="k", within="15ms", where="left.v < right.v"))
    other = b.window("100ms", advance="30ms").group_by("k").aggregate(m=md.count())
    q.sink("both", w.join(other, on=["window", "k"]))
    q.sink("late", a.late)
    return q


def rows_of(source: str, first: int, count: int) -> pa.Table:
    """Rows ``first`` to ``first + count``; each depends on its number alone."""
    numbers = np.arange(first, first + count)
    mixed = (numbers * 2654435761 + (0 if source == "a" else 977)) % 100_003
    return pa.table(
        {
            "ts": pa.array(numbers * 1_000 - mixed % 25_000, pa.int64()).cast(pa.timestamp("us")),
            "k": mixed % 17,
            "v": (mixed % 1_009) / 1_009,
        }
    )
