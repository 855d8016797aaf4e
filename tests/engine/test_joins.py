"""Joins at sizes where batches merge, results come in many steps and keys are forgotten; DuckDB agrees."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.engine.core import kept_rows
from medusa.engine.fragment import Fragment
from medusa.engine.operators.joins import join
from medusa.engine.state.checkpoint import Checkpoints
from medusa.engine.state.delta import read_table
from medusa.sim.world.disk import Disk

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


def joining(within: Any, where: str | None = None, how: str = "inner") -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=1_000) for name in "ab")
    q.sink("o", a.join(b, on="k", within=within, where=where, how=how, name="near"))
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


NEAR = "a.k = b.k AND abs(a.ts - b.ts) <= 2000 AND a.x % 3 <> b.x % 3"
BY_HOW = {
    "left": f"""SELECT a.k, a.ts, a.x, b.ts, b.x FROM a LEFT JOIN b ON {NEAR}
        ORDER BY CASE WHEN b.x IS NULL THEN a.ts + 2000 ELSE greatest(a.ts, b.ts) END, a.x, b.x""",
    "right": f"""SELECT b.k, a.ts, a.x, b.ts, b.x FROM a RIGHT JOIN b ON {NEAR}
        ORDER BY CASE WHEN a.x IS NULL THEN b.ts + 2000 ELSE greatest(a.ts, b.ts) END, a.x NULLS LAST, b.x""",
    "full": f"""SELECT coalesce(a.k, b.k), a.ts, a.x, b.ts, b.x FROM a FULL JOIN b ON {NEAR}
        ORDER BY CASE WHEN a.x IS NULL THEN b.ts + 2000 WHEN b.x IS NULL THEN a.ts + 2000
        ELSE greatest(a.ts, b.ts) END, a.x NULLS LAST, b.x NULLS LAST""",
    "semi": f"""SELECT a.ts, a.k, a.x FROM a JOIN b ON {NEAR} GROUP BY ALL
        ORDER BY min(greatest(a.ts, b.ts)), a.x""",
    "anti": f"SELECT a.ts, a.k, a.x FROM a ANTI JOIN b ON {NEAR} ORDER BY a.ts, a.x",
}


@pytest.mark.parametrize("how", BY_HOW)
def test_rows_without_a_pair_are_those_of_duckdb(how: str) -> None:
    """``where`` takes part in deciding what has a pair. Its order is that of semantics 3."""
    a, b = side(6_000, 300, 1), side(5_000, 300, 2)
    q = joining(2_000, "left.x % 3 != right.x % 3", how)
    got = rows_of(md.collect(q, a=a, b=b).only)
    db = duckdb.connect()
    db.register("a", a)
    db.register("b", b)
    assert got == db.execute(BY_HOW[how]).fetchall()
    assert len(got) > 500


@pytest.mark.parametrize(("how", "within"), [("left", None), ("inner", None), ("inner", 300), ("left", 300)])
def test_as_of_joins_give_what_duckdb_gives(how: str, within: int | None) -> None:
    """DuckDB takes any of the rows of equal time, so here the right side has none of them."""
    a, b = side(8_000, 40, 1), side(6_000, 40, 2)
    b = b.set_column(0, "ts", pa.array(np.random.default_rng(3).permutation(80_000)[: len(b)]))
    q = md.Query("q")
    left, right = (q.source(name, SCHEMA, time="ts", unit="us") for name in "ab")
    q.sink("o", left.asof_join(right, on="k", within=within, how=how))
    got = rows_of(md.collect(q, a=a, b=b).only)
    db = duckdb.connect()
    db.register("a", a)
    db.register("b", b)
    near = "true" if within is None else f"a.ts - b.ts <= {within}"
    text = f"""SELECT k, ts, x, CASE WHEN near THEN bts END, CASE WHEN near THEN bx END FROM (
        SELECT a.k, a.ts, a.x, b.ts AS bts, b.x AS bx, {near} AND b.x IS NOT NULL AS near
        FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts)
        WHERE {"near" if how == "inner" else "true"} ORDER BY ts, x"""
    assert got == db.execute(text).fetchall()
    assert sum(row[4] is not None for row in got) > 500


def test_an_as_of_join_keeps_the_last_row_of_a_key_and_no_more() -> None:
    """The last right row of a key is found however old it is, and memory doesn't grow with its rows."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=0) for name in "ab")
    q.sink("o", a.asof_join(b, on="k", name="last"))
    fragment = Fragment(q.graph)
    most = 0
    for n in range(300):
        rows = {"ts": np.arange(1_000) + 1_000 * n, "k": np.arange(1_000) % 7 + 1, "x": np.arange(1_000) + n}
        if n == 0:
            rows["k"][0] = 99
        fragment.feed(
            "b", Train(batch=pa.record_batch(rows, schema=pa.schema(dict.fromkeys(rows, pa.int64()))))
        )
        at = {"ts": [1_000 * n + 999], "k": [99], "x": [n]}
        fragment.feed("a", Train(batch=pa.record_batch(at, schema=pa.schema(dict.fromkeys(at, pa.int64())))))
        if n % 100 == 50:
            fragment = Fragment.restore(q.graph, fragment.snapshot())
        stats = {row["box"]: row for row in fragment.stats().to_pylist()}
        most = max(most, stats["last"]["state_bytes"] + stats["last"]["queue_bytes"])
    fragment.finish()
    got = [row for e in fragment.drain("o") if isinstance(e, Train) for row in rows_of(pa.table(e.batch))]
    assert [row[3:] for row in got] == [(0, 0)] * 300
    assert most < 8 << 20


