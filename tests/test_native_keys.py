"""Key columns to ids, against a dict."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa import _native as native
from tests.oracle.windows import same_key

ARROW = {
    "l": pa.int64(),
    "L": pa.uint64(),
    "g": pa.float64(),
    "u": pa.utf8(),
    "z": pa.binary(),
    "b": pa.bool_(),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "l": st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    "L": st.integers(0, 5) | st.integers(0, 2**64 - 1),
    "g": st.sampled_from([0.0, -0.0, math.nan, 1.5, math.inf]) | st.floats(),
    "u": st.text(max_size=3) | st.text(min_size=15, max_size=40),
    "z": st.binary(max_size=3) | st.binary(min_size=15, max_size=40),
    "b": st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[tuple[Any, ...]]]:
    kinds = draw(st.text("lLguzb", max_size=3))
    rows = draw(st.lists(st.tuples(*[st.none() | VALUES[kind] for kind in kinds]), max_size=60))
    return kinds, rows


def batch(kinds: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(kinds)]
    schema = pa.schema([(f"k{i}", ARROW[kind]) for i, kind in enumerate(kinds)])
    struct = pa.StructArray.from_arrays(arrays, fields=list(schema)) if kinds else None
    return pa.RecordBatch.from_struct_array(struct) if struct is not None else empty(len(rows))


def empty(n: int) -> pa.RecordBatch:
    """n rows without columns."""
    return pa.record_batch([pa.array(range(n), pa.int64())], names=["x"]).select([])


@settings(max_examples=300, deadline=None)
@given(tables(), st.lists(st.integers(0, 60), max_size=4), st.integers(0, 2**64 - 1))
def test_ids_are_those_of_a_dict(
    table: tuple[str, list[tuple[Any, ...]]], cuts: list[int], seed: int
) -> None:
    kinds, rows = table
    known: dict[tuple[Any, ...], int] = {}
    want = [known.setdefault(tuple(map(same_key, row)), len(known)) for row in rows]
    keys = native.Keys(kinds, seed=seed)
    whole = batch(kinds, rows)
    got = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        got += pa.array(keys.map(whole.slice(start, max(0, end - start)))).to_pylist()
    assert got == want
    assert len(keys) == len(known)
    again = native.Keys(kinds, seed=seed + 1 & 2**64 - 1)
    held = pa.record_batch(keys.keys())
    held.validate(full=True)
    assert pa.array(again.map(held)).to_pylist() == list(range(len(known)))


def test_unknown_keys_without_inserting() -> None:
    keys = native.Keys("lu")
    known = batch("lu", [(1, "a"), (2, "b")])
    keys.map(known)
    ids = pa.array(keys.map(batch("lu", [(2, "b"), (2, "a"), (None, "b"), (1, "a")]), insert=False))
    assert ids.type == pa.int32()
    assert ids.to_pylist() == [1, -1, -1, 0]
    assert len(keys) == 2
    assert pa.record_batch(keys.keys()).to_pydict() == {"k0": [1, 2], "k1": ["a", "b"]}


def test_one_float_for_zero_and_one_for_nan() -> None:
    keys = native.Keys("g")
    assert pa.array(keys.map(batch("g", [(-0.0,), (math.nan,), (0.0,), (-math.nan,)]))).to_pylist() == [
        0,
        1,
        0,
        1,
    ]
    zero, nan = pa.record_batch(keys.keys())["k0"].to_pylist()
    assert math.copysign(1, zero) == 1
    assert math.isnan(nan)


def test_a_wide_range_of_integers_after_a_narrow_one() -> None:
    keys = native.Keys("l")
    values = [*range(5000), *range(0, 5_000_000, 999), -(2**63), 2**63 - 1, *range(-300, 300)]
    known: dict[int, int] = {}
    want = [known.setdefault(value, len(known)) for value in values]
    got = []
    for start in range(0, len(values), 777):
        got += pa.array(keys.map(batch("l", [(v,) for v in values[start : start + 777]]))).to_pylist()
    assert got == want


@pytest.mark.parametrize("bad", [batch("u", [("a",)]), batch("ll", [(1, 2)]), pa.array([1])])
def test_other_columns_are_refused(bad: Any) -> None:
    keys = native.Keys("l")
    with pytest.raises(ValueError, match=r"\w"):
        keys.map(bad)
    assert len(keys) == 0


def test_what_is_no_type_or_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="native type"):
        native.Keys(["int64"])
    with pytest.raises(ValueError, match="at most 64"):
        native.Keys("l" * 65)
    with pytest.raises(TypeError, match="PyCapsule"):
        native.Keys("l").map([1])


def test_keys_at_work_refuse_every_other_call() -> None:
    keys = native.Keys("l")
    rows = pa.record_batch([pa.array([5, 6, 5])], names=["k"])

    class Nosy:
        refused = 0

        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            for call in (lambda: keys.map(rows), lambda: len(keys), keys.keys):
                with pytest.raises(RuntimeError, match="at work already"):
                    call()
                self.refused += 1
            return rows.__arrow_c_array__()

    nosy = Nosy()
    assert pa.array(keys.map(nosy)).to_pylist() == [0, 1, 0]
    assert nosy.refused == 3
    assert len(keys) == 2


def test_the_secret_differs_per_process() -> None:
    """Reliability D 21: nobody can prepare keys that collide here."""
    program = "from medusa import _native; print(_native.keys_secret(0))"
    words = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(words) == 2


@pytest.mark.parametrize("secret", [0, 1, 2**63 + 12345])
def test_the_secret_changes_no_answer(secret: int) -> None:
    """Groups, their order and the rows of joins are the same whatever the secret."""
    keys = [f"{i * 7919 % 331:x}" * 9 for i in range(2000)]
    table = pa.table({"t": pa.array(range(2000), pa.int64()), "k": keys})
    q = md.Query("q")
    rows = q.source("rows", {"t": "int64", "k": "utf8"}, time="t", unit="ms")
    q.sink("groups", rows.window("100 ms").group_by("k").aggregate(n=md.count(), d=md.count_distinct("t")))
    q.sink("pairs", rows.join(rows, on="k", within="2 ms"))
    before = native.keys_secret(99)
    try:
        want = {name: md.collect(q, rows=table)[name] for name in ("groups", "pairs")}
        native.keys_secret(secret)
        for name, answer in want.items():
            assert md.collect(q, rows=table)[name].equals(answer)
    finally:
        native.keys_secret(before)
