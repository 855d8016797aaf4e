"""The rule of WSort, for many rows at once.

Per group, let ``top(t)`` be the greatest value among the rows with a time up to ``t - timeout``: the
rows that have had their time. At ``t`` everything up to ``top(t)`` has left. So a row of time ``t``
with a value below ``top(t)`` comes too late, and any other leaves at the first moment at which
``top`` reaches its value. Both are searched in one running maximum over the rows by time:

    time     1   2   4   5   9        timeout 3
    value    5   3   8   4   7
    maximum  5   5   8   8   8
    leaves   4   4   7   -   -        top(5) is 5 and top(9) is 8: the last two come too late

A row that comes too late never raises the maximum, so nobody needs to know of it there.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.sorting import order_in_pieces, search_in_pieces

__all__ = ["Judged", "Tops", "judge", "judging"]

_NONE, _NULL, _VALUE = 0, 1, 2
"""Levels of a value: there is none; null, which is below every value; a value, which has a code."""


class Tops:
    """Of each group the greatest value among rows that have had their time."""

    def __init__(self) -> None:
        self.levels = np.zeros(0, np.int64)
        self.codes = np.zeros(0, np.int64)

    def grow(self, groups: int) -> None:
        """Have room for at least so many groups."""
        if groups > len(self.levels):
            missing = np.zeros(max(groups, 2 * len(self.levels)) - len(self.levels), np.int64)
            self.levels = np.concatenate([self.levels, missing])
            self.codes = np.concatenate([self.codes, missing])

    def nbytes(self) -> int:
        return int(self.levels.nbytes + self.codes.nbytes)

    def load(self, levels: Ints, codes: Ints) -> None:
        """ValueError: no levels."""
        if len(levels) and not 0 <= int(levels.min()) <= int(levels.max()) <= _VALUE:
            raise ValueError("a level of a top is out of range")
        self.levels, self.codes = levels.copy(), codes.copy()


@dataclass(frozen=True, slots=True)
class Judged:
    """Of each row.

    Attributes:
        ranks: in the order of values; equal ones are equal.
        below: it comes too late.
        leaves_us: else when it leaves.
    """

    ranks: Ints
    below: npt.NDArray[np.bool_]
    leaves_us: Ints


def judge(
    times: Ints,
    groups: Ints,
    codes: Ints,
    nulls: npt.NDArray[np.bool_] | None,
    tops: Tops,
    timeout_us: int,
    now_us: int,
) -> Judged:
    """Judge rows that stand by time, and raise the tops to those of ``now_us``."""
    steps = judging(times, groups, codes, nulls, tops, timeout_us, now_us)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Judged = end.value
            return found


def judging(
    times: Ints,
    groups: Ints,
    codes: Ints,
    nulls: npt.NDArray[np.bool_] | None,
    tops: Tops,
    timeout_us: int,
    now_us: int,
) -> Generator[None, None, Judged]:
    """The same with pauses: each step sorts or searches a piece of the rows, or goes over all of them once or
    twice. The tops are raised in the last one."""
    tops.grow(int(groups.max()) + 1)
    order = yield from order_in_pieces([groups])
    yield
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    ids, sizes = sorted_groups[starts], np.diff(starts, append=len(order))
    yield
    known = np.concatenate([codes, tops.codes[ids]])
    by_value = yield from order_in_pieces([known])
    yield
    known = known[by_value]
    yield
    new = np.concatenate([[True], known[1:] != known[:-1]])
    values, inverse = known[new], np.empty(len(known), np.int64)
    inverse[by_value] = np.cumsum(new) - 1
    yield
    ranks = inverse[: len(codes)] + _VALUE
    if nulls is not None:
        ranks[nulls] = _NULL
    before = np.where(tops.levels[ids] == _VALUE, inverse[len(codes) :] + _VALUE, tops.levels[ids])

    yield
    # By group, then time. A group's numbers are all above those of the groups before it.
    nth = np.repeat(np.arange(len(ids)), sizes)
    base = nth * (len(values) + _VALUE)
    yield
    mine = base + ranks[order]
    yield
    maximum = mine.copy()
    maximum[starts] = np.maximum(maximum[starts], base[starts] + before)
    maximum = np.maximum.accumulate(maximum)

    yield
    at_us = times[order]
    yield
    moments = times[np.diff(times, prepend=times[0] - 1) != 0]  # they stand by time
    span = len(moments) + 1
    places = nth * span + (yield from search_in_pieces(moments, at_us))

    def top(group: Ints, cut_us: Ints) -> Generator[None, None, Ints]:
        """The greatest rank up to a time, ``base`` included; of rows before these too."""
        yield
        through = group * span + (yield from search_in_pieces(moments, cut_us, "right"))
        yield
        found = (yield from search_in_pieces(places, through)) - 1
        yield
        first = starts[group]
        earlier = base[first] + before[group]
        yield
        return np.where(found >= first, maximum[found], earlier)

    tops_then = yield from top(nth, at_us - timeout_us)
    tops_now = yield from top(np.arange(len(ids)), np.full(len(ids), now_us - timeout_us))
    yield
    reached = yield from search_in_pieces(maximum, mine)
    yield
    leaves_us = np.where(mine == tops_then, at_us, at_us[reached] + timeout_us)
    yield
    below = np.empty(len(times), np.bool_)
    below[order] = mine < tops_then
    leaves = np.empty(len(times), np.int64)
    leaves[order] = leaves_us
    _raise(tops, ids, tops_now - base[starts], values)
    return Judged(ranks, below, leaves)


def _raise(tops: Tops, ids: Ints, ranks: Ints, values: Ints) -> None:
    tops.levels[ids] = np.minimum(ranks, _VALUE)
    real = ranks >= _VALUE
    tops.codes[ids[real]] = values[ranks[real] - _VALUE]
