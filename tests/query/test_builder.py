"""Writing queries: what each box gives."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import Aggregate, AggregateCall, Join, Select, Source, WindowJoin, WithColumns
from medusa.query.builder import Query, Stream
from medusa.query.expressions.expression import Call, Column, Literal, Named

CARS = {"ts": "timestamp", "vid": "int64", "speed": "float64", "seg": "int32", "tag": "utf8"}
TS = "timestamp[us, UTC]"


@pytest.fixture
def q() -> Query:
    return md.Query("tolls")


@pytest.fixture
def cars(q: Query) -> Stream:
    return q.source("cars", CARS)


def box(stream: Stream) -> object:
    return next(box for box in stream.query.graph.boxes if box.id == stream.name)


# -- what comes out -------------------------------------------------------------------------------


def test_sources(q: Query) -> None:
    first = q.source("a", pa.schema([("ts", pa.timestamp("ms")), ("v", pa.int8())]), slack="2s")
    second = q.source("b", {"at": "uint32", "v": "int8"}, time="at", unit="s", slack=0)
    third = q.source("c", {"ts": "int64"}, time=None)
    assert first.schema == {"ts": TS, "v": "int8"}
    assert (first.timed, second.timed, third.timed) == (True, True, False)
    made = box(first)
    assert isinstance(made, Source)
    assert (made.time, made.unit, made.slack_us) == ("ts", None, 2_000_000)
    made = box(second)
    assert isinstance(made, Source)
    assert (made.time, made.unit, made.slack_us) == ("at", "s", 0)
    made = box(third)
    assert isinstance(made, Source)
    assert (made.time, made.timed, made.slack_us) == (None, False, None)
    assert q.sources == ("a", "b", "c")


def test_filter_keeps_the_schema(cars: Stream) -> None:
    assert cars.filter("speed > 0").schema == cars.schema
    assert cars.filter(md.col("speed") > 0).timed


def test_select_and_with_columns(cars: Stream) -> None:
    picked = cars.select("vid", md.col("seg"), {"the name": "tag"}, mph="speed * 0.621", at=md.time())
    assert picked.schema == {
        "vid": "int64",
        "seg": "int32",
        "the name": "utf8",
        "mph": "float64",
        "at": TS,
    }
    made = box(picked)
    assert isinstance(made, Select)
    assert made.columns[3] == Named("mph", Call("mul", (Column("speed"), Literal("float64", 0.621))))
    wide = cars.with_columns(speed="CAST(speed AS float32)", twice=md.col("vid") * 2)
    assert wide.schema == {**CARS, "ts": TS, "speed": "float32", "twice": "int64"}
    assert isinstance(box(wide), WithColumns)
    assert list(cars.select("seg + 1", "lower( tag )").schema) == ["seg + 1", "lower( tag )"]


def test_a_name_that_is_a_column_is_never_read_as_sql(q: Query) -> None:
    odd = q.source("odd", {"ts": "timestamp", "a+b": "int8", "select": "utf8"})
    assert odd.select("a+b", "select").schema == {"a+b": "int8", "select": "utf8"}


def test_windows(cars: Stream) -> None:
    made = cars.window("5 min", advance="1 min").group_by("seg", prefix="substr(tag, 1, 3)").aggregate(
        n=md.count(), v=md.avg("speed"), top="max(speed)", kinds=md.count_distinct(md.col("tag"))
    )  # fmt: skip
    assert made.schema == {
        "window_start": TS,
        "window_end": TS,
        "seg": "int32",
        "prefix": "utf8",
        "n": "int64",
        "v": "float64",
        "top": "float64",
        "kinds": "int64",
    }
    window = box(made)
    assert isinstance(window, Aggregate)
    assert (window.size_us, window.advance_us) == (300_000_000, 60_000_000)
    assert window.aggregates[0] == AggregateCall("n", "count")
    assert window.aggregates[2] == AggregateCall("top", "max", Column("speed"))
    whole = cars.window(timedelta(seconds=5)).aggregate({"how many": "count(*)"})
    assert list(whole.schema) == ["window_start", "window_end", "how many"]
    assert "by seg" in repr(cars.window("1s").group_by("seg"))


def test_a_window_of_a_window(cars: Stream) -> None:
    inner = cars.window("1 min").group_by("seg").aggregate(n=md.count())
    outer = inner.window("1h").group_by("seg").aggregate(n=md.sum("n"))
    assert outer.timed
    with pytest.raises(md.QueryError, match="column 'window_start' stands twice"):
        inner.window("1h").group_by("window_start").aggregate(n=md.count())


def test_union(cars: Stream) -> None:
    both = cars.filter("speed > 0").union(cars.filter("speed < 0"), cars)
    assert both.schema == cars.schema
    assert both.timed
    assert not cars.late.union(cars.late).timed


def test_join_columns(q: Query, cars: Stream) -> None:
    tolls = q.source("tolls", {"ts": "timestamp", "car": "int32", "seg": "int64", "fee": "float64"})
    joined = cars.join(tolls, on={"vid": "car"}, within="30s", where="left.speed > right.fee")
    assert list(joined.schema) == ["vid", "ts", "speed", "seg", "tag", "ts_right", "seg_right", "fee"]
    assert joined.schema["vid"] == "int64"
    made = box(joined)
    assert isinstance(made, Join)
    assert (made.within_us, made.how, made.suffixes) == (30_000_000, "inner", ("", "_right"))
    by_seg = cars.join(tolls, on="seg", within=0, suffixes=("_car", "_toll"))
    assert by_seg.schema == {
        "seg": "int64",
        "ts_car": TS,
        "vid": "int64",
        "speed": "float64",
        "tag": "utf8",
        "ts_toll": TS,
        "car": "int32",
        "fee": "float64",
    }
    expression = cars.join(tolls, on=["seg", {"lower(tag)": "CAST(car AS utf8)"}], within="1s")
    assert list(expression.schema)[:3] == ["seg", "lower(tag)", "ts"]


def test_a_join_with_a_right_column_of_the_name_of_a_key(q: Query) -> None:
    left = q.source("l", {"ts": "timestamp", "vid": "int64"})
    right = q.source("r", {"ts": "timestamp", "car": "int64", "vid": "utf8"})
    joined = left.join(right, on={"vid": "car"}, within="1s")
    assert joined.schema == {"vid": "int64", "ts": TS, "ts_right": TS, "vid_right": "utf8"}


def test_window_join_columns(cars: Stream) -> None:
    w = cars.window("5 min").group_by("seg", "tag").aggregate(n=md.count())
    v = cars.window("5 min").group_by("seg").aggregate(n=md.count(), m=md.max("vid"))
    both = w.join(v.filter("n > 1"), on=["window", "seg"], where="left.n <> right.n")
    assert list(both.schema) == ["window_start", "window_end", "seg", "tag", "n", "n_right", "m"]
    assert isinstance(box(both), WindowJoin)
    every = w.join(v, on="window", suffixes=("_w", "_v"))
    assert list(every.schema) == [
        *("window_start", "window_end", "seg_w", "tag", "n_w", "seg_v", "n_v", "m"),
    ]
    # Through select, with_columns, union and other window joins.
    far = both.select("window_start", "window_end", "seg").union(
        v.select("window_start", "window_end", "seg")
    )
    assert far.with_columns(x="1").join(every, on="window").timed
    # In a mapping, "window" is a column like others.
    named = w.with_columns(window="seg")
    assert "window_right" not in named.join(named, on={"window": "window"}, within="1s").schema


def test_late_rows(cars: Stream) -> None:
    assert cars.late.schema == cars.schema
    assert cars.late.name == "cars.late"
    assert not cars.late.filter("speed > 0").select("vid").timed


def test_names_and_texts(q: Query, cars: Stream) -> None:
    fast = cars.filter("speed > 0", name="fast")
    q.sink("out", fast)
    assert fast.name == "fast"
    assert q.sinks == ("out",)
    assert q.name == "tolls"
    assert repr(q) == "<Query 'tolls': 3 boxes, sources cars, sinks out>"
    assert repr(fast).startswith("<Stream 'fast' of query 'tolls': ts timestamp[us, UTC], vid int64")
    assert repr(cars.window("5 min")) == "<tumbling windows of 5 min over 'cars': .aggregate(...) is missing>"
    assert repr(md.sum("x")) == "md.sum('x')"
    assert repr(md.count()) == "md.count()"
    assert q.stream("fast").arc == fast.arc


def test_a_query_grows_on_after_it_was_read(q: Query, cars: Stream) -> None:
    cars.filter("speed > 0", name="fast")
    again = Query.from_json(q.to_json())
    again.sink("out", again.stream("fast").filter("seg = 1"))
    assert len(again.graph.boxes) == 4
    assert len(q.graph.boxes) == 2
