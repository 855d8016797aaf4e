"""Interval joins at sizes where segments merge, steps are halved and keys are forgotten."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine import matching
from medusa.engine.boxes import join
from medusa.engine.fragment import Fragment

SCHEMA = {"ts": "int64", "k": "int64", "x": "int64"}


def side(count: int, keys: int, seed: int, *, disorder: int = 500) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": np.arange(count) * 10 - draw.integers(0, disorder, count),
            "k": pa.array(draw.integers(0, keys, count), mask=draw.random(count) < 0.05),
            "x": np.arange(count),
        }
    )


def joining(within: Any, where: str | None = None) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=1_000) for name in "ab")
    q.sink("o", a.join(b, on="k", within=within, where=where, name="near"))
    return q


def by_duckdb(a: pa.Table, b: pa.Table, within: int, where: str = "true") -> list[tuple[int, ...]]:
    """(k, left ts, left x, right ts, right x) in the order of semantics 3; x is the position."""
    db = duckdb.connect()
    db.register("a", a)
    db.register("b", b)
    return db.execute(
        f"""SELECT a.k, a.ts, a.x, b.ts, b.x FROM a JOIN b ON a.k = b.k AND abs(a.ts - b.ts) <= {within}
        WHERE {where} ORDER BY greatest(a.ts, b.ts), a.x, b.x"""
    ).fetchall()


def rows_of(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(("keys", "within"), [(50, 0), (50, 2_000), (5_000, 50_000)])
def test_joins_give_what_duckdb_gives(keys: int, within: int) -> None:
    a, b = side(30_000, keys, 1), side(20_000, keys, 2)
    got = rows_of(md.collect(joining(within), a=a, b=b).only)
    assert got == by_duckdb(a, b, within)
    assert len(got) > 20


def test_a_condition_on_both_sides() -> None:
    a, b = side(5_000, 20, 1), side(5_000, 20, 2)
    got = rows_of(md.collect(joining(3_000, "left.x + right.x < 4000 and left.ts > right.ts"), a=a, b=b).only)
    assert got == by_duckdb(a, b, 3_000, "a.x + b.x < 4000 and a.ts > b.ts")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cuts_restores_and_small_limits_change_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With tiny limits every step is halved, segments stay small, and keys are forgotten all the time."""
    a, b = side(1_500, 150, seed), side(1_500, 150, seed + 10)
    expected = by_duckdb(a, b, 4_000)
    if seed != 1:
        monkeypatch.setattr(join, "PAIRS_MAX", 5)
        monkeypatch.setattr(join, "KEYS_SPARE", 3)
        monkeypatch.setattr(matching.Segments, "MERGED_ROWS_MAX", 64)
    if seed == 3:
        monkeypatch.setattr(matching, "CODE_MAX", 1)
    graph = joining(4_000).graph
    fragment, draw, got = Fragment(graph), random.Random(seed), []
    left = {name: table.combine_chunks().to_batches()[0] for name, table in (("a", a), ("b", b))}
    at = {"a": 0, "b": 0}
    while open_sources := [name for name in left if at[name] < left[name].num_rows]:
        name = draw.choice(open_sources)
        count = draw.choice([1, 3, 50, 400])
        fragment.feed(name, Train(batch=left[name].slice(at[name], count)))
        at[name] += count
        if draw.random() < 0.05:
            fragment = Fragment.restore(graph, fragment.snapshot())
        got += fragment.drain("o")
    fragment.finish()
    got += fragment.drain("o")
    rows = [row for e in got if isinstance(e, Train) for row in rows_of(pa.Table.from_batches([e.batch]))]
    assert rows == expected


def test_state_goes_when_no_partner_can_come() -> None:
    fragment = Fragment(joining(1_000).graph)
    rows = side(50_000, 100, 1).combine_chunks().to_batches()[0]
    most = 0
    for start in range(0, rows.num_rows, 1_000):
        for name in "ab":
            fragment.feed(name, Train(batch=rows.slice(start, 1_000)))
        fragment.drain("o")
        stats = {row["box"]: row for row in fragment.stats().to_pylist()}
        most = max(most, stats["near"]["state_bytes"] + stats["near"]["queue_bytes"])
    assert most < 1 << 20
    fragment.finish()
    stats = {row["box"]: row for row in fragment.stats().to_pylist()}
    assert stats["near"]["state_bytes"] == stats["near"]["queue_bytes"] == 0


def test_text_keys_several_keys_and_clashing_names() -> None:
    q = md.Query("q")
    schema = {"ts": "int64", "s": "utf8", "n": "int16", "v": "float64"}
    a = q.source("a", schema, time="ts", unit="us", slack=0)
    b = q.source("b", {**schema, "n": "uint8"}, time="ts", unit="us", slack=0)
    q.sink("o", a.join(b, on=["s", "n"], within=5, suffixes=("_l", "_r")))
    nan = float("nan")
    out = md.collect(
        q,
        a={"ts": [1, 2, 3, 4], "s": ["x", None, "y", "x"], "n": [1, 1, 2, 300], "v": [nan, 1, 2, 3]},
        b={"ts": [2, 3, 7, 9], "s": ["x", "x", "y", None], "n": [1, 1, 2, 1], "v": [5, 6, 7, 8]},
    ).only
    assert out.schema.names == ["s", "n", "ts_l", "v_l", "ts_r", "v_r"]
    assert out.schema.field("n").type == pa.int16()
    assert out.drop_columns(["v_l"]).to_pylist() == [
        {"s": "x", "n": 1, "ts_l": 1, "ts_r": 2, "v_r": 5.0},
        {"s": "x", "n": 1, "ts_l": 1, "ts_r": 3, "v_r": 6.0},
        {"s": "y", "n": 2, "ts_l": 3, "ts_r": 7, "v_r": 7.0},
    ]


@pytest.mark.parametrize("within", [1, 5])
def test_a_row_is_held_for_the_last_partner_that_can_come(within: int) -> None:
    """A partner exactly ``within`` later still matches, however the boundaries moved before it."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=0) for name in "ab")
    q.sink("o", a.join(b, on="k", within=within))
    last = 10 + within
    pushes = [("a", 10), ("a", last), ("b", last), ("b", last), ("a", last + 1), ("b", last + 1)]
    with md.start(q) as run:
        for x, (name, time_us) in enumerate(pushes):
            run.push(name, {"ts": [time_us], "k": [1], "x": [x]})
        run.finish()
        got = rows_of(run.take("o"))
    at = {name: [(t, x) for x, (to, t) in enumerate(pushes) if to == name] for name in "ab"}
    near = [(max(t, u), x, y, t, u) for t, x in at["a"] for u, y in at["b"] if abs(t - u) <= within]
    assert got == [(1, t, x, u, y) for _, x, y, t, u in sorted(near)]
    assert len(got) == 8
    assert sum(t == 10 for _, t, *_ in got) == 2
