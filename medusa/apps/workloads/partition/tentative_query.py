"""Two streams that meet, of which one is cut off with all replicas: the query, where it runs, its input.

    p publishes ── a left ────┐
                   b follows  ├── c both ── counted ── out, delay=X ── r reads
    s publishes ── c right ───┘

While a and b can't be reached no row of ``left`` comes, so no window can be right. What ``right`` brings
shows all the same: tentative windows, within X of when they would have come. All of it is deterministic, so
the stable windows are compared with the embedded run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.query.stream.several import sunion

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AT",
    "LEFT",
    "OUT",
    "QUERY",
    "RIGHT",
    "STANDBY",
    "SUPPLIER",
    "WINDOW_US",
    "expected",
    "query",
    "traffic",
]

SUPPLIER = "s"
"""The host of the client that publishes ``right``."""

AT = {"a": ["left"], "c": ["right", "both", "counted"]}
STANDBY = {"a": ["b"]}

QUERY = "meeting"
LEFT, RIGHT = f"{QUERY}.left", f"{QUERY}.right"
OUT = f"{QUERY}.out"

WINDOW_US = 100_000
"""Each is a point of the plot."""

COLUMNS = {"ts": "timestamp", "n": "int64", "left": "int64"}


def query(delay: str) -> Query:
    """Windows over both streams: how many rows, how many of them of ``left``, the total of their numbers."""
    q = Query(QUERY)
    left, right = (q.source(name, COLUMNS, time="ts", slack="0s") for name in ("left", "right"))
    both = sunion(left, right, bucket=WINDOW_US, name="both")
    windows = both.window(WINDOW_US)
    counted = windows.aggregate(rows=count(), left=sum("left"), total=sum("n"), name="counted")
    q.sink("out", counted, delay=delay)
    return q


def traffic(begin: int, end: int, at_us: int, *, left: bool) -> pa.Table:
    """The rows of these numbers, all of one moment since the start."""
    import numpy as np
    import pyarrow as pa

    return pa.table(
        {
            "ts": pa.array(np.full(end - begin, at_us), pa.timestamp("us", "UTC")),
            "n": np.arange(begin, end),
            "left": np.full(end - begin, int(left)),
        }
    )


def expected(delay: str, left: pa.Table, right: pa.Table) -> pa.Table:
    """What the query gives in one process, of all that was published."""
    from medusa.runtime.embedded.embedded_run import collect

    return collect(query(delay), left=left, right=right)["out"]
