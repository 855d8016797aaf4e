"""A running total over a line of nodes of which one is cut off: the query, where it runs, and its input.

    p publishes ── a rows ── totals ──┬── c doubled ── out ── r reads
                   b follows a        └── guarded

What ``guarded`` puts out is what c reads: as an output with ``recovery=`` it says that somebody has to follow
a. All of it is deterministic, so what came is compared with the embedded run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AT",
    "CLIENTS",
    "COORDINATOR",
    "GUARDED",
    "NODES",
    "OUT",
    "PUBLISHER",
    "QUERY",
    "READER",
    "SECONDARY",
    "SOURCE",
    "STANDBY",
    "expected",
    "query",
    "traffic",
]

NODES = ("a", "b", "c")
GUARDED, SECONDARY, COORDINATOR = NODES
PUBLISHER, READER = CLIENTS = ("p", "r")

AT = {"a": ["rows", "totals"], "c": ["doubled"]}
STANDBY = {"a": ["b"]}
"""a, b and c vote: c since it is asked to deploy. So two of three are left when one is cut off."""

QUERY = "line"
SOURCE = f"{QUERY}.rows"
OUT = f"{QUERY}.out"

KEYS = 7


def query() -> Query:
    """Totals by key, which a lost state would show, and a box at another node, which gives a row for each."""
    q = Query(QUERY)
    rows = q.source("rows", {"n": "int64", "k": "int64"}, time=None)
    totals = rows.group_by("k").running(rows=count(), total=sum("n"), name="totals")
    q.sink("guarded", totals, recovery="precise", method="active_standby")
    q.sink("out", totals.with_columns(twice="2 * total", name="doubled"))
    return q


def traffic(begin: int, end: int) -> pa.Table:
    """The rows of these numbers."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(begin, end)
    return pa.table({"n": numbers, "k": numbers % KEYS})


def expected(rows: int) -> pa.Table:
    """What the query gives in one process, of so many rows."""
    from medusa.runtime.embedded.embedded_run import collect

    return collect(query(), rows=traffic(0, rows))["out"]
