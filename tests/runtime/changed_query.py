"""A query with many kinds of boxes of which a part stays, and parts that come and go: for tests of change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import medusa as md

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "float64", "s": "utf8"}
STAYS = ("sums", "sessions", "joined", "running", "top", "merged", "ways", "kept", "late")


def base(q: md.Query) -> dict[str, md.Stream]:
    """The part that stays, with a sink for each name of ``STAYS``."""
    a = q.source("a", SCHEMA, time="ts", slack=5)
    b = q.source("b", SCHEMA, time="ts", slack=5)
    fast = a.filter("v > 1", name="fast").with_columns(w="v * 2", name="doubled")
    sums = fast.window(20, advance=5).group_by("k", "s").aggregate(c=md.count(), t="sum(w)", name="w")
    kept = q.connection_point("recent", a, keep_bytes="1 MiB")
    streams = {
        "sums": sums,
        "sessions": b.session(4).group_by("k").aggregate(c=md.count(), t="sum(v)", name="ss"),
        "joined": a.join(b, on="k", within=6, how="full", name="j"),
        "running": a.group_by("k").running(c=md.count(), before=md.lag("s"), expire=60, name="r"),
        "top": sums.select("s", "c", "t", name="many").window(40).group_by("s").top(2, by="c", name="tt"),
        "merged": a.sunion(b, bucket=10, name="su"),
        "ways": a.route("v > 1", "k = 2", name="ro")[1],
        "kept": kept,
        "late": a.late,
    }
    for name, stream in streams.items():
        q.sink(name, stream)
    return streams | {"a": a, "b": b, "fast": fast, "source": a}


Extra = Callable[[md.Query, dict[str, md.Stream], random.Random], md.Stream]

EXTRAS: dict[str, Extra] = {
    "few": lambda q, of, r: of["fast"].filter(f"k = {r.randrange(3)}", name="x_few"),
    "wide": lambda q, of, r: (
        of["fast"].window(r.choice([10, 30])).group_by("k").aggregate(n=md.count(), name="x_wide")
    ),
    "early": lambda q, of, r: (
        of["b"].window(10).group_by("s").aggregate(n=md.count(), early=r.choice([None, 2]), name="x_early")
    ),
    "pairs": lambda q, of, r: of["a"].join(of["b"], on="k", within=r.choice([2, 4]), name="x_pairs"),
    "again": lambda q, of, r: of["sums"].filter("t > 4", name="x_big").select("k", "t", name="x_kt"),
    "behind": lambda q, of, r: of["kept"].distinct("k", within=r.choice([10, 20]), name="x_behind"),
    "other": lambda q, of, r: q.source("c", SCHEMA, time="ts", slack=3).filter("v > 0", name="x_other"),
    "point": lambda q, of, r: q.connection_point("x_point", of["b"], keep=r.choice([30, 60])),
}


def query(extras: list[str], seed: int) -> md.Query:
    """The base, and these others with parameters that the seed draws."""
    q = md.Query("changing")
    of, draw = base(q), random.Random(seed)
    for name in extras:
        q.sink(f"o_{name}", EXTRAS[name](q, of, draw))
    return q


def rows(start: int, count: int, source: str) -> pa.RecordBatch:
    """Times wander about by 3, now and then a row is late."""
    seed = {"a": 7, "b": 11, "c": 13}[source]
    turns = range(start, start + count)
    times = [max(0, n + n * seed % 4 - (30 if n % 19 == 18 else 0)) for n in turns]
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array([None if n % 29 == 0 else n * seed % 5 for n in turns], pa.int64()),
            "v": pa.array([None if n % 13 == 0 else n * seed % 23 / 4 for n in turns], pa.float64()),
            "s": pa.array([["x", "yy", None, ""][n * seed % 4] for n in turns]),
        }
    )


def taken(run: Any, sinks: tuple[str, ...], into: dict[str, list[Any]]) -> None:
    """Take rows of some sinks; their numbers follow each other."""
    for sink in sinks:
        assert run.taken(sink) == len(into.setdefault(sink, [])), f"{sink}: numbers"
        into[sink] += [repr(row) for row in run.take(sink).to_pylist()]
