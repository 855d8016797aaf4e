"""Rows of Medusa and of DuckDB as multisets, floats to nine significant digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

__all__ = ["assert_same", "rows_of"]


def rows_of(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The named columns; times as microseconds."""
    given = table.select(list(columns) or table.column_names)
    values = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in given.columns
    ]
    return list(zip(*(column.to_pylist() for column in values), strict=True))


def assert_same(table: pa.Table, columns: Sequence[str], query: duckdb.DuckDBPyRelation) -> None:
    """Equal as multisets, whole numbers and texts exactly."""
    ours, theirs = sorted_rows(rows_of(table, *columns)), sorted_rows(query.fetchall())
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert same(mine, other), (mine, other)


def sorted_rows(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """By the values that aren't floats; then by floats, coarsely, so that the last bits don't matter."""

    def key(row: tuple[Any, ...]) -> Any:
        exact = [(v is not None, v) for v in row if not isinstance(v, float)]
        return exact, [float(f"{v:.9g}") for v in row if isinstance(v, float)]

    return sorted(rows, key=key)


def same(mine: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(mine, other, strict=True)
    )
