"""A program whose state is larger than it may be: it spills, and says how much memory it took.

    python spilled_run.py SPILL KEYS BUDGET

Every key has two rows in one window. What leaves is compared with what must leave, in its order, piece by
piece. BUDGET 0: no bound. The last line is JSON: how much memory the process needed beyond what it had
before the first row, the most that lay on disk, and the most state that was held in memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md

STEP = 7919  # a prime that divides no number of keys we use: the first pass is a permutation
PUSH_ROWS = 20_000


def query() -> md.Query:
    q = md.Query("spilled")
    rows = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "int64"}, time="ts")
    window = rows.window("1 h").group_by("k").aggregate(n=md.count(), s=md.sum("v"), last=md.last("v"))
    q.sink("out", window)
    return q


def rows_of(start: int, stop: int, keys: int) -> pa.RecordBatch:
    number = np.arange(start, stop)
    return pa.record_batch(
        {
            "ts": pa.array(number).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(number * STEP % keys),
            "v": pa.array(number),
        }
    )


def memory_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise AssertionError(name)


def check(table: pa.Table, first: int, keys: int) -> None:
    """Rows leave by the first position of their group."""
    number = np.arange(first, first + table.num_rows)
    assert np.array_equal(table["k"].to_numpy(), number * STEP % keys)
    assert (table["n"].to_numpy() == 2).all()
    assert np.array_equal(table["s"].to_numpy(), 2 * number + keys)
    assert np.array_equal(table["last"].to_numpy(), number + keys)


def main(spill: str, keys: int, budget: int) -> None:
    bounds: dict[str, Any] = {}
    if budget:
        bounds = {"spill": spill, "memory": budget, "state_budget": budget, "at_limit": "spill"}
    with md.start(query(), **bounds) as run:
        run.push("rows", rows_of(0, 1000, keys))
        before = memory_kib("VmRSS")
        spilled = state = 0
        for start in range(1000, 2 * keys, PUSH_ROWS):
            run.push("rows", rows_of(start, min(start + PUSH_ROWS, 2 * keys), keys))
            held = run.memory()
            spilled, state = max(spilled, held.spilled), max(state, held.state)
        run.finish()
        got = 0
        while got < keys:
            table = run.take("out", at_most="1 MiB")
            check(table, got, keys)
            got += table.num_rows
        assert got == keys
        assert run.take("out").num_rows == 0
        peak = memory_kib("VmHWM")
    print(json.dumps({"needed": (peak - before) << 10, "spilled": spilled, "state": state}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
