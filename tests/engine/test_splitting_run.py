"""Boxes split and merged while they run, with their state: the answer is that of a run never split."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
import tests.engine.test_aggregates  # noqa: F401  registers an aggregate
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.query_change import change_fragment
from medusa.engine.splitting import merge_running, split_running
from medusa.errors import QueryError
from medusa.query.types import schema_to_arrow
from tests.engine.queries import inputs
from tests.engine.test_properties import Driver
from tests.engine.test_splitting import BUILDS, ROWS, outcome, query
from tests.oracle.query import Promise, Push, plain

EXAMPLES = 10


def split_now(driver: Driver, n: int, box: str = "x", **options: Any) -> None:
    _change(driver, split_running(driver.fragment, box, n, **{"ranges": "even", "block": 2} | options))


def merge_now(driver: Driver, box: str = "x") -> None:
    _change(driver, merge_running(driver.fragment, box))


def _change(driver: Driver, made: Any) -> None:
    made.before()
    change_fragment(driver.fragment, made.graph, functions={}, given=made.given)
    driver.graph = made.graph


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_split_and_merged_at_any_moment_nothing_changes(data: st.DataObject) -> None:
    """Also with state taken out and put back while there are parts, and parts again later."""
    kind = data.draw(st.sampled_from(list(BUILDS)))
    q = query(kind, data.draw(st.sampled_from([0, 3, 40])))
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7]]))
    steps = data.draw(
        st.lists(st.sampled_from(["nothing", "turn", "reload"]), min_size=len(events), max_size=len(events))
    )
    driver, parts = Driver(q), False
    for event, step in zip(events, steps, strict=True):
        driver.feed(event, cuts)
        if step == "turn":
            if parts:
                merge_now(driver)
            elif kind in ROWS or data.draw(st.booleans()):
                split_now(driver, data.draw(st.integers(2, 4)))
            else:
                hashes = st.lists(st.integers(1, (1 << 64) - 1), min_size=2, max_size=2, unique=True)
                split_now(driver, 3, ranges=sorted(data.draw(hashes)))
            parts = not parts
        elif step == "reload":
            driver.reload()
        driver.drain()
    driver.fragment.finish()
    driver.drain()
    got = {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}
    assert got == outcome(q, events, cuts)


def long_stream(draw: random.Random) -> list[Push | Promise]:
    """Rows of two sources with disorder, late ones, nulls and NaN; some keys come much oftener."""
    events: list[Push | Promise] = []
    now = {"a": 0, "b": 0}
    promised = {"a": -100, "b": -100}
    for _ in range(30):
        source = draw.choice("ab")
        if draw.random() < 0.1:
            promised[source] = max(promised[source], now[source] - draw.randrange(12))
            events.append(Promise(source, promised[source]))
            continue
        rows = []
        for _ in range(draw.randrange(1, 12)):
            now[source] += draw.randrange(3)
            rows.append(
                {
                    "ts": now[source] - draw.choice([0, 0, 1, 2, 5, 40]),
                    "k": draw.choice([None, 0, 0, 0, 1, 1, 2, 3, 4, 5]),
                    "v": draw.choice([None, float("nan"), *(q / 4 for q in range(-4, 12))]),
                    "s": draw.choice([None, "a", "b", "cc"]),
                    "n": draw.randrange(10),
                }
            )
        events.append(Push(source, rows))
    return events


@pytest.fixture(params=[1, pytest.param(40, marks=[pytest.mark.full, pytest.mark.issue(6)])])
def seeds(request: pytest.FixtureRequest) -> range:
    return range(request.param)


@pytest.mark.parametrize("kind", BUILDS)
def test_a_longer_stream_with_many_turns(kind: str, seeds: range) -> None:
    for seed in seeds:
        draw = random.Random(f"{kind} {seed}")
        q, events = query(kind, draw.choice([3, 10])), long_stream(draw)
        driver, parts = Driver(q), False
        for event in events:
            driver.feed(event, [2, 3, 7])
            turn = draw.random()
            if turn < 0.25:
                if parts:
                    merge_now(driver)
                else:
                    split_by(driver, draw.randrange(2, 5), draw.choice(weighed(kind)))
                parts = not parts
            elif turn < 0.35:
                driver.reload()
            driver.drain()
        driver.fragment.finish()
        driver.drain()
        got = {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}
        assert got == outcome(q, events, [2, 3, 7])


def split_by(driver: Driver, n: int, ranges: str) -> None:
    try:
        split_now(driver, n, ranges=ranges)
    except QueryError:  # it holds no keys yet
        split_now(driver, n)


def weighed(kind: str) -> list[str]:
    return ["even"] if kind in ROWS or kind.startswith("apply") else ["even", "weight"]


KEYS = {
    "bool": lambda n: n % 3 == 0,
    "int8": lambda n: n % 5 - 2,
    "uint64": lambda n: (1 << 63) + n % 5,
    "float32": lambda n: [0.0, -0.0, 1.5, float("nan"), -2.25][n % 5],
    "utf8": lambda n: ["", "a", "bc", "Æ", None][n % 5],
    "binary": lambda n: [b"", b"a", b"bc", None][n % 4],
    "date32": lambda n: date(1970, 1, 1 + n % 5),
    "timestamp": lambda n: datetime(1970, 1, 1, 0, 0, n % 5, tzinfo=UTC),
    "duration": lambda n: timedelta(seconds=n % 4),
}
"""Of every type that a key can have: values for the n-th row."""


@pytest.mark.parametrize("type", KEYS)
def test_state_goes_where_the_router_sends_keys_of_any_type(type: str) -> None:
    """Were a key's state in one part and its rows in another, it would be counted twice."""
    schema = {"ts": "timestamp", "k": type, "v": "float64"}
    q = md.Query("q")
    a = q.source("a", schema, time="ts", slack=20)
    q.sink(
        "w",
        a.window(50)
        .group_by("k")
        .aggregate(n=md.count(), u=md.user("test.geometric_mean", "v"), name="window"),
    )
    q.sink(
        "s",
        a.session(9)
        .group_by("k")
        .aggregate(n=md.count(), u=md.user("test.geometric_mean", "v"), name="session"),
    )
    q.sink("r", a.group_by("k").running(n=md.count(), name="running"))
    q.sink("d", a.distinct("k", within=30, name="distinct"))
    q.sink("j", a.join(a, on="k", within=3, how="full", name="join"))
    arrow = schema_to_arrow(q.graph.boxes[0].schema)

    def push(fragment: Fragment, start: int) -> None:
        rows = [
            {"ts": n - n * 7 % 15, "k": KEYS[type](n), "v": n % 7 + 1.0} for n in range(start, start + 40)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow)
        fragment.push_rows("a", [batch], fragment.check_rows("a", [batch]))

    def rows(fragment: Fragment) -> dict[str, list[str]]:
        fragment.finish()
        trains = {sink: [e for e in fragment.drain(sink) if isinstance(e, Train)] for sink in "wsrdj"}
        return {sink: [repr(r) for e in each for r in e.batch.to_pylist()] for sink, each in trains.items()}

    whole, parts = Fragment(q.graph), Fragment(q.graph)
    for start in range(40, 280, 40):
        push(whole, start)
        push(parts, start)
        for box in ("window", "session", "running", "distinct", "join"):
            if start in (80, 200):
                made = split_running(parts, box, 3, ranges="even", block=1)
            elif start == 160:
                made = merge_running(parts, box)
            else:
                continue
            made.before()
            change_fragment(parts, made.graph, functions={}, given=made.given)
    assert rows(parts) == rows(whole)


