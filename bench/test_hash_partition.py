"""Question: what does the fixed hash cost that says on which node a key lives?

Data: 65,536 rows, int64 and text keys. Peers: splitmix64 in numpy and as a C loop (integers only),
polars' hash, which is free to change between its versions where ours is not.
Not shown: splitting the rows by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from bench import reference
from medusa import _native


@pytest.mark.parametrize("column", ["key", "text"])
def test_medusa(peer: Any, train: pa.RecordBatch, column: str) -> None:
    rows = train.select([column])
    assert len(np.unique(pa.array(peer(_native.hash_partition, rows)).to_numpy())) == 1_000


@pytest.mark.parametrize("column", ["key", "text"])
def test_polars(peer: Any, train: pa.RecordBatch, column: str) -> None:
    series = pl.Series(train[column])
    assert peer(series.hash).n_unique() == 1_000


def test_numpy(peer: Any, train: pa.RecordBatch) -> None:
    keys = train["key"].to_numpy().astype(np.uint64)

    def splitmix() -> np.ndarray[Any, Any]:
        x = keys + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    assert len(np.unique(peer(splitmix))) == 1_000


def test_c(peer: Any, train: pa.RecordBatch) -> None:
    keys = train["key"].to_numpy()
    out = np.empty(len(keys), np.uint64)
    peer(reference.call, "ref_hash", keys, len(keys), out)
    assert len(np.unique(out)) == 1_000
