"""``run.split`` and ``run.merge``: rows flow on, and the answer is that of a run that was never split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64"}


def query() -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=20)
    fast = a.filter("v > 0.2", name="fast")
    q.sink("sums", fast.window(50, advance=20).group_by("k").aggregate(t="sum(v)", name="sums_by_k"))
    q.sink("all", a.group_by("k").running(n=md.count(), before=md.lag("v"), name="so_far"))
    q.sink("pairs", fast.join(a, on="k", within=5, how="full", name="pair"))
    return q


def rows(start: int, count: int = 60) -> pa.Table:
    turns = range(start, start + count)
    return pa.table(
        {
            "ts": pa.array([max(0, n - n * 7 % 15) for n in turns], pa.timestamp("us", "UTC")),
            "k": pa.array([None if n % 23 == 0 else n * n % 11 for n in turns], pa.int64()),
            "v": pa.array([n * 37 % 101 / 100 for n in turns]),
        }
    )


def whole(q: md.Query) -> dict[str, pa.Table]:
    with md.start(q) as run:
        for start in range(0, 600, 60):
            run.push("a", rows(start))
        run.finish()
        return {sink: run.take(sink) for sink in ("sums", "all", "pairs")}


TURNS: dict[int, list[tuple[str, str, Any]]] = {
    60: [("split", "sums_by_k", {"n": 3}), ("split", "so_far", {"n": 2})],
    120: [("split", "pair", {"ranges": "weight", "n": 4}), ("split", "fast", {"n": 2, "block": 7})],
    240: [("merge", "sums_by_k", {}), ("merge", "so_far", {})],
    300: [("split", "sums_by_k", {"ranges": "weight", "n": 2}), ("merge", "pair", {})],
    420: [("split", "so_far", {"ranges": [1 << 60]}), ("merge", "fast", {})],
    480: [("merge", "sums_by_k", {})],
}


@pytest.mark.parametrize("more", [{}, {"threads": 3}, {"queue": "1 MiB"}], ids=["plain", "threads", "queue"])
def test_split_and_merged_while_rows_flow(more: dict[str, Any]) -> None:
    q = query()
    expected = whole(q)
    with md.start(q, **more) as run:
        for start in range(0, 600, 60):
            run.push("a", rows(start))
            for what, box, how in TURNS.get(start, []):
                made = getattr(run, what)(box, **how)
                if what == "split":
                    assert made[0] == f"{box}-1"
        run.finish()
        for sink, table in expected.items():
            assert run.take(sink).equals(table)


def test_a_checkpoint_is_written_at_the_split_and_restored(tmp_path: Path) -> None:
    q = query()
    expected = whole(q)
    folder = tmp_path / "state"
    with md.start(q, checkpoint=folder) as run:
        for start in range(0, 240, 60):
            run.push("a", rows(start))
        run.split("sums_by_k", 3)
        run.split("so_far", 2)
    with md.restore(folder) as run:
        assert "sums_by_k-3" in run.explain()
        for start in range(240, 420, 60):
            run.push("a", rows(start))
        run.merge("sums_by_k")
    with md.restore(folder) as run:
        assert "sums_by_k-3" not in run.explain()
        for start in range(420, 600, 60):
            run.push("a", rows(start))
        run.finish()
        for sink, table in expected.items():
            assert run.take(sink).equals(table)


def test_what_cannot_be_split_changes_nothing() -> None:
    q = query()
    with md.start(q) as run:
        before = run.explain()
        for box, how, why in [
            ("sums", {"n": 2}, "a sink numbers its rows"),
            ("nobody", {"n": 2}, "has no box 'nobody'"),
            ("sums_by_k", {"n": 1}, "from 2 to 256"),
            ("sums_by_k", {"n": 2, "ranges": "odd"}, "ranges is"),
            ("sums_by_k", {"n": 2, "ranges": "weight"}, "holds no keys yet"),
            ("sums_by_k", {"ranges": [5, 4]}, "cuts that ascend"),
        ]:
            with pytest.raises(md.QueryError, match=why):
                run.split(box, **how)
        with pytest.raises(md.QueryError, match="isn't split"):
            run.merge("sums_by_k")
        assert run.explain() == before


def test_windows_without_key_are_split_by_partial_results() -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=20)
    q.sink("o", a.window(50).aggregate(n=md.count(), t="sum(v)", m="max(v)", name="w"))
    with md.start(q) as run:
        for start in range(0, 600, 60):
            run.push("a", rows(start))
        run.finish()
        expected = run.take("o").to_pylist()
    with md.start(q) as run:
        for start in range(0, 600, 60):
            run.push("a", rows(start))
            if start == 120:
                run.split("w", 3, block=4)
            if start == 300:
                run.merge("w")
        run.finish()
        got = run.take("o").to_pylist()
    assert [{**row, "t": pytest.approx(row["t"], rel=1e-9)} for row in expected] == got
