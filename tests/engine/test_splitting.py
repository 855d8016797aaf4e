"""A box that was split gives what the whole box gives: the same rows in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
import tests.oracle.window_kinds  # noqa: F401  registers its boxes
from medusa.query.boxes import Graph
from medusa.query.split import merge, split
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver, check
from tests.oracle.query import Promise, Push, answer, plain

Build = Callable[[md.Stream, md.Stream], md.Stream]

AGGREGATES = {
    "c": md.count(),
    "total": "sum(v)",
    "low": "min(v)",
    "mean": "avg(n)",
    "kinds": "count_distinct(s)",
    "spread": "variance(n)",
    "earliest": "first(v)",
    "latest": "last(s)",
    "upper": "quantile(v, 0.75)",
    "near": "approx_quantile(v, 0.3)",
}


def _window_join(how: str) -> Build:
    def build(a: md.Stream, b: md.Stream) -> md.Stream:
        sums = [
            side.window(10, advance=5).group_by("k").aggregate(total="sum(v)", name=f"w{n}")
            for n, side in enumerate((a, b))
        ]
        return sums[0].join(sums[1], on=["window", "k"], how=how, name="x")

    return build


def _join(how: str, **more: Any) -> Build:
    return lambda a, b: a.join(b, on=["k"], within=6, how=how, name="x", **more)


BUILDS: dict[str, Build] = {
    "filter": lambda a, b: a.filter("v > 0.5 or v is null", name="x"),
    "failing": lambda a, b: a.filter("1 // n >= 0", name="x"),
    "select": lambda a, b: a.select("k", w="v * 2", at=md.time(), name="x"),
    "with_columns": lambda a, b: a.with_columns(w="1 // n", name="x"),
    "route": lambda a, b: a.route("v > 1", "k = 2", name="x")[1],
    "semantic_drop": lambda a, b: a.drop(where="v > 1", name="x"),
    "window_drop": lambda a, b: a.drop(0.5, window=10, name="x").dropped,
    "tumbling": lambda a, b: a.window(10).group_by("k").aggregate(**AGGREGATES, name="x"),
    "sliding": lambda a, b: a.window(12, advance=5).group_by("k", "s").aggregate(**AGGREGATES, name="x"),
    "nan": lambda a, b: a.window(10).group_by("v").aggregate(c=md.count(), name="x"),
    "failing key": lambda a, b: a.window(10).group_by(q="10 // n").aggregate(c=md.count(), name="x"),
    "twice": lambda a, b: (
        a.window(5)
        .group_by("k")
        .aggregate(total="sum(v)", name="x")
        .window(20)
        .group_by("k")
        .aggregate(c=md.count(), t="sum(total)")
    ),
    "session": lambda a, b: a.session(4).group_by("k").aggregate(**AGGREGATES, name="x"),
    "row_window": lambda a, b: a.group_by("k").window_rows(3, advance=2).aggregate(**AGGREGATES, name="x"),
    "running": lambda a, b: a.group_by("k").running(c=md.count(), t="sum(v)", before=md.lag("s"), name="x"),
    "expiring": lambda a, b: a.group_by("k").running(c=md.count(), before=md.lag("n", 2), expire=9, name="x"),
    "distinct": lambda a, b: a.distinct("k", within=7, name="x"),
    **{f"join {how}": _join(how) for how in ("inner", "left", "right", "full", "anti")},
    "join where": _join("full", where="left.v < right.v"),
    "join itself": lambda a, b: a.join(a, on="k", within=3, name="x"),
    **{f"window join {how}": _window_join(how) for how in ("inner", "full", "semi", "anti")},
    "asof_join": lambda a, b: a.asof_join(b, on="k", within=20, name="x"),
    "asof_join inner": lambda a, b: a.asof_join(b, on="k", how="inner", name="x"),
}

EXAMPLES = 2


def query(kind: str, slack: int = 10) -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=slack)
    b = q.source("b", SCHEMA, time="ts", slack=slack)
    q.sink("o", BUILDS[kind](a, b))
    q.sink("p", b.filter("n > 4"))
    return q


def outcome(q: md.Query, events: Iterable[Push | Promise], cuts: list[int], reload_at: int = -1) -> Any:
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == reload_at:
            driver.reload()
        driver.feed(event, cuts)
        driver.drain()
    driver.fragment.finish()
    driver.drain()
    return {sink: plain(table.to_pylist()) for sink, table in driver.tables().items()}


ROWS = ("filter", "failing", "select", "with_columns", "route", "semantic_drop", "window_drop")


def split_graph(graph: Graph, kind: str, data: st.DataObject) -> Graph:
    """Parts in ranges of the key that are even, or cut anywhere."""
    n = data.draw(st.integers(2, 4))
    if kind in ROWS:
        return split(graph, "x", n, block=data.draw(st.integers(1, 4)))
    if data.draw(st.booleans()):
        return split(graph, "x", n)
    hashes = st.lists(st.integers(1, (1 << 64) - 1), min_size=n - 1, max_size=n - 1, unique=True)
    return split(graph, "x", cuts=sorted(data.draw(hashes)))


@pytest.mark.parametrize("kind", BUILDS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_parts_give_what_the_whole_gives(kind: str, data: st.DataObject) -> None:
    q = query(kind, data.draw(st.sampled_from([0, 3, 40])))
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7]]))
    reload_at = data.draw(st.integers(-1, len(events)))
    parts = md.Query.from_graph(split_graph(q.graph, kind, data))
    assert outcome(parts, events, cuts, reload_at) == outcome(q, events, cuts)


@settings(max_examples=15)
@given(st.data())
def test_router_and_merge_do_what_the_oracle_does(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in BUILDS if not kind.startswith("failing")]))
    q = query(kind, data.draw(st.sampled_from([0, 3, 40])))
    events = data.draw(inputs(["a", "b"]))
    parts = split_graph(q.graph, kind, data)
    expected = answer(parts, events).sinks
    assert {sink: plain(rows) for sink, rows in expected.items()} == {
        sink: plain(rows) for sink, rows in answer(q.graph, events).sinks.items()
    }
    driver = Driver(md.Query.from_graph(parts))
    for event in events:
        driver.feed(event, [2, 3, 7])
    driver.fragment.finish()
    driver.drain()
    check(driver.tables(), answer(parts, events))


@pytest.mark.parametrize("kind", BUILDS)
def test_merging_back_gives_the_query_as_it_was(kind: str) -> None:
    graph = query(kind).graph
    parts = split(graph, "x", 3)
    assert parts != graph
    back = merge(parts, "x")
    assert {box.id: box for box in back.boxes} == {box.id: box for box in graph.boxes}
