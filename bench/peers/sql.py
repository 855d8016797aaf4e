"""The workloads as SQL, for the engines that take it."""

from __future__ import annotations

GROUPED = """SELECT {start} AS start, key, count(*) AS n, sum(value) AS s, min(value) AS lo,
    max(value) AS hi, avg(value) AS mean FROM events GROUP BY 1, 2"""

FILTERED = """SELECT count(*) AS n, sum(x) AS x, sum(y) AS y FROM
    (SELECT value * 2.0 + 1.0 AS x, value * key AS y FROM events WHERE value > 0.5)"""

# In buckets of 2 s: a left row looks in the two that its second before and after touch. The plain form, equal
# keys and BETWEEN, makes all pairs of a key first: 3 times slower in DuckDB, 8 in DataFusion, 4 in polars.
JOINED = """SELECT l.key, l.ts, l.value, r.ts AS ts_right, r.value AS value_right FROM
    (SELECT *, (ts - 1000000) {div} 2000000 AS bucket FROM left_events
     UNION ALL SELECT *, (ts - 1000000) {div} 2000000 + 1 AS bucket FROM left_events) AS l
    JOIN (SELECT *, ts {div} 2000000 AS bucket FROM right_events) AS r
    ON l.key = r.key AND l.bucket = r.bucket
    WHERE r.ts BETWEEN l.ts - 1000000 AND l.ts + 1000000"""

SLIDING = """WITH panes AS
    (SELECT {start} AS pane, key, count(*) AS n, sum(value) AS s FROM events GROUP BY 1, 2)
    SELECT pane - back * 1000000 AS start, key, CAST(sum(n) AS BIGINT) AS n, sum(s) / sum(n) AS mean
    FROM panes CROSS JOIN {backs} GROUP BY 1, 2"""
