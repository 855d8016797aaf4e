"""What a run does differently for batches that need no conversion: nothing that anybody can see."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.stats import TIMED

SCHEMA = {"ts": "int64", "k": "int64", "v": "float64"}
ARROW = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])


def query(unit: str, slack: int, *, partition: str | None = None) -> md.Query:
    q = md.Query("small")
    events = q.source("events", SCHEMA, time="ts", unit=unit, slack=slack, partition=partition)
    kept = events.filter("v > 0.5").select("k", w="v * 2.0")
    one = kept.window("20us").group_by("k").aggregate(n=md.count(), s=md.sum("w"))
    two = events.window("20us").group_by("k").aggregate(m=md.max("v"))
    q.sink("out", one.join(two, on=["window", "k"]))
    q.sink("plain", events.with_columns(at="tuple_time"))
    q.sink("late", events.late)
    return q


def table_of(rows: list[tuple[int, int, float]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def seen(run: Any) -> list[Any]:
    found: list[Any] = [run.stats().drop_columns([*TIMED]).to_pylist(), run.positions(), run.explain()]
    for sink in ("out", "plain", "late"):
        for each in run.take(sink, changes=True):
            if isinstance(each, Train):
                late = None if each.late is None else each.late.to_pylist()
                times = None if each.times is None else each.times.cast("int64").to_pylist()
                found.append((sink, each.first_seq, each.batch.to_pylist(), times, late))
            elif isinstance(each, Boundary):
                found.append((sink, each.time_us))
    return found


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 120), st.integers(0, 3), st.sampled_from([0.25, 0.75, 1.5])),
        min_size=1,
        max_size=60,
    ),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    unit=st.sampled_from(["us", "ms"]),
    slack=st.integers(0, 40),
    partition=st.sampled_from([None, "k"]),
)
def test_batches_do_what_tables_do(
    rows: list[tuple[int, int, float]], cuts: list[int], unit: str, slack: int, partition: str | None
) -> None:
    whole = table_of(rows)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    runs = [
        md.start(query(unit, slack, partition=partition), clock=md.testing.ManualClock()) for _ in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.LateWarning)
        for start, end in pairwise(bounds):
            batch = whole.slice(start, end - start)
            runs[0].push("events", batch)
            runs[1].push("events", pa.Table.from_batches([batch]))  # is fitted, column by column
            assert seen(runs[0]) == seen(runs[1])
        for run in runs:
            run.finish()
        assert seen(runs[0]) == seen(runs[1])
        for run in runs:
            run.close()


REFUSED: dict[str, tuple[pa.RecordBatch, str]] = {
    "a null": (table_of([(1, 0, 1.0)]).set_column(0, "ts", pa.array([None], pa.int64())), "row 0 holds null"),
    "out of range": (table_of([(1 << 61, 0, 1.0), (2, 0, 1.0)]), "out of range"),
    "far below": (table_of([(-(1 << 63), 0, 1.0)]), "out of range"),
    "a text": (pa.record_batch({"ts": [1], "k": ["x"], "v": [1.0]}), "expected int64"),
    "a column more": (table_of([(1, 0, 1.0)]).append_column("z", pa.array([1])), "'z'"),
}


@pytest.mark.parametrize(("bad", "word"), REFUSED.values(), ids=list(REFUSED))
def test_a_refused_batch_changes_nothing(bad: pa.RecordBatch, word: str) -> None:
    runs = [md.start(query("us", 0), clock=md.testing.ManualClock()) for _ in range(2)]
    for run in runs:
        run.push("events", table_of([(5, 0, 0.75), (30, 1, 0.75)]))
    with pytest.raises(md.DataError, match=word):
        runs[0].push("events", bad)
    for run in runs:
        run.push("events", table_of([(31, 1, 0.75), (70, 1, 0.75)]))
    assert seen(runs[0]) == seen(runs[1])
    for run in runs:
        run.finish()
        with pytest.raises(md.DataError, match="ended"):
            run.push("events", table_of([(80, 0, 1.0)]))
    assert seen(runs[0]) == seen(runs[1])
    for run in runs:
        run.close()