def test_what_a_join_waits_for_names_the_side_that_holds_it_back() -> None:
    q = joining(1_000, how="left")
    with md.start(q) as run:
        run.push("a", {"ts": [10, 5_000], "k": [1, 1], "x": [1, 2]})
        text = run.explain()
        assert "waits for b, which holds its boundary at nothing yet" in text
        assert "2 left and 0 right rows wait for it" in text
        run.push("b", {"ts": [6_000], "k": [1], "x": [1]})
        assert "waits for a, which holds" in run.explain()
        assert "1 left and 1 right rows wait for it" in run.explain()
        # The left row at 10 us had no pair, and is certain of it 1,000 us later.
        assert rows_of(run.take("o")) == [(1, 10, 1, None, None)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cuts_restores_and_small_limits_change_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With tiny limits steps are short, batches stay small, and keys are forgotten all the time."""
    a, b = side(1_500, 150, seed), side(1_500, 150, seed + 10)
    expected = by_duckdb(a, b, 4_000)
    if seed != 1:
        monkeypatch.setattr(join, "PAIRS_MAX", 5)
        monkeypatch.setattr(join, "KEYS_SPARE", 3)
        monkeypatch.setattr(kept_rows, "MERGED_ROWS_MAX", 64 if seed == 2 else 1)
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


def test_state_that_cannot_be_is_refused() -> None:
    """A row too old to be held, one that waits and is marked, and nulls among the times."""
    fragment = Fragment(joining(1_000, how="left").graph)
    rows = side(200, 5, 1).combine_chunks().to_batches()[0]
    for name in "ab":
        fragment.feed(name, Train(batch=rows))
    box = fragment.boxes["near"]
    good = box.save().tables["left"]
    assert len(good) > 10
    times, marks = good["@time"].cast(pa.int64()).to_pylist(), good["@matched"].to_pylist()
    for column, values in (
        ("@time", [-5_000, *times[1:]]),
        ("@time", [None, *times[1:]]),
        ("@matched", [True] * len(marks)),
    ):
        state = box.save()
        array = pa.array(values).cast(good.schema.field(column).type)
        state.tables["left"] = good.set_column(
            good.schema.get_field_index(column), good.schema.field(column), array
        )
        with pytest.raises(ValueError, match="a row of a join|nulls among"):
            Fragment(joining(1_000, how="left").graph).boxes["near"].load(state)


def test_a_row_far_ahead_doesnt_hold_the_numbers_of_all_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between captures: what is kept of the numbers of rows stays as small as what is held."""
    monkeypatch.setattr(join, "ROWS_SPARE", 500)
    q = md.Query("q")
    # By partitions, so that the others are not late behind it.
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=1_000, partition="k") for name in "ab")
    q.sink("o", a.join(b, on="k", within=20, how="left", name="near"))
    wanted = []
    for captures in (False, True):
        checkpoints, found, sizes = Checkpoints(Disk("here"), secret=(3, 5)), [], []
        with md.start(q, memory="1 GiB") as run:
            box = run._fragment.boxes["near"]
            for step in range(60):
                times = np.arange(step * 1_000, (step + 1) * 1_000) * 10
                keys = times // 10 % 50
                if step == 0:
                    times[5], keys[5] = 10**12, 99  # its partners come in a week
                for name in "ab":
                    run.push(name, {"ts": times, "k": keys, "x": times})
                if captures and step % 7 == 0:
                    made = run._fragment.captured(checkpoints.capture())
                    checkpoints.save(made.files(), {}, made.known())
                    sizes.append(box._join.nbytes())
                found.append(run.take("o"))
            if captures:
                copying = run._fragment.captured(checkpoints.capture())
                checkpoints.save(copying.files(), {}, copying.known())
                loaded = checkpoints.load()[1]
                assert all(
                    read_table(loaded[name]).equals(read_table(data))
                    for name, data in run._fragment.snapshot().items()
                    if name.endswith(".arrow")
                )
                assert max(sizes[3:]) < 1.5 * max(sizes[:3])
            run.finish()
            found.append(run.take("o"))
        wanted.append(pa.concat_tables(found))
    assert wanted[0].equals(wanted[1])
    assert wanted[0].num_rows > 50_000


@pytest.mark.parametrize("how", ["left", "inner"])
def test_what_waited_for_the_other_side_gives_its_room_back(how):
    """A node counts it in the budget of its query: after one long failure there was no room for the next."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", unit="us", slack=0) for name in "ab")
    joined = a.asof_join(b, on="k", how="left") if how == "left" else a.join(b, on="k", within=5)
    q.sink("o", joined.select("k"))

    def rows(begin, end):
        times = np.arange(begin, end)
        return {"ts": times, "k": times % 7, "x": times}

    with md.start(q, memory="1 GiB") as run:
        [box] = [each for id, each in run._fragment.boxes.items() if "join" in id]
        run.push("a", rows(0, 200_000))
        held = box.state_bytes() + box.queue_bytes()
        assert held > 32 * 200_000
        for begin in range(0, 200_000, 10_000):
            run.push("b", rows(begin, begin + 10_000))
            run.take("o")
        run.push("a", rows(200_000, 200_001))
        run.push("b", rows(200_000, 200_001))
        assert box.state_bytes() + box.queue_bytes() < held // 3
