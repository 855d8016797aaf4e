"""Rows that a fragment holds, against a count of each row's last window by itself."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import HeldRowsCount

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64"}
SECOND = 1_000_000


def batch(times: list[int], dice: Random) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([dice.randrange(2) for _ in times], pa.int64()),
            "v": pa.array([dice.randrange(-9, 9) for _ in times], pa.int64()),
        }
    )


def last_end(time_us: int, advance_us: int, size_us: int) -> int:
    """Of the windows that begin at multiples of the advance, the end of the last that has the time."""
    start = max(s for s in range(0, time_us + 1, advance_us) if s <= time_us)
    return start + size_us


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("advance", [1000, 250, 300])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_row_is_held_until_its_last_window_has_left(advance, filtered, seed):
    dice = Random(f"{advance} {seed}")
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="200ms")
    rows = rows.filter("v > 0", name="some") if filtered else rows
    windows = rows.window("1s", advance=f"{advance}ms").group_by("k").aggregate(n=md.count(), name="w")
    q.sink("out", windows.filter("n > 0", name="last"))
    fragment = Fragment(q.graph)
    holding = HeldRowsCount(fragment)
    largest = promised = at_us = 0
    taken: list[int] = []
    for _ in range(60):
        if dice.random() < 0.2:
            promised = max(promised, largest - dice.randrange(200_000))
            fragment.feed("rows", Boundary(promised))
        else:
            at_us += dice.randrange(300_000)
            times = [max(at_us + dice.randrange(-400_000, 400_000), 0) for _ in range(dice.randrange(1, 9))]
            made = batch(times, dice)
            for time_us, value in zip(times, made.column("v").to_pylist(), strict=True):
                late = time_us < max(largest - 200_000, promised)
                if not late and (value > 0 or not filtered):
                    taken.append(time_us)
                largest = max(largest, time_us)
            fragment.feed("rows", Train(batch=made))
        fragment.drain("out")
        passed = max(largest - 200_000, promised)
        held = sum(last_end(time_us, advance * 1000, SECOND) > passed for time_us in taken)
        assert holding.held().rows == held
        assert dict(holding.held().promises) == {"rows": fragment.sources["rows"].boundary_us}
    assert taken


def test_rows_that_pass_are_not_held():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts")
    q.sink("out", rows.filter("v > 0", name="some").select("k", name="k").union(rows.select("k", name="all")))
    fragment = Fragment(q.graph)
    holding = HeldRowsCount(fragment)
    fragment.feed("rows", Train(batch=batch([5, 7], Random(1))))
    assert holding.held().rows == 0


def test_a_join_holds_rows_until_nothing_can_meet_them():
    q = md.Query("q")
    left, right = (q.source(name, SCHEMA, time="ts") for name in ("left", "right"))
    q.sink("out", left.join(right, on="k", within="2s", name="met"))
    fragment = Fragment(q.graph)
    holding = HeldRowsCount(fragment)
    for source in ("left", "right"):
        fragment.feed(source, Train(batch=batch([SECOND, 2 * SECOND], Random(1))))
    assert holding.held().rows == 4
    for source in ("left", "right"):
        fragment.feed(source, Boundary(3 * SECOND + 1))
    assert holding.held().rows == 2
    for source in ("left", "right"):
        fragment.feed(source, Boundary(4 * SECOND + 1))
    assert holding.held().rows == 0


def test_nobody_can_say_what_a_running_sum_holds():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts")
    q.sink("out", rows.group_by("k").running(n=md.count(), name="so_far"))
    holding = HeldRowsCount(Fragment(q.graph))
    assert holding.held().rows is None
    assert holding.unknown == ["so_far"]


def test_many_times_are_put_together():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1000s")
    q.sink("out", rows.join(rows.filter("v > 0", name="some"), on="k", within="100s", name="met"))
    fragment = Fragment(q.graph)
    holding = HeldRowsCount(fragment)
    dice = Random(2)
    for number in range(200):
        fragment.feed("rows", Train(batch=batch([number * 7 % 90, number], dice)))
    boxes = fragment.boxes
    assert holding.held().rows == boxes["met"].rows_in


def united(left: md.Stream, right: md.Stream) -> md.Stream:
    return left.union(right, name="both").window("1s", advance="500ms").group_by("k").aggregate(n=md.count())


def united_behind_filters(left: md.Stream, right: md.Stream) -> md.Stream:
    return united(left.filter("v > 0", name="some"), right.filter("v % 2 == 0", name="even"))


def joined(left: md.Stream, right: md.Stream) -> md.Stream:
    return left.join(right, on="k", within="1s", name="met")


def joined_behind_a_union(left: md.Stream, right: md.Stream) -> md.Stream:
    """Rows of one source enter by both sides."""
    both = left.union(right, name="both")
    return both.join(left.select("ts", "k", w="v", name="again"), on="k", within="1s", name="met")


LASTS = {
    united: lambda time_us: last_end(time_us, 500_000, SECOND) - 1,
    united_behind_filters: lambda time_us: last_end(time_us, 500_000, SECOND) - 1,
    joined: lambda time_us: time_us + SECOND,
    joined_behind_a_union: lambda time_us: time_us + SECOND,
}
"""At what time the last result comes that a row has a part in."""


def counted(shape, source: str, v: int) -> int:
    """How often a row is held."""
    if shape is united_behind_filters:
        return int(v > 0 if source == "left" else v % 2 == 0)
    return 2 if shape is joined_behind_a_union and source == "left" else 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", LASTS, ids=lambda shape: shape.__name__)
def test_rows_are_held_by_the_source_that_they_came_by(shape, seed):
    dice = Random(f"{shape.__name__} {seed}")
    q = md.Query("q")
    q.sink("out", shape(*(q.source(name, SCHEMA, time="ts") for name in ("left", "right"))))
    fragment = Fragment(q.graph)
    holding = HeldRowsCount(fragment)
    taken: list[tuple[str, int, int]] = []
    at_us = {"left": 0, "right": 0}
    some = False
    for _ in range(60):
        source = dice.choice(["left", "left", "right"])
        holding.feeds(source)
        if dice.random() < 0.3:
            at_us[source] += dice.randrange(600_000)
            fragment.feed(source, Boundary(at_us[source]))
        else:
            times = sorted(at_us[source] + dice.randrange(400_000) for _ in range(dice.randrange(1, 9)))
            made = batch(times, dice)
            taken += [(source, each, v) for each, v in zip(times, made["v"].to_pylist(), strict=True)]
            at_us[source] = times[-1]
            fragment.feed(source, Train(batch=made))
        fragment.drain("out")
        passed = fragment.sinks["out"].boundary_us
        want = dict.fromkeys(at_us, 0)
        for name, time_us, v in taken:
            want[name] += counted(shape, name, v) * (LASTS[shape](time_us) >= passed)
        found = holding.held()
        assert dict(found.sources) == {name: rows for name, rows in want.items() if rows}
        assert found.rows == sum(want.values())
        some = some or all(want.values())
    assert some
