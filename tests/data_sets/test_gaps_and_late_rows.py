"""Resampling with its gaps, silence, and rows that come late, over the real data."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from tests.data_sets.compare import assert_same, rows_of
from tests.data_sets.test_facts import BUS, EDIT, METRIC


def grid(table: str, key: str, value: str, step_s: int, gap_s: int, *, linear: bool, where: str) -> str:
    """The points of a grid by SQL: of each stretch between two rows that are near, else its end and a gap."""
    line = f"{value} + (after - {value}) * (point - ts_s) / (next - ts_s)" if linear else value
    first = f"(ts_s + {step_s - 1}) // {step_s} * {step_s}"
    return f"""WITH given AS (
            SELECT *, row_number() OVER () AS place FROM {table} WHERE {where}
        ), single AS (
            SELECT {key}, ts_s, arg_max({value}, place) AS {value} FROM given GROUP BY ALL
        ), pairs AS (
            SELECT *, lead(ts_s) OVER w AS next, lead({value}) OVER w AS after FROM single
            WINDOW w AS (PARTITION BY {key} ORDER BY ts_s)
        ), near AS (
            SELECT *, unnest(generate_series({first}, next - 1, {step_s})) AS point
            FROM pairs WHERE next - ts_s <= {gap_s}
        ), far AS (SELECT * FROM pairs WHERE next IS NULL OR next - ts_s > {gap_s})
        SELECT point * 1000000, {key}, CASE WHEN point = ts_s THEN {value} ELSE {line} END, false FROM near
        UNION ALL SELECT ts_s * 1000000, {key}, {value}, false FROM far WHERE ts_s % {step_s} = 0
        UNION ALL SELECT (ts_s // {step_s} + 1) * {step_s} * 1000000, {key}, NULL, true FROM far"""


def test_traffic_sensors_on_a_grid(metrics: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("linear")
    rows = q.source("metrics", METRIC, time="ts_s", unit="s").filter("series LIKE 'realTraffic/%'")
    points = rows.select("series", "value").resample("5 min", by="series", how="linear", gap="1h", time="at")
    q.sink("out", points)
    out = md.collect(q, metrics=metrics).only
    where = "series LIKE 'realTraffic/%'"
    expected = duck.sql(grid("metrics", "series", "value", 300, 3600, linear=True, where=where))
    assert_same(out, ["at", "series", "value", "gap"], expected)
    assert sum(out["gap"].to_pylist()) > 100


def test_buses_on_a_grid(buses: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("previous")
    rows = q.source("buses", BUS, time="ts_s", unit="s").filter("vehicle_id < '2300'")
    speeds = rows.select("vehicle_id", "speed")
    q.sink("out", speeds.resample("30s", by="vehicle_id", how="previous", gap="3 min", time="at"))
    out = md.collect(q, buses=buses).only
    expected = duck.sql(
        grid("buses", "vehicle_id", "speed", 30, 180, linear=False, where="vehicle_id < '2300'")
    )
    assert_same(out, ["at", "vehicle_id", "speed", "gap"], expected)
    assert sum(out["gap"].to_pylist()) > 100


def test_silence_of_sensors(metrics: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    """Gaps as the ends of sessions: no value for more than six hours."""
    q = md.Query("silence")
    rows = q.source("metrics", METRIC, time="ts_s", unit="s")
    sessions = rows.session("6h").group_by("series").aggregate(n=md.count(), until=md.max("ts_s"))
    q.sink("out", sessions)
    expected = duck.sql("""SELECT series, ts_s FROM (
            SELECT series, ts_s, lead(ts_s) OVER one - ts_s AS gap FROM metrics
            WINDOW one AS (PARTITION BY series ORDER BY ts_s)
        ) WHERE gap IS NULL OR gap >= 21600""")
    assert_same(md.collect(q, metrics=metrics).only, ["series", "until"], expected)


def delayed(table: pa.Table, column: str, mean: float, seed: int) -> pa.Table:
    """The rows in another order: each comes later by a random time, some by much."""
    delay = np.random.default_rng(seed).exponential(mean, table.num_rows)
    order = np.argsort(table[column].to_numpy() + delay, kind="stable")
    return table.take(order).append_column("place", pa.array(np.arange(table.num_rows)))


def push(run: Any, source: str, table: pa.Table, rows: int) -> None:
    for start in range(0, table.num_rows, rows):
        run.push(source, table.slice(start, rows))


@pytest.mark.parametrize("pushed", [977, 40_000])
def test_late_edits_are_apart_and_windows_hold_the_others(edits: pa.Table, pushed: int) -> None:
    arrived = delayed(edits, "ts_ms", 3_000, seed=1)
    q = md.Query("late")
    rows = q.source("edits", {**EDIT, "place": "int64"}, time="ts_ms", unit="ms", slack="10s")
    windows = rows.window("1 min").group_by("channel")
    q.sink("windows", windows.aggregate(n=md.count(), added=md.sum("added"), last=md.last("ts_ms")))
    q.sink("late", rows.late)
    q.sink("all", rows.select("place"))
    with md.start(q) as run:
        with pytest.warns(md.LateWarning, match="too late"):
            push(run, "edits", arrived, pushed)
        run.finish()
        late, windows_out, everything = run.take("late"), run.take("windows"), run.take("all")
    with duckdb.connect() as connection:
        connection.register("arrived", arrived)
        connection.execute("""CREATE TABLE judged AS SELECT *, coalesce(ts_ms < max(ts_ms) OVER (
            ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - 10000, false) AS late
            FROM arrived""")
        assert_same(late, ["place"], connection.sql("SELECT place FROM judged WHERE late"))
        expected = connection.sql("""SELECT ts_ms // 60000 * 60000000, channel, count(*), sum(added)::BIGINT,
            max(ts_ms) FROM judged WHERE NOT late GROUP BY ALL""")
        assert_same(windows_out, ["window_start", "channel", "n", "added", "last"], expected)
    assert 100 < late.num_rows < 10_000
    # A branch without time carries every row, in the order of arrival.
    assert everything["place"].to_pylist() == list(range(arrived.num_rows))


def test_lateness_of_each_bus_by_itself(buses: pa.Table) -> None:
    arrived = delayed(buses.slice(0, 12_000), "ts_s", 120, seed=2)
    q = md.Query("partitions")
    schema = {**BUS, "place": "int64"}
    rows = q.source("buses", schema, time="ts_s", unit="s", slack="1 min", partition="vehicle_id")
    q.sink("late", rows.late)
    q.sink("counts", rows.window("10 min").group_by("vehicle_id").aggregate(n=md.count()))
    with md.start(q) as run:
        with pytest.warns(md.LateWarning, match="too late"):
            push(run, "buses", arrived, 1_003)
        run.finish()
        late, counts = run.take("late"), run.take("counts")
    # Each bus has its own boundary; one that is new begins at the least of all.
    boundaries: dict[str, int] = {}
    late_places, groups = [], Counter()
    for row in arrived.to_pylist():
        bus = row["vehicle_id"]
        if bus not in boundaries:
            boundaries[bus] = min(boundaries.values(), default=-(2**40))
        if row["ts_s"] < boundaries[bus]:
            late_places.append(row["place"])
        else:
            groups[row["ts_s"] // 600 * 600_000_000, bus] += 1
        boundaries[bus] = max(boundaries[bus], row["ts_s"] - 60)
    assert late["place"].to_pylist() == late_places
    assert 100 < len(late_places) < 6_000
    assert sorted(rows_of(counts, "window_start", "vehicle_id", "n")) == sorted(
        (*group, n) for group, n in groups.items()
    )


def test_disorder_within_the_slack_changes_no_answer(edits: pa.Table) -> None:
    def answer(table: pa.Table) -> pa.Table:
        q = md.Query("order")
        rows = q.source("edits", EDIT, time="ts_ms", unit="ms")
        per_user = rows.session("5 min").group_by("user").aggregate(n=md.count(), added=md.sum("added"))
        q.sink("out", per_user)
        return md.collect(q, edits=table).only.sort_by([("window_end", "ascending"), ("user", "ascending")])

    columns = ["window_start", "window_end", "user", "n", "added"]
    jumbled = delayed(edits, "ts_ms", 20_000, seed=3).drop_columns("place")
    assert not jumbled["file_row"].equals(edits["file_row"])
    assert answer(jumbled).select(columns) == answer(edits).select(columns)
