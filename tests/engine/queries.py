"""Random queries, random disordered input, random cuts: what the property tests draw from.

Values are quarters, so that floating sums are exact in any order; bits are compared elsewhere.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import medusa as md
from tests.oracle.query import Promise, Push

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64", "s": "utf8", "n": "int32"}
ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("v", pa.float64()),
        ("s", pa.string()),
        ("n", pa.int32()),
    ]
)

PREDICATES = [
    "v > 0.5",
    "k = 1 or s = 'b'",
    "n % 3 = 1",
    "v is null or v < 2",
    "epoch_us(tuple_time) > 20",
    "true",
]
PREDICATES_LATE = [p for p in PREDICATES if "tuple_time" not in p]
WINDOWS = [(5, None), (10, None), (10, 5), (10, 3), (7, 1), (1, None), (12, 8)]
HOWS = ["inner", "inner", "left", "right", "full", "semi", "anti"]
KEYS: list[tuple[str, ...]] = [(), ("k",), ("s",), ("k", "s"), ("v",)]
AGGREGATES = {
    "c": "count()",
    "cv": "count(v)",
    "total": "sum(v)",
    "ints": "sum(n)",
    "low": "min(v)",
    "high": "max(n)",
    "mean": "avg(n)",
    "kinds": "count_distinct(s)",
    "spread": "variance(n)",
    "earliest": "first(v)",
    "latest": "last(s)",
    "lowest": "min(s)",
    "highest": "max(s)",
    "about": "approx_count_distinct(s)",
    "upper": "quantile(v, 0.75)",
    "usual": "median(n)",
    "near": "approx_quantile(v, 0.3)",
}


def rows_of(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {
            "ts": times,
            "k": st.one_of(st.none(), st.integers(0, 3)),
            "v": st.one_of(st.none(), st.integers(-4, 12).map(lambda q: q / 4), st.just(float("nan"))),
            "s": st.sampled_from([None, "a", "b", "cc"]),
            "n": st.integers(0, 9),
        }
    )
    return st.lists(row, max_size=12)


@st.composite
def inputs(draw: st.DrawFn, sources: list[str]) -> list[Push | Promise]:
    """Pushes and explicit boundaries of several sources, in an order; times wander about."""
    events: list[Push | Promise] = []
    now = 0
    promised = dict.fromkeys(sources, -(10**9))
    for _ in range(draw(st.integers(1, 7))):
        source = draw(st.sampled_from(sources))
        if draw(st.integers(0, 5)) == 0:
            time = max(promised[source], now - draw(st.integers(0, 10)))
            promised[source] = time
            events.append(Promise(source, time))
            continue
        rows = draw(rows_of(st.integers(-6, 14)))
        for row in rows:
            row["ts"] += now
        now += draw(st.integers(0, 15))
        events.append(Push(source, rows))
    return events


class Pool:
    """Streams of a query that is being drawn, by what can be done with them."""

    def __init__(self) -> None:
        self.raw: list[md.Stream] = []  # of the source's columns, not yet in order of time
        self.windowed: list[tuple[md.Stream, tuple[Any, ...], tuple[str, ...]]] = []
        self.done: list[md.Stream] = []


@st.composite
def queries(draw: st.DrawFn, *, unions: bool = True) -> md.Query:
    """A query of one or two sources and up to six boxes; every stream that nothing reads has a sink."""
    q = md.Query("random")
    pool = Pool()
    for name in ["a", "b"][: draw(st.integers(1, 2))]:
        slack = draw(st.sampled_from([0, 3, 10, 40]))
        source = q.source(name, SCHEMA, time="ts", slack=slack)
        pool.raw.append(source)
        if draw(st.integers(0, 3)) == 0:
            q.sink(f"late_{name}", source.late.filter(draw(st.sampled_from(PREDICATES_LATE))))
    kinds = ["filter", "with", "window", "window", "again", "join", "window_join"] + ["union"] * unions
    for _ in range(draw(st.integers(1, 6))):
        grow(draw, draw(st.sampled_from(kinds)), pool)
    streams = [*pool.raw, *(stream for stream, _, _ in pool.windowed), *pool.done]
    for number, stream in enumerate(streams):
        q.sink(f"out_{number}", stream)
    return q


def grow(draw: st.DrawFn, kind: str, pool: Pool) -> None:
    """Add a box of a kind, where the pool has an input for it."""
    raw = draw(st.sampled_from(pool.raw))
    if kind == "filter":
        pool.raw.append(raw.filter(draw(st.sampled_from(PREDICATES))))
    elif kind == "with":
        pool.raw.append(raw.with_columns(n="n", v="v * 2.0"))
    elif kind == "union":
        pool.raw.append(raw.union(draw(st.sampled_from(pool.raw))))
    elif kind == "window":
        window, keys = draw(st.sampled_from(WINDOWS)), draw(st.sampled_from(KEYS))
        pool.windowed.append((aggregated(draw, raw, window, keys), window, keys))
    elif kind == "join":
        other = draw(st.sampled_from(pool.raw))
        on: Any = draw(st.sampled_from(["k", ["k", "s"], "v", {"k": "n"}]))
        where = draw(st.sampled_from([None, "left.n <= right.n", "left.v > right.v or left.s = 'b'"]))
        within = draw(st.sampled_from([0, 1, 4, 15]))
        how = draw(st.sampled_from(HOWS))
        pool.done.append(raw.join(other, on=on, within=within, where=where, how=how))
    elif pool.windowed:
        stream, window, keys = draw(st.sampled_from(pool.windowed))
        if kind == "again":
            size = draw(st.sampled_from([(20, None), (10, 5)]))
            again = stream.window(size[0], advance=size[1])
            pool.done.append((again.group_by(keys[0]) if keys else again).aggregate(m=md.count()))
            return
        same = [other for other, w, k in pool.windowed if w == window and k == keys]
        columns = ["window", *keys] if draw(st.booleans()) else "window"
        how = draw(st.sampled_from(HOWS))
        pool.done.append(stream.join(draw(st.sampled_from(same)), on=columns, how=how))


def aggregated(draw: st.DrawFn, raw: md.Stream, window: Any, keys: tuple[str, ...]) -> md.Stream:
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    grouped = raw.window(window[0], advance=window[1])
    values = {name: AGGREGATES[name] for name in names}
    return grouped.group_by(*keys).aggregate(**values) if keys else grouped.aggregate(**values)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ARROW)


def numbers(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as the oracle writes them: times as microseconds."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.schema.names).to_pylist()
