"""The query that is tried, its numbered rows, and the account of what came of them.

    publisher ── a rows ── kept ── m passed ──┬── counted ── out      m2 stands by for m
                                              └── longer ─── held     w votes, and stands by for a

Row n is of group ``n mod groups``. A window of ``counted`` says how many rows of its group it holds, and
their first, last and total number: so which numbers came, and how often, follows from the output alone.
``longer`` is there for its state: a window, which counts by ``n mod keys``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import medusa as md
from bench.recovery.methods import Method
from medusa.apps.workloads.demos.ha_outcome import HaAccount, HaWindow, account

__all__ = [
    "COLUMNS",
    "Shape",
    "counts",
    "counts_of",
    "held_of",
    "newest",
    "placed",
    "query",
    "rows_of",
    "windows_of",
]

COLUMNS = {"ts": "timestamp", "n": "int64", "k": "int64", "key": "int64", "sent": "int64"}
FRAGMENT = "q/passed"
"""What runs at the primary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much there is to do.

    Attributes:
        rate: rows a second, by their own time and by the clock.
        window_ms: of ``counted``.
        groups: by which it counts.
        keys: of ``longer``, whose windows take ``held_ms``; 0: there is no such window.
        filled: a row of each key comes before those at their pace.
        interval: between two checkpoints of a fragment.
        wait: for an owner that is silent, as ``[recovery] wait``.
    """

    rate: int
    window_ms: int
    groups: int = 10
    keys: int = 0
    held_ms: int = 3_600_000
    filled: bool = False
    interval: str = "200ms"
    wait: str = "2s"


def counts() -> dict[str, Any]:
    """What a window says of its rows."""
    return {
        "rows": md.count(),
        "first": md.min("n"),
        "last": md.max("n"),
        "total": md.sum("n"),
        "sent": md.max("sent"),
    }


def query(method: Method, shape: Shape) -> md.Query:
    q = md.Query("q")
    kept = q.source("rows", COLUMNS, time="ts").filter("n >= 0", name="kept")
    # So that both windows are of one fragment, with one input.
    passed = kept.filter("key >= 0", name="passed")
    counted = passed.window(f"{shape.window_ms}ms").group_by("k").aggregate(**counts(), name="counted")
    q.sink("out", counted, **method.wish)
    if shape.keys:
        longer = passed.window(f"{shape.held_ms}ms").group_by("key")
        q.sink(
            "held",
            longer.aggregate(rows=md.count(), first=md.min("n"), total=md.sum("n"), name="longer"),
            **method.wish,
        )
    return q


def placed(q: md.Query, entry: str, primary: str) -> dict[str, list[str]]:
    """Source and filter at the entry, the rest at the primary."""
    ahead = ["rows", "kept"]
    return {entry: ahead, primary: [box.id for box in q.graph.boxes if box.id not in ahead]}


def rows_of(begin: int, end: int, sent_ns: int, *, rate: int, groups: int, keys: int = 0) -> pa.Table:
    """The rows of these numbers, as published at this time."""
    numbers = np.arange(begin, end)
    return pa.table(
        {
            "ts": pa.array(numbers * 1_000_000 // rate, pa.timestamp("us", "UTC")),
            "n": numbers,
            "k": numbers % groups,
            "key": numbers % max(keys, 1),
            "sent": np.full(end - begin, sent_ns),
        }
    )


def windows_of(came: Iterable[tuple[int, pa.RecordBatch]], start_ns: int) -> list[HaWindow]:
    """Rows of ``out`` as they came; times are since ``start_ns``."""
    return [
        HaWindow(
            (at_ns - start_ns) / 1e9,
            row["rows"],
            row["first"],
            row["last"],
            row["total"],
            (row["sent"] - start_ns) / 1e9,
        )
        for at_ns, batch in came
        for row in batch.to_pylist()
    ]


def newest(came: Sequence[tuple[int, pa.RecordBatch]]) -> int:
    """The highest number that ``out`` has counted so far; -1: none."""
    return pc.max(came[-1][1]["last"]).as_py() if came else -1


def counts_of(windows: Sequence[HaWindow], published: int, groups: int) -> HaAccount:
    """What the windows say of the published numbers."""
    return account(windows, published, groups)


def held_of(came: Iterable[tuple[int, pa.RecordBatch]], published: int, shape: Shape, *, again: bool) -> str:
    """What is wrong with the rows of ``held``; empty: each key of each window came, with its rows.

    Args:
        again: they may come more than once.
    """
    batches = [batch for _, batch in came]
    if not batches:
        return "nothing came of the held windows"
    found = pa.Table.from_batches(batches)
    names = ("key", "first", "rows", "total")
    key, first, rows, total = (found[name].to_numpy() for name in names)
    size = shape.rate * shape.held_ms // 1_000
    window = first // size
    begin, end = window * size, np.minimum((window + 1) * size, published)
    first_there = begin + (key - begin) % shape.keys
    rows_there = np.maximum((end - 1 - first_there) // shape.keys + 1, 0)
    total_there = rows_there * first_there + shape.keys * rows_there * (rows_there - 1) // 2
    wrong = (first != first_there) | (rows != rows_there) | (total != total_there)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        got = f"{rows[at]:,} rows from {first[at]:,}, sum {total[at]:,}"
        there = f"{rows_there[at]:,} from {first_there[at]:,}, sum {total_there[at]:,}"
        return f"held: key {key[at]}: {got}; it has {there}; {int(wrong.sum()):,} keys differ"
    windows = -(-published // size)
    last = published - (windows - 1) * size
    wanted = (windows - 1) * min(shape.keys, size) + min(shape.keys, last)
    unlike = len(np.unique(window * shape.keys + key))
    if unlike != wanted or (len(key) != unlike and not again):
        return f"held: {len(key):,} rows came, {unlike:,} of them unlike, of {wanted:,}"
    return ""
