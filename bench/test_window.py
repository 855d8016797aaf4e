"""Question: what do windows cost, from rows in to closed windows out?

Data: 1,000,000 events over 100 s, 1,000 keys, disordered by up to 100 ms, in trains of 65,536;
count, sum, min, max, avg. Peers: a C loop over a ring of open windows whose keys are array
indexes (tumbling only); pyarrow's grouping of all rows at once, which can't emit before the end.
Not shown: the engine around it (engines.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import data, reference
from medusa import _native

ROWS = 1_000_000
SHAPES = {"tumbling 1 s": (1_000_000, 1_000_000), "10 s by 1 s": (10_000_000, 1_000_000)}
AGGREGATES = [("count", -1), ("sum", 0), ("min", 0), ("max", 0), ("avg", 0)]


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return data.events(ROWS, 1_000)


@pytest.mark.parametrize("shape", SHAPES)
def test_medusa(peer: Any, events: pa.Table, shape: str) -> None:
    peer.extra_info["rows"] = ROWS
    size, advance = SHAPES[shape]
    trains = events.to_batches(max_chunksize=65_536)
    limits = [pc.max(train["ts"]).as_py() - data.DELAY_US for train in trains]

    def run() -> int:
        window = _native.Window(
            size_us=size, advance_us=advance, keys=["l"], inputs=["g"], aggregates=AGGREGATES
        )
        rows = 0
        for train, limit in zip(trains, limits, strict=True):
            window.add(train)
            rows += sum(batch.num_rows for batch in window.close(max(limit, window.position()[0])))
        return rows + sum(batch.num_rows for batch in window.close(1 << 62))

    assert peer(run) > 99_000


def test_c(peer: Any, events: pa.Table) -> None:
    peer.extra_info["rows"] = ROWS
    ts, key, value = (events[name].to_numpy() for name in ("ts", "key", "value"))
    out = np.empty(101_000, reference.ROW)
    arguments = ("ref_ring", ts, key, value, len(ts), 1_000, 1_000_000, data.DELAY_US, out)
    assert peer(reference.call, *arguments) > 99_000


def test_pyarrow(peer: Any, events: pa.Table) -> None:
    peer.extra_info["rows"] = ROWS

    def run() -> pa.Table:
        start = pc.multiply(pc.divide(events["ts"], 1_000_000), 1_000_000)
        names = ("count", "sum", "min", "max", "mean")
        grouped = events.append_column("start", start).group_by(["start", "key"], use_threads=False)
        return grouped.aggregate([("value", name) for name in names])

    assert len(peer(run)) > 99_000
