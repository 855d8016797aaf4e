"""Question: what do sessions and windows of rows cost, from a table in to a table out?

Data: 2,000,000 rows in order of time, 1,000 keys at random; count and sum of an int64. Peers: DuckDB's window
functions (sessions and row numbers by SQL), one thread. The answers are compared before anything is measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md

ROWS = 2_000_000
KEYS = 1_000
GAP_US = 1_000_000
SIZE = 100

SESSIONS = f"""
with marked as (
    select *, ts - lag(ts) over (partition by k order by ts) >= {GAP_US} as fresh from events),
numbered as (
    select *, sum(coalesce(fresh, true)::int) over (partition by k order by ts rows unbounded preceding) as s
    from marked)
select min(ts) as s0, max(ts) + {GAP_US} as s1, k, count(*) as n, sum(v)::bigint as total
from numbered group by k, s
"""
ROW_WINDOWS = f"""
with numbered as (select *, row_number() over (partition by k order by ts) - 1 as i from events)
select (i // {SIZE}) * {SIZE} as s0, (i // {SIZE}) * {SIZE} + {SIZE} as s1, k, count(*) as n,
    sum(v)::bigint as total
from numbered group by k, i // {SIZE} having count(*) = {SIZE}
"""
SQL = {"session": SESSIONS, "rows": ROW_WINDOWS}


@pytest.fixture(scope="module")
def events() -> pa.Table:
    rng = np.random.default_rng(7)
    ts = np.arange(ROWS, dtype=np.int64) * 200 + rng.integers(0, 200, ROWS)
    return pa.table({"ts": ts, "k": rng.integers(0, KEYS, ROWS), "v": rng.integers(-99, 99, ROWS)})


def query(kind: str) -> md.Query:
    q = md.Query("q")
    source = q.source("a", {"ts": "int64", "k": "int64", "v": "int64"}, time="ts", unit="us", slack=0)
    cut: Any = {
        "session": lambda: source.session(GAP_US).group_by("k"),
        "rows": lambda: source.group_by("k").window_rows(SIZE),
    }[kind]()
    q.sink("o", cut.aggregate(n=md.count(), total=md.sum("v")))
    return q


def by_duckdb(kind: str, events: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("events", events)
        return connection.sql(SQL[kind]).to_arrow_table()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return sorted(zip(*(c.to_pylist() for c in columns), strict=True))


@pytest.mark.parametrize("kind", SQL)
def test_medusa(peer: Any, events: pa.Table, kind: str) -> None:
    peer.extra_info["rows"] = ROWS
    assert rows_of(md.collect(query(kind), a=events)["o"]) == rows_of(by_duckdb(kind, events))
    peer(lambda: md.collect(query(kind), a=events)["o"].num_rows)


@pytest.mark.parametrize("kind", SQL)
def test_duckdb(peer: Any, events: pa.Table, kind: str) -> None:
    peer.extra_info["rows"] = ROWS
    assert rows_of(by_duckdb(kind, events)) == rows_of(md.collect(query(kind), a=events)["o"])
    peer(lambda: by_duckdb(kind, events).num_rows)
