"""Equal answers: of Spark and of ``md.collect`` on the same rows, bit for bit and in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md

__all__ = ["as_archive", "check", "delayed", "in_spark", "plain"]


def as_archive(table: pa.Table, **more: Any) -> pa.Table:
    """The rows with their positions, and in another order: an archive needn't be sorted."""
    table = table.append_column("_seq", pa.array(np.arange(table.num_rows)))
    for name, values in more.items():
        table = table.append_column(name, values)
    return table.take(np.random.default_rng(1).permutation(table.num_rows))


def in_spark(spark: Any, table: pa.Table, parts: int = 3) -> Any:
    """A DataFrame of the rows, in several partitions."""
    return spark.createDataFrame(table).repartition(parts)


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as values that are equal where their bits are."""
    columns = [[_bits(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _bits(value: Any) -> Any:
    return value.hex() if isinstance(value, float) and value == value else repr(value)


def check(spark: Any, query: md.Query, tables: dict[str, pa.Table], **options: Any) -> dict[str, pa.Table]:
    """The answers from Spark, after a look that they are those of ``md.collect``."""
    expected = md.collect(query, **tables)
    inputs = {name: in_spark(spark, as_archive(table)) for name, table in tables.items()}
    answers = md.spark.batch(query, spark, inputs, **options)
    try:
        got = {sink: frame.toArrow() for sink, frame in answers.items()}
    finally:
        answers.unpersist()
    for sink, table in got.items():
        want = expected[sink]
        assert table.column_names == want.column_names
        assert plain(table) == plain(want), f"{sink}: {table.num_rows} rows, expected {want.num_rows}"
    return got


def delayed(table: pa.Table, time: str, jitter: int, *, seed: int = 0) -> pa.Table:
    """The rows as they arrive, each up to ``jitter`` (in units of its time) after its time."""
    at = table[time].to_numpy() + np.random.default_rng(seed).integers(0, jitter, table.num_rows)
    return table.take(np.argsort(at, kind="stable"))
