"""Windows, sessions, joins, top rows and running values over the real data, beside DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa

import medusa as md
from tests.data_sets.compare import assert_same
from tests.data_sets.test_facts import BUS, EDIT, METRIC


def test_sliding_windows_of_buses(buses: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("sliding")
    rows = q.source("buses", BUS, time="ts_s", unit="s")
    windows = rows.filter("speed > 0").window("10 min", advance="4 min").group_by("route_id")
    q.sink(
        "out",
        windows.aggregate(
            n=md.count(),
            v=md.avg("speed"),
            top=md.max("speed"),
            s=md.stddev("speed"),
            b=md.count_distinct("vehicle_id"),
        ),
    )
    expected = duck.sql(
        """WITH each AS (
            SELECT unnest(generate_series(ts_s - ts_s % 240 - 480, ts_s - ts_s % 240, 240)) AS start, *
            FROM buses WHERE speed > 0
        ) SELECT start * 1000000, route_id, count(*), avg(speed), max(speed), stddev(speed),
            count(DISTINCT vehicle_id) FROM each WHERE ts_s < start + 600 GROUP BY ALL""".replace(
            "start,", "start,"
        )
    )
    assert_same(
        md.collect(q, buses=buses).only, ["window_start", "route_id", "n", "v", "top", "s", "b"], expected
    )


def test_sessions_of_users(edits: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("sessions")
    rows = q.source("edits", EDIT, time="ts_ms", unit="ms")
    sessions = rows.session("10 min").group_by("user", "channel")
    q.sink(
        "out",
        sessions.aggregate(
            n=md.count(), added=md.sum("added"), least=md.min("delta"), last=md.last("file_row")
        ),
    )
    expected = duck.sql("""WITH gaps AS (
            SELECT *, ts_ms - lag(ts_ms) OVER who AS gap FROM edits
            WINDOW who AS (PARTITION BY "user", channel ORDER BY ts_ms, file_row)
        ), numbered AS (
            SELECT *, sum(CASE WHEN gap < 600000 THEN 0 ELSE 1 END) OVER who AS number FROM gaps
            WINDOW who AS (PARTITION BY "user", channel ORDER BY ts_ms, file_row)
        ) SELECT min(ts_ms) * 1000, max(ts_ms) * 1000 + 600000000, "user", channel, count(*),
            sum(added)::BIGINT, min(delta), arg_max(file_row, file_row)
        FROM numbered GROUP BY "user", channel, number""")
    columns = ["window_start", "window_end", "user", "channel", "n", "added", "least", "last"]
    assert_same(md.collect(q, edits=edits).only, columns, expected)


def test_edits_join_those_of_robots_near_in_time(edits: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("near")
    rows = q.source("edits", EDIT, time="ts_ms", unit="ms")
    robots, people = rows.route("is_robot", otherwise=True)
    where = "left.added > 50 AND right.deleted = 0"
    for how in ("inner", "left", "anti"):
        near = people.join(robots, on="channel", within="30s", where=where, how=how)
        right = [] if how == "anti" else ["file_row_right"]
        q.sink(how, near.select("channel", "file_row", *right))
    out = md.collect(q, edits=edits)
    pair = "ON a.channel = b.channel AND abs(a.ts_ms - b.ts_ms) <= 30000 AND a.added > 50 AND b.deleted = 0"
    sides = (
        f"(SELECT * FROM edits WHERE NOT is_robot) a LEFT JOIN (SELECT * FROM edits WHERE is_robot) b {pair}"
    )
    left = duck.sql(f"SELECT a.channel, a.file_row, b.file_row FROM {sides}")
    inner = duck.sql(f"SELECT a.channel, a.file_row, b.file_row FROM {sides} WHERE b.file_row IS NOT NULL")
    anti = duck.sql(f"SELECT a.channel, a.file_row FROM {sides} WHERE b.file_row IS NULL")
    assert out["inner"].num_rows > 100
    assert_same(out["inner"], ["channel", "file_row", "file_row_right"], inner)
    assert_same(out["left"], ["channel", "file_row", "file_row_right"], left)
    assert_same(out["anti"], ["channel", "file_row"], anti)


def test_windows_join_and_the_largest_leave(edits: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("windows")
    rows = q.source("edits", EDIT, time="ts_ms", unit="ms")
    robots, people = rows.route("is_robot", otherwise=True)
    by_robots = robots.window("5 min").group_by("channel").aggregate(robots=md.count())
    by_people = people.window("5 min").group_by("channel").aggregate(people=md.count())
    q.sink("both", by_people.join(by_robots, on=["window", "channel"], how="full"))
    q.sink("top", rows.window("1h").group_by("channel").top(2, by="added"))
    out = md.collect(q, edits=edits)
    both = duck.sql("""SELECT ts_ms // 300000 * 300000000 AS w, channel,
        nullif(count(*) FILTER (NOT is_robot), 0), nullif(count(*) FILTER (is_robot), 0)
        FROM edits GROUP BY ALL""")
    assert_same(out["both"], ["window_start", "channel", "people", "robots"], both)
    top = duck.sql("""WITH ranked AS (
        SELECT ts_ms // 3600000 * 3600000000 AS w, channel, file_row, added, row_number() OVER (
            PARTITION BY ts_ms // 3600000, channel ORDER BY added DESC, file_row
        ) AS rank FROM edits
    ) SELECT * FROM ranked WHERE rank <= 2""")
    assert_same(out["top"], ["window_start", "channel", "file_row", "added", "rank"], top)


def test_running_values_and_the_latest_before(metrics: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("running")
    rows = q.source("metrics", METRIC, time="ts_s", unit="s")
    tweets = rows.filter("series LIKE 'realTweets/%'")
    apple, others = tweets.route("series = 'realTweets/Twitter_volume_AAPL'", otherwise=True)
    others = others.filter("series = 'realTweets/Twitter_volume_IBM'")
    q.sink(
        "asof",
        others.with_columns(k="1").asof_join(apple.select(k="1", apple="value"), on="k", within="10 min"),
    )
    two = tweets.filter("series IN ('realTweets/Twitter_volume_KO', 'realTweets/Twitter_volume_FB')")
    changes = two.group_by("series").running(n=md.count(), before=md.lag("value", 3), most=md.max("value"))
    q.sink("running", changes)
    out = md.collect(q, metrics=metrics)
    running = duck.sql("""SELECT ts_s, series, value, row_number() OVER so_far, lag(value, 3) OVER so_far,
        max(value) OVER so_far FROM metrics
        WHERE series IN ('realTweets/Twitter_volume_KO', 'realTweets/Twitter_volume_FB')
        WINDOW so_far AS (PARTITION BY series ORDER BY ts_s ROWS UNBOUNDED PRECEDING)""")
    assert_same(out["running"], ["ts_s", "series", "value", "n", "before", "most"], running)
    asof = duck.sql("""SELECT i.ts_s, i.value, CASE WHEN a.ts_s >= i.ts_s - 600 THEN a.value END
        FROM (SELECT * FROM metrics WHERE series = 'realTweets/Twitter_volume_IBM') i
        ASOF LEFT JOIN (SELECT * FROM metrics WHERE series = 'realTweets/Twitter_volume_AAPL') a
        ON i.ts_s >= a.ts_s""")
    assert_same(out["asof"], ["ts_s", "value", "apple"], asof)


def test_windows_of_rows_and_distinct(metrics: pa.Table, duck: duckdb.DuckDBPyConnection) -> None:
    q = md.Query("rows")
    rows = q.source("metrics", METRIC, time="ts_s", unit="s")
    hundreds = rows.group_by("series").window_rows(100)
    q.sink("hundreds", hundreds.aggregate(v=md.avg("value"), low=md.min("value"), first=md.first("ts_s")))
    out = md.collect(q, metrics=metrics)
    expected = duck.sql("""WITH numbered AS (
            SELECT *, (row_number() OVER ()) AS place FROM metrics
        ), counted AS (
            SELECT *, (row_number() OVER (PARTITION BY series ORDER BY place) - 1) // 100 AS w FROM numbered
        ) SELECT w * 100, series, avg(value), min(value), arg_min(ts_s, place) FROM counted
        GROUP BY w, series HAVING count(*) = 100""")
    assert_same(out["hundreds"], ["window_start", "series", "v", "low", "first"], expected)
