"""Pairing of rows within a tolerance, without Spark: as many pairs as trying all gives."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from medusa.apps.pipeline import matching


def close(one: Any, other: Any, tolerance: float) -> bool:
    return all(abs(a - b) <= tolerance * max(1, abs(a), abs(b)) for a, b in zip(one, other, strict=True))


def most(expected: Any, came: Any, tolerance: float) -> int:
    """By trying every way."""
    few, many = sorted((list(expected), list(came)), key=len)
    return max(
        sum(close(a, b, tolerance) for a, b in zip(few, order, strict=False))
        for order in permutations(many, len(few))
    )


def test_there_are_as_many_pairs_as_can_be() -> None:
    chance = np.random.default_rng(7)
    for _ in range(300):
        count, other, width = chance.integers(0, 5, 3) + np.array([0, 0, 1])
        width, tolerance = min(int(width), 3), 0.1
        scale = chance.choice([1.0, -40.0])
        expected = scale + chance.integers(0, 4, (count, width)) * 0.07 * abs(scale)
        came = scale + chance.integers(0, 4, (other, width)) * 0.07 * abs(scale)
        found, back = matching.match(expected, came, tolerance)
        assert found.sum() == back.sum() == most(expected, came, tolerance), (expected, came)


def test_a_missing_row_and_swapped_floats_shift_no_other() -> None:
    count = 20_000
    expected = np.column_stack([np.arange(count) / 7, np.arange(count)[::-1] * 1e9])
    came = np.delete(expected, [5, 9_000], axis=0)[::-1] * (1 + 1e-12)
    found, back = matching.match(expected, came, 1e-9)
    assert np.flatnonzero(~found).tolist() == [5, 9_000]
    assert back.all()
    found, _ = matching.match(np.array([[1.0, 5.0], [1 + 1e-12, 3.0]]), np.array([[1.0, 3], [1, 5]]), 1e-9)
    assert found.all(), "by rank the first of each side would be a pair"


def test_a_group_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    group = pa.table(
        {
            "side": [True, True, False, False],
            "x": pa.array([1.0, 2.0, 2.0, 3.0], pa.float32()),
            "near": [False] * 4,
            "unsure": [False] * 4,
        }
    )
    made = matching.matched(1e-9, ["x"], group)
    assert (made["near"].to_pylist(), any(made["unsure"].to_pylist())) == ([False, True, True, False], False)
    for limit in ("ROWS_MAX", "LOOKS_MAX"):
        with monkeypatch.context() as patch:
            patch.setattr(matching, limit, 2)
            made = matching.matched(1e-9, ["x"], group)
        assert all(made["unsure"].to_pylist())
        assert not any(made["near"].to_pylist())
