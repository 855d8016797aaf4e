"""Sources that read streams of the catalog, as they are written: ``q.source(name, of=fed.stream(...))``."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import Field
from medusa.query.graph import check_graph
from medusa.query.published_stream import PublishedStream, same_columns
from medusa.query.signature import signatures

COLUMNS = (Field("ts", "timestamp[us, UTC]"), Field("v", "int64"))
CARS = PublishedStream(name="bob/cars", columns=COLUMNS, timed=True)


def query(stream=CARS):
    q = md.Query("q")
    q.sink("out", q.source("cars", of=stream).window("5s").aggregate(n=md.count()))
    return q


def test_columns_and_time_come_from_the_stream_and_its_name_stays_with_the_source():
    q = query()
    [source] = [box for box in q.graph.boxes if box.id == "cars"]
    assert (source.schema, source.judged, source.timed, source.of) == (COLUMNS, True, True, "bob/cars")
    assert md.Query.from_json(q.to_json()).graph == md.Query.from_msgpack(q.to_msgpack()).graph == q.graph
    assert "from bob/cars, lateness judged there" in q.explain()
    assert "bob/cars" in q.diagram().svg
    assert CARS.schema.names == ["ts", "v"]
    other = query(PublishedStream(name="bob/vans", columns=COLUMNS, timed=True))
    assert signatures(check_graph(other.graph))["cars"] != signatures(check_graph(q.graph))["cars"]


def test_a_stream_without_time_feeds_no_window_and_windows_meet_by_their_kind():
    untimed = PublishedStream(name="bob/cars", columns=COLUMNS, timed=False)
    with pytest.raises(QueryError, match="time"):
        query(untimed)
    counts = query().graph.boxes[1]
    columns = check_graph(query().graph).schemas[md.Query.from_graph(query().graph).stream(counts.id).arc]
    windows = PublishedStream(name="bob/n", columns=columns, timed=True, window_us=(5_000_000, 5_000_000))
    q = md.Query("q")
    ours = q.source("cars", of=CARS).window("5s").aggregate(m=md.count())
    q.sink("out", ours.join(q.source("theirs", of=windows), on="window"))
    assert "n" in [field.name for field in check_graph(q.graph).schemas[q.graph.boxes[-1].inputs[0]]]


@pytest.mark.parametrize(
    "given",
    [
        {"schema": {"v": "int64"}},
        {"time": None},
        {"time": "v", "unit": "s"},
        {"slack": "1s"},
        {"idle": "1s"},
        {"ahead": "1s"},
        {"arrival": "ts"},
        {"partition": "v"},
        {"partitions": [1]},
        {"contract": "x.odcs.yaml"},
    ],
    ids=str,
)
def test_what_is_said_beside_it_is_refused_and_the_query_is_unchanged(given):
    q = md.Query("q")
    with pytest.raises(QueryError, match=f"{list(given)[-1]}=.* beside of="):
        q.source("cars", of=CARS, **given)
    assert not q.sources


@pytest.mark.parametrize("of", ["bob/cars", 7, COLUMNS], ids=str)
def test_only_what_fed_stream_gives_is_taken(of):
    with pytest.raises(QueryError, match=r"expected what fed\.stream gives"):
        md.Query("q").source("cars", of=of)


def test_a_source_needs_one_of_both():
    with pytest.raises(QueryError, match="the schema is missing"):
        md.Query("q").source("cars")


def test_it_is_no_source_of_a_program():
    for act in (md.start, md.collect):
        with pytest.raises(QueryError, match="only nodes can") as refusal:
            act(query())
        assert refusal.value.code == "query.of"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('"of": "bob/cars"', None),
        ('"of": "cars"', "no full name"),
        ('"of": "Bob/cars"', "no full name"),
        ('"of": "bob/c rs"', "no full name"),
    ],
)
def test_a_name_that_is_none_is_refused_when_it_is_read(change, why):
    text = query().to_json().replace('"of": "bob/cars"', change)
    if why is None:
        assert md.Query.from_json(text).graph == query().graph
        return
    with pytest.raises(QueryError, match=why):
        md.Query.from_json(text)


def test_of_belongs_to_judged_sources():
    text = query().to_json().replace('"judged": true', '"judged": false')
    with pytest.raises(QueryError, match="of"):
        md.Query.from_json(text)


@pytest.mark.parametrize(
    ("columns", "timed", "why"),
    [
        (COLUMNS, True, ""),
        (COLUMNS[:1], True, "has no column 'v' any more"),
        ((COLUMNS[0], Field("v", "float64")), True, "column 'v' is float64 now, the query says int64"),
        ((*COLUMNS, Field("w", "utf8")), True, "has a column 'w' that the query doesn't know"),
        (COLUMNS[::-1], True, "its columns stand in another order now: v, ts"),
        (COLUMNS, False, "has no time any more"),
    ],
)
def test_what_differs_is_named(columns, timed, why):
    assert same_columns(CARS.source("cars"), columns, timed) == why
