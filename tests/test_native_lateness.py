"""Lateness, judged row by row: batch cuts never matter."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa._native import Lateness, Times
from medusa.elements import START_US


def plain(times: list[int], slack: int, promised: int | None) -> list[int]:
    """By how much each row is late, as semantics 2 says it; 0 for a row in time."""
    out, largest = [], None
    for time in times:
        limits = [
            limit for limit in (None if largest is None else largest - slack, promised) if limit is not None
        ]
        out.append(max([0, *(limit - time for limit in limits)]))
        largest = time if largest is None else max(largest, time)
    return out


def as_time(values: list[int]) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC"))


def judged(lateness: Lateness, times: pa.Array | Times) -> tuple[list[bool], int]:
    count, worst, mask = lateness.judge(times)
    flags = [False] * len(times) if mask is None else pa.array(mask).to_pylist()
    assert count == sum(flags)
    assert (mask is None) == (count == 0)
    return flags, worst


steps = st.lists(st.tuples(st.integers(-30, 40), st.integers(1, 300)), max_size=12)


@settings(max_examples=150)
@given(
    steps=steps,
    slack=st.integers(0, 60),
    promised=st.one_of(st.none(), st.integers(-100, 500)),
    cuts=st.lists(st.integers(0, 4000) | st.integers(0, 60).map(lambda block: 64 * block), max_size=6),
    offset=st.integers(0, 9),
    looked=st.booleans(),
)
def test_late_rows_are_those_of_the_rule(
    steps: list[tuple[int, int]], slack: int, promised: int | None, cuts: list[int], offset: int, looked: bool
) -> None:
    # Runs of steady time with jumps between: some blocks sorted, some not, some late.
    times, now = [], 0
    for jump, length in steps:
        now += jump
        times += [now + (i * jump) % 7 for i in range(length)]
        now += length // 10
    whole = as_time([0] * offset + times)[offset:]
    bounds = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    lateness = Lateness(slack, boundary_us=promised)
    flags: list[bool] = []
    worst = 0
    once = Times(whole)
    for start, end in pairwise(bounds):
        part = once.part(start, end - start)
        assert part.array.equals(whole[start:end])
        assert part.extent == ((min(times[start:end]), max(times[start:end])) if start < end else None)
        found, by = judged(lateness, part if looked else whole[start:end])
        flags += found
        worst = max(worst, by)
    expected = plain(times, slack, promised)
    assert flags == [by > 0 for by in expected]
    assert worst == max(expected, default=0)
    assert lateness.max_us == (max(times) if times else None)


def test_long_sorted_rows_are_never_late() -> None:
    lateness = Lateness(0)
    assert lateness.judge(pa.array(range(100_000), pa.int64())) == (0, 0, None)
    assert lateness.judge(pa.array([99_999, 99_998], pa.int64()))[:2] == (1, 1)
    assert (lateness.max_us, lateness.boundary_us) == (99_999, 99_999)


def test_a_new_object_goes_on_from_the_numbers_of_another() -> None:
    first = Lateness(10)
    first.judge(as_time([100, 120]))
    first.promise(105)
    second = Lateness(10, max_us=first.max_us, boundary_us=first.promised_us)
    for lateness in (first, second):
        assert (lateness.max_us, lateness.promised_us, lateness.boundary_us) == (120, 105, 110)
        assert judged(lateness, as_time([109, 110])) == ([True, False], 1)
    second.promise(106)  # below the boundary that follows from the rows, not below an earlier promise
    with pytest.raises(ValueError, match="must not decrease"):
        second.promise(105)


def test_nothing_seen_promises_nothing() -> None:
    lateness = Lateness(5)
    assert (lateness.max_us, lateness.promised_us, lateness.boundary_us) == (None, None, START_US)
    assert lateness.judge(as_time([])) == (0, 0, None)
    assert lateness.max_us is None


def test_refused_times_change_nothing() -> None:
    lateness = Lateness(0)
    lateness.judge(as_time([50]))
    for bad, word in [
        (pa.array([60, None], pa.int64()), "null"),
        (pa.array([60.0]), "int64"),
        (pa.array([60], pa.timestamp("ms")), "tsm"),
    ]:
        with pytest.raises(ValueError, match=word):
            lateness.judge(bad)
        with pytest.raises(ValueError, match=word):
            Times(bad)
    with pytest.raises(TypeError, match="PyCapsule"):
        lateness.judge([60])
    with pytest.raises(ValueError, match="slack"):
        Lateness(-1)
    assert lateness.max_us == 50


def test_a_look_outlives_who_asked_for_it() -> None:
    parts = [Times(as_time(list(range(i, i + 1000)))).part(64, 500).part(128, 200) for i in range(200)]
    held = [as_time([0] * 1000) for _ in range(200)]  # would take the memory of times that nobody holds
    for i, part in enumerate(parts):
        assert part.extent == (i + 192, i + 391)
        assert len(part) == len(part.array) == 200
        assert Lateness(0, max_us=i + 200).judge(part)[:2] == (8, 8)
    assert len(held) == 200
    nothing = Times(as_time([])).part(0, 0)
    assert (nothing.extent, len(nothing)) == (None, 0)
    with pytest.raises(TypeError, match="PyCapsule"):
        Times(None)
