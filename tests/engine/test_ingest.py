"""Data in: frames made the ordinary way in each library, lossless casts, and clear refusals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.input.ingest import normalise, times_of
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema, Source
from medusa.query.types import schema_to_arrow

TIMESTAMP = "timestamp[us, UTC]"


def schema(**types: str) -> Schema:
    return tuple(Field(name, type) for name, type in types.items())


CARS = schema(ts=TIMESTAMP, car="utf8", lane="int64", speed="float64", fast="bool", day="date32")
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"ts": NOON, "car": "a", "lane": 1, "speed": 1.5, "fast": False, "day": date(2024, 1, 31)},
    {
        "ts": NOON + timedelta(microseconds=1),
        "car": None,
        "lane": 2,
        "speed": None,
        "fast": None,
        "day": None,
    },
    {
        "ts": NOON + timedelta(days=1),
        "car": "çé",
        "lane": 3,
        "speed": 2.0,
        "fast": True,
        "day": date(1969, 1, 1),
    },
]
NAIVE = [row | {"ts": row["ts"].replace(tzinfo=None)} for row in ROWS]


def rows(data: Any, wanted: Schema = CARS, **options: Any) -> list[dict[str, Any]]:
    made = normalise(data, wanted, source="cars", **options)
    for batch in made:
        assert batch.schema.equals(schema_to_arrow(wanted))
        batch.validate(full=True)
    return [row for batch in made for row in batch.to_pylist()]


def columns(made: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in made] for name in made[0]}


# -- frames made the ordinary way


def test_polars() -> None:
    assert rows(pl.DataFrame(NAIVE)) == ROWS
    assert rows(pl.DataFrame(ROWS)) == ROWS


def test_pandas() -> None:
    frame = pd.DataFrame(NAIVE)
    assert rows(frame) == ROWS
    assert rows(frame.astype({"lane": "float64"})) == ROWS
    assert rows(frame[frame.lane > 1]) == ROWS[1:]
    assert rows(frame.astype({"car": "category"})) == ROWS
    assert rows(frame.set_index("car")) == ROWS
    assert rows(frame.set_index(pd.Index([5, 7, 9]))) == ROWS


def test_pandas_integers_with_gaps_come_as_floats() -> None:
    assert rows(pd.DataFrame({"n": [1, None, 3]}), schema(n="int8")) == [{"n": 1}, {"n": None}, {"n": 3}]


def test_duckdb() -> None:
    with duckdb.connect() as connection:
        relation = connection.sql(
            "SELECT TIMESTAMP '2024-01-31 12:00:00' AS ts, 'a' AS car, 1 AS lane, 1.5::FLOAT AS speed, "
            "FALSE AS fast, DATE '2024-01-31' AS day"
        )
        assert rows(relation) == ROWS[:1]
        assert rows(relation.to_arrow_table()) == ROWS[:1]
        total = connection.sql("SELECT SUM(x) AS n FROM (VALUES (1), (2)) t(x)")
        assert rows(total, schema(n="int64")) == [{"n": 3}]


def test_pyarrow() -> None:
    table = pa.Table.from_pylist(ROWS)
    assert rows(table) == ROWS
    assert rows(table.to_reader()) == ROWS
    assert rows(table.to_batches()[0]) == ROWS
    assert rows(pa.concat_tables([table, table])) == ROWS + ROWS
    assert rows(table.to_struct_array().combine_chunks()) == ROWS
    assert rows(table.select(list(reversed(table.column_names)))) == ROWS


def test_dicts_of_lists() -> None:
    assert rows(columns(ROWS)) == ROWS
    assert rows(columns(NAIVE)) == ROWS
    assert rows({name: tuple(values) for name, values in columns(ROWS).items()}) == ROWS


def test_dicts_of_arrays() -> None:
    data = columns(NAIVE) | {
        "lane": np.array([1, 2, 3], np.int16),
        "ts": np.array([row["ts"] for row in NAIVE], "M8[ns]"),
        "speed": pl.Series([1.5, None, 2.0]),
        "car": pa.chunked_array([["a"], [None, "çé"]]),
        "fast": pd.Series([False, None, True], dtype="boolean"),
    }
    assert rows(data) == ROWS


def test_a_list_may_mix_times_with_and_without_zone() -> None:
    east = timezone(timedelta(hours=2))
    values = [NOON.replace(tzinfo=None), NOON.astimezone(east), NOON]
    for each in (values, values[::-1], values[1:]):
        assert {row["ts"] for row in rows({"ts": each}, schema(ts=TIMESTAMP))} == {NOON}


def test_lists_of_python_numbers_take_the_width_of_the_column() -> None:
    for type in ("int8", "uint64", "float32", "float64"):
        assert rows({"n": [1, None, 3]}, schema(n=type)) == [{"n": 1}, {"n": None}, {"n": 3}]
    assert rows({"n": [2**64 - 1]}, schema(n="uint64")) == [{"n": 2**64 - 1}]
    assert rows({"n": [1, Decimal("1.5")]}, schema(n="decimal128(4, 2)"))[1] == {"n": Decimal("1.50")}
    assert rows({"n": range(2)}, schema(n="int64")) == [{"n": 0}, {"n": 1}]


def test_empty_data_is_no_batch() -> None:
    assert normalise({"n": []}, schema(n=TIMESTAMP)) == []
    assert normalise(pa.table({"n": pa.array([], pa.int64())}), schema(n="int64")) == []
    assert normalise(pl.DataFrame(schema={"n": pl.Int64}), schema(n="int64")) == []
    empty = pa.table({"n": pa.chunked_array([], pa.int64())})
    with pytest.raises(DataError, match="'m' is missing"):
        normalise(empty, schema(m="int64"))


def test_chunks_stay_chunks() -> None:
    table = pa.table({"n": pa.chunked_array([[1, 2], [], [3]])})
    assert [batch.num_rows for batch in normalise(table, schema(n="int64"))] == [2, 1]


# -- zero copy


def addresses(array: pa.Array) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


def test_what_fits_is_not_copied() -> None:
    made = pa.record_batch(
        {
            "n": pa.array([1, None, 3]),
            "s": pa.array(["a", "b", None]),
            "t": pa.array([1, 2, 3]).view(pa.timestamp("us")),
            "p": pa.array([1, 2, 3]).view(pa.timestamp("us", "Europe/Paris")),
            "d": pa.array([1, 2, 3]).view(pa.duration("us")),
        }
    )
    wanted = schema(n="int64", s="utf8", t=TIMESTAMP, p=TIMESTAMP, d="duration[us]")
    for data in (
        made,
        pa.table(made),
        dict(zip(made.schema.names, made.columns, strict=True)),
        made.slice(1),
    ):
        (batch,) = normalise(data, wanted)
        assert [addresses(column) for column in batch.columns] == [
            addresses(column) for column in made.columns
        ]


def test_polars_and_numpy_numbers_are_not_copied() -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    (batch,) = normalise(frame, schema(n="int64", x="float64"))
    source = frame.to_arrow()
    assert [addresses(batch[name]) for name in "nx"] == [addresses(source[name].chunk(0)) for name in "nx"]
    numbers = np.arange(5)
    (batch,) = normalise({"n": numbers}, schema(n="int64"))
    assert addresses(batch["n"]) == [numbers.ctypes.data]


def test_large_text_shares_its_characters() -> None:
    text = pa.array(["a", "bc"], pa.large_string())
    (batch,) = normalise({"s": text}, schema(s="utf8"))
    assert addresses(batch["s"])[1] == addresses(text)[1]


# -- casts


@pytest.mark.parametrize(
    ("came", "type"),
    [
        (pa.array(["a", None], pa.large_string()), "utf8"),
        (pa.array(["a", None], pa.string_view()), "utf8"),
        (pa.array(["a", None, "a"]).dictionary_encode(), "utf8"),
        (pa.array([b"a", None], pa.large_binary()), "binary"),
        (pa.array([b"a", None], pa.binary_view()), "binary"),
        (pa.array([1, None], pa.int8()), "int64"),
        (pa.array([1, None], pa.uint32()), "int64"),
        (pa.array([1, None], pa.uint8()), "uint16"),
        (pa.array([1.5, None], pa.float32()), "float64"),
        (pa.array([1.0, None, -7.0]), "int8"),
        (pa.array([1.0, None, -7.0], pa.float32()), "int64"),
        (pa.array([Decimal(3), None], pa.decimal128(38, 0)), "int64"),
        (pa.array([Decimal("3.5"), None], pa.decimal128(3, 1)), "decimal128(10, 2)"),
        (
            pa.array([Decimal("3.5"), None], pa.decimal256(40, 1)).cast(pa.decimal256(3, 1)),
            "decimal128(10, 2)",
        ),
        (pa.array([None, None]), "utf8"),
        (pa.array([1, None], pa.duration("ms")), "duration[us]"),
    ],
)
def test_lossless(came: pa.Array, type: str) -> None:
    made = rows({"c": came}, schema(c=type))
    assert [row["c"] for row in made] == came.to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "+02:00"])
def test_timestamps_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    seconds = [0, -1, 1_700_000_000, None]
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    came = pa.array([None if s is None else s * per for s in seconds], pa.int64()).view(
        pa.timestamp(unit, zone)
    )
    (batch,) = normalise({"t": came}, schema(t=TIMESTAMP))
    assert batch["t"].view(pa.int64()).to_pylist() == [None if s is None else s * 10**6 for s in seconds]


@pytest.mark.parametrize(
    ("came", "type", "parts"),
    [
        (pa.array([1]), "int32", ["expected int32", "came int64"]),
        (pa.array([1], pa.int8()), "uint8", ["came int8"]),
        (pa.array([1], pa.uint64()), "int64", ["came uint64"]),
        (pa.array([1]), "float64", ["came int64"]),
        (pa.array([1.5]), "float32", ["came double"]),
        (pa.array([1.0, 1.5]), "int64", ["row 1 holds 1.5"]),
        (pa.array([2.0**63]), "int64", ["row 0 holds 9.2"]),
        (pa.array([1.0, 300.0]), "int8", ["row 1 holds 300"]),
        (pa.array([float("inf")]), "int64", ["row 0 holds inf"]),
        (pa.array([Decimal(300)], pa.decimal128(3, 0)), "int8", ["row 0 holds 300"]),
        (pa.array([Decimal("3.5")]), "int64", ["came decimal128(2, 1)"]),
        (pa.array([Decimal("3.555")]), "decimal128(10, 2)", ["came decimal128(4, 3)", "declare"]),
        (pa.array(["1"]), "int64", ["came string"]),
        (pa.array([1]), "utf8", ["came int64"]),
        (pa.array([1]), "bool", ["came int64"]),
        (pa.array([True]), "int64", ["came bool"]),
        (pa.array([1]), TIMESTAMP, ["came int64"]),
        (pa.array(["2024-01-31"]), TIMESTAMP, ["came string"]),
        (pa.array([date(2024, 1, 31)]), TIMESTAMP, ["came date32"]),
        (pa.array([1000, 1001], pa.timestamp("ns")), TIMESTAMP, ["row 1 holds 1001 ns"]),
        (pa.array([0, 2**60], pa.timestamp("s")), TIMESTAMP, ["row 1", "64 bits"]),
        (pa.array([[1]]), "int64", ["came list"]),
        (pa.array(["a", "b"]).dictionary_encode(), "int64", ["came dictionary"]),
        ([1, 200], "int8", ["row 1 holds 200"]),
        ([1, "a"], "utf8", ["came a list"]),
        ([2**70], "int64", ["came a list"]),
        ([{"a": 1}], "int64", ["came struct"]),
        (np.zeros((2, 2)), "float64", ["came a ndarray"]),
        ("abc", "utf8", ["expected a list or an array, got str"]),
        (5, "int64", ["expected a list or an array, got int"]),
    ],
)
def test_refused(came: Any, type: str, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        rows({"speed": came}, schema(speed=type))
    assert str(caught.value).startswith("source 'cars': column 'speed': expected ")
    for part in parts:
        assert part in str(caught.value)


def test_a_row_is_counted_over_all_chunks() -> None:
    table = pa.table({"n": pa.chunked_array([[1.0, 2.0], [3.0, 0.5]])})
    with pytest.raises(DataError, match=r"row 3 holds 0\.5"):
        rows(table, schema(n="int64"))


# -- columns and tables


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"Lane": [1]}, ["'lane' is missing", "did you mean 'Lane'?"]),
        ({}, ["'lane' is missing"]),
        ({"lane": [1], "speed": [2]}, ["'speed' isn't in the schema", "extra='ignore'"]),
        ({"lane": [1], 5: [2]}, ["a column's name is a text"]),
        (pa.table([[1], [2]], names=["lane", "lane"]), ["'lane' stands twice"]),
        ([{"lane": 1}], ["got builtins.list", "a dict of columns"]),
        (None, ["got builtins.NoneType"]),
        (pl.LazyFrame({"lane": [1]}), ["got polars.LazyFrame", "collect()"]),
        (pl.Series([1]), ["a polars.Series that isn't a table", "in a dict"]),
        (pa.array([1]), ["isn't a table"]),
        (pd.DataFrame({"lane": [1, "a"]}), ["isn't a table"]),
    ],
)
def test_what_is_no_table_of_the_schema(data: Any, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        rows(data, schema(lane="int64"))
    for part in ["source 'cars': ", *parts]:
        assert part in str(caught.value)


def test_columns_of_different_lengths() -> None:
    with pytest.raises(DataError, match="'b' has 2 rows, column 'a' 1"):
        rows({"a": [1], "b": [1, 2]}, schema(a="int64", b="int64"))


def test_extra_columns_can_be_ignored() -> None:
    data = {"note": [object()], "lane": [1]}
    assert rows(data, schema(lane="int64"), extra="ignore") == [{"lane": 1}]
    with pytest.raises(DataError, match="extra must be"):
        rows(data, schema(lane="int64"), extra="drop")


@settings(max_examples=60)
@given(st.data())
def test_any_way_of_bringing_rows_brings_the_same(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 8))
    cells = {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.text(max_size=4),
        "x": st.floats(allow_nan=False),
        "t": st.datetimes(datetime(1678, 1, 1), datetime(2261, 1, 1), timezones=st.just(UTC)),
        "k": st.booleans(),
    }
    made = {
        name: data.draw(st.lists(st.none() | cell, min_size=length, max_size=length))
        for name, cell in cells.items()
    }
    wanted = schema(n="int64", s="utf8", x="float64", t=TIMESTAMP, k="bool")
    table = pa.table(made, schema=schema_to_arrow(wanted))
    frames = (made, table, table.slice(length // 2), pl.DataFrame(table), table.to_reader(max_chunksize=3))
    for frame in frames:
        start = length // 2 if frame is frames[2] else 0
        assert rows(frame, wanted) == table.to_pylist()[start:]


# -- times


def source(type: str, unit: str | None, time: str | None = "t") -> Source:
    return Source(id="cars", schema=schema(n="int64", t=type), time=time, unit=unit)


def times(values: list[Any], type: str, unit: str | None) -> Any:
    made = source(type, unit)
    (batch,) = normalise({"n": [0] * len(values), "t": values}, made.schema)
    return batch, times_of(batch, made, first_row=100)


def test_microseconds_are_an_alias() -> None:
    for type, unit, values in ((TIMESTAMP, None, [NOON]), ("int64", "us", [5])):
        batch, made = times(values, type, unit)
        assert addresses(made) == addresses(batch["t"])
        assert made.type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("type", "unit", "value", "us"),
    [
        ("int64", "s", -3, -3_000_000),
        ("int32", "s", 3, 3_000_000),
        ("uint8", "ms", 3, 3_000),
        ("uint64", "us", 3, 3),
        ("int64", "ns", 1_999, 1),
        ("int64", "ns", -1, -1),
    ],
)
def test_integers_in_every_unit(type: str, unit: str, value: int, us: int) -> None:
    assert times([value], type, unit)[1].view(pa.int64()).to_pylist() == [us]


@pytest.mark.parametrize(
    ("type", "unit", "values", "part"),
    [
        (TIMESTAMP, None, [NOON, None], "row 101 holds null"),
        ("int64", "s", [1, None], "row 101 holds null"),
        ("int64", "s", [1, 2**60], "row 101 holds 1152921504606846976"),
        ("int64", "ms", [-(2**62)], "row 100 holds -4611686018427387904"),
        ("uint64", "us", [1, 2**63], "row 101 holds 9223372036854775808"),
    ],
)
def test_times_that_cannot_be(type: str, unit: str | None, values: list[Any], part: str) -> None:
    with pytest.raises(DataError) as caught:
        times(values, type, unit)
    assert part in str(caught.value)
    assert "source 'cars'" in str(caught.value)


def test_a_source_without_time_has_none() -> None:
    made = source("int64", None, time=None)
    (batch,) = normalise({"n": [0], "t": [1]}, made.schema)
    assert times_of(batch, made) is None


def test_pandas_nan_as_time_is_refused() -> None:
    made = source("int64", "s")
    (batch,) = normalise(pd.DataFrame({"n": [1, 2], "t": [1.0, None]}), made.schema)
    with pytest.raises(DataError, match="row 1 holds null"):
        times_of(batch, made)
