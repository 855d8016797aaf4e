"""A state of one box that can be split: running counts and sums by key, of which each row says what it adds.

    publisher ── a rows ── b kept ── m passed ── counted ── shown ── out

Row n is of key ``n mod keys``. What comes is every hundredth row or so (``every``), with what its key had so
far: how often it came, and the sum of its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

import medusa as md
from bench.recovery import workload
from bench.recovery.methods import Method

__all__ = ["query", "wrong_of"]


def query(method: Method, shape: workload.Shape, every: int) -> md.Query:
    """It; one row of so many is shown."""
    q = md.Query("q")
    kept = q.source("rows", workload.COLUMNS, time="ts").filter("n >= 0", name="kept")
    passed = kept.filter("key >= 0", name="passed")
    counted = passed.group_by("key").running(rows=md.count(), total=md.sum("n"), name="counted")
    q.sink("out", counted.filter(f"n % {every} = 0", name="shown"), **method.wish)
    return q


def wrong_of(came: Iterable[tuple[int, pa.RecordBatch]], published: int, keys: int, every: int) -> str:
    """What is wrong with the rows of ``out``; empty: each came once, with what its key had by then."""
    batches = [batch for _, batch in came]
    if not batches:
        return "nothing came"
    found = pa.Table.from_batches(batches)
    n, key, rows, total = (found[name].to_numpy() for name in ("n", "key", "rows", "total"))
    wanted = -(-published // every)
    unlike = len(np.unique(n))
    if unlike != wanted or len(n) != wanted:
        return f"{len(n):,} rows came, {unlike:,} of them unlike, of {wanted:,}"
    rows_there = n // keys + 1
    total_there = rows_there * (n % keys) + keys * rows_there * (rows_there - 1) // 2
    bad = (n % every != 0) | (key != n % keys) | (rows != rows_there) | (total != total_there)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        got = f"row {n[at]:,} of key {key[at]}: {rows[at]:,} rows, sum {total[at]:,}"
        return f"{got}; it has {rows_there[at]:,}, {total_there[at]:,}; {int(bad.sum()):,} rows are wrong"
    return ""
