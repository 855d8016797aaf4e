"""Route, drops, distinct, sunion, sorts, resample: what they give, what they refuse, and their drawings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import medusa as md
from medusa.query.boxes import (
    BSort,
    Distinct,
    Graph,
    Input,
    RandomDrop,
    Resample,
    Route,
    SUnion,
    WindowDrop,
    WSort,
)
from medusa.query.builder import Query, Stream
from medusa.query.expressions.expression import Column, Named
from medusa.query.graph import check_graph
from medusa.query.ids import kind_of

CARS = {
    "ts": "timestamp",
    "vid": "int64",
    "speed": "float32",
    "tag": "utf8",
    "price": "decimal128(9, 2)",
    "at": "timestamp",
}


@pytest.fixture
def q() -> Query:
    return md.Query("q")


@pytest.fixture
def cars(q: Query) -> Stream:
    return q.source("cars", CARS)


def test_route_gives_a_stream_per_predicate(q: Query, cars: Stream) -> None:
    a, b, rest = cars.route("speed > 9", md.col("vid") == 1, otherwise=True, name="ways")
    assert [way.name for way in (a, b, rest)] == ["ways", "ways.1", "ways.otherwise"]
    assert a.schema == b.schema == rest.schema == cars.schema
    assert len(cars.route("speed > 9", "vid = 1")) == 2
    (only,) = cars.route("speed > 9")
    assert only.timed


def test_windows_pass_through_route_drop_and_sunion(q: Query, cars: Stream) -> None:
    w = cars.window("1 min").group_by("vid").aggregate(n=md.count())
    few, many = w.route("n < 10", "true")
    left = many.drop(where="n = 99")
    both = md.sunion(few, left.dropped, bucket="1 min")
    q.sink("o", both.join(w.filter("n > 0"), on=["window", "vid"]))
    with pytest.raises(md.QueryError, match="makes rows of its own"):
        w.resample("1s", gap="1 min", time="window_end").join(w, on="window")


def test_what_a_resample_gives(q: Query, cars: Stream) -> None:
    line = cars.select("ts", "vid", "speed", "tag", "price", "at").resample("1s", by="vid", gap="5s")
    assert line.schema == {
        "ts": "timestamp[us, UTC]",
        "vid": "int64",
        "speed": "float64",
        "tag": "utf8",
        "price": "decimal128(9, 2)",
        "at": "timestamp[us, UTC]",
        "gap": "bool",
    }
    last = cars.resample("1s", by=["vid", "tag"], how="previous", gap="5s", time="at")
    assert list(last.schema) == ["at", "vid", "tag", "ts", "speed", "price", "gap"]
    assert last.schema["speed"] == "float32"


REFUSED: list[tuple[Callable[[Query, Stream], object], str]] = [
    (lambda q, s: s.route(), "route after 'cars': needs at least one predicate"),
    (lambda q, s: s.route("true", "speed"), "predicate 2 must be bool, got float32"),
    (lambda q, s: s.route("true", "sped > 1"), "predicate 2: there is no column 'sped' (did you mean"),
    (lambda q, s: s.drop(), "expected rate= or where=, got rate=None"),
    (lambda q, s: s.drop(1.5), "rate is 1.5, expected a share from 0 to 1"),
    (lambda q, s: s.drop(float("nan")), "rate is nan"),
    (lambda q, s: s.drop(True), "got rate=True"),
    (lambda q, s: s.drop(0.5, seed=-1), "seed must be from 0"),
    (lambda q, s: s.drop(0.5, seed="x"), "seed is a whole number, got 'x'"),
    (lambda q, s: s.drop(0.5, where="true"), "where= stands alone"),
    (lambda q, s: s.drop(0.5, by="vid"), "by= goes with window="),
    (lambda q, s: s.drop(where="speed"), "where must be bool, got float32"),
    (lambda q, s: s.drop(0.5, window=0), "expected a duration of longer than 0"),
    (lambda q, s: s.drop(0.5, window="1s", by="price"), "decimal128(9, 2) can't be a key"),
    (lambda q, s: s.late.drop(0.5, window="1s"), "a drop of whole windows needs a time"),
    (lambda q, s: s.distinct("vid", within=0), "expected a duration of longer than 0"),
    (lambda q, s: s.distinct("vidd", within="1s"), "no column 'vidd' (did you mean 'vid'?)"),
    (lambda q, s: s.distinct(within="1s"), "key 'price': decimal128(9, 2) can't be a key"),
    (lambda q, s: s.late.distinct("vid", within="1s"), "distinct needs a time"),
    (lambda q, s: md.sunion(bucket="1s"), "sunion: needs at least two streams"),
    (lambda q, s: md.sunion(s, bucket="1s"), "expected at least 2 inputs, got 1"),
    (lambda q, s: md.sunion("cars", s, bucket="1s"), "sunion: expected streams, got str"),
    (lambda q, s: s.sunion(s, bucket=0), "bucket: expected a duration of longer than 0"),
    (lambda q, s: s.sunion(s.select("vid"), bucket=1), "a union needs the same columns"),
    (lambda q, s: s.late.sunion(s.late, bucket=1), "a sunion needs a time"),
    (lambda q, s: s.bsort("sped"), "no column 'sped' to sort by (did you mean 'speed'?)"),
    (lambda q, s: s.bsort("tag"), "column 'tag' is utf8, expected a number or a time"),
    (lambda q, s: s.bsort("price"), "column 'price' is decimal128(9, 2), expected"),
    (lambda q, s: s.bsort(md.col("vid")), "expected the name of a column to sort by, got Expr"),
    (lambda q, s: s.bsort("vid", slack="5s"), "slack is a number of rows, got '5s'"),
    (lambda q, s: s.bsort("vid", slack=-1), "slack is a number of rows from 0 to 10,000,000, got -1"),
    (lambda q, s: s.late.bsort("vid"), "a sort needs a time"),
    (lambda q, s: s.wsort("vid", timeout=0), "expected a duration of longer than 0"),
    (lambda q, s: s.wsort("vid", timeout="5s", by="price"), "can't be a key"),
    (lambda q, s: s.resample("1s", how="lin", gap="5s"), "no how='lin' (did you mean 'linear'?)"),
    (lambda q, s: s.resample(1, gap="5s"), "may have 5,000,000 points between them"),
    (lambda q, s: s.resample("1s", gap="5s", time="vid"), "'vid' is int64; the times of the grid can't"),
    (
        lambda q, s: s.with_columns(gap="true").resample("1s", gap="5s"),
        "column 'gap' stands twice in the output",
    ),
    (lambda q, s: s.resample("1s", by="price", gap="5s"), "can't be a key"),
    (lambda q, s: s.dropped, "only drop and wsort have .dropped"),
    (lambda q, s: s.drop(0.5).dropped.dropped, "has no .dropped"),
    (lambda q, s: s.late.dead, "has no .dead"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED)
def test_what_is_refused(q: Query, cars: Stream, make: Callable[[Query, Stream], object], says: str) -> None:
    before = q.graph
    with pytest.raises(md.QueryError) as caught:
        make(q, cars)
    assert says in str(caught.value)
    made = q.graph.boxes[len(before.boxes) :]  # those written before the one that is wrong
    assert all(kind_of(box) in ("with_columns", "select", "random_drop") for box in made)


IN = (Input("cars"),)
BAD: list[Any] = [
    Route(id="x", inputs=IN, predicates=()),
    RandomDrop(id="x", inputs=IN, rate=2.0),
    RandomDrop(id="x", inputs=IN, rate=float("nan")),
    RandomDrop(id="x", inputs=IN, rate=0.5, seed=1 << 63),
    WindowDrop(id="x", inputs=IN, rate=0.5, window_us=0),
    WindowDrop(id="x", inputs=IN, rate=0.5, window_us=1 << 60),
    Distinct(id="x", inputs=IN, keys=(), within_us=1),
    Distinct(id="x", inputs=IN, keys=(Named("vid", Column("vid")),), within_us=-1),
    SUnion(id="x", inputs=(*IN, *IN), bucket_us=0),
    SUnion(id="x", inputs=IN, bucket_us=1),
    BSort(id="x", inputs=IN, column="vid", slack=-1),
    BSort(id="x", inputs=IN, column="vid", slack=1 << 40),
    WSort(id="x", inputs=IN, column="vid", timeout_us=0),
    WSort(id="x", inputs=IN, column="vid", timeout_us=1 << 60),
    Resample(id="x", inputs=IN, every_us=0, gap_us=1),
    Resample(id="x", inputs=IN, every_us=1, gap_us=-1),
    Resample(id="x", inputs=IN, every_us=1, gap_us=1, how="no"),
    Resample(id="x", inputs=IN, every_us=1, gap_us=1, time=""),
]


@pytest.mark.parametrize("box", BAD)
def test_a_graph_is_checked_as_the_builder_checks(q: Query, cars: Stream, box: Any) -> None:
    with pytest.raises(md.QueryError):
        check_graph(Graph(name="q", boxes=(*q.graph.boxes, box)))


def test_ports_that_a_box_has_not(q: Query, cars: Stream) -> None:
    cars.route("true", "true", name="ways")
    for port in ("2", "otherwise", "0", "dropped"):
        box = RandomDrop(id="x", inputs=(Input("ways", port),), rate=0.5)
        with pytest.raises(md.QueryError, match="has no port"):
            check_graph(Graph(name="q", boxes=(*q.graph.boxes, box)))


def test_as_text_and_bytes(q: Query, cars: Stream) -> None:
    a, b = cars.route("speed > 1", "vid = 2")
    q.sink("o", md.sunion(a, b.bsort("ts", slack=3, by="vid"), bucket="1s").wsort("ts", timeout="2s"))
    q.sink("p", a.drop(0.5, window="1s", by="vid", seed=3).distinct("tag", within="1h").resample("1s", gap=1))
    assert md.Query.from_json(q.to_json()).graph == q.graph
    assert md.Query.from_msgpack(q.to_msgpack()).graph == q.graph
    text = q.explain()
    for line in (
        "speed > 1, vid = 2",
        "by time, in buckets of 1s",
        "by ts, slack 3 rows by vid",
        "by ts, timeout 2s",
        "0.5 of windows of 1s by vid, seed 3",
        "tag within 1h",
        "every 1s, linear, no further than 1us",
        "waits for the boundaries of all inputs to reach the end of the bucket",
    ):
        assert line in text
    assert "|1|" in q.diagram().mermaid
    assert ">1</text>" in q.diagram().svg


def test_ways_of_a_route_have_ids_of_their_own() -> None:
    """Which does not depend on the order in which they are written."""
    ids = []
    for flip in (False, True):
        q = md.Query("q")
        a, b = q.source("cars", CARS).route("speed > 1", "vid = 2")
        made = {}
        for name, way in [("b", b), ("a", a)] if flip else [("a", a), ("b", b)]:
            made[name] = way.filter("vid > 7").name
        ids.append(made)
    assert ids[0] == ids[1]
    assert ids[0]["a"] != ids[0]["b"]
