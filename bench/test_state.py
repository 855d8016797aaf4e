"""Question: what does it cost to take a window's state out, to bytes, and back?

Data: 100,000 groups in one open window, count, sum, min, max, avg. Peers: the same columns as a
pyarrow batch through Arrow IPC alone, and numpy's copy of as many bytes.
Not shown: the disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from medusa import _native

GROUPS = 100_000


def window() -> Any:
    return _native.Window(
        size_us=10_000_000,
        advance_us=10_000_000,
        keys=["l"],
        inputs=["g"],
        aggregates=[("count", -1), ("sum", 0), ("min", 0), ("max", 0), ("avg", 0)],
    )


@pytest.fixture(scope="module")
def full() -> Any:
    held = window()
    numbers = np.arange(GROUPS, dtype=np.int64)
    held.add(pa.record_batch({"time": numbers, "key": numbers, "value": numbers / 3}))
    return held


def to_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def test_out(peer: Any, full: Any) -> None:
    peer.extra_info["rows"] = GROUPS
    assert peer(lambda: to_bytes(pa.record_batch(full.state()))).size > GROUPS * 40


def test_back(peer: Any, full: Any) -> None:
    peer.extra_info["rows"] = GROUPS
    written, (boundary, taken) = to_bytes(pa.record_batch(full.state())), full.position()

    def run() -> Any:
        held = window()
        held.load(pa.ipc.open_stream(written).read_next_batch(), boundary, taken)
        return held

    assert peer(run).rows_open() == GROUPS


def test_arrow_ipc(peer: Any, full: Any) -> None:
    peer.extra_info["rows"] = GROUPS
    batch = pa.record_batch(full.state())
    assert peer(to_bytes, batch).size > GROUPS * 40


def test_numpy_copy(peer: Any, full: Any) -> None:
    peer.extra_info["rows"] = GROUPS
    bytes_held = np.zeros(pa.record_batch(full.state()).nbytes, np.uint8)
    assert len(peer(bytes_held.copy)) == len(bytes_held)
