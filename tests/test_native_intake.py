"""Batches told by their capsules: what surely has the schema is looked at there, all else is not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa._native import Exported, Intake, Lateness, Window

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("k", pa.utf8()), ("ts", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int32())]
)


def column_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column(1)


def intake(schema: pa.Schema = SCHEMA, position: int = 1) -> Intake:
    return Intake(schema, position, column_of)


def rows_of(schema: pa.Schema, rows: int = 3) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def batch_of(times: list[int | None]) -> pa.RecordBatch:
    ts = pa.array(times, pa.int64())
    columns = [
        pa.array(["x"] * len(ts)),
        ts,
        ts.cast(TIME),
        pa.nulls(len(ts), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def with_field(place: int, field: pa.Field) -> pa.Schema:
    return SCHEMA.set(place, field)


OTHERS = {
    "a name": with_field(0, pa.field("K", pa.utf8())),
    "a type": with_field(3, pa.field("n", pa.int64())),
    "a unit": with_field(2, pa.field("at", pa.timestamp("ms", "UTC"))),
    "a zone": with_field(2, pa.field("at", pa.timestamp("us"))),
    "never null": with_field(1, pa.field("ts", pa.int64(), nullable=False)),
    "a dictionary": with_field(0, pa.field("k", pa.dictionary(pa.int32(), pa.utf8()))),
    "an extension": with_field(0, pa.field("k", pa.json_())),
    "one less": SCHEMA.remove(3),
    "one more": SCHEMA.append(pa.field("more", pa.int32())),
    "another order": pa.schema([SCHEMA.field(i) for i in (1, 0, 2, 3)]),
    "parts of a list": with_field(0, pa.field("k", pa.list_(pa.utf8()))),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_a_batch_of_another_schema_is_left_to_others(other: pa.Schema) -> None:
    assert intake().rows(rows_of(other)) is None
    assert intake().rows(rows_of(SCHEMA)) is not None


def test_what_stands_beside_the_columns_is_no_difference() -> None:
    assert intake().rows(rows_of(SCHEMA.with_metadata({"pandas": "{}"}))) is not None
    assert intake(SCHEMA.with_metadata({"a": "b"})).rows(rows_of(SCHEMA)) is not None
    with pytest.raises(ValueError, match="column"):
        intake(position=4)
    with pytest.raises(TypeError, match="native code only"):
        Exported()


@settings(max_examples=60)
@given(
    times=st.lists(st.integers(-100, 100), max_size=200),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 200)),
    position=st.sampled_from([1, 2]),
)
def test_times_are_those_of_the_column_also_of_slices(
    times: list[int | None], cut: tuple[int, int], position: int
) -> None:
    batch = batch_of(times).slice(*cut)
    made = Intake(SCHEMA, position, lambda rows: rows.column(position))
    rows = made.rows(batch)
    assert rows is not None
    looked = made.times(rows, batch)
    assert looked is not None
    mine = [time for time in times[cut[0] :][: cut[1]] if time is not None]
    assert len(looked) == len(mine)
    assert looked.extent == ((min(mine), max(mine)) if mine else None)
    assert looked.rows is rows
    plain, told = Lateness(10), Lateness(10)
    assert plain.judge(batch.column(position))[:2] == told.judge(looked)[:2]
    assert looked.array.equals(batch.column(position))
    part = looked.part(1, 2)
    assert part.array.equals(batch.column(position).slice(1, 2))
    assert part.rows is None


def test_nulls_among_the_times_are_left_to_others() -> None:
    made = intake()
    for batch in (batch_of([1, None, 3]), batch_of([1, None, 3]).slice(1)):
        rows = made.rows(batch)
        assert rows is not None
        assert made.times(rows, batch) is None
    batch = batch_of([1, None, 3]).slice(2)
    rows = made.rows(batch)
    assert rows is not None
    looked = made.times(rows, batch)
    assert looked is not None
    assert looked.extent == (3, 3)


def test_the_capsules_serve_many_calls_and_outlive_the_batch() -> None:
    def window() -> Window:
        made = Window(size_us=10, advance_us=10, keys=["u"], inputs=["l"], aggregates=[("sum", 0, 0.0)])
        made.read_from([-1, 0, 1])
        return made

    batch = batch_of([1, 2, 25])
    made = intake()
    rows = made.rows(batch)
    assert rows is not None
    looked = made.times(rows, batch)
    windows = [window() for _ in range(3)]
    windows[0].add(batch, batch.column(2))
    del batch
    for each in windows[1:]:
        each.add(rows, looked)
        each.add(rows, looked)
    answers: list[Any] = [[pa.record_batch(b).to_pydict() for b in each.close(100)] for each in windows]
    assert answers[1] == answers[2]
    assert [a["k0"] for a in answers[0]] == [a["k0"] for a in answers[1]]
    assert sum(sum(a["a0"]) for a in answers[1]) == 2 * sum(sum(a["a0"]) for a in answers[0]) == 56
