"""The facts that are known of the data, computed by Medusa and, as a check of the files, by DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

import medusa as md

WHOLE = "100000 days"  # One window that holds everything: it begins at the epoch.

BUS = {"ts_s": "int64", "vehicle_id": "utf8", "speed": "float64", "route_id": "utf8"}
METRIC = {"ts_s": "int64", "series": "utf8", "value": "float64"}
EDIT = {
    **{"ts_ms": "int64", "channel": "utf8", "user": "utf8", "is_robot": "bool", "is_anonymous": "bool"},
    **{"delta": "int64", "added": "int64", "deleted": "int64", "file_row": "int32"},
}


def of(duck: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    (row,) = duck.sql(query).fetchall()
    return row


def test_buses(buses: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("facts")
    rows = q.source("buses", BUS, time="ts_s", unit="s")
    whole = rows.window(WHOLE).aggregate(
        rows=md.count(),
        speed=md.sum("speed"),
        buses=md.count_distinct("vehicle_id"),
        routes=md.count_distinct("route_id"),
    )
    q.sink("whole", whole)
    minutes = rows.window("1 min").group_by("route_id").aggregate(buses=md.count_distinct("vehicle_id"))
    q.sink("groups", minutes.window(WHOLE).aggregate(groups=md.count(), buses=md.sum("buses")))
    out = md.collect(q, buses=buses)
    (whole_row,) = out["whole"].to_pylist()
    assert (whole_row["rows"], whole_row["buses"], whole_row["routes"]) == (115_088, 247, 54)
    assert whole_row["speed"] == pytest.approx(622_588.5846, abs=5e-5)
    (groups,) = out["groups"].to_pylist()
    assert (groups["groups"], groups["buses"]) == (61_237, 115_085)
    assert of(
        duck, "SELECT count(*), count(DISTINCT vehicle_id), count(DISTINCT (ts_s, vehicle_id)) FROM buses"
    ) == (115_088, 247, 115_088)


def test_metrics(metrics: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("facts")
    rows = q.source("metrics", METRIC, time="ts_s", unit="s")
    kinds = rows.with_columns(kind="split_part(series, '/', 1)").window(WHOLE).group_by("kind")
    q.sink(
        "kinds", kinds.aggregate(rows=md.count(), value=md.sum("value"), series=md.count_distinct("series"))
    )
    found = {row["kind"]: row for row in md.collect(q, metrics=metrics).only.to_pylist()}
    assert sum(row["rows"] for row in found.values()) == 321_206
    assert sum(row["series"] for row in found.values()) == 47
    assert (found["realTweets"]["rows"], found["realTweets"]["value"]) == (158_631, 3_224_439)
    assert found["realTraffic"]["rows"] == 15_664
    assert found["realTraffic"]["value"] == pytest.approx(1_982_963.05, abs=5e-3)
    assert of(duck, "SELECT count(*), count(DISTINCT series) FROM metrics") == (321_206, 47)


def test_edits(edits: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("facts")
    rows = q.source("edits", EDIT, time="ts_ms", unit="ms")
    sums = {name: md.sum(name) for name in ("added", "delta")}
    distinct = {name: md.count_distinct(name) for name in ("channel", "user")}
    q.sink("whole", rows.window(WHOLE).aggregate(rows=md.count(), **sums, **distinct))
    minutes = rows.window("1 min").group_by("channel").aggregate(n=md.count())
    q.sink("groups", minutes.window(WHOLE).aggregate(groups=md.count(), rows=md.sum("n")))
    out = md.collect(q, edits=edits)
    (whole,) = out["whole"].select(["rows", "added", "delta", "channel", "user"]).to_pylist()
    assert tuple(whole.values()) == (39_244, 9_385_573, 8_991_275, 51, 10_531)
    (groups,) = out["groups"].to_pylist()
    assert (groups["groups"], groups["rows"]) == (13_911, 39_244)
    assert of(duck, "SELECT sum(added), sum(delta) FROM edits") == (9_385_573, 8_991_275)
