"""Question: what does a history on disk cost beside writing the same bytes, and how fast is it read?

Data: 4,000,000 rows of time, key and value in trains of 65,536: 131 MB with their hidden times. Synced at
the end of each segment and of all. Peer: the same bytes in pieces of 1 MiB, synced as often.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.core.rows import TIME
from medusa.engine.history.history import SEGMENT_BYTES, History
from medusa.engine.history.opening import read_history
from medusa.engine.history.views import view_of_times
from medusa.runtime.store.history_store import FolderSegments, MemorySegments

ROWS = 4_000_000
PIECE = 1 << 20
SCHEMA = pa.schema([("time", pa.int64()), ("key", pa.int64()), ("value", pa.float64())])


def trains(batch: pa.RecordBatch) -> list[Train]:
    made = []
    for number in range(-(-ROWS // batch.num_rows)):
        rows = batch.slice(0, min(batch.num_rows, ROWS - number * batch.num_rows))
        times = rows["time"].view(TIME)
        made.append(Train(batch=rows, times=times))
    return made


def history_of(segments: Any) -> History:
    return History(segments, SCHEMA, timed=True, keep_us=None, keep_bytes=1 << 40)


def fill(segments: Any, given: list[Train]) -> History:
    history = history_of(segments)
    for each in given:
        history.append(each, 0)
    history.sync()
    return history


@pytest.fixture(scope="module")
def rows(train: pa.RecordBatch) -> list[Train]:
    return trains(train.select(["time", "key", "value"]).cast(SCHEMA))


@pytest.fixture(scope="module")
def filled(rows: list[Train], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history on disk whose every row was compared."""
    folder = tmp_path_factory.mktemp("filled")
    fill(FolderSegments(str(folder)), rows)
    history = history_of(FolderSegments(str(folder)))
    read_history(history)
    assert view_of_times(history).equals(pa.Table.from_batches([each.batch for each in rows], SCHEMA))
    return folder


def bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """Of each file what stands in it."""
    return {each.name: hashlib.sha256(each.read_bytes()).digest() for each in folder.iterdir()}


def fresh(folder: Path) -> Any:
    """Gives a new folder for each round and removes the one before."""
    numbers = count()

    def setup() -> tuple[tuple[Path], dict[str, Any]]:
        number = next(numbers)
        shutil.rmtree(folder / str(number - 1), ignore_errors=True)
        (folder / str(number)).mkdir()
        return (folder / str(number),), {}

    return setup


def test_raw_writes(peer: Any, filled: Path, tmp_path: Path) -> None:
    peer.extra_info["rows"] = ROWS
    size = peer.extra_info["bytes"] = bytes_in(filled)
    piece = os.urandom(PIECE)

    def write(folder: Path) -> Path:
        for start in range(0, size, SEGMENT_BYTES):
            left = min(SEGMENT_BYTES, size - start)
            file = os.open(folder / str(start), os.O_WRONLY | os.O_CREAT)
            while left:
                left -= os.write(file, piece[:left])
            os.fsync(file)
            os.close(file)
        return folder

    assert bytes_in(peer.pedantic(write, setup=fresh(tmp_path), rounds=5)) == size


def test_history_on_disk(peer: Any, filled: Path, rows: list[Train], tmp_path: Path) -> None:
    peer.extra_info["rows"] = ROWS
    peer.extra_info["bytes"] = bytes_in(filled)

    def write(folder: Path) -> Path:
        fill(FolderSegments(str(folder)), rows)
        return folder

    assert contents(peer.pedantic(write, setup=fresh(tmp_path), rounds=5)) == contents(filled)


def test_history_in_memory(peer: Any, rows: list[Train]) -> None:
    peer.extra_info["rows"] = ROWS
    made = peer.pedantic(lambda: fill(MemorySegments(), rows), rounds=5)
    assert made.rows == ROWS


def test_read_all(peer: Any, filled: Path) -> None:
    peer.extra_info["rows"] = ROWS

    def read() -> int:
        history = history_of(FolderSegments(str(filled)))
        read_history(history)
        return sum(len(each) for each in history.read(0) if isinstance(each, Train))

    assert peer.pedantic(read, rounds=5) == ROWS


@pytest.mark.parametrize("kept", ["nothing", "memory", "disk"])
def test_a_run(peer: Any, rows: list[Train], tmp_path: Path, kept: str) -> None:
    """A filter and a window of 1 s by key, with and without a connection point between."""
    peer.extra_info["rows"] = ROWS
    q = md.Query("q")
    source = q.source("s", {"time": "int64", "key": "int64", "value": "float64"}, time="time", unit="us")
    seen = source.filter("value >= 0")
    if kept != "nothing":
        seen = q.connection_point("recent", seen, keep_bytes="1 GiB")
    q.sink("o", seen.window("1s").group_by("key").aggregate(n=md.count(), total="sum(value)"))

    def go(folder: Path) -> int:
        options = {"history": folder / "history"} if kept == "disk" else {}
        with md.start(q, memory="4 GiB", **options) as run:
            for number, each in enumerate(rows):
                shifted = number * 10_000_000
                columns = [pc.add(each.batch["time"], shifted), *each.batch.columns[1:]]
                run.push("s", pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            if kept != "nothing":
                assert run.history("recent").rows == ROWS
            run.finish()
            return int(run.take("o")["n"].to_numpy().sum())

    assert peer.pedantic(go, setup=fresh(tmp_path), rounds=3) == ROWS
