"""filter_rows against pyarrow's filter, on sliced batches of every type the engine has."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa._native import filter_rows

VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    **{
        getattr(pa, f"int{bits}")(): st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for bits in (8, 16, 32, 64)
    },
    **{getattr(pa, f"uint{bits}")(): st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-99_999), dt.timedelta(days=99_999)),
    pa.decimal128(10, 2): st.decimals(-(10**7), 10**7, places=2).map(decimal.Decimal),
    pa.utf8(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.RecordBatch, pa.Array]:
    """A sliced batch of several types, with nulls, and a sliced mask."""
    length = draw(st.integers(0, 200))
    skip = draw(st.integers(0, 70))
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    arrays = []
    for type in types:
        some = draw(st.lists(st.none() | VALUES[type], min_size=1, max_size=8))
        arrays.append(pa.array(some, type).take(pa.array(rng.integers(0, len(some), skip + length))))
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(types))])
    dense = draw(st.sampled_from([0, 0.05, 0.5, 0.95, 1]))
    other = draw(st.integers(0, 70))
    bits = rng.random(other + length) < dense
    nulls = draw(st.none() | st.just(rng.random(other + length) < 0.2))
    return batch.slice(skip), pa.array(bits, mask=nulls).slice(other)


@settings(max_examples=150)
@given(cases())
def test_as_pyarrow(case: tuple[pa.RecordBatch, pa.Array]) -> None:
    batch, mask = case
    kept = pa.record_batch(filter_rows(batch, mask))
    kept.validate(full=True)
    assert kept.equals(batch.filter(mask), check_metadata=False)
    assert [c.null_count for c in kept.columns] == [c.null_count for c in batch.filter(mask).columns]


def test_a_large_batch_without_the_gil() -> None:
    rng = np.random.default_rng(1)
    batch = pa.record_batch({"i": rng.integers(0, 99, 100_000), "t": [str(n) for n in range(100_000)]})
    mask = pa.array(rng.random(100_000) < 0.5)
    assert pa.record_batch(filter_rows(batch, mask)).equals(batch.filter(mask))


def test_a_sliced_struct_array_keeps_names_and_nullability() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("t", pa.utf8())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3, 4]), pa.array(["a", "b", None, "d"])], schema=schema
    )
    kept = pa.record_batch(filter_rows(batch.to_struct_array()[1:], pa.array([True, True, None])))
    assert kept.schema == schema
    assert kept.to_pylist() == [{"n": 2, "t": "b"}, {"n": 3, "t": None}]


@pytest.mark.parametrize(
    ("rows", "mask", "word"),
    [
        (pa.record_batch({"a": [1, 2]}), pa.array([True]), "mask of 1 rows for 2"),
        (pa.record_batch({"a": [1]}), pa.array([1]), "bool"),
        (pa.record_batch({"a": [[1]]}), pa.array([True]), r"\+l"),
        (pa.record_batch({"a": pa.array(["x"]).dictionary_encode()}), pa.array([True]), "dictionary"),
        (pa.array([1]), pa.array([True]), "struct"),
        (pa.array([{"a": 1}, None]), pa.array([True, True]), "null as a whole"),
    ],
)
def test_what_does_not_fit_is_refused(rows: object, mask: pa.Array, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        filter_rows(rows, mask)


def test_no_arrow_is_refused() -> None:
    with pytest.raises(TypeError, match="PyCapsule"):
        filter_rows({"a": [1]}, pa.array([True]))
