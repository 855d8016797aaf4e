"""A program that fills one box after the other and says what it holds, and what the process grew by.

    python accounted.py KIND ...

Each box lives in a fork, so that memory that another gave back isn't taken for free. One line of JSON each.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from tests.engine.user_functions import OUT, STATE, Alarms
from tests.system.spilled_run import memory_kib

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64", "s": "utf8", "n": "int32"}
ROWS = 150_000
PIECE = 10_000
WIDE = 10_000_000
"""Of windows and the like, in us: all rows are in the first."""

Build = Callable[[md.Query, md.Stream, md.Stream], md.Stream]


def _table(q: md.Query, a: md.Stream, b: md.Stream) -> md.Stream:
    held = q.table("held", key="k", schema={"k": "int64", "v": "float64", "s": "utf8"})
    a.update(held, set={"v": "coalesce(table.v, 0) + v"}, insert={"v": "v", "s": "s"})
    return b.lookup(held)


BUILDS: dict[str, Build] = {
    "window": lambda q, a, b: a.window(WIDE).group_by("k").aggregate(c=md.count(), t=md.sum("v")),
    "text": lambda q, a, b: a.window(WIDE).group_by("s").aggregate(c=md.count(), m=md.min("s")),
    "sets": lambda q, a, b: a.window(WIDE).group_by("n").aggregate(d="count_distinct(k)", q="median(v)"),
    "sliding": lambda q, a, b: a.window(WIDE, advance=WIDE // 4).group_by("k").aggregate(t=md.avg("v")),
    "session": lambda q, a, b: a.session(WIDE).group_by("k").aggregate(c=md.count(), t=md.sum("v")),
    "rows": lambda q, a, b: a.group_by("k").window_rows(50).aggregate(c=md.count(), t=md.sum("v")),
    "running": lambda q, a, b: a.group_by("k").running(c=md.count(), t=md.sum("v")),
    "lag": lambda q, a, b: a.group_by("k").running(before=md.lag("s")),
    "top": lambda q, a, b: a.window(WIDE).group_by("n").top(1000, by="v"),
    "join": lambda q, a, b: a.join(b, on="k", within=WIDE, how="full"),
    "asof": lambda q, a, b: a.asof_join(b, on="k", within=WIDE),
    "distinct": lambda q, a, b: a.distinct("k", within=WIDE),
    "sunion": lambda q, a, b: a.sunion(b, bucket=WIDE),
    "bsort": lambda q, a, b: a.bsort("v", slack=2 * ROWS),
    "wsort": lambda q, a, b: a.wsort("v", timeout=WIDE, by="k"),
    "resample": lambda q, a, b: a.resample(1000, by="k", gap=WIDE),
    "process": lambda q, a, b: a.process(Alarms, OUT, by="k", state=STATE),
    "table": _table,
    "sink": lambda q, a, b: a.filter("k >= 0"),
}


def rows_of(start: int) -> pa.RecordBatch:
    number = np.arange(start, start + PIECE)
    keys = number * 7919 % ROWS
    return pa.record_batch(
        {
            "ts": pa.array(number).cast(pa.timestamp("us", "UTC")),
            "k": keys,
            "v": np.random.default_rng(start).random(PIECE),
            "s": pa.array([f"name-{key}" for key in keys.tolist()]),
            "n": pa.array((keys % 1000).astype(np.int32)),
        }
    )


def settled() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return memory_kib("VmRSS") << 10


def measure(kind: str) -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    q.sink("o", BUILDS[kind](q, a, b))
    q.sink("other", b)
    fragment = Fragment(q.graph)
    rows = ROWS // 10 if kind == "process" else ROWS
    step = 50 if kind == "process" else PIECE  # it makes objects for each key of a train
    batches = [
        batch.slice(start, step)
        for n in range(0, rows, PIECE)
        for batch in [rows_of(n)]
        for start in range(0, PIECE, step)
    ]
    fragment.feed("a", Train(batch=batches[0].slice(0, 50)))
    before = settled()
    held = fragment.memory().total
    for batch in batches[1:]:
        # A copy, as the rows that a box keeps are what the caller gave.
        fragment.feed("a", Train(batch=batch.take(pa.array(np.arange(step)))))
        if kind != "sink":
            fragment.drain("o")
    print(
        json.dumps({"kind": kind, "held": fragment.memory().total - held, "grown": settled() - before}),
        flush=True,
    )


def main(kinds: Sequence[str]) -> None:
    for kind in kinds:
        child = os.fork()
        if child == 0:
            try:
                measure(kind)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
