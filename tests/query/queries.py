"""Random queries that hold, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import medusa as md
from medusa.query.builder import Query, Stream

__all__ = ["graphs", "points", "queries"]

SCHEMA = {"ts": "timestamp", "k": "int32", "v": "float64", "s": "utf8", "b": "bool"}
PREDICATES = ["k > 3", "v > 0.5 AND NOT b", "s LIKE 'x%'", "k IN (1, 2, 3)", "b IS NULL OR k % 2 = 0"]
VALUES = ["v * 2 + k", "CASE WHEN b THEN 1 ELSE k END", "upper(s) || 'x'", "CAST(k AS utf8)", "-v / 3"]
AGGREGATES = ["count(*)", "sum(k)", "avg(v)", "min(ts)", "max(k)", "variance(v)", "count_distinct(s)"]
DURATIONS = ["1s", "250ms", "1 min"]


@st.composite
def queries(draw: st.DrawFn, *, boxes: int = 12) -> Query:
    """A query of up to ``boxes`` boxes besides sources and sinks; some named, some not."""
    q = md.Query("random")
    raw = [q.source(f"s{index}", SCHEMA, slack="2s") for index in range(draw(st.integers(1, 3)))]
    timeless = q.source("timeless", SCHEMA, time=None)
    windowed: list[Stream] = []
    streams = [*raw, timeless]
    for index in range(draw(st.integers(0, boxes))):
        name = draw(st.sampled_from([None, f"box-{index}"]))
        made = _grow(draw, raw, windowed, timeless, name)
        streams.append(made)
    for index, stream in enumerate(streams):
        if draw(st.booleans()) or index == len(streams) - 1:
            q.sink(f"out{index}", stream, qos=draw(st.none() | graphs(stream)))
    return q


@st.composite
def points(draw: st.DrawFn, xs: st.SearchStrategy[Any], *, way: int = 0) -> list[tuple[Any, float]]:
    """Points of a graph: utilities rise (``way`` 1), fall (-1) or do as they like, x in any order."""
    places = draw(st.lists(xs, min_size=2, max_size=5, unique=True))
    utilities = [draw(st.floats(0, 1)) for _ in places]
    if way:
        places, utilities = sorted(places), sorted(utilities, reverse=way < 0)
    return draw(st.permutations(list(zip(places, utilities, strict=True))))


@st.composite
def graphs(draw: st.DrawFn, stream: Stream) -> md.QoS:
    """Quality of service that a stream can have."""
    delay, percent = st.integers(0, 1 << 40), st.floats(0, 100)
    numbers = [name for name, type in stream.schema.items() if "int" in type or "float" in type]
    latency = draw(st.none() | points(delay, way=-1))
    value = (draw(st.sampled_from(numbers)), draw(points(st.floats(-1e9, 1e9)))) if numbers else None
    value = draw(st.sampled_from([None, value]))
    loss = points(percent, way=1)
    nothing = latency is None and value is None
    return md.QoS(latency=latency, loss=draw(loss if nothing else st.none() | loss), value=value)


def _grow(
    draw: st.DrawFn, raw: list[Stream], windowed: list[Stream], timeless: Stream, name: str | None
) -> Stream:
    """One more box; streams of the source's columns and of windows go on in their lists."""
    source = draw(st.sampled_from(raw))
    kinds = ["filter", "with_columns", "select", "union", "window", "join", "late", "timeless"]
    kind = draw(st.sampled_from([*kinds, "window_join", "narrow"] if windowed else kinds))
    match kind:
        case "filter":
            raw.append(source.filter(draw(st.sampled_from(PREDICATES)), name=name))
            return raw[-1]
        case "with_columns":
            return source.with_columns(extra=draw(st.sampled_from(VALUES)), name=name)
        case "select":
            return source.select("k", {"new name": draw(st.sampled_from(VALUES))}, at=md.time(), name=name)
        case "union":
            raw.append(source.union(draw(st.sampled_from(raw)), name=name))
            return raw[-1]
        case "late":
            return draw(st.sampled_from(raw[:1])).late.filter(draw(st.sampled_from(PREDICATES)), name=name)
        case "timeless":
            return timeless.union(timeless.filter(draw(st.sampled_from(PREDICATES))), name=name)
        case "join":
            other = draw(st.sampled_from(raw))
            where = draw(st.sampled_from([None, "left.v < right.v", "left.s <> right.s"]))
            return source.join(other, on="k", within=draw(st.sampled_from(DURATIONS)), where=where, name=name)
        case "window":
            windowed.append(_window(draw, source, name))
            return windowed[-1]
        case "narrow":
            windowed.append(draw(st.sampled_from(windowed)).filter("n IS NOT NULL", name=name))
            return windowed[-1]
    left = draw(st.sampled_from(windowed))
    return left.join(left.filter("n > 1"), on=["window", "k"], name=name)


def _window(draw: st.DrawFn, source: Stream, name: str | None) -> Stream:
    size = draw(st.sampled_from(DURATIONS))
    window = source.window(size, advance=draw(st.sampled_from([None, size, "100ms"])))
    aggregate = draw(st.sampled_from(AGGREGATES))
    return window.group_by("k", draw(st.sampled_from(["s", "lower(s)", "b"]))).aggregate(
        n=md.count(), x=aggregate, name=name
    )
