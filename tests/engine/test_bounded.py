"""The order in which ``md.collect`` feeds several sources, beside one that is computed row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa._native import Times
from medusa.engine import bounded_run
from medusa.engine.bounded_run import SourcePart, merged
from medusa.engine.core.rows import TIME

SLICE = 3
SCHEMA = {"ts": "int64", "n": "int64"}

Source = list[list[int]]
"""The times of each part."""

sources = st.lists(st.lists(st.lists(st.integers(-5, 12), max_size=8), max_size=4), min_size=2, max_size=3)


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_run, "TRAIN_ROWS_MAX", SLICE)


def names(count: int) -> str:
    return "abc"[:count]


def in_order(came: list[Source]) -> list[tuple[str, list[int]]]:
    """(source, numbers of the rows) of each slice: by the largest time of its source up to its first row."""
    slices = []
    for place, (name, parts) in enumerate(zip(names(len(came)), came, strict=True)):
        before: list[int] = []
        for part in parts:
            for start in range(0, len(part), SLICE):
                rows = part[start : start + SLICE]
                slices.append(
                    ((max([*before, rows[0]]), place), name, [len(before) + n for n in range(len(rows))])
                )
                before += rows
    return [(name, rows) for _, name, rows in sorted(slices, key=lambda each: each[0])]


def parts_of(source: Source, *, looked: bool) -> list[SourcePart]:
    """Their rows are numbered."""
    made, first = [], 0
    for times in source:
        numbers = pa.array(range(first, first + len(times)), pa.int64())
        array = pa.array(times, pa.int64()).view(TIME)
        made.append(SourcePart(pa.record_batch({"n": numbers}), array, Times(array) if looked else None))
        first += len(times)
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sources, st.booleans())
def test_slices_of_several_parts_and_sources(came: list[Source], looked: bool) -> None:
    inputs = {
        name: parts_of(parts, looked=looked) for name, parts in zip(names(len(came)), came, strict=True)
    }
    got = list(merged(inputs))
    assert [(name, part.batch["n"].to_pylist()) for name, part in got] == in_order(came)
    for _, part in got:
        assert part.times is not None
        assert len(part.times) == part.batch.num_rows
        if looked:
            assert part.looked is not None
            assert part.looked.extent in (None, (min(ints(part.times)), max(ints(part.times))))


def ints(times: pa.Array) -> list[int]:
    return list(times.cast(pa.int64()).to_pylist())


def table(source: Source) -> pa.Table:
    """Of as many chunks as the source has parts."""
    first, batches = 0, []
    for times in source:
        numbers = range(first, first + len(times))
        batches.append(
            pa.record_batch({"ts": pa.array(times, pa.int64()), "n": pa.array(numbers, pa.int64())})
        )
        first += len(times)
    return pa.Table.from_batches(batches, pa.schema({"ts": pa.int64(), "n": pa.int64()}))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sources)
def test_collect_feeds_them_so(came: list[Source]) -> None:
    """A union passes rows on as they come."""
    q = md.Query("q")
    streams = [
        q.source(name, SCHEMA, time="ts", unit="us").with_columns(source=f"'{name}'")
        for name in names(len(came))
    ]
    q.sink("all", streams[0].union(*streams[1:]))
    tables: Any = {name: table(parts) for name, parts in zip(names(len(came)), came, strict=True)}
    rows = md.collect(q, **tables).only.to_pylist()
    got = [(row["source"], row["n"]) for row in rows]
    assert got == [(name, n) for name, numbers in in_order(came) for n in numbers]


def test_a_source_without_time_comes_first() -> None:
    timeless = SourcePart(pa.record_batch({"n": pa.array([0], pa.int64())}), None)
    timed = parts_of([[-5]], looked=True)
    assert [name for name, _ in merged({"a": timed, "b": [timeless, timeless]})] == ["b", "b", "a"]
