"""A query for each kind of box, and rows: some late, keys that are null, floats that don't add exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import medusa as md

__all__ = ["CASES", "SCHEMA", "rows"]

SCHEMA = {"ts": "timestamp", "k": "int32", "g": "utf8", "v": "float64", "n": "int64", "b": "bool"}
SECOND = 1_000_000


def rows(seed: int, count: int = 300, *, start: int = 0) -> pa.Table:
    """Rows over five minutes, up to 20 s late; a source with a slack of 5 s finds some of them late."""
    chance = random.Random(seed)
    times = [
        start
        + index * 300 * SECOND // count
        - (chance.randrange(20 * SECOND) if chance.random() < 0.3 else 0)
        for index in range(count)
    ]
    columns: dict[str, Any] = {
        "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "k": pa.array([chance.choice([1, 2, 3, 4, 5, None]) for _ in times], pa.int32()),
        "g": pa.array([chance.choice(["a", "b", "", None]) for _ in times]),
        "v": pa.array(
            [chance.choice([0.1, -0.0, 1e16, 0.3, float("nan"), None]) for _ in times], pa.float64()
        ),
        "n": pa.array([chance.randrange(-5, 100) for _ in times], pa.int64()),
        "b": pa.array([chance.random() < 0.5 for _ in times]),
    }
    return pa.table(columns)


def one(build: Callable[[md.Stream], Any]) -> Callable[[], md.Query]:
    """A query over one source."""

    def made() -> md.Query:
        q = md.Query("one")
        q.sink("out", build(q.source("cars", SCHEMA, time="ts", slack="5s")))
        return q

    return made


def two(build: Callable[[md.Stream, md.Stream], Any]) -> Callable[[], md.Query]:
    """A query over two sources."""

    def made() -> md.Query:
        q = md.Query("two")
        left = q.source("cars", SCHEMA, time="ts", slack="5s")
        right = q.source("more", SCHEMA, time="ts", slack="8s")
        q.sink("out", build(left, right))
        return q

    return made


def join(how: str) -> Callable[[], md.Query]:
    return two(
        lambda a, b: a.join(b.filter("n > 60"), on="k", within="4s", how=how, where="left.n > right.n")
    )


def windows(how: str) -> Callable[[], md.Query]:
    def build(a: md.Stream, b: md.Stream) -> Any:
        left = a.window("20s").group_by("k").aggregate(c=md.count())
        right = b.filter("n > 70").window("20s").group_by("k").aggregate(d=md.count(), x=md.max("n"))
        return left.join(right, on=["window", "k"], how=how)

    return two(build)


def routed(port: int) -> Callable[[], md.Query]:
    return one(lambda s: s.route("n > 80", "b", otherwise=True)[port])


def update() -> md.Query:
    q = md.Query("update")
    cars = q.source("cars", SCHEMA, time="ts", slack="5s")
    more = q.source("more", SCHEMA, time="ts", slack="8s")
    held = pa.table({"k": pa.array([1, 9], pa.int32()), "s": pa.array([5, 6], pa.int64())})
    table = q.table("sums", key="k", schema={"k": "int32", "s": "int64"}, from_=held)
    q.sink("updated", cars.select("k", "n").update(table, set={"s": "table.s + n"}, insert={"s": "n"}))
    q.sink("found", more.select("k", "g").lookup(table))
    return q


def history() -> md.Query:
    q = md.Query("history")
    q.sink("out", q.connection_point("recent", q.source("cars", SCHEMA, time="ts", slack="5s"), keep="1 min"))
    return q


CASES: dict[str, Callable[[], md.Query]] = {
    "source": one(lambda s: s),
    "source late": one(lambda s: s.late),
    "filter": one(lambda s: s.filter("n > 20")),
    "select": one(lambda s: s.select("k", w="v + 1", t="tuple_time")),
    "select of failing rows": one(lambda s: s.select("k", w="100 // n")),
    "with_columns": one(lambda s: s.with_columns(n="n + 1", m="k * 2")),
    "route 0": routed(0),
    "route 1": routed(1),
    "route otherwise": routed(2),
    "semantic_drop": one(lambda s: s.drop(where="n > 50")),
    "window_drop": one(lambda s: s.drop(0.4, window="10s", by="k")),
    "dead": one(lambda s: s.select("k", w="100 // n").dead),
    "aggregate": one(
        lambda s: (
            s.window("10s")
            .group_by("k", "g")
            .aggregate(
                c=md.count(),
                s=md.sum("v"),
                a=md.avg("v"),
                f=md.first("n"),
                l=md.last("n"),
                u=md.count_distinct("n"),
            )
        )
    ),
    "aggregate, sliding": one(
        lambda s: (
            s.window("20s", advance="7s").group_by("k").aggregate(s=md.sum("v"), q=md.quantile("n", 0.3))
        )
    ),
    "aggregate without a key": one(lambda s: s.window("20s").aggregate(s=md.sum("v"), c=md.count())),
    "aggregate of an expression that fails": one(
        lambda s: s.window("20s").group_by(x="100 // n").aggregate(c=md.count())
    ),
    "session": one(lambda s: s.session("6s").group_by("k").aggregate(c=md.count(), s=md.sum("v"))),
    "window_rows": one(
        lambda s: s.group_by("k").window_rows(7, advance=3).aggregate(c=md.count(), s=md.sum("v"))
    ),
    "window_values": one(
        lambda s: (
            s.group_by("k").running(m=md.count()).group_by("k").window_values("m", 5).aggregate(s=md.sum("v"))
        )
    ),
    "running": one(lambda s: s.group_by("k").running(p=md.lag("n"), s=md.sum("v"))),
    "running, expiring": one(lambda s: s.group_by("k").running(c=md.count(), expire="4s")),
    "top": one(lambda s: s.window("20s").group_by("b").top(3, by="n")),
    "distinct": one(lambda s: s.distinct("k", within="15s")),
    "random_drop": one(lambda s: s.drop(0.5, seed=3)),
    "bsort": one(lambda s: s.bsort("n", slack=5)),
    "wsort": one(lambda s: s.wsort("n", timeout="200ms")),
    "resample": one(lambda s: s.select("k", "n").resample("5s", by="k", gap="30s")),
    "union": two(lambda a, b: a.union(b)),
    "sunion": two(lambda a, b: md.sunion(a, b, bucket="1s")),
    "join inner": join("inner"),
    "join left": join("left"),
    "join right": join("right"),
    "join full": join("full"),
    "join semi": join("semi"),
    "join anti": join("anti"),
    "window_join inner": windows("inner"),
    "window_join left": windows("left"),
    "window_join full": windows("full"),
    "window_join anti": windows("anti"),
    "asof_join": two(lambda a, b: a.asof_join(b.select("k", x="n"), on="k", within="20s")),
    "table and lookup": update,
    "connection_point": history,
}
