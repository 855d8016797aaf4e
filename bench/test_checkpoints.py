"""Question: what does a checkpoint of 1,000,000 keys cost, whole and when 1% of them changed, and back?

Data: ``running`` with count, sum and max of int64 keys: 80 MB of state. Into a folder, synced.
Peer: the same files through Arrow IPC alone, neither summed nor synced. Extra: bytes written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa as md
from medusa.engine.state.delta import read_table, write_table

KEYS = 1_000_000


def push(run: Any, turn: int, keys: Any) -> None:
    run.push("s", {"ts": np.full(len(keys), turn), "k": keys, "v": keys * 0.5 + turn})
    run.take("o")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    q = md.Query("q")
    source = q.source("s", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us", slack=0)
    q.sink("o", source.group_by("k").running(n=md.count(), total="sum(v)", high="max(v)"))
    folder = tmp_path_factory.mktemp("state")
    with md.start(q, checkpoint=folder, checkpoint_every=None, memory="4 GiB") as run:
        push(run, 0, np.arange(KEYS))
        run.checkpoint()
        yield run, folder


def written(folder: Path, name: str) -> int:
    return sum(file.stat().st_size for file in (folder / name).iterdir())


def test_whole(peer: Any, held: Any) -> None:
    peer.extra_info["rows"] = KEYS
    run, folder = held

    def save() -> str:
        run._checkpoints._store._chain = type(run._checkpoints._store._chain)()
        return str(run.checkpoint())

    peer.extra_info["bytes"] = written(folder, peer.pedantic(save, rounds=3))


def test_delta_of_a_hundredth(peer: Any, held: Any) -> None:
    peer.extra_info["rows"] = KEYS
    run, folder = held
    draw = np.random.default_rng(3)
    turns = iter(range(1, 100))
    made = peer.pedantic(
        run.checkpoint, setup=lambda: push(run, next(turns), draw.integers(0, KEYS, KEYS // 100)), rounds=3
    )
    peer.extra_info["bytes"] = written(folder, made)
    assert peer.extra_info["bytes"] < 4_000_000


def test_read_of_a_chain(peer: Any, held: Any) -> None:
    peer.extra_info["rows"] = KEYS
    run, _ = held
    assert peer.pedantic(run._checkpoints._store.load, rounds=3)[0]["positions"]["s"] >= KEYS


def test_arrow_ipc(peer: Any, held: Any) -> None:
    peer.extra_info["rows"] = KEYS
    run, _ = held
    tables = [read_table(data) for name, data in run._fragment.snapshot().items() if name.endswith(".arrow")]
    assert len(peer.pedantic(lambda: [write_table(table) for table in tables], rounds=3)) == len(tables)