ONLY_USERS = {
    "window": lambda a, u: a.window(50).group_by("k").aggregate(u=u, name="box"),
    "sliding": lambda a, u: a.window(50, 10).group_by("k").aggregate(u=u, name="box"),
    "session": lambda a, u: a.session(9).group_by("k").aggregate(u=u, name="box"),
    "window_rows": lambda a, u: a.group_by("k").window_rows(4).aggregate(u=u, name="box"),
}


@pytest.mark.parametrize("kind", ONLY_USERS)
def test_a_box_with_no_aggregates_but_users_is_merged_again(kind: str) -> None:
    """It counts rows that nobody asked for, and its parts don't: they have the number of a row."""
    q = md.Query("q")
    a = q.source("a", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us", slack=0)
    q.sink("out", ONLY_USERS[kind](a, md.user("test.geometric_mean", "v")))

    def rows(start: int) -> dict[str, list[float]]:
        numbers = range(start, start + 37)
        ts, k, v = list(numbers), [n % 5 for n in numbers], [n % 7 + 1.0 for n in numbers]
        return {"ts": ts, "k": k, "v": v}

    whole, parts = md.start(q), md.start(q)
    for start in range(0, 222, 37):
        for run in (whole, parts):
            run.push("a", rows(start))
        if start in (37, 148):
            parts.split("box", 2)
        elif start in (111, 185):
            parts.merge("box")
    for run in (whole, parts):
        run.finish()
    assert parts.take("out").to_pylist() == whole.take("out").to_pylist()
