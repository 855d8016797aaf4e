"""Rows that come by both lanes of a sender, without a fork around them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from medusa.elements import Train
from medusa.nodes.consistency.both_lanes import ROWS_MAX, BothLanes

FAR = 1 << 61
"""Later than Python's dates know."""


def train(*times_us: int, values: pa.Array | None = None) -> Train:
    times = pa.array(times_us, pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"v": times if values is None else values})
    return Train(first_seq=0, batch=batch, times=times)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([FAR, None], pa.timestamp("us", tz="UTC")),
        pa.array([FAR, -FAR], pa.timestamp("ns")),
        pa.array([2**31 - 1, -(2**31)], pa.date32()),
        pa.array([FAR, None], pa.duration("us")),
    ],
    ids=["timestamp", "nanoseconds", "date", "duration"],
)
def test_rows_with_times_that_python_has_none_of_enter_once(values: pa.Array) -> None:
    lanes = BothLanes()
    assert lanes.new(train(100, 101, values=values), 100, tentative=True) is not None
    assert lanes.new(train(100, 101, values=values), 100, tentative=False) is None
    other = train(100, 101, values=values[::-1])
    assert lanes.new(other, 100, tentative=False) is other


def test_what_is_kept_is_bounded_where_the_lanes_take_turns() -> None:
    lanes = BothLanes()
    for start in range(0, 6 * ROWS_MAX, 512):
        tentative = bool(start // 512 % 2)
        lanes.new(train(*range(start, start + 512)), 0, tentative=tentative)
    kept = [lane._rows + len(lane._found) for lane in (lanes._tentative, lanes._stable)]
    assert max(kept) <= 2 * ROWS_MAX
    last = 6 * ROWS_MAX - 1
    assert lanes.new(train(last), 0, tentative=not tentative) is None, "the newest ones count"
