"""A box that was split gives what the whole box gives: the same rows in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
import tests.oracle.user
import tests.oracle.window_kinds  # noqa: F401  they register boxes
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Graph, Input, Sink, Source
from medusa.query.graph import check_graph
from medusa.query.rewrite.split import merge, split
from medusa.query.types import schema_to_arrow
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver, check
from tests.engine.test_user_properties import ACCOUNT, FROM
from tests.engine.user_functions import (
    COPIES,
    DOUBLED,
    OUT,
    STATE,
    Alarms,
    Count,
    Restless,
    Session,
    copies,
    doubled,
)
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


def _process(operator: type) -> Build:
    return lambda a, b: a.process(operator, OUT, by="k", state=STATE, name="x")


def _several(operator: type) -> Build:
    return lambda a, b: md.process(
        operator, {"a": a, "b": b, "c": a.filter("n > 3")}, OUT, by="k", state=STATE, name="x"
    )


def _table(box: str = "x", **more: Any) -> Build:
    """A table that is changed in three ways, and looked up before and behind."""

    def build(a: md.Stream, b: md.Stream) -> md.Stream:
        acc = a.query.table(box, key="k", schema=ACCOUNT, **more)
        a.query.sink("then", b.lookup(acc, suffix="_then", name="x" if box != "x" else "then_looked"))
        changed = {"total": "table.total + v", "seen": "table.seen + 1", "s": "s"}
        u = a.update(acc, set=changed, insert={"total": "v", "s": "'new'", "odd": "n % 2 = 1"})
        a.query.sink("u", u)
        a.query.sink("w", b.filter("n < 7").update(acc, set={"seen": "n", "odd": "n = 2"}))
        a.query.sink("d", b.filter("n % 3 = 1").delete(acc))
        return u.lookup(acc, how="inner", suffix="_now", name="again")

    return build


def _two_keys(box: str) -> Build:
    def build(a: md.Stream, b: md.Stream) -> md.Stream:
        schema = {"n": "int64", "x": "float64", "who": "utf8"}
        acc = a.query.table(box, key=["who", "x"], schema=schema, expire=9)
        a.query.sink("u", a.update(acc, set={"n": "n"}, by={"who": "s", "x": "v"}))
        return b.lookup(acc, how="inner", by=["s", "v"], name="x" if box != "x" else "found")

    return build


def _failing_table(a: md.Stream, b: md.Stream) -> md.Stream:
    """Rows whose key fails, and rows of which what is stored fails: they change nothing."""
    acc = a.query.table("x", key="k", schema={"k": "int64", "n": "int64"})
    by = "CAST(10 // n AS int64)"
    a.query.sink("u", a.update(acc, set={"n": "10 // (table.n - 3)"}, insert={"n": "n"}, by=by))
    return b.lookup(acc, by=by, suffix="_now")


BUILDS: dict[str, Build] = {
    "filter": lambda a, b: a.filter("v > 0.5 or v is null", name="x"),
    "failing": lambda a, b: a.filter("1 // n >= 0", name="x"),
    "select": lambda a, b: a.select("k", w="v * 2", at=md.time(), name="x"),
    "with_columns": lambda a, b: a.with_columns(w="1 // n", name="x"),
    "route": lambda a, b: a.route("v > 1", "k = 2", name="x")[1],
    "semantic_drop": lambda a, b: a.drop(where="v > 1", name="x"),
    "window_drop": lambda a, b: a.drop(0.5, window=10, name="x").dropped,
    "apply": lambda a, b: a.apply(copies, COPIES, name="x"),
    "apply by": lambda a, b: a.apply(copies, COPIES, by=["k", "s"], name="x"),
    "apply failing key": lambda a, b: a.apply(doubled, DOUBLED, by="10 // n", name="x"),
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
    **{f"process {each.__name__}": _process(each) for each in (Session, Count, Alarms, Restless)},
    "table": _table(),
    "table given": _table(from_=FROM),
    "table expiring": _table(from_=FROM, expire=5),
    "table of two keys": _two_keys("x"),
    "failing table": _failing_table,
    "lookup": _table("acc", from_=FROM),
    "lookup expiring": _table("acc", expire=5),
    "lookup of two keys": _two_keys("acc"),
    **{f"several {each.__name__}": _several(each) for each in (Session, Count, Alarms, Restless)},
}

EXAMPLES = 15


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


ROWS = ("filter", "failing", "select", "with_columns", "route", "semantic_drop", "window_drop", "apply")


def split_graph(graph: Graph, kind: str, data: st.DataObject) -> Graph:
    """Parts in ranges of the key that are even, or cut anywhere."""
    n = data.draw(st.integers(2, 4))
    if kind in ROWS:
        return split(graph, "x", n, block=data.draw(st.integers(1, 4)))
    if data.draw(st.booleans()):
        return split(graph, "x", n)
    hashes = st.lists(st.integers(1, (1 << 64) - 1), min_size=n - 1, max_size=n - 1, unique=True)
    return split(graph, "x", cuts=sorted(data.draw(hashes)))


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_parts_give_what_the_whole_gives(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(BUILDS)))
    q = query(kind, data.draw(st.sampled_from([0, 3, 40])))
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7]]))
    reload_at = data.draw(st.integers(-1, len(events)))
    parts = md.Query.from_graph(split_graph(q.graph, kind, data))
    assert outcome(parts, events, cuts, reload_at) == outcome(q, events, cuts)


@settings(max_examples=8)
@given(st.data())
def test_router_and_merge_do_what_the_oracle_does(data: st.DataObject) -> None:
    # The oracle of process knows no timers that set themselves again.
    kinds = [kind for kind in BUILDS if not kind.startswith("failing") and "Restless" not in kind]
    kind = data.draw(st.sampled_from(kinds))
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


def test_a_key_at_a_cut_belongs_to_the_range_that_begins_there() -> None:
    """Hashes of 0 and 1 are those that docs/hash_partition.md gives; late rows go with their key."""
    zero, one = 0xA2443C71157CB676, 0x7B2075F90A671183
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=0)
    q.sink("o", a.group_by("k").running(c=md.count(), name="x"))
    rows = [{"ts": ts, "k": k, "v": 0.5, "s": "", "n": 1} for ts, k in ((50, 0), (60, 1), (3, 0), (4, 1))]
    for cuts, ways in {
        (one, zero): [2, 1, 2, 1],
        (one + 1, zero + 1): [1, 0, 1, 0],
        (one, zero + 1): [1, 1, 1, 1],
    }.items():
        graph = split(q.graph, "x", cuts=cuts)
        driver = Driver(md.Query.from_graph(graph))
        driver.feed(Push("a", rows), [])
        taken = [driver.fragment.boxes[f"x-{part + 1}"].rows_in for part in range(3)]
        assert taken == [ways.count(part) for part in range(3)]
        driver.fragment.finish()
        driver.drain()
        assert [row["c"] for row in driver.tables()["o"].to_pylist()] == [1, 1, 2, 2]


def test_the_merge_waits_for_the_part_that_is_behind() -> None:
    q = query("tumbling")
    graph = split(q.graph, "x", 2)
    merged = next(box for box in graph.boxes if box.id == "x")
    schema = check_graph(graph).schemas[Input("x-1")]
    parts = [Source(id=f"x-{number}", schema=schema, judged=True) for number in (1, 2)]
    boxes = (*parts, merged, Sink(id="o", inputs=(Input("x"),)))
    fragment = Fragment(Graph(name="q", boxes=boxes))

    def result(end: int) -> Train:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=end)
        row = {"window_end": moment, "_position": 0}
        batch = pa.RecordBatch.from_pylist([row], schema=schema_to_arrow(schema))
        return Train(batch=batch, times=pa.array([end - 1], pa.timestamp("us", "UTC")))

    fragment.feed("x-1", result(80))
    fragment.feed("x-1", Boundary(100))
    assert list(fragment.drain("o")) == []
    assert fragment.boxes["x"].waits_for(["x-1", "x-2"]).startswith("waits for x-2, which holds")
    fragment.feed("x-2", Boundary(50))
    assert [element.time_us for element in fragment.drain("o")] == [50]
    fragment.feed("x-2", result(70))
    fragment.feed("x-2", Boundary(100))
    train, boundary = fragment.drain("o")
    assert train.times.cast(pa.int64()).to_pylist() == [69, 79]
    assert boundary == Boundary(100)


def test_rows_behind_a_boundary_wait_for_the_next_one() -> None:
    """A part that is ahead: what the router sent behind the boundary isn't mixed with what came before."""
    graph = split(query("filter").graph, "x", 2)
    merged = next(box for box in graph.boxes if box.id == "x")
    schema = check_graph(graph).schemas[Input("x-1")]
    parts = [Source(id=f"x-{number}", schema=schema, judged=True) for number in (1, 2)]
    fragment = Fragment(Graph(name="q", boxes=(*parts, merged, Sink(id="o", inputs=(Input("x"),)))))

    def row(number: int) -> Train:
        batch = pa.RecordBatch.from_pylist(
            [{"n": number, "_position": number}], schema=schema_to_arrow(schema)
        )
        return Train(batch=batch, times=pa.array([90], pa.timestamp("us", "UTC")))

    def sent() -> list[int]:
        trains = [each for each in fragment.drain("o") if isinstance(each, Train)]
        return [number for train in trains for number in train.batch.column("n").to_pylist()]

    fragment.feed("x-1", row(0))
    for element in (Boundary(50), row(3)):
        fragment.feed("x-1", element)
    for element in (row(1), Boundary(50), row(2)):
        fragment.feed("x-2", element)
    assert sent() == [0, 1]
    fragment.feed("x-2", Boundary(60))
    assert sent() == []
    fragment.feed("x-1", Boundary(60))
    assert sent() == [2, 3]
