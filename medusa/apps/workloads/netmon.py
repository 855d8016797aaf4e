"""Network monitoring: who connects a lot, over many ports, and which clusters of hosts do.

The query of the Borealis demonstration (load management, SIGMOD 2005 poster) on scenario 11 of
the CTU-13 data set, a real campus network with a botnet in it. The poster's drawing is ambiguous;
this is our reading:

    flows -> per_src -+-> heavy (n > 100) -+-> both
                      |                    |
                      +-> wide  (p > 10) --+
                      |
                      +-> not heavy -> prefix -> per_prefix -> clusters (n > 100)

``per_src``: 60 s windows, per source address n = flows, p = distinct destination ports.
``prefix``: the three octets before the last dot of an IPv4 address, else the whole address.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import numpy as np
    import pyarrow as pa

    from medusa.query.builder import Query

__all__ = [
    "AT",
    "CITATION",
    "EDGES",
    "SINKS",
    "SLACK_US",
    "WINDOW_US",
    "CORE",
    "Delivery",
    "deliveries",
    "labelled_bots",
    "load_trace",
    "query",
]

WINDOW_US = 60_000_000
SLACK_US = 2_000_000
"""How late a row may be, and so the bound of the jitter that ``deliveries`` adds."""

EDGES = ("edge-1", "edge-2")
CORE = "core"
SINKS = ("groups", "heavy", "wide", "both", "clusters")

AT = {
    "edge-1": ["flows", "per_src"],
    "edge-2": ["flows", "per_src"],
    CORE: ["groups", "is_heavy", "is_wide", "is_light"],
}
"""Where the boxes run: both edges count their own flows, the core merges and decides. A box that is
not named stands where its input is."""

CITATION = (
    "CTU-13 scenario 11: S. Garcia, M. Grill, J. Stiborek, A. Zunino, An empirical comparison of botnet "
    "detection methods, Computers & Security 45, 2014"
)

COLUMNS = ("ts_us", "proto", "src", "dst", "dport", "pkts", "bytes")
PREFIX = r"""CASE WHEN regexp_matches(src, '^[0-9]{1,3}(\.[0-9]{1,3}){3}$')
    THEN regexp_replace(src, '\.[0-9]+$', '') ELSE src END"""
TRACE = "ctu13_scenario11_flows.parquet"


def load_trace(path: str | Path | None = None) -> pa.Table:
    """The flows in order of time: the shipped trace, or another file of the same columns.

    Returns:
        ``file_row`` and the columns of the source ``flows``.
    """
    import pyarrow.parquet as pq

    from medusa.errors import DataError

    wanted = ["file_row", *COLUMNS]
    if path is not None:
        try:
            have = pq.read_schema(path).names
        except (OSError, ValueError) as error:
            raise DataError(f"the trace {str(path)!r} can't be read: {error}", code="data.trace") from error
        missing = [name for name in wanted if name not in have]
        if missing:
            raise DataError(
                f"the trace {str(path)!r} has no column {', '.join(missing)}",
                hint="it needs the columns of the shipped one: see medusa/apps/workloads/data/CITATION.md",
                code="data.trace",
            )
        return _narrow(pq.read_table(path, columns=wanted))
    with resources.as_file(resources.files("medusa.apps.workloads") / "data" / TRACE) as shipped:
        return _narrow(pq.read_table(shipped, columns=wanted))


def labelled_bots(path: str | Path | None = None) -> frozenset[str]:
    """Sources of flows that the data set's authors label as a bot's; empty where there are no labels."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        shipped = resources.files("medusa.apps.workloads") / "data" / TRACE
        where = path if path is not None else stack.enter_context(resources.as_file(shipped))
        if "label" not in pq.read_schema(where).names:
            return frozenset()
        table = pq.read_table(where, columns=["src", "label"])
    bots = table.filter(pc.match_substring(table["label"], "From-Botnet"))
    return frozenset(bots["src"].to_pylist())


def _narrow(table: pa.Table) -> pa.Table:
    """The same rows as one chunk a column, in the types of the query's source."""
    import pyarrow as pa

    return (
        table.select(["file_row", *COLUMNS])
        .cast(pa.schema([("file_row", pa.int32()), *_schema()]))
        .combine_chunks()
    )


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"proto": pa.string(), "src": pa.string(), "dst": pa.string(), "dport": pa.int32()}
    return pa.schema([(name, types.get(name, pa.int64())) for name in COLUMNS])


def query(*, taken: bool = False) -> Query:
    """The continuous query; the same object runs embedded and over three nodes.

    Args:
        taken: with one sink more, of the flows as the source judged them.
    """
    from medusa.query.builder import Query
    from medusa.query.expressions import aggregates

    q = Query("netmon")
    flows = q.source("flows", _schema(), time="ts_us", unit="us", slack="2s")
    per_src = (
        flows.window("60s")
        .group_by("src")
        .aggregate(n=aggregates.count(), p=aggregates.count_distinct("dport"), name="per_src")
    )
    heavy = per_src.filter("n > 100", name="is_heavy")
    wide = per_src.filter("p > 10", name="is_wide")
    both = heavy.join(
        wide.select("window_start", "window_end", "src", name="ports"),
        on=["window", "src"],
        name="heavy_and_wide",
    )
    light = per_src.filter("n <= 100", name="is_light")
    per_prefix = (
        light.select("n", prefix=PREFIX, name="prefix")
        .window("60s")
        .group_by("prefix")
        .aggregate(n=aggregates.sum("n"), name="per_prefix")
    )
    q.sink("groups", per_src)
    q.sink("heavy", heavy)
    q.sink("wide", wide)
    q.sink("both", both)
    q.sink("clusters", per_prefix.filter("n > 100", name="is_cluster"))
    if taken:
        q.sink("taken", flows)
    return q


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one edge node sees, in the order in which it arrives.

    Attributes:
        edge: the node.
        rows: the source's columns.
        at_us: int64, one per row, ascending: when the row arrives, in trace time.
    """

    edge: str
    rows: pa.Table
    at_us: np.ndarray[Any, np.dtype[np.int64]]

    def between(self, start_us: int, end_us: int) -> pa.Table:
        """The rows that arrive in [start_us, end_us)."""
        low, high = self.at_us.searchsorted([start_us, end_us])
        return self.rows.slice(low, high - low)


def deliveries(trace: pa.Table, seed: int = 0, jitter_us: int = SLACK_US) -> list[Delivery]:
    """Split the trace over the edges and delay each row.

    Even ``file_row`` go to the first edge, odd ones to the second, as two border routers would see
    alternate flows. A row arrives at its time plus a seeded uniform delay in [0, jitter_us]; with
    jitter up to the slack no row is late. Rows of equal arrival keep the order of the trace.
    """
    import numpy as np

    from medusa.errors import DataError

    if not 0 <= jitter_us <= SLACK_US:
        raise DataError(f"jitter of {jitter_us} us: expected 0 to {SLACK_US}, the slack of the source")
    rng = np.random.default_rng(seed)
    at_us = trace["ts_us"].to_numpy() + rng.integers(0, jitter_us, len(trace), endpoint=True)
    parity = trace["file_row"].to_numpy() % 2
    flows = trace.drop_columns("file_row")
    result = []
    for number, edge in enumerate(EDGES):
        mine = np.flatnonzero(parity == number)
        mine = mine[np.argsort(at_us[mine], kind="stable")]
        result.append(Delivery(edge, flows.take(mine).combine_chunks(), at_us[mine]))
    return result
