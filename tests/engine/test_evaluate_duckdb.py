"""The same SQL text over the same rows in DuckDB, for everything whose meaning is the same there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.expressions.evaluate import compile_expression
from medusa.query.expressions.parse import parse

TIMESTAMP = "timestamp[us, UTC]"
SCHEMA = {
    "i": "int64",
    "j": "int32",
    "x": "float64",
    "y": "float64",
    "k": "bool",
    "s": "utf8",
    "t": TIMESTAMP,
}

EXPRESSIONS = [
    *("i > j", "i <= j", "x = y", "x <> y", "x < y", "x > y", "x <= y", "x >= y", "s > 'b'", "i > x"),
    *("x IS DISTINCT FROM y", "k AND i > 0", "k OR i > 0", "NOT k", "i IS NULL AND k", "isnan(x)"),
    *(
        "i + 1",
        "i - j",
        "i * j",
        "-i",
        "abs(i)",
        "i // j",
        "i % 7",
        "i / j",
        "x + y",
        "x * y",
        "x / y",
        "x % y",
    ),
    *("sign(i)", "floor(x)", "ceil(x)", "round(x)", "round(x, 1)", "exp(x)", "abs(x)"),
    *("i IN (0, 1, NULL)", "x IN (0.0, 1.5)", "s IN ('a', 'é')", "i BETWEEN -1 AND 3"),
    *(
        "coalesce(i, j, 0)",
        "nullif(i, 0)",
        "least(i, j)",
        "greatest(x, y)",
        "least(x, y)",
        "greatest(s, 'b')",
    ),
    *("CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END", "CASE WHEN k THEN x ELSE j END"),
    *(
        "s || '-' || s",
        "length(s)",
        "lower(s)",
        "upper(s)",
        "substr(s, 2)",
        "substr(s, -2, 1)",
        "substr(s, -9, 8)",
    ),
    *("trim(s)", "ltrim(s)", "rtrim(s, 'ab')", "replace(s, 'a', 'xy')", "split_part(s, ',', 2)"),
    *("split_part(s, ',', -2)", "starts_with(s, 'a')", "ends_with(s, 'b')", "contains(s, 'é')"),
    *("s LIKE 'a%'", "s LIKE '%a_%'", "s LIKE '%,%'", "regexp_matches(s, '[a-b]+$')"),
    *(
        "regexp_replace(s, 'a', 'x')",
        "regexp_replace(s, '(a)(b)', '\\2\\1', 'g')",
        "regexp_extract(s, 'a(.)', 1)",
    ),
    *("year(t)", "month(t)", "day(t)", "hour(t)", "minute(t)", "second(t)", "epoch_us(t)"),
    *(
        f"date_trunc('{unit}', t)"
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    ),
    *("t + INTERVAL '90' MINUTE", "t > '2000-01-01'", "CAST(t AS DATE)"),
    *(
        "CAST(i AS INTEGER)",
        "CAST(i AS DOUBLE)",
        "CAST(j AS TINYINT)",
        "CAST(i AS VARCHAR)",
        "CAST(x AS FLOAT)",
    ),
]

texts = st.text(alphabet="ab ,éZ%", max_size=6) | st.sampled_from(["straße", "ÀÉ", "İ", "𝔘a"])
floats = st.sampled_from([0.0, -0.0, 0.5, 1.5, -2.5, 1e300, math.nan, math.inf, -math.inf]) | st.floats(
    -1e6, 1e6
)
integers = st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**31, 10**12])
COLUMNS: dict[str, tuple[Any, pa.DataType]] = {
    "i": (integers, pa.int64()),
    "j": (st.integers(-4, 4) | st.sampled_from([2**31 - 1, -(2**31)]), pa.int32()),
    "x": (floats, pa.float64()),
    "y": (floats, pa.float64()),
    "k": (st.booleans(), pa.bool_()),
    "s": (texts, pa.string()),
    "t": (st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999 - 10**13), pa.int64()),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    length = draw(st.integers(1, 12))
    columns = {}
    for name, (values, type) in COLUMNS.items():
        cells = st.lists(st.none() | values, min_size=length, max_size=length)
        columns[name] = pa.array(draw(cells), type)
    columns["t"] = columns["t"].view(pa.timestamp("us"))
    return pa.table(columns)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return (
            ours == theirs or math.isclose(ours, theirs, rel_tol=1e-14) or (ours != ours and theirs != theirs)
        )
    return bool(ours == theirs)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        yield made


EVALUATORS = [(text, compile_expression(parse(text), SCHEMA)) for text in EXPRESSIONS]


@settings(max_examples=40)
@given(table=tables())
def test_duckdb_agrees(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
    """A row that fails here is one that DuckDB's TRY makes null."""
    connection.register("rows", table)
    theirs = connection.execute(
        f"SELECT {', '.join(f'TRY({text})' for text in EXPRESSIONS)} FROM rows"
    ).fetchall()
    aware = table.set_column(6, "t", table["t"].cast(pa.timestamp("us", "UTC")))
    batch = aware.combine_chunks().to_batches()[0]
    for number, (text, evaluator) in enumerate(EVALUATORS):
        ours = evaluator(batch).values
        if pa.types.is_timestamp(ours.type):
            ours = ours.view(pa.timestamp("us"))
        for row, value in enumerate(ours.to_pylist()):
            other = theirs[row][number]
            assert same(value, other), (text, table.slice(row, 1).to_pylist(), value, other)
