"""Rows that are alike but for floats, paired within a tolerance: as many pairs as there can be."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["match", "matched"]

ROWS_MAX = 1_000_000
LOOKS_MAX = 200_000_000
"""How many pairs of a group are looked at, at most."""


class _TooMany(Exception):
    """A group's rows are too many, or too many of them are near each other."""


def matched(tolerance: float, floating: list[str], group: pa.Table) -> pa.Table:
    """What ``applyInArrow`` calls: rows alike but for their floats, with ``near`` as it is, or made better.

    Args:
        floating: columns of finite floats.
        group: with ``side`` (bool: expected), ``near``, and ``unsure``, which is set where it is too large.
    """
    side = group["side"].to_numpy(zero_copy_only=False).astype(bool)
    values = np.column_stack([group[name].to_numpy().astype(np.float64) for name in floating])
    near = np.empty(len(side), bool)
    try:
        if len(side) > ROWS_MAX:
            raise _TooMany
        near[side], near[~side] = match(values[side], values[~side], tolerance)
    except _TooMany:
        place = group.schema.get_field_index("unsure")
        return group.set_column(place, "unsure", pa.array(np.full(len(side), True)))
    return group.set_column(group.schema.get_field_index("near"), "near", pa.array(near))


def match(
    expected: NDArray[np.float64], came: NDArray[np.float64], tolerance: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows have a partner.

    Args:
        expected, came: a row of finite floats each.
        tolerance: partners differ by at most ``tolerance * max(1, |a|, |b|)`` in each float; below 1.
    """
    return _Matching(expected, came, tolerance).run()


class _Matching:
    """Pairs by augmenting paths: where a row finds all its partners taken, those look for others."""

    def __init__(self, expected: NDArray[np.float64], came: NDArray[np.float64], tolerance: float) -> None:
        by = max(range(expected.shape[1]), key=lambda column: len(np.unique(came[:, column])))
        self._order = np.argsort(came[:, by], kind="stable")
        self._expected, self._came = expected, came[self._order]
        self._tolerance = tolerance
        # Wide enough whichever of the two is the larger.
        reach = tolerance * np.maximum(1.0, np.abs(expected[:, by])) / (1 - tolerance) * (1 + 1e-9)
        self._low = np.searchsorted(self._came[:, by], expected[:, by] - reach, "left")
        self._high = np.searchsorted(self._came[:, by], expected[:, by] + reach, "right")
        self._by = by
        self._partner = np.full(len(came), -1)
        self._looks = 0

    def run(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        found = np.zeros(len(self._expected), bool)
        for row in np.argsort(self._expected[:, self._by], kind="stable").tolist():
            found[row] = self._pair(row)
        came = np.empty(len(self._partner), bool)
        came[self._order] = self._partner >= 0
        return found, came

    def _near(self, row: int) -> NDArray[np.intp]:
        low, high = int(self._low[row]), int(self._high[row])
        self._looks += high - low + 1
        if self._looks > LOOKS_MAX:
            raise _TooMany
        mine, others = self._expected[row], self._came[low:high]
        limit = self._tolerance * np.maximum(1.0, np.maximum(np.abs(mine), np.abs(others)))
        return np.flatnonzero((np.abs(others - mine) <= limit).all(axis=1)) + low

    def _pair(self, row: int) -> bool:
        asking: dict[int, tuple[int, int]] = {}  # who asks, over which taken place, from whom
        seen: set[int] = set()
        queue = deque([row])
        while queue:
            asker = queue.popleft()
            near = self._near(asker)
            free = near[self._partner[near] < 0]
            if len(free):
                self._give(asker, int(free[0]), asking)
                return True
            for place in near.tolist():
                if place not in seen:
                    seen.add(place)
                    owner = int(self._partner[place])
                    asking[owner] = (asker, place)
                    queue.append(owner)
        return False

    def _give(self, row: int, place: int, asking: dict[int, tuple[int, int]]) -> None:
        """Everyone on the way moves to the place that was found for them."""
        while True:
            self._partner[place] = row
            if row not in asking:
                return
            row, place = asking[row]
