"""Question: what does one aggregate of a group cost per row?

Data: 65,536 rows, 1,000 int64 keys, one open window. Medusa's figure holds key lookup and window
too, as a query has them; the count alone shows how much that is. Peers: pyarrow's grouped
aggregation; numpy's bincount and a C loop, which get the group numbers for nothing.
Not shown: closing the window (test_window).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench import reference
from medusa import _native

ONE = ("count", "sum", "min", "max", "avg", "variance", "count_distinct")
MORE = ("stddev", "first", "last", "approx_count_distinct", "quantile", "approx_quantile")
SETS = {**{name: (name,) for name in (*ONE, *MORE)}, "all but distinct": ONE[:-1]}


@pytest.mark.parametrize("functions", SETS)
def test_medusa(peer: Any, train: pa.RecordBatch, functions: str) -> None:
    rows = train.select(["time", "key", "value"])
    aggregates = [
        (name, -1 if name == "count" else 0, 0.5 * ("quantile" in name)) for name in SETS[functions]
    ]

    def setup() -> tuple[tuple[Any], dict[str, Any]]:
        window = _native.Window(
            size_us=10_000_000, advance_us=10_000_000, keys=["l"], inputs=["g"], aggregates=aggregates
        )
        window.add(rows)  # the groups are there, as in all trains of a window but the first
        return (window,), {}

    windows = []

    def add(window: Any) -> None:
        window.add(rows)
        windows.append(window)

    peer.pedantic(add, setup=setup, rounds=40)
    assert windows[-1].rows_open() == 2 * len(rows)


@pytest.mark.parametrize("functions", ["count", "sum", "all"])
def test_pyarrow(peer: Any, train: pa.RecordBatch, functions: str) -> None:
    table = pa.table(train).select(["key", "value"])
    names = ["count", "sum", "min", "max", "mean"] if functions == "all" else [functions]
    aggregates = [("value", name) for name in names]
    assert len(peer(lambda: table.group_by("key", use_threads=False).aggregate(aggregates))) == 1_000


def test_numpy_sum(peer: Any, train: pa.RecordBatch) -> None:
    keys, values = train["key"].to_numpy(), train["value"].to_numpy()
    assert len(peer(np.bincount, keys, values)) == 1_000


def test_c_four(peer: Any, train: pa.RecordBatch) -> None:
    """count, sum, min, max."""
    keys, values = train["key"].to_numpy().astype(np.int32), train["value"].to_numpy()
    cells = np.zeros(1_000, reference.CELL)
    peer(reference.call, "ref_accumulate", keys, values, len(keys), cells)
    assert cells["n"].sum() % len(keys) == 0


POLARS = {
    "stddev": lambda x: x.std(),
    "first": lambda x: x.first(),
    "approx_count_distinct": lambda x: x.approx_n_unique(),
    "count_distinct": lambda x: x.n_unique(),
    "quantile": lambda x: x.quantile(0.5, "linear"),
}


@pytest.mark.parametrize("function", POLARS)
def test_polars(peer: Any, train: pa.RecordBatch, function: str) -> None:
    """Whole queries: the groups are found anew and the answer is made."""
    import polars as pl

    frame = pl.from_arrow(pa.table(train).select(["key", "value"]))
    made = peer(lambda: frame.group_by("key").agg(POLARS[function](pl.col("value"))))
    assert len(made) == 1_000


@pytest.mark.parametrize("function", ["min", "max", "count_distinct"])
def test_medusa_text(peer: Any, train: pa.RecordBatch, function: str) -> None:
    text = pa.array([f"value {i % 5_000}" for i in range(len(train))])
    rows = pa.RecordBatch.from_arrays([train["time"], train["key"], text], names=["time", "key", "text"])

    def setup() -> tuple[tuple[Any], dict[str, Any]]:
        window = _native.Window(
            size_us=10_000_000, advance_us=10_000_000, keys=["l"], inputs=["u"], aggregates=[(function, 0)]
        )
        window.add(rows)
        return (window,), {}

    assert answers(setup()[0][0], rows) == text_by_pyarrow(rows, function)
    peer.pedantic(lambda window: window.add(rows), setup=setup, rounds=20)


def answers(window: Any, rows: pa.RecordBatch) -> dict[int, Any]:
    """What the window gives by key when it closes, after the rows have come once more."""
    window.add(rows)
    made = pa.Table.from_batches([pa.record_batch(batch) for batch in window.close(20_000_000)])
    return dict(zip(made.column(2).to_pylist(), made.column(3).to_pylist(), strict=True))


def text_by_pyarrow(rows: pa.RecordBatch, function: str) -> dict[int, Any]:
    made = pa.table(rows).group_by("key").aggregate([("text", function)])
    return dict(zip(made["key"].to_pylist(), made[f"text_{function}"].to_pylist(), strict=True))
