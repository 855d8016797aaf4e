"""Connection points while a query is written: what they give, what they refuse, how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import ConnectionPoint, Graph, Input
from medusa.query.builder import Query, Stream
from medusa.query.graph import check_graph, order_dependent

CARS = {"ts": "timestamp", "vid": "int64"}


@pytest.fixture
def q() -> Query:
    return md.Query("q")


@pytest.fixture
def cars(q: Query) -> Stream:
    return q.source("cars", CARS, slack="5s")


def test_the_stream_behind_it_is_the_stream(q: Query, cars: Stream) -> None:
    recent = q.connection_point("recent", cars, keep="1h", keep_bytes="1 GiB")
    assert (recent.name, recent.schema, recent.timed) == ("recent", cars.schema, True)
    wins = cars.window("1 min").aggregate(n=md.count())
    behind = q.connection_point("wins", wins, keep="2h")
    q.sink("joined", behind.join(wins, on="window", name="j"))  # windows pass through it


def test_how_it_is_shown(q: Query, cars: Stream) -> None:
    recent = q.connection_point("recent", cars, keep="1h 30min", keep_bytes="1 GiB")
    q.sink("out", q.connection_point("less", recent, keep_bytes=65_536))
    text = q.explain()
    assert "connection_point recent: keeps 1h 30 min, at most 1 GiB" in text
    assert "connection_point less: keeps at most 64 KiB" in text
    assert "keeps 1h 30 min, at most 1 GiB" in q.diagram().svg
    assert Query.from_json(q.to_json()).graph == q.graph
    assert Query.from_msgpack(q.to_msgpack()).graph == q.graph


Wrong = tuple[Callable[[Query, Stream], Any], str]

WRONG: list[Wrong] = [
    (lambda q, s: q.connection_point("r", s), "connection_point 'r': doesn't say how much to keep"),
    (lambda q, s: q.connection_point("r", s, keep="0s"), "keep: expected a duration of longer than 0"),
    (
        lambda q, s: q.connection_point("r", s, keep="long"),
        "connection_point 'r': keep: 'long' is no duration",
    ),
    (lambda q, s: q.connection_point("r", s, keep_bytes="much"), "keep_bytes: 'much' is no number of bytes"),
    (lambda q, s: q.connection_point("r", s, keep_bytes=65_535), "expected at least 64 KiB"),
    (lambda q, s: q.connection_point("r", s.late, keep="1h"), "keep= needs a stream with time"),
    (lambda q, s: q.connection_point("a/b", s, keep="1h"), "can't be a name"),
    (lambda q, s: q.connection_point("cars", s, keep="1h"), "the name is taken by source 'cars'"),
    (lambda q, s: q.connection_point("r", "cars", keep="1h"), "expected a stream, got str"),
    (
        lambda q, s: q.connection_point("r", md.Query("z").source("cars", CARS), keep="1h"),
        "belongs to query 'z'",
    ),
]


@pytest.mark.parametrize(("build", "says"), WRONG)
def test_what_it_refuses(q: Query, cars: Stream, build: Callable[[Query, Stream], Any], says: str) -> None:
    before = q.graph
    with pytest.raises(md.QueryError, match=says):
        build(q, cars)
    assert q.graph == before


@pytest.mark.parametrize(
    "box",
    [
        ConnectionPoint(id="x", inputs=(Input("cars"),)),
        ConnectionPoint(id="x", inputs=(Input("cars"),), keep_us=0),
        ConnectionPoint(id="x", inputs=(Input("cars"),), keep_us=1 << 60),
        ConnectionPoint(id="x", inputs=(Input("cars"),), keep_bytes=-1),
        ConnectionPoint(id="x", inputs=(Input("cars"),), keep_bytes=1 << 62),
        ConnectionPoint(id="x", inputs=(Input("cars"), Input("cars")), keep_us=1),
        ConnectionPoint(id="x", inputs=(Input("cars", "late"),), keep_us=1),
    ],
)
def test_a_graph_that_was_decoded_is_checked_too(q: Query, cars: Stream, box: ConnectionPoint) -> None:
    with pytest.raises(md.QueryError):
        check_graph(Graph(name="q", boxes=(*q.graph.boxes, box)))


def test_the_order_of_its_rows_shows(q: Query, cars: Stream) -> None:
    both = cars.union(q.source("vans", CARS, slack="5s"), name="both")
    q.sink("out", q.connection_point("recent", both, keep="1h"))
    assert ("both", "recent") in order_dependent(q.graph, sinks=False)


def test_nodes_dont_take_it(q: Query, cars: Stream) -> None:
    from medusa.nodes.placement.placement import cut

    q.sink("out", q.connection_point("recent", cars, keep="1h"))
    with pytest.raises(md.QueryError, match="connection_point 'recent' keeps history, which nodes don't yet"):
        cut(q.graph, {"north": ["cars"]})


def test_a_collected_query_passes_its_rows_on(q: Query, cars: Stream) -> None:
    q.sink("out", q.connection_point("recent", cars, keep="1h"))
    table = md.collect(q, cars={"ts": pa.array([0, 5, 3], pa.timestamp("us", "UTC")), "vid": [1, 2, 3]}).only
    assert table["vid"].to_pylist() == [1, 2, 3]
