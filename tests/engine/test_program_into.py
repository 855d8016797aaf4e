"""A chain's program adds to its window what the program and then the window would, late rows apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa._native import Window
from medusa.elements import Train
from medusa.engine.expressions.program import LATE, TIMES, Builder
from medusa.engine.fragment import Fragment
from medusa.engine.operators.fused_rows import FusedRows
from medusa.query.expressions.column import as_tree
from tests.engine.test_program import SCHEMA, batch_of, condition, numbers

CALLS = [
    ("count", -1),
    ("sum", 0),
    ("sum", 1),
    ("sum", 2),
    ("min", 1),
    ("max", 2),
    ("avg", 1),
    ("variance", 2),
]


def window(keys: int, *, advance_us: int) -> Window:
    return Window(
        size_us=60, advance_us=advance_us, keys=["l"] * keys, inputs=["l", "g", "g"], aggregates=CALLS
    )


def built(texts: list[str], predicate: str, keys: int, late: bool) -> Any:
    builder = Builder(SCHEMA)
    env = {name: builder.column(i, type) for i, (name, type) in enumerate(SCHEMA.items())}
    time = builder.column(TIMES, "timestamp[us, UTC]")
    marks = builder.column(LATE, "bool") if late else None
    builder.keep(builder.expressions([as_tree(predicate, box="t")], SCHEMA, env, box="t")[0][0])
    if marks is not None:
        builder.keep(builder.emit("not", marks))
    made = builder.expressions([as_tree(text, box="t") for text in texts], SCHEMA, env, box="t")
    outputs = [(time, "int64", "@time")] + [(env["a"], "int64", "k")] * keys
    return builder.build([*outputs, *((register, type, "v") for register, type in made)])


def state(window: Window) -> list[tuple[object, ...]]:
    rows = pa.record_batch(window.state())
    return [tuple(map(repr, row.values())) for row in rows.to_pylist()] + [window.position()]


@settings(max_examples=150)
@given(st.data(), st.integers(0, 1 << 30), st.integers(0, 1), st.booleans(), st.sampled_from([60, 25]))
def test_into_a_window_equals_the_program_and_then_the_window(
    data: st.DataObject, seed: int, keys: int, late: bool, advance_us: int
) -> None:
    rng = np.random.default_rng(seed)
    draw = data.draw
    texts = [draw(st.composite(numbers)(1, True)), *(draw(st.composite(numbers)(2, False)) for _ in range(2))]
    part = built(texts, draw(st.composite(condition)(1)), keys, late)
    into, after = (window(keys, advance_us=advance_us) for _ in range(2))
    nulls, wild = draw(st.sampled_from([0.0, 0.2])), draw(st.booleans())
    for step in draw(st.lists(st.sampled_from([0.0, 0.01, 0.5]), min_size=1, max_size=3)):
        rows = int(rng.choice([1, 100, 1024, 2500]))
        batch = batch_of(int(rng.integers(1 << 30)), rows, nulls, wild=wild)
        us = (np.arange(rows) * step).astype(np.int64) + rng.integers(0, 3, rows)
        train = Train(
            batch=batch,
            times=pa.array(us).cast(pa.timestamp("us", "UTC")),
            late=pa.array(rng.random(rows) < 0.1) if late else None,
            extent=(int(us.min()), int(us.max())) if rng.random() < 0.5 else None,
        )
        before = state(into)
        made = part.run(train.batch, train.times, train.late)
        kept = part.into(into, train)
        assert (kept is None) == (made is None)
        if made is None:
            assert state(into) == before
            continue
        assert kept == made[1]
        after.add(made[0])
        assert state(into) == state(after)


def trains(seed: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(4):
        rows = int(rng.integers(100, 3000))
        ts = pa.array(rng.integers(-40, 25, rows) + 20 * number).cast(pa.timestamp("us", "UTC"))
        v = pa.array(rng.integers(-4, 9, rows) / 4, mask=rng.random(rows) < 0.1)
        made.append(pa.record_batch({"ts": ts, "k": rng.integers(0, 3, rows), "v": v}))
    return made


def chained(choice: int) -> md.Query:
    q = md.Query("q")
    a = q.source("a", {"ts": "timestamp", "k": "int64", "v": "float64"}, slack=20)
    kept = a.filter("v > 0.25").select("k", x="v * 2.0 + 1.0", y="v * k")
    calls = {"n": md.count(), "x": md.sum("x"), "y": md.sum("y"), "last": md.last("x")}
    if choice == 0:
        q.sink("o", kept.window(30).aggregate(**calls))
    elif choice == 1:
        q.sink("o", kept.window(30, 7).group_by("k").aggregate(**calls))
    elif choice == 2:
        q.sink("o", a.filter("v > 0.25").filter("k > 0"))
    else:  # the marks go on to a window behind a union, which drops the rows
        both = a.filter("v > 0.25").filter("k > 0").union(a.filter("v > 1.0"))
        q.sink("o", both.window(30).aggregate(n=md.count(), v=md.sum("v")))
    return q


@pytest.mark.parametrize("choice", range(4))
def test_late_rows_leave_a_train_to_its_program(choice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for fused in (True, False):
        q = chained(choice)
        if not fused:
            monkeypatch.setattr("medusa.engine.compile.link_chains", lambda *args: None)
        else:
            monkeypatch.setattr(FusedRows, "_one_by_one", lambda *args: pytest.fail("not by the program"))
        fragment = Fragment(q.graph)
        for batch in trains(choice):
            fragment.feed("a", Train(batch=batch))
        fragment.finish()
        rows = [e.batch.to_pylist() for e in fragment.drain("o") if isinstance(e, Train)]
        counts = fragment.stats().drop_columns(["busy_us", "state_bytes"]).to_pylist()
        assert counts[0]["late"] > 100
        found.append((repr([row for each in rows for row in each]), counts))
    assert found[0] == found[1]
