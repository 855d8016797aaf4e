"""Route, the drops, distinct, sunion, the sorts and resample give what their oracles give, wherever
batches are cut, rows come in disorder or late, or state is taken out and put back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.engine.operators.order import wsort
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver, check
from tests.oracle.query import Push, answer

EXAMPLES = 40

BY: list[Any] = [None, "k", "s", ["k", "s"], "v"]
PREDICATES = ["v > 0.5", "k = 1 or s = 'b'", "n % 3 = 1", "v is null", "n < 4"]

Build = Callable[[st.DrawFn, md.Query, md.Stream, md.Stream], None]


def route(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    ways = a.route(*draw(st.lists(st.sampled_from(PREDICATES), min_size=1, max_size=4)), otherwise=True)
    for number, way in enumerate(ways):
        q.sink(f"way_{number}", way)
    q.sink("counts", ways[-1].window(10).group_by("k").aggregate(n=md.count()))


def random_drop(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    left = a.drop(draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])), seed=draw(st.integers(0, 3)))
    q.sink("left", left)
    q.sink("gone", left.dropped)


def semantic_drop(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    left = a.drop(where=draw(st.sampled_from(PREDICATES)))
    q.sink("left", left)
    q.sink("gone", left.dropped.window(5).aggregate(n=md.count()))


def window_drop(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    left = a.drop(draw(st.sampled_from([0.3, 0.5])), window=draw(st.sampled_from([3, 10])), seed=7)
    q.sink("left", left)
    q.sink("gone", left.dropped)


def distinct(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    columns = draw(st.sampled_from([("k",), ("k", "s"), ("v",), (), ("n % 3",)]))
    q.sink("first", a.distinct(*columns, within=draw(st.sampled_from([1, 4, 10, 50]))))


def sunion(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    streams = [a, b, a.filter("n > 2")][: draw(st.integers(2, 3))]
    q.sink("both", md.sunion(*streams, bucket=draw(st.sampled_from([1, 3, 10, 100]))))


def bsort(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    column, slack = draw(st.sampled_from(["v", "n", "ts", "k"])), draw(st.integers(0, 4))
    q.sink("sorted", a.bsort(column, slack=slack, by=draw(st.sampled_from(BY))))


def timed_sort(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    column, timeout = draw(st.sampled_from(["v", "n", "ts", "k"])), draw(st.sampled_from([1, 3, 8, 30]))
    left = a.wsort(column, timeout=timeout, by=draw(st.sampled_from(BY)))
    q.sink("sorted", left)
    q.sink("gone", left.dropped)


def resample(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    how, gap = draw(st.sampled_from(["linear", "previous"])), draw(st.sampled_from([0, 2, 5, 20]))
    every = draw(st.sampled_from([1, 2, 3, 7]))
    q.sink("even", a.resample(every, by=draw(st.sampled_from(BY)), how=how, gap=gap))


BUILDS: list[Build] = [
    route,
    random_drop,
    semantic_drop,
    window_drop,
    distinct,
    sunion,
    bsort,
    timed_sort,
    resample,
]


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_box_gives_what_its_oracle_gives(build: Build, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):  # few rows are many, so steps are put off
            patch.setattr(wsort, "FEW_ROWS", 2)
        compare(build, data)


def compare(build: Build, data: st.DataObject) -> None:
    q = md.Query("q")
    slack = data.draw(st.sampled_from([0, 3, 10, 40]))
    a, b = (q.source(name, SCHEMA, time="ts", slack=slack) for name in ("a", "b"))
    q.sink("b_itself", b)
    build(data.draw, q, a, b)
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], list(range(1, 12))]))
    reload_at = data.draw(st.integers(-1, len(events)))
    drain_often = data.draw(st.booleans())
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == reload_at:
            driver.reload()
        driver.feed(event, cuts)
        if drain_often:
            driver.drain()
    if reload_at == len(events):
        driver.reload()
    driver.fragment.finish()
    driver.drain()
    check(driver.tables(), answer(q.graph, events))


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_disorder_within_the_slack_changes_nothing(data: st.DataObject) -> None:
    """Of boxes that go by time: rows of different times may come in any order that the slack covers."""
    times = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1, max_size=20)))
    rows = [
        {
            "ts": time,
            "k": data.draw(st.integers(0, 2)),
            "v": data.draw(st.integers(0, 8)) / 4,
            "s": data.draw(st.sampled_from("ab")),
            "n": data.draw(st.integers(0, 9)),
        }
        for time in times
    ]
    delays = [row["ts"] + data.draw(st.integers(0, 10)) for row in rows]
    mixed = [row for _, row in sorted(zip(delays, rows, strict=True), key=lambda pair: pair[0])]
    answers = []
    for order in (rows, mixed):
        q = md.Query("q")
        a = q.source("a", SCHEMA, time="ts", slack=10)
        left = a.wsort("n", timeout=7, by="s")
        q.sink("sorted", left)
        q.sink("gone", left.dropped)
        q.sink("first", a.distinct("k", within=15))
        q.sink("even", a.resample(4, by="k", gap=20))
        q.sink("both", md.sunion(a, a.filter("n < 5"), bucket=6))
        driver = Driver(q)
        driver.feed(Push("a", order), [3, 4])
        driver.fragment.finish()
        driver.drain()
        answers.append({name: table.to_pylist() for name, table in driver.tables().items()})
    assert answers[0] == answers[1]


@pytest.mark.parametrize("seed", range(10))
def test_many_rows_close_together(seed: int) -> None:
    """Dense times, few values, several groups: what short inputs seldom bring about."""
    chance = random.Random(seed)
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", slack=6) for name in ("a", "b"))
    by = chance.choice(BY)
    for column in ("n", "v"):
        left = a.wsort(column, timeout=chance.choice([2, 5, 9]), by=by)
        q.sink(f"timed_{column}", left)
        q.sink(f"gone_{column}", left.dropped)
        q.sink(f"bounded_{column}", a.bsort(column, slack=chance.randint(0, 5), by=by))
    q.sink("first", a.distinct("k", within=chance.choice([1, 3, 8])))
    q.sink("both", md.sunion(a, b, bucket=chance.choice([2, 7])))
    for every, gap, how in [(1, 3, "linear"), (2, 2, "linear"), (3, 4, "previous"), (5, 1, "linear")]:
        q.sink(f"even_{every}", a.resample(every, by=by, gap=gap, how=how))
    events: list[Any] = []
    for turn in range(12):
        rows = [
            {
                "ts": turn * 5 + chance.randint(-3, 8),
                "k": chance.choice([None, 0, 1]),
                "v": chance.choice([None, 0.0, -0.0, 0.5, 1.0, -2.0, float("nan")]),
                "s": chance.choice(["a", "b", None]),
                "n": chance.randint(0, 4),
            }
            for _ in range(chance.randint(0, 9))
        ]
        events.append(Push(chance.choice("aab"), rows))
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == 6:
            driver.reload()
        driver.feed(event, chance.choice([[], [1], [2, 5], list(range(9))]))
        driver.drain()
    driver.fragment.finish()
    driver.drain()
    check(driver.tables(), answer(q.graph, events))
