"""Question: how long does a small train take through a filter and an open window, in and out?

Data: trains of 64 rows (time, key of 100, value), pushed one after the other into a running query;
the window closes far from here, so no result is made. ``pushed``: with ``filter``. ``closing``: each
train lies a window later, so that each push also closes one and its rows are taken. Peer: the same
two steps by pyarrow's kernels called one by one, which keep no state.
Not shown: links (docs/nodes.md) and the disk.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md

ROWS = 64
SECOND = 1_000_000


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {"key": rng.integers(0, 100, ROWS), "value": rng.random(ROWS)}


def query(window: str) -> md.Query:
    q = md.Query("latency")
    schema = {"ts": "int64", "key": "int64", "value": "float64"}
    events = q.source("events", schema, time="ts", unit="us", slack=0)
    kept = events.filter("value > 0.5")
    q.sink("out", kept.window(window).group_by("key").aggregate(n=md.count(), s=md.sum("value")))
    return q


def test_medusa_pushed(peer: Any, columns: dict[str, Any]) -> None:
    peer.extra_info["rows"] = ROWS
    batch = pa.record_batch({"ts": np.zeros(ROWS, np.int64), **columns})
    with md.start(query("1 d")) as run:
        peer(run.push, "events", batch)
        assert run.positions()["events"] % ROWS == 0


def test_medusa_closing(peer: Any, columns: dict[str, Any]) -> None:
    peer.extra_info["rows"] = ROWS
    batches = [pa.record_batch({"ts": np.full(ROWS, second * SECOND), **columns}) for second in range(10_000)]
    number = itertools.count()
    with md.start(query("1s")) as run:

        def step() -> pa.Table:
            run.push("events", batches[next(number)])
            return run.take("out")

        table = peer.pedantic(step, rounds=5_000, warmup_rounds=100)
    assert 0 < len(table) <= ROWS


def test_pyarrow_kernels(peer: Any, columns: dict[str, Any]) -> None:
    peer.extra_info["rows"] = ROWS
    batch = pa.record_batch({"ts": np.zeros(ROWS, np.int64), **columns})

    def step() -> pa.Table:
        kept = batch.filter(pc.greater(batch["value"], 0.5))
        grouped = pa.Table.from_batches([kept]).group_by("key", use_threads=False)
        return grouped.aggregate([("value", "count"), ("value", "sum")])

    assert len(peer(step)) > 0
