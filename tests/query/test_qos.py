"""Quality of service as data: what is taken, what is refused and with which words, and how it travels."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import Input, Sink
from medusa.query.builder import Query
from medusa.query.codec import graph_from_json, graph_from_msgpack, graph_to_json, graph_to_msgpack
from medusa.query.graph import check_graph
from medusa.query.signature import signatures

FULL = md.QoS(
    latency=[(0, 1), ("5s", 0)],
    loss=[(100, 1), (50, 0.3), (0, 0)],
    value=("speed", [(0, 0.1), (50, 1)]),
)


def query(qos: md.QoS | None = None) -> Query:
    q = md.Query("roads")
    cars = q.source("cars", {"ts": "timestamp", "speed": "float64", "lane": "int8", "tag": "utf8"})
    q.sink("out", cars, qos=qos)
    return q


def test_points_are_kept_by_ascending_x() -> None:
    assert FULL.latency == ((0, 1.0), (5_000_000, 0.0))
    assert FULL.loss == ((0.0, 0.0), (50.0, 0.3), (100.0, 1.0))
    assert FULL.value == ("speed", ((0.0, 0.1), (50.0, 1.0)))
    shuffled = md.QoS(latency=[(timedelta(seconds=5), 0), (0, 1.0)], loss=[(50, 0.3), (0, 0), (100, 1)])
    assert (shuffled.latency, shuffled.loss) == (FULL.latency, FULL.loss)


def test_numbers_of_every_kind_become_floats() -> None:
    made = md.QoS(loss=[(np.int64(0), np.float32(0)), (Fraction(200, 2), 1)])
    assert made.loss == ((0.0, 0.0), (100.0, 1.0))
    assert all(type(number) is float for point in made.loss for number in point)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "expected at least one of latency=, loss= and value="),
    ({"latency": []}, "latency: expected 2 to 100 points, got 0 points"),
    ({"latency": [(0, 1)]}, "latency: expected 2 to 100 points, got 1 points"),
    (
        {"loss": [(x / 10, 1) for x in range(101)]},
        "loss: expected 2 to 100 points, got 101 points",
    ),
    ({"latency": "5s"}, "latency: expected 2 to 100 points, got '5s'"),
    ({"latency": [(0, 1), 5]}, "latency: point 2: expected two numbers, got 5"),
    ({"latency": [(0, 1), (1, 2, 3)]}, "latency: point 2: expected two numbers, got tuple"),
    ({"latency": [(0, 1), ("5", 0)]}, 'latency: point 2: delay: .*"5s"'),
    ({"latency": [(0, 1), (-1, 0)]}, "latency: point 2: delay: expected a duration of at least 0s"),
    ({"latency": [(0, 1), (1 << 60, 0)]}, "latency: point 2: delay: .* longer than"),
    ({"latency": [(0, 1), (1.5, 0)]}, "latency: point 2: delay: float 1.5 is no duration"),
    ({"latency": [(0, 1), (True, 0)]}, "latency: point 2: expected a delay, got True"),
    ({"latency": [(0, 1.01), (1, 0)]}, "latency: point 1: expected a utility of 0 to 1, got 1.01"),
    ({"latency": [(0, 1), (1, -0.1)]}, "latency: point 2: expected a utility of 0 to 1, got -0.1"),
    ({"latency": [(0, math.nan), (1, 0)]}, "latency: point 1: expected a utility, got nan"),
    ({"latency": [(0, "1"), (1, 0)]}, "latency: point 1: expected a utility, got '1'"),
    ({"latency": [(0, True), (1, 0)]}, "latency: point 1: expected a utility, got True"),
    ({"latency": [(0, None), (1, 0)]}, "latency: point 1: expected a utility, got NoneType"),
    ({"latency": [(0, 1), ("1s", 0.5), (1_000_000, 0)]}, "latency: two points at 1s .*a step"),
    ({"latency": [(0, 0), ("1s", 1)]}, "latency: 0 at 0s and 1 at 1s: a row can't be worth more"),
    ({"latency": [(0, 1), ("1s", 0.2), ("2s", 0.3)]}, "latency: 0.2 at 1s and 0.3 at 2s: a row can't"),
    ({"loss": [(0, 1), (100, 0)]}, "loss: 1 at 0 % and 0 at 100 %: an output can't be worth less"),
    ({"loss": [(0, 0), (101, 1)]}, "loss: point 2: expected 0 to 100 percent delivered, got 101"),
    ({"loss": [(-1, 0), (100, 1)]}, "loss: point 1: expected 0 to 100 percent delivered, got -1"),
    ({"loss": [(0, 0), (math.inf, 1)]}, "loss: point 2: expected percent delivered, got inf"),
    ({"loss": [(0, 0), (Decimal(50), 1)]}, "loss: point 2: expected percent delivered, got Decimal"),
    ({"value": [(0, 1), (1, 1)]}, "value: expected a column and its points, got list"),
    ({"value": "speed"}, "value: expected a column and its points, got 'speed'"),
    ({"value": ("speed",)}, "value: expected a column and its points"),
    ({"value": ("speed", [(0, 1)])}, "value: expected 2 to 100 points"),
    ({"value": ("speed", [(0, 1), (10**400, 1)])}, "value: point 2: expected a number"),
    ({"value": ("speed", [(0, 1), (-0.0, 0)])}, "value: two points at 0"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_no_graph_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(QueryError, match=f"^QoS: {words}"):
        md.QoS(**given)


@pytest.mark.parametrize(
    ("qos", "words"),
    [
        ("fast", "sink 'fine': qos: expected an md.QoS, got str"),
        (md.QoS(value=("sped", [(0, 1), (1, 0)])), "there is no column 'sped' .*did you mean 'speed'"),
        (md.QoS(value=("tag", [(0, 1), (1, 0)])), "expected a column of numbers, 'tag' is utf8"),
        (md.QoS(value=("ts", [(0, 1), (1, 0)])), "expected a column of numbers, 'ts' is timestamp"),
    ],
)
def test_a_sink_checks_it_against_its_columns(qos: Any, words: str) -> None:
    q = query()
    before = q.graph
    with pytest.raises(QueryError, match=words):
        q.sink("fine", q.stream("cars"), qos=qos)
    assert q.graph == before
    bad = Sink(id="bad", inputs=(Input("cars"),), qos=qos)
    with pytest.raises(QueryError, match=words.replace("fine", "bad")):
        check_graph(msgspec.structs.replace(before, boxes=(*before.boxes, bad)))


def test_it_comes_back_as_it_was() -> None:
    for qos in (FULL, md.QoS(loss=[(0, 1e-300), (1 / 3, 0.1 + 0.2), (100, 1)])):
        graph = query(qos).graph
        for again in (graph_from_json(graph_to_json(graph)), graph_from_msgpack(graph_to_msgpack(graph))):
            assert again == graph
            assert isinstance(again.boxes[-1], Sink)
            assert again.boxes[-1].qos == qos


def spoiled(change: Any) -> str:
    plain = json.loads(query(FULL).to_json())
    change(plain["boxes"][-1]["qos"])
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda qos: qos.clear(), "at least one"),
        (lambda qos: qos.update(more=1), "unknown field"),
        (lambda qos: qos.update(latency=[[0, 1.0]] * 101), "expected 2 to 100 points, got 101 points"),
        (lambda qos: qos.update(latency=[[0, 1.0], ["5s", 0.0]]), "Expected `int`"),
        (lambda qos: qos.update(latency=[[0, 1.0], [-5, 0.0]]), "at least 0s"),
        (lambda qos: qos.update(latency=[[0, 0.0], [5, 1.0]]), "worth more for coming later"),
        (lambda qos: qos.update(loss=[[0, 1.0, 2.0], [1, 1]]), "length"),
        (lambda qos: qos.update(loss=[[0, 0], [1e400, 1]]), "not the JSON|percent delivered"),
        (lambda qos: qos.update(value=["tag", [[0, 0], [1, 1]]]), "a column of numbers"),
        (lambda qos: qos.update(value=["x" * 1000, [[0, 0], [1, 1]]]), "there is no column 'x{80}'"),
    ],
)
def test_what_comes_from_a_file_is_checked_in_full(change: Any, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        Query.from_json(spoiled(change))


def test_nan_and_infinity_from_a_link_are_refused() -> None:
    plain = msgspec.msgpack.decode(query(FULL).to_msgpack())
    for bad in (math.nan, math.inf, -math.inf):
        plain["boxes"][-1]["qos"]["value"] = ["speed", [[0.0, 0.0], [bad, 1.0]]]
        with pytest.raises(QueryError, match="value: point 2: expected a number"):
            graph_from_msgpack(msgspec.msgpack.encode(plain))


def test_queries_without_it_are_the_bytes_that_they_were() -> None:
    plain = json.loads(query().to_json())
    assert plain["boxes"][-1] == {"kind": "sink", "id": "out", "inputs": [{"box": "cars", "port": ""}]}


def test_state_of_a_sink_doesnt_depend_on_it() -> None:
    assert signatures(check_graph(query(FULL).graph)) == signatures(check_graph(query().graph))


def test_plans_and_drawings_tell() -> None:
    lines = [
        "latency 1 at 0s, 0 at 5s",
        "loss 0 at 0 %, 0.3 at 50 %, 1 at 100 %",
        "value of speed 0.1 at 0, 1 at 50",
    ]
    q = query(FULL)
    assert f"\nsink out: {'; '.join(lines)}\n" in q.explain()
    assert all(line[:30] in q.diagram().svg and line[:30] in q.diagram().mermaid for line in lines)
    assert "\nsink out\n" in query().explain()
    many = md.QoS(latency=[(f"{n}s", 1 - n / 50) for n in range(50)])
    assert "latency 1 at 0s, 0.98 at 1s, 0.96 at 2s, ..., 0.04 at 48s, 0.02 at 49s" in query(many).explain()
