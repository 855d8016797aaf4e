"""Graphs as JSON and msgpack: round trips, and strict reading."""

from __future__ import annotations

import json
import math
import random

import msgspec
import pytest
from hypothesis import given, settings

import medusa as md
from medusa.errors import QueryError
from medusa.query.builder import Query
from medusa.query.codec import BYTES_MAX, graph_from_json, graph_from_msgpack, graph_to_json, graph_to_msgpack
from tests.query.queries import queries


def small() -> Query:
    q = md.Query("tolls")
    cars = q.source("cars", {"ts": "timestamp", "vid": "int64", "speed": "float64"}, slack="2s")
    w = (
        cars.filter("speed > 0.5")
        .window("5 min", "1 min")
        .group_by("vid")
        .aggregate(n=md.count(), v="avg(speed)")
    )
    q.sink("out", w)
    return q


@settings(max_examples=60)
@given(queries())
def test_any_query_comes_back_equal(q: Query) -> None:
    assert graph_from_json(graph_to_json(q.graph)) == q.graph
    assert graph_from_msgpack(graph_to_msgpack(q.graph)) == q.graph
    again = Query.from_json(q.to_json())
    assert again.explain() == q.explain()
    assert Query.from_msgpack(q.to_msgpack()).to_json() == q.to_json()


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 2.0**53, -0.0]
)
def test_floats_come_back_bit_for_bit(value: float) -> None:
    q = small()
    q.stream("cars").filter(md.col("speed") > md.lit(value), name="f")
    for again in (Query.from_json(q.to_json()), Query.from_msgpack(q.to_msgpack())):
        assert again.graph == q.graph
        literal = msgspec.to_builtins(again.graph.boxes[-1])["predicate"]["args"][1]
        assert literal["type"] == "float64"
        assert repr(float(literal["value"])) == repr(value)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**63, 2**64 - 1, "größe\u0000", b"\x00\xff", True])
def test_constants_come_back(value: object) -> None:
    q = small()
    q.stream("cars").with_columns(x=md.lit(value))
    assert Query.from_json(q.to_json()).graph == q.graph
    assert Query.from_msgpack(q.to_msgpack()).graph == q.graph


def test_json_is_laid_out_for_reading() -> None:
    text = small().to_json()
    assert text.startswith('{\n  "name": "tolls",\n  "boxes": [\n')
    plain = json.loads(text)
    assert [box["kind"] for box in plain["boxes"]] == ["source", "filter", "aggregate", "sink"]
    assert plain["version"] == 1
    assert plain["boxes"][1]["predicate"] == {
        "node": "call",
        "function": "gt",
        "args": [
            {"node": "column", "name": "speed"},
            {"node": "literal", "type": "float64", "value": 0.5},
        ],
    }


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(small().to_json()), **changes}).encode()


def with_box(**changes: object) -> bytes:
    plain = json.loads(small().to_json())
    plain["boxes"][1].update(changes)
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not the JSON of a query"),
        (b"{", "not the JSON of a query"),
        (b"[]", "not the JSON of a query"),
        (b"\xff", "not the JSON of a query"),
        ("{}", "missing required field `version`"),
        ('{"version": 1}', "missing required field `name`"),
        (changed(version=2), "version 2, this program reads 1 (a newer Medusa wrote it)"),
        (changed(version=2, boxes="of another kind"), "version 2, this program reads 1"),
        (changed(version="1"), "Expected `int`, got `str`"),
        (changed(extra=1), "unknown field `extra`"),
        (changed(name=7), "Expected `str`, got `int`"),
        (changed(name="no way"), "'no way' can't be a name"),
        (changed(boxes={}), "Expected `array`"),
        (with_box(kind="blender"), "Invalid value 'blender'"),
        (with_box(extra=1), "unknown field `extra`"),
        (with_box(id=None), "Expected `str`, got `null`"),
        (with_box(inputs=[{"box": "crs"}]), "there is no box 'crs'"),
        (with_box(predicate={"node": "column", "name": "sped"}), "there is no column 'sped'"),
        (with_box(predicate={"node": "python", "code": "1"}), "Invalid value 'python'"),
        (with_box(predicate="speed > 0"), "Expected `object`, got `str`"),
        (with_box(predicate={"node": "literal", "type": "bool", "value": 1.0}), "is no bool literal"),
        (with_box(predicate={"node": "literal", "type": "bool", "value": [1]}), "got `array`"),
        (7, "expected JSON text, got int"),
        (" " * (BYTES_MAX + 1), "at most 8,388,608"),
    ],
)
def test_what_is_no_query(text: bytes | str, says: str) -> None:
    with pytest.raises(QueryError, match=r"^(query|filter)") as caught:
        Query.from_json(text)
    assert says in str(caught.value)


def test_deep_nesting_ends_in_an_error() -> None:
    for depth in (70, 100_000):
        arrays = b'{"node":"call","function":"neg","args":[' * depth + b"]}" * depth
        plain = small().to_json().encode().replace(b"  ", b"")
        start = plain.index(b'"predicate":')
        end = plain.index(b'},\n{\n"kind": "aggregate"')
        with pytest.raises(QueryError):
            graph_from_json(plain[:start] + b'"predicate":' + arrays + plain[end:])


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x93", "text", None])
def test_what_is_no_msgpack_of_a_query(data: object) -> None:
    with pytest.raises(QueryError, match=r"^query: "):
        graph_from_msgpack(data)  # type: ignore[arg-type]


def test_msgpack_has_no_nan_behind_the_type() -> None:
    plain = msgspec.msgpack.decode(small().to_msgpack())
    plain["boxes"][1]["predicate"]["args"][1]["value"] = math.nan
    with pytest.raises(QueryError, match="is no float64 literal"):
        graph_from_msgpack(msgspec.msgpack.encode(plain))


def test_damaged_bytes_are_refused_or_read_never_more() -> None:
    """Flipped bytes give an error or another query that holds; nothing else escapes."""
    q, random_ = small(), random.Random(3)
    for data, read in ((q.to_msgpack(), graph_from_msgpack), (q.to_json().encode(), graph_from_json)):
        refused = 0
        for _ in range(400):
            damaged = bytearray(data)
            for _ in range(random_.randint(1, 3)):
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
            try:
                read(bytes(damaged))
            except QueryError:
                refused += 1
        assert refused > 200
