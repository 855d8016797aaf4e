"""What a row is thought to cost on its way to an output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medusa.engine.qos.box_costs import BoxCosts


def test_a_row_costs_what_comes_of_it_costs_below() -> None:
    """A tenth of the rows pass the first box; each of those becomes three, at a second and a third one."""
    boxes: list[Any] = [SimpleNamespace(rows_in=0, rows_out=0) for _ in range(4)]
    measured = BoxCosts(boxes)
    readers = [[1], [2, 3], [], []]
    for place, came, left, took_us in (
        (0, 1000, 100, 2000),
        (1, 100, 300, 500),
        (2, 300, 300, 900),
        (3, 300, 0, 30),
    ):
        boxes[place].rows_in, boxes[place].rows_out = came, left
        measured.ran(place, took_us, took_us)
    measured.refresh()
    assert measured.cost_us(2, readers, frozenset({0, 1, 2})) == pytest.approx(3)
    assert measured.cost_us(1, readers, frozenset({0, 1, 2})) == pytest.approx(5 + 3 * 3)
    assert measured.cost_us(0, readers, frozenset({0, 1, 2})) == pytest.approx(2 + 0.1 * (5 + 3 * 3))
    assert measured.cost_us(0, readers, frozenset({0, 1, 3})) == pytest.approx(2 + 0.1 * (5 + 3 * 0.1))
