"""A join with more rows that wait than may be in memory: it spills, and says how much memory it took.

    python spilled_join.py SPILL ROWS BUDGET

All rows of the left side come first and wait for the right side, which has one row for each. What leaves is
compared with what must leave, in its order, piece by piece. BUDGET 0: no bound. The last line is JSON, as
that of ``spilled_run``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from tests.system.spilled_run import STEP, memory_kib

PUSH_ROWS = 50_000
TEXT = "of a row that waits for another one " * 2


def query() -> md.Query:
    q = md.Query("joined")
    left = q.source("left", {"ts": "timestamp", "k": "int64", "v": "int64", "text": "string"}, time="ts")
    right = q.source("right", {"ts": "timestamp", "k": "int64", "w": "int64"}, time="ts")
    q.sink("out", left.join(right, on="k", within="20 ms", name="join"))
    return q


def rows_of(side: str, start: int, stop: int, keys: int) -> pa.RecordBatch:
    number = np.arange(start, stop)
    columns = {"ts": pa.array(number).cast(pa.timestamp("us", "UTC")), "k": pa.array(number * STEP % keys)}
    if side == "right":
        return pa.record_batch(columns | {"w": pa.array(-number)})
    return pa.record_batch(columns | {"v": pa.array(number), "text": pa.array([TEXT] * len(number))})


def check(table: pa.Table, first: int, keys: int) -> None:
    """Each row with the one of its number, which has its time."""
    number = np.arange(first, first + table.num_rows)
    assert np.array_equal(table["k"].to_numpy(), number * STEP % keys)
    assert np.array_equal(table["v"].to_numpy(), number)
    assert np.array_equal(table["w"].to_numpy(), -number)


def main(spill: str, rows: int, budget: int) -> None:
    bounds: dict[str, Any] = {}
    if budget:
        bounds = {"spill": spill, "memory": budget, "state_budget": budget, "at_limit": "spill"}
    with md.start(query(), **bounds) as run:
        run.push("left", rows_of("left", 0, 1000, rows))
        before = memory_kib("VmRSS")
        spilled = state = got = 0
        for side in ("left", "right"):
            for start in range(1000 if side == "left" else 0, rows, PUSH_ROWS):
                run.push(side, rows_of(side, start, min(start + PUSH_ROWS, rows), rows))
                held = run.memory()
                spilled, state = max(spilled, held.spilled), max(state, held.state)
                if side == "left":
                    continue
                while (table := run.take("out", at_most="1 MiB")).num_rows:
                    check(table, got, rows)
                    got += table.num_rows
        run.finish()
        while (table := run.take("out", at_most="1 MiB")).num_rows:
            check(table, got, rows)
            got += table.num_rows
        assert got == rows
        peak = memory_kib("VmHWM")
    print(json.dumps({"needed": (peak - before) << 10, "spilled": spilled, "state": state}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
