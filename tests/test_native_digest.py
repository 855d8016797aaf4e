"""Digests of rows: equal for equal rows only, whatever the type, the nesting and the slice."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa._native import Digests

VALUES: dict[Any, list[Any]] = {
    pa.null(): [None],
    pa.bool_(): [True, False, None],
    pa.int8(): [0, 1, -1, None],
    pa.uint64(): [0, 1 << 63, None],
    # The word that stands for null, as a value.
    pa.int64(): [0, 0x8EBC6AF09C88C6E3 - (1 << 64), None],
    pa.float32(): [0.0, 1.5, None],
    pa.date32(): [dt.date(1970, 1, 1), dt.date(2000, 1, 1), None],
    pa.timestamp("us", "UTC"): [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), None],
    pa.decimal128(20, 2): [Decimal("1.00"), Decimal("-1.00"), None],
    pa.string(): ["", "a", "ab", "x" * 40, "\0", None],
    pa.large_binary(): [b"", b"\0", b"\0\0", None],
    pa.list_(pa.int64()): [[], [1], [1, 2], [None], None],
    pa.large_list(pa.string()): [["ab"], ["a", "b"], ["a", "b", ""], None],
    pa.list_(pa.int32(), 2): [[1, 2], [2, 1], [1, None], None],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]): [
        {"a": 1, "b": ["x"]},
        {"a": 1, "b": []},
        {"a": None, "b": None},
        None,
    ],
}


def runs(before: Any, after: Any) -> list[int]:
    made: list[int] = pa.array(Digests(after, 7, 9).runs(Digests(before, 7, 9))).to_pylist()
    return made


def numbers(before: pa.RecordBatch, after: pa.RecordBatch) -> list[int]:
    """For each row of ``after`` the first equal row of ``before``, or -1."""
    pairs = runs(before, after)
    rows: list[int] = []
    for start, length in zip(pairs[::2], pairs[1::2], strict=True):
        rows += range(start, start + length)
    return [row if row < before.num_rows else -1 for row in rows]


@pytest.mark.parametrize("type", list(VALUES), ids=str)
def test_each_value_is_equal_to_itself_only(type: Any) -> None:
    values = VALUES[type]
    before = pa.record_batch({"x": pa.array(values, type)})
    for turn in range(len(values)):
        order = values[turn:] + values[:turn]
        after = pa.record_batch({"x": pa.array([*values[:1], *order], type)}).slice(1)
        found = numbers(before, after)
        assert found == [(turn + n) % len(values) for n in range(len(values))]


def test_bits_count_not_values() -> None:
    before = pa.record_batch({"x": pa.array([0.0, float("nan")])})
    assert numbers(before, pa.record_batch({"x": pa.array([-0.0, float("nan")])})) == [-1, 1]


def test_columns_do_not_run_into_each_other() -> None:
    before = pa.record_batch({"a": ["ab", ""], "b": ["c", "x"]})
    assert numbers(before, pa.record_batch({"a": ["a", "x"], "b": ["bc", ""]})) == [-1, -1]


@given(st.lists(st.integers(0, 6), max_size=20), st.lists(st.integers(0, 6), max_size=20))
@settings(max_examples=60, deadline=None)
def test_runs_name_rows_that_are_equal(old: list[int], new: list[int]) -> None:
    before, after = (pa.record_batch({"x": pa.array(v, pa.int64())}) for v in (old, new))
    found = numbers(before, after)
    assert len(found) == len(new)
    for row, value in zip(found, new, strict=True):
        assert (row == -1) == (value not in old)
        assert row == -1 or old[row] == value


def test_another_seed_is_another_digest() -> None:
    batch = pa.record_batch({"x": [1, 2]})
    assert pa.array(Digests(batch, 1, 1).runs(Digests(batch, 2, 1))).to_pylist() == [2, 2]


def test_what_has_no_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="dictionary"):
        Digests(pa.record_batch({"x": pa.array(["a"]).dictionary_encode()}), 1, 1)
    with pytest.raises(ValueError, match="'vu'"):
        Digests(pa.record_batch({"x": pa.array(["a"], pa.string_view())}), 1, 1)
    deep = pa.array([1])
    for _ in range(20):
        deep = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), deep)
    with pytest.raises(ValueError, match="nested more than 16 deep"):
        Digests(pa.record_batch({"x": deep}), 1, 1)
    with pytest.raises(TypeError):
        Digests(pa.record_batch({"x": [1]}), 1, 1).runs(None)  # type: ignore[arg-type]
