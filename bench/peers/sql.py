"""The workloads as SQL, for the engines that take it."""

from __future__ import annotations

GROUPED = """SELECT {start} AS start, key, count(*) AS n, sum(value) AS s, min(value) AS lo,
    max(value) AS hi, avg(value) AS mean FROM events GROUP BY 1, 2"""

FILTERED = """SELECT count(*) AS n, sum(x) AS x, sum(y) AS y FROM
    (SELECT value * 2.0 + 1.0 AS x, value * key AS y FROM events WHERE value > 0.5)"""

SLIDING = """WITH panes AS
    (SELECT {start} AS pane, key, count(*) AS n, sum(value) AS s FROM events GROUP BY 1, 2)
    SELECT pane - back * 1000000 AS start, key, CAST(sum(n) AS BIGINT) AS n, sum(s) / sum(n) AS mean
    FROM panes CROSS JOIN {backs} GROUP BY 1, 2"""
