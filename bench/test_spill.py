"""Question: how fast do state and output go to disk and come back, beside the disk itself?

Data: 64 MiB: trains of 65,536 rows that wait to be taken; a window with 1,000,000 groups. Peers: as many
bytes written and read by os.write and os.read in pieces of 1 MiB. Nothing is synced, nobody empties the
page cache: so it is our share of the time that shows, not the disk's. Extra: bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from medusa.elements import Train
from medusa.engine.core.memory_bounds import Room
from medusa.engine.core.spool import Spool
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.windows.window_spill import SpillWindow
from medusa.runtime.store.spill import FolderSpill

ROWS = 65_536
TRAINS = 32
GROUPS = 1_000_000
PIECE = 1 << 20
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.int64()), ("d", pa.float64())])
INPUT = pa.schema([("time", pa.int64()), ("key", pa.int64()), ("value", pa.float64())])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FolderSpill]:
    made = FolderSpill(tmp_path_factory.mktemp("spill"))
    yield made
    made.close()


def sink() -> SinkBox:
    draw = np.random.default_rng(1)
    box = SinkBox("sink", SCHEMA, timed=False)
    for _ in range(TRAINS):
        columns = [draw.integers(0, 1 << 40, ROWS), draw.random(ROWS)] * 2
        box.on_train(0, Train(batch=pa.record_batch([pa.array(c) for c in columns], schema=SCHEMA)))
    return box


def window(port: FolderSpill) -> SpillWindow:
    def refuse(error: Exception) -> None:
        raise error

    made = SpillWindow(
        Room(Spool(port), 1 << 28, refuse),
        input=INPUT,
        size_us=10_000_000,
        advance_us=10_000_000,
        keys=["l"],
        inputs=["g"],
        aggregates=[("count", -1), ("sum", 0), ("min", 0), ("max", 0)],
    )
    numbers = np.arange(GROUPS)
    made.add(pa.record_batch({"time": numbers, "key": numbers, "value": numbers / 3}))
    return made


def test_output_to_disk(peer: Any, port: FolderSpill) -> None:
    spool = Spool(port)

    def run(box: SinkBox) -> int:
        return box.spill_output(spool, 1 << 40)

    peer.extra_info["rows"] = ROWS * TRAINS
    peer.extra_info["bytes"] = peer.pedantic(run, setup=lambda: ((sink(),), {}), rounds=5)
    assert peer.extra_info["bytes"] == 64 << 20


def test_output_back(peer: Any, port: FolderSpill) -> None:
    spool = Spool(port)

    def made() -> tuple[tuple[SinkBox], dict[str, Any]]:
        box = sink()
        box.spill_output(spool, 1 << 40)
        return (box,), {}

    peer.extra_info |= {"rows": ROWS * TRAINS, "bytes": 64 << 20}
    assert len(peer.pedantic(lambda box: box.take(), setup=made, rounds=5)) == TRAINS


def test_state_to_disk(peer: Any, port: FolderSpill) -> None:
    peer.extra_info["rows"] = GROUPS
    freed = peer.pedantic(lambda held: held.spill(1 << 40), setup=lambda: ((window(port),), {}), rounds=5)
    peer.extra_info["bytes"] = freed
    assert freed > 32 << 20


def test_state_back_and_closed(peer: Any, port: FolderSpill) -> None:
    def made() -> tuple[tuple[SpillWindow], dict[str, Any]]:
        held = window(port)
        held.spill(1 << 40)
        return (held,), {}

    peer.extra_info["rows"] = GROUPS
    rows = peer.pedantic(
        lambda held: sum(batch.num_rows for batch in held.close(10_000_000)), setup=made, rounds=5
    )
    assert rows == GROUPS


def test_state_closed_in_memory(peer: Any, port: FolderSpill) -> None:
    peer.extra_info["rows"] = GROUPS
    rows = peer.pedantic(
        lambda held: sum(batch.num_rows for batch in held.close(10_000_000)),
        setup=lambda: ((window(port),), {}),
        rounds=5,
    )
    assert rows == GROUPS


def test_raw_write(peer: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(2).bytes(64 << 20)
    peer.extra_info |= {"rows": ROWS * TRAINS, "bytes": len(data)}

    def run() -> None:
        number = os.open(tmp_path / "raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for start in range(0, len(data), PIECE):
            os.write(number, memoryview(data)[start : start + PIECE])
        os.close(number)

    peer.pedantic(run, rounds=5)
    assert (tmp_path / "raw").stat().st_size == len(data)


def test_raw_read(peer: Any, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(np.random.default_rng(2).bytes(64 << 20))
    peer.extra_info |= {"rows": ROWS * TRAINS, "bytes": 64 << 20}

    def run() -> int:
        number, total = os.open(tmp_path / "raw", os.O_RDONLY), 0
        while part := os.read(number, PIECE):
            total += len(part)
        os.close(number)
        return total

    assert peer.pedantic(run, rounds=5) == 64 << 20
