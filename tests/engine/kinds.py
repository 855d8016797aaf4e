"""One query for each kind of box, and rows that leave state in it: what tests of state go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pyarrow as pa

import medusa as md
from medusa.elements import Kind, Train
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Box
from medusa.query.rewrite.split import split
from tests.engine.user_functions import DOUBLED, OUT, STATE, Alarms, doubled

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64", "s": "utf8", "n": "int32"}

Build = Callable[[md.Query, md.Stream, md.Stream], md.Stream]


def _table(q: md.Query, a: md.Stream, b: md.Stream) -> md.Stream:
    accounts = q.table("acc", key="k", schema={"k": "int64", "v": "float64"}, expire=60)
    b.update(accounts, set={"v": "coalesce(table.v, 0) + v"}, insert={"v": "v"})
    return a.lookup(accounts, name="x")


def _window_join(q: md.Query, a: md.Stream, b: md.Stream) -> md.Stream:
    sums = [
        side.window(10).group_by("k").aggregate(total="sum(v)", name=f"w{n}") for n, side in enumerate((a, b))
    ]
    return sums[0].join(sums[1], on=["window", "k"], how="full", name="x")


BUILDS: dict[str, Build] = {
    "filter": lambda q, a, b: a.filter("v > 1", name="x"),
    "select": lambda q, a, b: a.select("k", w="v * 2", name="x"),
    "with_columns": lambda q, a, b: a.with_columns(w="v * 2", name="x"),
    "union": lambda q, a, b: a.union(b, name="x"),
    "aggregate": lambda q, a, b: (
        a.window(20, advance=5)
        .group_by("k", "s")
        .aggregate(c=md.count(), t="sum(v)", d="count_distinct(s)", q="median(v)", m="min(s)", name="x")
    ),
    "early": lambda q, a, b: a.window(20).group_by("k").aggregate(c=md.count(), early=4, name="x"),
    "join": lambda q, a, b: a.join(b, on="k", within=6, how="full", name="x"),
    "join_where": lambda q, a, b: a.join(b, on={"k + 1": "k"}, within=6, where="left.v < right.v", name="x"),
    "window_join": _window_join,
    "asof_join": lambda q, a, b: a.asof_join(b, on="k", within=20, name="x"),
    "route": lambda q, a, b: a.route("v > 1", "k = 2", name="x")[1],
    "random_drop": lambda q, a, b: a.drop(0.5, name="x"),
    "semantic_drop": lambda q, a, b: a.drop(where="v > 1", name="x").dropped,
    "window_drop": lambda q, a, b: a.drop(0.5, window=10, name="x"),
    "distinct": lambda q, a, b: a.distinct("k", within=20, name="x"),
    "sunion": lambda q, a, b: a.sunion(b, bucket=10, name="x"),
    "bsort": lambda q, a, b: a.bsort("v", slack=4, by="k", name="x"),
    "wsort": lambda q, a, b: a.wsort("v", timeout=30, by="k", name="x"),
    "resample": lambda q, a, b: a.resample(2, by="k", gap=40, name="x"),
    "apply": lambda q, a, b: a.select("n", "s").apply(doubled, DOUBLED, name="x"),
    "process": lambda q, a, b: a.process(Alarms, OUT, by="k", state=STATE, name="x"),
    "table": _table,
    "session": lambda q, a, b: a.session(4).group_by("k").aggregate(c=md.count(), t="sum(v)", name="x"),
    "row_window": lambda q, a, b: (
        a.group_by("k").window_rows(5, advance=2).aggregate(c=md.count(), t="sum(v)", name="x")
    ),
    "value_window": lambda q, a, b: (
        a.group_by("k").window_values("epoch_us(ts)", 10).aggregate(c=md.count(), t="sum(v)", name="x")
    ),
    "running": lambda q, a, b: a.group_by("k").running(
        c=md.count(), t="sum(v)", before=md.lag("s"), expire=30, name="x"
    ),
    "connection_point": lambda q, a, b: q.connection_point("x", a, keep=30, keep_bytes="64 KiB"),
    "top": lambda q, a, b: a.window(10).group_by("k").top(2, by="v", name="x"),
    "split": lambda q, a, b: a.join(b, on="k", within=6, how="full", name="x"),
    "split_rows": lambda q, a, b: a.group_by("k").running(c=md.count(), name="x"),
}


def query(kind: str) -> md.Query:
    """Sources ``a`` (by partition) and ``b``, the box ``x``, the sink ``o``."""
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack=5)
    b = q.source("b", SCHEMA, time="ts", slack=5)
    q.sink("o", BUILDS[kind](q, a, b))
    q.sink("p", b.filter("n > 90"))
    return md.Query.from_graph(split(q.graph, "x", 3)) if kind.startswith("split") else q


def rows(start: int, count: int, source: str) -> pa.RecordBatch:
    """Times wander about by 3, now and then a row is late, some values are null or NaN."""
    seed = 7 if source == "a" else 11
    turns = range(start, start + count)
    times = [max(0, n + n * seed % 4 - (30 if n % 19 == 18 else 0)) for n in turns]
    values = [None if n % 13 == 0 else float("nan") if n % 17 == 0 else n * seed % 23 / 4 for n in turns]
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array([None if n % 29 == 0 else n * seed % 5 for n in turns], pa.int64()),
            "v": pa.array(values, pa.float64()),
            "s": pa.array([["x", "yy", None, ""][n % 4] for n in turns]),
            "n": pa.array([n % 6 for n in turns], pa.int32()),
        }
    )


def push(fragment: Fragment, start: int, count: int) -> None:
    for source in ("a", "b"):
        batch = rows(start, count, source)
        fragment.push_rows(source, [batch], fragment.check_rows(source, [batch]))


def state_of(fragment: Fragment) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in fragment.snapshot().items()}


def answer(fragment: Fragment, sink: str = "o") -> list[str]:
    """All final rows of a sink from here on, with the end."""
    fragment.finish()
    trains = [each for each in fragment.drain(sink) if isinstance(each, Train) and each.kind is Kind.STABLE]
    return [repr(row) for train in trains for row in train.batch.to_pylist()]


def missing() -> set[str]:
    """Kinds of the ``Box`` union that no query here has."""
    seen = {type(box) for kind in BUILDS for box in query(kind).graph.boxes}
    return {each.__name__ for each in get_args(Box) if each not in seen}
