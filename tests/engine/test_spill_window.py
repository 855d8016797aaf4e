"""A window whose parts go to disk at any moment, beside one that stays in memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa._native import Window
from medusa.engine.core.box import BoxState
from medusa.engine.core.memory_bounds import Room
from medusa.engine.core.sorted_runs import cut_batch, merge_runs
from medusa.engine.core.spool import Spool
from medusa.engine.operators.windows import window_spill, window_spill_part
from medusa.engine.operators.windows.window_spill import SpillWindow
from medusa.engine.state.delta import read_table
from tests.engine.spilling import MemorySpill
from tests.engine.test_threads import bits

INPUT = pa.schema([("time", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
OPTIONS: dict[str, Any] = {
    "keys": ["u"],
    "inputs": ["l"],
    "aggregates": [("count", -1), ("sum", 0), ("last", 0), ("count_distinct", 0)],
}


def refuse(error: md.StateError) -> None:
    raise error


def made(port: MemorySpill, size: int, advance: int) -> SpillWindow:
    room = Room(Spool(port), 0, refuse)
    return SpillWindow(room, input=INPUT, size_us=size, advance_us=advance, **OPTIONS)


def rows(chance: random.Random, count: int, floor: int) -> pa.RecordBatch:
    keys = chance.choice([3, 40, 2000])
    return pa.record_batch(
        [
            pa.array([max(0, floor) + chance.randrange(45) for _ in range(count)]),
            pa.array([f"key {chance.randrange(keys)}" for _ in range(count)]),
            pa.array(
                [
                    chance.randrange(1 << 61) if chance.random() < 0.02 else chance.randrange(9)
                    for _ in range(count)
                ]
            ),
        ],
        schema=INPUT,
    )


@settings(max_examples=25)
@given(st.integers(0, 1 << 32), st.sampled_from([(10, 10), (20, 5), (12, 7)]))
def test_any_part_may_go_at_any_moment(seed: int, extent: tuple[int, int]) -> None:
    chance = random.Random(seed)
    port = MemorySpill()
    plain = Window(size_us=extent[0], advance_us=extent[1], **OPTIONS)
    spilling = made(port, *extent)
    boundary = -100
    for _ in range(40):
        match chance.randrange(10):
            case 0 | 1:
                spilling.spill(chance.choice([1, 100_000, 1 << 40]))
            case 2 | 3:
                boundary += chance.choice([0, 1, 7, 60])
                want = [pa.record_batch(batch) for batch in plain.close(boundary)]
                got = list(spilling.close(boundary))
                assert (
                    bits(pa.Table.from_batches(got)) == bits(pa.Table.from_batches(want)) if want else not got
                )
                failed = [window.failed() for window in (plain, spilling)]
                assert (failed[0] is None) == (failed[1] is None)
                if failed[0] is not None:
                    assert bits(pa.table(failed[0])) == bits(pa.table(failed[1]))
            case 4 if chance.random() < 0.4:
                state = BoxState()
                spilling.save(state, str)
                for name, stream in state.streams.items():
                    state.tables[name] = read_table(stream.write())
                assert bits(state.tables["groups"]) == bits(pa.table(plain.state()))
                state.meta["position"] = list(spilling.position())
                if chance.random() < 0.5:
                    port = MemorySpill()
                    spilling = made(port, *extent)
                    spilling.restore(state, str)
            case _:
                batch = rows(chance, chance.choice([1, 5, 60, 600]), boundary)
                plain.add(batch)
                spilling.add(batch)
        assert spilling.position() == plain.position()
        assert spilling.next_end_us() == plain.next_end_us()
        assert spilling.rows_open() == plain.rows_open()
        if not spilling.cold:
            assert spilling.oldest_open_us() == plain.oldest_open_us()
    list(spilling.close(1 << 40))
    assert not port.files


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_spill, "GATHERED_ROWS", 50)
    monkeypatch.setattr(window_spill, "CHUNK_BYTES_MIN", 2_000)
    monkeypatch.setattr(window_spill_part, "WAITING_BYTES_MIN", 10_000)


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_runs_merge_to_one_sorted_sequence(seed: int) -> None:
    """Columns behind the width are left out."""
    chance = np.random.default_rng(seed)
    runs, all_rows = [], []
    places = chance.permutation(120)
    for number in range(int(chance.integers(0, 6))):
        mine = np.sort(places[20 * number : 20 * number + int(chance.integers(0, 21))])
        keys = [(int(place) // 50, int(place) % 50) for place in mine]
        columns = [[key[0] for key in keys], [number] * len(keys), [key[1] for key in keys]]
        batch = pa.record_batch([pa.array(column, pa.int64()) for column in columns], names=["a", "run", "b"])
        pieces = cut_batch(batch, int(chance.integers(8, 200)))
        runs.append((len(pieces), pieces))
        all_rows += [(a, b, number) for a, b in keys]
    found = [row for batch in merge_runs(runs, (0, 2), 2) for row in batch.to_pylist()]
    assert found == [{"a": a, "run": number} for a, b, number in sorted(all_rows)]


def test_a_part_that_waits_long_is_aggregated() -> None:
    """Rows beside a cold part don't grow without end."""
    port = MemorySpill()
    window = made(port, 1_000, 1_000)
    number = np.arange(600)
    columns = [pa.array(number), pa.array([f"key {each % 40}" for each in number]), pa.array(number % 9)]
    batch = pa.record_batch(columns, schema=INPUT)
    window.add(batch)
    window.spill(1 << 40)
    assert window.cold
    most = 0
    for _ in range(60):
        window.add(batch)
        most = max(most, sum(map(len, port.files.values())))
    assert most < 150_000 < 60 * batch.nbytes
    assert window.rows_open() == 61 * 600
