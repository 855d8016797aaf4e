"""Each kind of box that is taken, and random queries: elsewhere they give what they give here, element by
element; tests/spark/cases.py has a query for each kind, and rows some of which are late or fail.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut
from medusa.query.boxes import Source
from medusa.query.types import schema_to_arrow
from medusa.spark.overflow.participant import KINDS, reason
from tests.overflow.in_process import InProcess
from tests.overflow.test_away import there_and_back
from tests.spark import functions
from tests.spark.cases import CASES, SCHEMA, rows
from tests.spark.test_queries import queries


def several_keys() -> md.Query:
    """Boxes with other keys stand behind that in shards, beside it, and below both."""
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    counts = cars.window("10s").group_by("k").aggregate(c=md.count(), s=md.sum("v"), name="counts")
    q.sink("out", counts.window("30s").group_by("c").aggregate(n=md.count(), t=md.sum("s")))
    q.sink("beside", cars.group_by("g").running(c=md.count(), s=md.sum("v")))
    q.sink("both", cars.join(counts.select("k", "c"), on={"n": "c"}, within="20s", how="left"))
    q.sink("late", cars.late)
    return q


def of_users() -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    most = functions.most(cars)
    q.sink("most", most)
    q.sink("windows", most.window("20s").group_by("k").aggregate(c=md.count()))
    q.sink("out", cars.select("k", "n").apply(functions.doubled, {"k": "int32", "n2": "int64"}))
    return q


TAKEN = {
    **{name: build for name, build in CASES.items() if name not in ("union", "connection_point")},
    "several keys": several_keys,
    "functions of users": of_users,
}


def why_not(query: md.Query) -> str:
    try:
        fragments = cut(query.graph, {"a": [box.id for box in query.graph.boxes]}).fragments
    except QueryError as error:
        return error.message
    return "; ".join(filter(None, (reason(each, latency_us=0)[0] for each in fragments)))


def trains(query: md.Query, seed: int, count: int) -> list[tuple[str, Element]]:
    """Of each source its rows, cut anyhow, and now of this one, now of that."""
    dice = random.Random(seed)
    left: list[list[tuple[str, Element]]] = []
    sources = [box for box in query.graph.boxes if isinstance(box, Source)]
    for place, source in enumerate(sources):
        table, at = rows(seed + place, count).cast(schema_to_arrow(source.schema)), 0
        mine: list[tuple[str, Element]] = []
        while at < count:
            some = table.slice(at, dice.choice([1, 3, 7, 20])).combine_chunks()
            mine.append((source.id, Train(batch=some.to_batches()[0])))
            at += some.num_rows
        left.append(mine)
    made: list[tuple[str, Element]] = []
    while left := [mine for mine in left if mine]:
        made.append(dice.choice(left).pop(0))
    return made + [(source.id, Boundary(END_US)) for source in sources]


def test_every_kind_that_is_taken_has_a_case() -> None:
    found = {str(box.__struct_config__.tag) for build in TAKEN.values() for box in build().graph.boxes}
    assert set(KINDS) - found == {"connection_point"}  # which no node has yet


@pytest.mark.parametrize("name", TAKEN)
def test_elsewhere_it_gives_what_it_gives_here(name: str) -> None:
    query = TAKEN[name]()
    assert why_not(query) == ""
    executor = InProcess()
    there_and_back(query, trains(query, 1, 300), executor)
    assert executor.triggers > 3


SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=10, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000))
def test_random_queries(query: md.Query, seed: int) -> None:
    if why_not(query) == "":
        there_and_back(query, trains(query, seed, 120), InProcess())


@pytest.mark.full
@pytest.mark.issue(7)
@settings(max_examples=200, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000))
def test_many_random_queries(query: md.Query, seed: int) -> None:
    test_random_queries.hypothesis.inner_test(query, seed)  # type: ignore[attr-defined]
