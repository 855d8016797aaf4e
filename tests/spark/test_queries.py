"""Whole queries: Linear Road, and random ones; test_equal.py has those of the demos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.apps.workloads import linear_road
from medusa.apps.workloads.linear_road_traffic import Traffic, traffic
from tests.spark.cases import SCHEMA, rows
from tests.spark.same import check


def test_linear_road(spark: Any) -> None:
    table = traffic(Traffic(seconds=600, cars=500), seed=1)
    got = check(spark, linear_road.query(), {"input": table})
    assert min(each.num_rows for each in got.values()) > 100


# Every step gives columns k, n and v again, so any may follow any.
Step = Callable[[md.Stream, md.Stream], md.Stream]
STEPS: dict[str, Step] = {
    "filter": lambda a, b: a.filter("n > 20 OR k = 1"),
    "select": lambda a, b: a.select("k", n="n + 3", v="v * 0.5"),
    "route": lambda a, b: a.route("n > 40", otherwise=True)[1],
    "window": lambda a, b: (
        a.window("9s").group_by("k").aggregate(n=md.max("n"), v=md.sum("v")).select("k", "n", "v")
    ),
    "sliding": lambda a, b: (
        a.window("9s", advance="4s")
        .group_by("k")
        .aggregate(n=md.count(), v=md.avg("v"))
        .select("k", "n", "v")
    ),
    "session": lambda a, b: (
        a.session("3s").group_by("k").aggregate(n=md.count(), v=md.sum("v")).select("k", "n", "v")
    ),
    "rows": lambda a, b: (
        a.group_by("k").window_rows(3).aggregate(n=md.last("n"), v=md.sum("v")).select("k", "n", "v")
    ),
    "running": lambda a, b: a.group_by("k").running(m=md.max("n"), w=md.sum("v")).select("k", n="m", v="w"),
    "distinct": lambda a, b: a.distinct("k", within="8s"),
    "bsort": lambda a, b: a.bsort("n", slack=3),
    "sunion": lambda a, b: md.sunion(a, b, bucket="1s"),
    "join": lambda a, b: a.join(b, on="k", within="2s", how="left").select("k", "n", "v"),
    "asof_join": lambda a, b: a.asof_join(b.select("k", x="v"), on="k", within="30s").select(
        "k", "n", v="coalesce(x, v)"
    ),
}


@st.composite
def queries(draw: st.DrawFn) -> md.Query:
    q = md.Query("random")
    streams = [
        q.source(name, SCHEMA, time="ts", slack=slack).select("k", "n", "v")
        for name, slack in (("cars", "5s"), ("more", None))
    ]
    for _ in range(draw(st.integers(2, 4))):
        step = draw(st.sampled_from(sorted(STEPS)))
        left, right = (draw(st.sampled_from(range(len(streams)))) for _ in range(2))
        streams.append(STEPS[step](streams[left], streams[right]))
    q.sink("last", streams[-1])
    q.sink("other", streams[-2])
    return q


def same(spark: Any, query: md.Query, seed: int) -> None:
    check(spark, query, {name: rows(seed + place, 120) for place, name in enumerate(query.sources)}, shards=2)


SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": settings.default.phases[:3],  # no shrinking: each try takes seconds
}


@settings(max_examples=5, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000))
def test_random_queries(spark: Any, query: md.Query, seed: int) -> None:
    same(spark, query, seed)


@pytest.mark.full
@pytest.mark.issue(7)
@settings(max_examples=60, **SETTINGS)
@given(query=queries(), seed=st.integers(0, 1000))
def test_many_random_queries(spark: Any, query: md.Query, seed: int) -> None:
    same(spark, query, seed)
