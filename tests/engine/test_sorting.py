"""Sorting and searching in pieces give what numpy gives at once, and no piece is of many rows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from medusa.engine.core import output_pieces
from medusa.engine.core.sorting import order_in_pieces, search_in_pieces

PIECE = 50
ROWS = 5_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_pieces, "ROWS_MAX", PIECE)


def whole(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What it gives, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


CHANCE = np.random.default_rng(15)
KEYS = {
    "all differ": CHANCE.permutation(ROWS),
    "each many times": CHANCE.integers(0, 7, ROWS),
    "one nearly always": np.where(CHANCE.random(ROWS) < 0.9, 3, CHANCE.integers(0, ROWS, ROWS)),
    "all equal": np.full(ROWS, 5),
    "ascending": np.arange(ROWS),
    "descending": np.arange(ROWS)[::-1],
    "the ends of int64": CHANCE.choice(np.array([-(1 << 63), (1 << 63) - 1, 0]), ROWS),
}


@pytest.mark.parametrize("rows", [0, 1, PIECE, PIECE + 1, ROWS])
@pytest.mark.parametrize("last", KEYS)
@pytest.mark.parametrize("first", KEYS)
def test_the_order_is_that_of_a_stable_sort(first: str, last: str, rows: int) -> None:
    keys = [KEYS[first][:rows], KEYS[last][:rows]]
    found, _ = whole(order_in_pieces(keys))
    assert found.tolist() == np.lexsort((np.arange(rows), *keys)).tolist()


@pytest.mark.parametrize(
    ("kind", "spans"), [("all differ", 90), ("one nearly always", 5), ("descending", 90)]
)
def test_it_pauses_after_each_run_and_each_span_between_two_bounds(kind: str, spans: int) -> None:
    _, pauses = whole(order_in_pieces([KEYS[kind]]))
    assert pauses >= ROWS // PIECE + spans


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_search_is_that_of_numpy(side: Any) -> None:
    among, values = np.sort(KEYS["one nearly always"]), KEYS["all differ"]
    found, pauses = whole(search_in_pieces(among, values, side))
    assert found.tolist() == among.searchsorted(values, side).tolist()
    assert pauses == ROWS // PIECE - 1
