"""Times that a window also takes as a value, parts of a look in cycles, first= with batches, limits."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa._native import Times


@pytest.mark.parametrize("keys", [[], ["a"]])
def test_an_aggregate_of_the_tuple_time_behind_a_filter(keys: list[str]) -> None:
    q = md.Query("q")
    s = q.source("s", {"t": "int64", "a": "int64"}, time="t", unit="us").filter("a > 0").window("1 ms")
    grouped = s.group_by(*keys) if keys else s
    q.sink("o", grouped.aggregate(low=md.min("tuple_time"), high=md.max("tuple_time")))
    t = np.arange(3000)
    for cuts in ([0, 3000], [0, 2048, 3000], [0, 2000, 2500, 3000]):
        run = md.start(q)
        for a, b in pairwise(cuts):
            run.push("s", pa.record_batch({"t": t[a:b], "a": t[a:b] % 3}))
        run.finish()
        out = run.take("o")
        found = {n: out.column(n).cast(pa.int64()).to_numpy() // 1 for n in ("window_start", "low", "high")}
        for i, start in enumerate(found["window_start"].tolist()):
            kinds = [out.column("a")[i].as_py()] if keys else [1, 2]
            times = [x for x in range(start, start + 1000) if x % 3 in kinds]
            assert (found["low"][i], found["high"][i]) == (min(times), max(times))


def test_a_part_of_a_look_may_end_in_a_cycle() -> None:
    whole = Times(pa.array(np.arange(1000)))
    for start in (0, 64):
        part = whole.part(start, 64)
        cycle: list[object] = [part]
        cycle.append(cycle)
        del part, cycle
        gc.collect()
    assert whole.extent == (0, 999)


def test_first_with_a_record_batch() -> None:
    q = md.Query("q")
    q.sink(
        "o", q.source("s", {"t": "int64", "a": "int64"}, time="t", unit="us").with_columns(at="tuple_time")
    )
    run = md.start(q)
    run.push("s", pa.record_batch({"t": [1, 2, 3], "a": [1, 2, 3]}), first=0)
    run.push("s", pa.record_batch({"t": [2, 3, 4], "a": [2, 3, 4]}), first=1)
    out = run.take("o")
    assert out.column("at").cast(pa.int64()).to_pylist() == out.column("t").to_pylist() == [1, 2, 3, 4]


def test_a_sum_that_fails_far_in_time_is_one_dead_row_of_each_group() -> None:
    """Beyond the years that datetime knows, and with a key that is NaN."""
    q = md.Query("q")
    s = q.source("s", {"t": "int64", "k": "float64", "a": "int64"}, time="t", unit="us")
    q.sink("o", s.window("1 s").group_by("k").aggregate(a=md.sum("a"), b=md.sum("a + 0")))
    with md.start(q) as run:
        rows = {"t": [1 << 59] * 4, "k": [float("nan"), float("nan"), 1.0, 1.0], "a": [1 << 62] * 4}
        run.push("s", rows)
        with pytest.warns(md.DeadRowWarning):
            run.finish()
        assert run.take("o").num_rows == 0
        assert [row.row["k"] == 1.0 for row in run.dead()] == [False, True]


@pytest.mark.parametrize("columns", [255, 256, 300])
def test_a_window_may_read_more_columns_than_native_code_picks(columns: int) -> None:
    names = [f"c{number}" for number in range(columns)]
    q = md.Query("q")
    s = q.source("s", {"t": "int64", **dict.fromkeys(names, "int64")}, time="t", unit="us")
    q.sink("o", s.window(10).aggregate(**{f"s{name}": md.sum(name) for name in names}))
    out = md.collect(q, s={"t": [1, 2], **{name: [3, 4] for name in names}}).only
    assert out.select([f"s{name}" for name in names]).to_pylist() == [{f"s{name}": 7 for name in names}]
