"""Question: what does it cost to keep the rows of a batch for which a mask is true?

Data: 65,536 rows of three 8-byte columns (time, key, value); a random mask keeps a tenth, half or all but
a tenth of them. Peers: pyarrow's RecordBatch.filter, an index with pyarrow's take, polars' filter.
Not shown: making the mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from medusa import _native

COLUMNS = ["time", "key", "value"]


@pytest.fixture(params=[10, 50, 90])
def mask(request: pytest.FixtureRequest, train: pa.RecordBatch) -> pa.Array:
    return pa.array(np.random.default_rng(3).random(len(train)) * 100 < request.param)


def test_medusa(peer: Any, train: pa.RecordBatch, mask: pa.Array) -> None:
    rows = train.select(COLUMNS)
    assert len(peer(lambda: pa.record_batch(_native.filter_rows(rows, mask)))) == mask.true_count


def test_pyarrow(peer: Any, train: pa.RecordBatch, mask: pa.Array) -> None:
    rows = train.select(COLUMNS)
    assert len(peer(rows.filter, mask)) == mask.true_count


def test_pyarrow_take(peer: Any, train: pa.RecordBatch, mask: pa.Array) -> None:
    rows = train.select(COLUMNS)

    def take() -> pa.RecordBatch:
        return rows.take(pa.array(np.flatnonzero(mask.to_numpy(zero_copy_only=False))))

    assert len(peer(take)) == mask.true_count


def test_polars(peer: Any, train: pa.RecordBatch, mask: pa.Array) -> None:
    frame, keep = pl.DataFrame(train.select(COLUMNS)), pl.Series(mask)
    assert len(peer(frame.filter, keep)) == mask.true_count
