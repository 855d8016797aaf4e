"""Rows that a sender puts out on both of its lanes: which of them a fork has by now. Pure.

    tentative lane ── 140, 145 ──┐
                                 ├──> 140, 145, 148: each as often as the lane has it that has it more often
    stable lane ──── 140, 148 ───┘

Amid corrections a sender gets on by its stable lane to where its fork has been, and may be ahead of what that
has promised; or its fork follows. Rows below what the fork that reads them was promised are late and don't
enter anyhow, so only those count that aren't: few, unless the sender's boundaries are far behind its rows.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa

from medusa.elements import Train

__all__ = ["BothLanes"]

ROWS_MAX = 1 << 13
"""Rows of a lane that are kept. Too few: where the sender promises little, those that come by the other lane
much later enter again; too many: memory, and the node's loop does nothing else for 10 us a row."""


class _Lane:
    """What has entered by one lane, and hasn't come by the other one.

    Trains are only taken apart when the other lane brings something while they count.
    """

    def __init__(self) -> None:
        self._trains: list[Train] = []
        self._rows = 0
        self._found: Counter[tuple[int, str]] = Counter()

    def keep(self, train: Train, below_us: int) -> None:
        if self._rows + len(train) > ROWS_MAX:
            self._trains = [each for each in self._trains if _ends_us(each) > below_us]
            self._rows = sum(map(len, self._trains))
        while self._trains and self._rows + len(train) > ROWS_MAX:
            self._rows -= len(self._trains.pop(0))
        self._trains.append(train)
        self._rows += len(train)

    def rows(self, below_us: int) -> Counter[tuple[int, str]]:
        """Those that still count, to be taken from."""
        trains, self._trains, self._rows = self._trains, [], 0
        if self._found and min(self._found)[0] < below_us:
            self._found = Counter({row: times for row, times in self._found.items() if row[0] >= below_us})
        for each in trains:
            self._found.update(row for row in _rows_of(each) if row[0] >= below_us)
        if len(self._found) > ROWS_MAX:  # Half, so that not each train has it sorted.
            self._found = Counter(dict(heapq.nlargest(ROWS_MAX // 2, self._found.items())))
        return self._found


class BothLanes:
    """Of one input of a fork."""

    def __init__(self) -> None:
        self._tentative, self._stable = _Lane(), _Lane()

    def new(self, train: Train, below_us: int, *, tentative: bool) -> Train | None:
        """The rows that the other lane hasn't brought; None: there are none.

        Args:
            train: with times, none of which is below ``below_us``.
            below_us: nothing that is older comes by either lane any more.
        """
        mine, other = (self._tentative, self._stable) if tentative else (self._stable, self._tentative)
        if found := other.rows(below_us):
            stays = []
            for row in _rows_of(train):
                stays.append(not found[row])
                if found[row]:
                    found[row] -= 1
                    if not found[row]:
                        del found[row]
            if not any(stays):
                return None
            if not all(stays):
                train = _filtered(train, pa.array(stays))
        mine.keep(train, below_us)
        return train


def _rows_of(train: Train) -> list[tuple[int, str]]:
    """Each with its time; values of all types, and those that equal no others, compare as text."""
    assert train.times is not None, "a stream without time has no tentative lane"
    times: list[Any] = train.times.cast(pa.int64()).to_pylist()
    columns = [_values(column) for column in train.batch.columns]
    values = zip(*columns, strict=True) if columns else [()] * len(times)
    return [(time_us, repr(row)) for time_us, row in zip(times, values, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    """Dates as numbers: Python has none after the year 9999."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    return values


def _ends_us(train: Train) -> int:
    import pyarrow.compute as pc  # Slow to load.

    assert train.times is not None
    return int(pc.max(train.times.cast(pa.int64())).as_py()) + 1


def _filtered(train: Train, stays: pa.Array) -> Train:
    assert train.times is not None
    return msgspec.structs.replace(
        train,
        batch=train.batch.filter(stays),
        times=train.times.filter(stays),
        late=None if train.late is None else train.late.filter(stays),
        extent=None,
    )
