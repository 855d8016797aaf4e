"""State of a native window that is copied in pieces, against ``state`` at the moment when that began."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from medusa._native import RunningStore, Window, snapshot_of

SIZE, ADVANCE = 40, 10
CALLS = [("count", -1), ("sum", 0), ("min", 0), ("max", 1), ("avg", 1), ("first", 1), ("variance", 0)]


def window(keys: str, advance: int = SIZE) -> Window:
    return Window(size_us=SIZE, advance_us=advance, keys=list(keys), inputs=["l", "g"], aggregates=CALLS)


def rows(keys: str, seed: int, count: int, start: int, groups: int) -> pa.RecordBatch:
    dice = np.random.default_rng(seed)
    drawn = [dice.integers(0, groups, count) for _ in keys]
    types = {"l": pa.int64(), "u": pa.utf8(), "b": pa.bool_()}
    kinds = {"l": lambda k: k, "u": lambda k: [f"key {i}" * (i % 4) for i in k], "b": lambda k: k % 2 == 0}
    columns = [
        pa.array(kinds[kind](k), types[kind], mask=dice.random(count) < 0.1)
        for kind, k in zip(keys, drawn, strict=True)
    ]
    nulls = dice.random(count) < dice.choice([0, 0.3])
    values = pa.array(dice.integers(-9, 9, count), mask=nulls)
    floats = pa.array(dice.random(count), mask=dice.random(count) < dice.choice([0, 0.3]))
    times = pa.array(start + dice.integers(0, SIZE, count), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(
        [times, *columns, values, floats], names=[str(i) for i in range(3 + len(keys))]
    )


def bits(made: object) -> list[bytes]:
    """Every byte that the rows of a batch consist of."""
    batch = pa.record_batch(made)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return [bytes(sink.getvalue()), repr(batch.schema).encode()]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "copy", "copy", "close", "early", "trim"]),
        st.integers(0, 1 << 30),
        st.integers(1, 700),
    ),
    max_size=14,
)


@settings(deadline=None)
@given(
    keys=st.sampled_from(["l", "u", "lu", "bl"]),
    advance=st.sampled_from([SIZE, ADVANCE, SIZE // 3]),
    before=st.integers(0, 6000),
    groups=st.integers(1, 3000),
    steps=STEPS,
)
def test_what_comes_while_it_is_copied_is_neither_lost_nor_in_it(
    keys: str, advance: int, before: int, groups: int, steps: list[tuple[str, int, int]]
) -> None:
    copied, plain = window(keys, advance), window(keys, advance)
    now = 0
    for turn in range(4):
        for each in (copied, plain):
            each.add(rows(keys, turn, before // 4, now + turn * 9, groups))
    snapshot, expected = snapshot_of(copied), bits(plain.state())
    assert snapshot is not None
    for what, seed, count in steps:
        if what == "copy":
            snapshot.copy(count)
        elif what == "close":
            now += count % SIZE
            closed = [[bits(batch) for batch in each.close(now)] for each in (copied, plain)]
            assert closed[0] == closed[1]
        elif what == "early":
            told = [[bits(batch) for batch in each.early()] for each in (copied, plain)]
            assert told[0] == told[1]
        else:
            for each in (copied, plain):
                each.trim() if what == "trim" else each.add(rows(keys, seed, count, now, 2 * groups))
    while snapshot.left:
        snapshot.copy(64)
    assert bits(snapshot.finish()) == expected
    assert bits(copied.state()) == bits(plain.state())
    assert copied.position() == plain.position()


def test_threads_that_fill_panes_keep_what_is_not_copied_yet() -> None:
    """Each pane is filled by one of them at a time, and the copy is of all panes."""
    copied, plain = window("l", ADVANCE), window("l", ADVANCE)
    with ThreadPoolExecutor(3) as pool:

        def add(batch: pa.RecordBatch) -> None:
            copied.spread(batch, None, 3)
            try:
                for fill in (copied.spread_map, copied.spread_fill):
                    list(pool.map(fill, range(3)))
            finally:
                copied.spread_end()
            plain.add(batch)

        for seed in range(8):
            add(rows("l", seed, 9000, 0, 3000))
        for turn in range(6):
            snapshot, expected = snapshot_of(copied), bits(plain.state())
            assert snapshot is not None
            for seed in range(8):
                add(rows("l", 100 * turn + seed, 9000, 0, 4000))
                snapshot.copy(500)
            snapshot.copy(1 << 40)
            assert bits(snapshot.finish()) == expected
            assert bits(copied.state()) == bits(plain.state())


def test_a_store_tells_the_same_after_each_row_while_it_is_copied() -> None:
    stores = [
        RunningStore(size_us=1 << 60, advance_us=1 << 60, keys=["l"], inputs=["l", "g"], aggregates=CALLS)
        for _ in range(2)
    ]
    zeros = pa.array(np.zeros(900, np.int64))
    for store in stores:
        store.run(
            rows("l", 1, 900, 0, 400).set_column(0, "0", zeros).set_column(1, "1", pa.array(range(900)))
        )
    snapshot, expected = snapshot_of(stores[0]), bits(stores[1].state())
    assert snapshot is not None
    for seed in range(12):
        again = rows("l", seed, 90, 0, 400).set_column(0, "0", zeros[:90])
        slots = pa.array(np.random.default_rng(seed).integers(0, 1200, 90))
        told = [[bits(b) for b in store.run(again.set_column(1, "1", slots))] for store in stores]
        assert told[0] == told[1]
        snapshot.copy(64)
    snapshot.copy(1 << 40)
    assert bits(snapshot.finish()) == expected
    assert bits(stores[0].state()) == bits(stores[1].state())


def test_a_refused_add_leaves_the_copy_as_it_is() -> None:
    made = window("l")
    made.add(rows("l", 1, 500, 0, 300))
    expected = bits(made.state())
    snapshot = snapshot_of(made)
    bad = rows("l", 2, 100, 0, 900)
    with pytest.raises(ValueError, match="out of range"):
        made.add(bad.set_column(0, "0", pa.array([0] * 99 + [1 << 62], pa.timestamp("us", "UTC"))))
    snapshot.copy(1 << 40)
    assert bits(snapshot.finish()) == expected == bits(made.state())


def test_one_at_a_time_and_only_where_the_table_holds_all() -> None:
    made = window("l")
    made.add(rows("l", 1, 500, 0, 300))
    snapshot = snapshot_of(made)
    assert snapshot.left == pa.record_batch(made.state()).num_rows
    with pytest.raises(ValueError, match="under way"):
        snapshot_of(made)
    with pytest.raises(ValueError, match="not copied yet"):
        snapshot.finish()
    with pytest.raises(TypeError, match="snapshot_of"):
        type(snapshot)()
    del snapshot
    again = snapshot_of(made)
    again.copy(1 << 40)
    again.finish()
    with pytest.raises(ValueError, match="handed over"):
        again.finish()
    assert snapshot_of(made) is not None, "who has handed over is not under way"
    for options in (
        {"keys": []},
        {"aggregates": [("count_distinct", 0)]},
        {"inputs": ["u"], "aggregates": [("max", 0)]},
        {"stage": "combine"},
    ):
        config = {"keys": ["l"], "inputs": ["l"], "aggregates": [("sum", 0)], **options}
        assert snapshot_of(Window(size_us=SIZE, advance_us=SIZE, **config)) is None


def test_it_outlives_its_window() -> None:
    made = window("l")
    made.add(rows("l", 1, 500, 0, 300))
    expected = bits(made.state())
    snapshot = snapshot_of(made)
    del made
    gc.collect()
    snapshot.copy(1 << 40)
    assert bits(snapshot.finish()) == expected
