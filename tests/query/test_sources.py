"""What a source may say of time, how it is written down, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.query.boxes import Source
from medusa.query.ids import stable_id

SCHEMA = {
    "ts": "timestamp",
    "at": "timestamp",
    "n": "int16",
    "who": "utf8",
    "ok": "bool",
    "fee": "decimal(9, 2)",
}

FULL: dict[str, Any] = {
    "slack": "2s",
    "idle": "10s",
    "ahead": "1h",
    "arrival": "at",
    "partition": "who",
    "partitions": ["north", "south"],
}


def test_everything_is_plain_data_and_comes_back() -> None:
    q = md.Query("q")
    q.sink("o", q.source("cars", SCHEMA, **FULL))
    (box, _) = q.graph.boxes
    assert (box.idle_us, box.ahead_us) == (10_000_000, 3_600_000_000)
    assert (box.arrival, box.partition, box.partitions) == ("at", "who", ("north", "south"))
    for again in (md.Query.from_json(q.to_json()), md.Query.from_msgpack(q.to_msgpack())):
        assert again.graph == q.graph
    text = q.explain()
    assert (
        "time ts, slack 2s, idle after 10s, at most ahead 1h, arrival at, partitions by who (2 listed)"
        in text
    )


def test_ports() -> None:
    q = md.Query("q")
    plain, full = q.source("plain", SCHEMA), q.source("full", SCHEMA, ahead=0)
    assert full.ahead.name == "full.ahead"
    assert not full.ahead.timed
    assert full.late.union(full.ahead).schema == plain.schema
    with pytest.raises(md.QueryError, match=r"source 'plain': only a source with ahead= has \.ahead"):
        _ = plain.ahead
    with pytest.raises(md.QueryError, match="a window needs a time, and the rows of source 'full.ahead'"):
        full.ahead.window("1s")


def test_what_is_unset_changes_no_id() -> None:
    q = md.Query("q")
    box = q.source("cars", SCHEMA).window("1s").aggregate(n=md.count())
    with_early = q.source("cars2", SCHEMA).window("1s").aggregate(n=md.count(), early="100ms")
    assert box.name == stable_id(q.graph.boxes[1], {"cars": q.graph.boxes[0]}, ())
    assert "early" not in str(q.graph.boxes[1]).replace("early_us=None", "")
    assert with_early.name != box.name


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"idle": 0}, "idle is out of range"),
        ({"ahead": -1}, "ahead"),
        ({"arrival": "at"}, "arrival= says when rows came, which only ahead= asks for"),
        (
            {"ahead": "1h", "arrival": "att"},
            "'att' is not in the schema (did you mean 'at'?)",
        ),
        ({"ahead": "1h", "arrival": "who"}, "the arrival column 'who' is utf8, expected a timestamp"),
        ({"ahead": "1h", "arrival": "n"}, "needs unit="),
        ({"ahead": "1h", "arrival": 7}, "arrival is the name of a column, got int"),
        ({"time": "n", "unit": "s", "ahead": "1h", "arrival": "at"}, "unit= is for integer columns"),
        ({"partition": "whom"}, "the partition column 'whom' is not in the schema (did you mean 'who'?)"),
        ({"partition": "fee"}, "the partition column 'fee' is decimal128(9, 2), which can't be a key"),
        ({"partitions": [1]}, "partitions= lists values of the column partition=..."),
        ({"partition": "n", "partitions": []}, "partitions lists 0 values"),
        ({"partition": "n", "partitions": [1, 1]}, "partitions: 1 stands twice"),
        ({"partition": "n", "partitions": [True]}, "partitions: True is not int16"),
        ({"partition": "n", "partitions": ["a"]}, "partitions: 'a' is not int16"),
        ({"partition": "n", "partitions": [32_768]}, "partitions: 32768 is not int16"),
        ({"partition": "ok", "partitions": [1]}, "partitions: 1 is not bool"),
        ({"partition": "at", "partitions": [1]}, "partitions= lists integers, texts or bools"),
        ({"partition": "who", "partitions": "who"}, "partitions lists integers, texts or bools, got 'who'"),
        ({"time": None, "idle": 1, "partition": "n"}, "idle= and partition= are for sources with time="),
        ({"time": None, "ahead": 1}, "ahead= is for sources with time="),
    ],
)
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    q = md.Query("q")
    with pytest.raises(md.QueryError) as caught:
        q.source("cars", SCHEMA, **given)
    assert says in str(caught.value)
    assert q.graph.boxes == ()


def test_extremes_of_integer_partitions() -> None:
    q = md.Query("q")
    q.source("cars", SCHEMA, partition="n", partitions=[-32_768, 32_767])
    (source,) = q.graph.boxes
    assert isinstance(source, Source)
    assert source.partitions == (-32_768, 32_767)


def test_early_is_a_length_of_time() -> None:
    q = md.Query("q")
    window = q.source("cars", SCHEMA).window("10s")
    for wrong in (0, -1, "soon"):
        with pytest.raises(md.QueryError, match="early"):
            window.aggregate(n=md.count(), early=wrong)
    assert "early results every 1s" in window.aggregate(n=md.count(), early="1s").query.explain()
