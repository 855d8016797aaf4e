"""The real data of tests/data, and DuckDB over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="session")
def buses() -> pa.Table:
    return pq.read_table(DATA / "austin_buses.parquet")


@pytest.fixture(scope="session")
def metrics() -> pa.Table:
    return pq.read_table(DATA / "nab_metrics.parquet")


@pytest.fixture(scope="session")
def edits() -> pa.Table:
    return pq.read_table(DATA / "wikipedia_edits.parquet")


@pytest.fixture
def duck(buses: pa.Table, metrics: pa.Table, edits: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, table in {"buses": buses, "metrics": metrics, "edits": edits}.items():
            connection.register(name, table)
        yield connection
