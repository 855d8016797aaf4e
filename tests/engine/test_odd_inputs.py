"""Columns as people have them: each is taken as its plain equivalent, or refused with a sentence."""

from __future__ import annotations

import array
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from medusa.engine.input.ingest import normalise
from medusa.errors import DataError
from medusa.query.boxes import Field

TIMESTAMP = "timestamp[us, UTC]"
DECIMAL = "decimal128(5, 2)"
NUMBERS = np.arange(6)
DAY = datetime(2020, 1, 2, tzinfo=UTC)


def rows(data: Any, type: str) -> list[Any]:
    batches = normalise(data, (Field("c", type),), source="s")
    for batch in batches:
        batch.validate(full=True)
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def read_only() -> Any:
    made = NUMBERS.copy()
    made.setflags(write=False)
    return made


TAKEN: dict[str, tuple[Any, str, list[Any]]] = {
    "strided": (NUMBERS[::2], "int64", [0, 2, 4]),
    "backwards": (NUMBERS[:3][::-1], "int64", [2, 1, 0]),
    "big-endian": (np.array([1, -2], ">i8"), "int64", [1, -2]),
    "big-endian floats": (np.array([1.5], ">f8"), "float64", [1.5]),
    "big-endian times": (np.array(["2020-01-02"], ">M8[us]"), TIMESTAMP, [DAY]),
    "masked, big-endian": (np.ma.array([1, 2], ">i8", mask=[0, 1]), "int64", [1, None]),
    "read-only": (read_only(), "int64", list(range(6))),
    "objects": (np.array([1, None], object), "int64", [1, None]),
    "masked": (np.ma.array([1, 2], mask=[0, 1]), "int64", [1, None]),
    "seconds": (np.array(["2020-01-02"], "M8[s]"), TIMESTAMP, [DAY]),
    "no time": (np.array(["NaT"], "M8[us]"), TIMESTAMP, [None]),
    "texts": (np.array(["a", "bc"]), "utf8", ["a", "bc"]),
    "nullable": (pd.Series([1, None], dtype="Int64"), "int64", [1, None]),
    "categories": (pd.Categorical(["a", None]), "utf8", ["a", None]),
    "zone": (pd.Series([pd.Timestamp("2020-01-02", tz="UTC")]).dt.tz_convert("Asia/Tokyo"), TIMESTAMP, [DAY]),
    "pandas on Arrow": (pd.Series([1], dtype="int64[pyarrow]"), "int64", [1]),
    "index": (pd.Index([1, 2]), "int64", [1, 2]),
    "polars categories": (pl.Series(["a"], dtype=pl.Categorical), "utf8", ["a"]),
    "polars enum": (pl.Series(["a"], dtype=pl.Enum(["a"])), "utf8", ["a"]),
    "nulls": (pa.nulls(2), "int64", [None, None]),
    "empty chunks": (pa.chunked_array([[], [1], []], pa.int64()), "int64", [1]),
    "null in a dictionary": (pa.DictionaryArray.from_arrays([0, 1], ["a", None]), "utf8", ["a", None]),
    "narrow decimals": (pa.array([Decimal("1.5")], pa.decimal64(5, 2)), DECIMAL, [Decimal("1.50")]),
    "nothing": ([], "int64", []),
}

REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (np.array(5), "int64"),
    "matrix": (NUMBERS.reshape(2, 3), "int64"),
    "mixed objects": (np.array([1, "a"], object), "int64"),
    "nanoseconds": (np.array([1], "M8[ns]"), TIMESTAMP),
    **{f"unit {unit}": (np.array([1], f"M8[{unit}]"), TIMESTAMP) for unit in ("D", "h", "m", "W", "M", "Y")},
    "float16": (np.array([1], np.float16), "float64"),
    "longdouble": (np.array([1], np.longdouble), "float64"),
    "complex": (np.array([1j]), "float64"),
    "records": (np.array([(1, 2)], [("a", ">i8"), ("b", ">i8")]), "int64"),
    "period": (pd.Series(pd.period_range("2020", periods=2, freq="D")), TIMESTAMP),
    "interval": (pd.Series(pd.interval_range(0, 2)), "int64"),
    "MultiIndex": (pd.MultiIndex.from_tuples([(1, 2)]), "int64"),
    "sparse": (pd.Series(pd.arrays.SparseArray([0, 1])), "int64"),
    "generator": ((each for each in [1]), "int64"),
    "set": ({1}, "int64"),
    "bytes": (b"abc", "int64"),
    "array.array": (array.array("q", [1]), "int64"),
    "surrogate": (["\ud800"], "utf8"),
    "NA in a list": ([1, pd.NA], "int64"),
    "NaT in a list": ([pd.NaT], TIMESTAMP),
    "NaN as a decimal": ([Decimal("NaN")], DECIMAL),
    "infinity as a decimal": ([Decimal("Infinity")], DECIMAL),
    "large decimal": ([Decimal(10) ** 50], DECIMAL),
    "run ends": (pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8]), "int64"),
    "list": (pa.array([[1]]), "int64"),
    "list view": (pa.array([[1]], pa.list_view(pa.int64())), "int64"),
    "struct": (pa.array([{"a": 1}]), "int64"),
    "union": (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "int64"),
    "map": (pa.array([[("a", 1)]], pa.map_(pa.utf8(), pa.int64())), "int64"),
    "fixed width": (pa.array([b"ab"], pa.binary(2)), "binary"),
    "polars objects": (pl.Series([object()]), "int64"),
    "polars times": (pl.Series([time(1)]), "int64"),
    "polars Int128": (pl.Series([1], dtype=pl.Int128), "int64"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_taken_as_its_plain_equivalent(name: str) -> None:
    values, type, wanted = TAKEN[name]
    assert rows({"c": values}, type) == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_column(name: str) -> None:
    values, type = REFUSED[name]
    with pytest.raises(
        DataError, match=f"source 's': column 'c': expected ({type.split('[')[0].split('(')[0]}|a list)"
    ):
        rows({"c": values}, type)


TABLES: dict[str, tuple[Any, str]] = {
    "twice": (pd.DataFrame([[1, 2]], columns=["c", "c"]), "Duplicate column names found"),
    "twice in Arrow": (pa.table([[1], [2]], names=["c", "c"]), "column 'c' stands twice"),
    "levels": (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("c", "d")])), "column 'c' is missing"),
    "numbered": (pd.DataFrame([[1]]), "column 'c' is missing"),
    "without columns": (pa.table({}), "column 'c' is missing"),
    "unequal": ({"c": [1, 2], "d": [1]}, "isn't in the schema"),
    "a column": (pd.Series([1], name="c"), "isn't a table"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_can_not_be_read(name: str) -> None:
    data, words = TABLES[name]
    with pytest.raises(DataError, match=words):
        rows(data, "int64")
