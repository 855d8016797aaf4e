"""The rows of a statement are those that DuckDB gives for the same text, or for a mechanical translation."""

# ruff: noqa: E501
from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import medusa as md

EPOCH = datetime(2024, 5, 1, tzinfo=UTC)
CARS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("seg", pa.int32()),
        ("x", pa.float64()),
        ("name", pa.utf8()),
    ]
)
NUMBERS = ("k", "seg", "x", "k + seg", "x * 2", "k // 2", "abs(k)", "coalesce(k, 7)", "length(name)")
PREDICATES = (
    "x > 1",
    "k IS NOT NULL",
    "seg BETWEEN 1 AND 3",
    "name LIKE '%a%' OR k = 2",
    "NOT (k IN (1, 2))",
    "x <> 2.5 AND seg < 4",
    "CASE WHEN k = 1 THEN seg > 1 ELSE x < 2 END",
    "name = 'ab'",
)
AGGREGATES = (
    "count(*)",
    "count(k)",
    "sum(k)",
    "sum(x)",
    "min(x)",
    "max(x)",
    "avg(seg)",
    "max(k + seg)",
    "count(DISTINCT k)",
    "count(DISTINCT name)",
    "sum(k) FILTER (WHERE seg > 1)",
    "count(*) FILTER (WHERE x > 1)",
    "count(DISTINCT name) FILTER (WHERE seg > 1)",
    "max(x) FILTER (WHERE k IS NOT NULL) - min(x) FILTER (WHERE x < 2)",
    "avg(k) FILTER (WHERE seg <> 2)",
    "quantile_cont(k, 0.25) FILTER (WHERE seg < 3)",
    "stddev(seg) FILTER (WHERE k = 2 OR x IS NULL)",
    "sum(k) + count(*)",
    "max(x) - min(x)",
    "sum(k) / count(*)",
    "min(name)",
    "median(k)",
    "quantile_cont(k, 0.25)",
    "stddev(seg)",
    "var_samp(k)",
)
KEYS = ("k", "seg", "name", "x", "seg // 2", "upper(name)")


def rows_of(rng: random.Random, count: int) -> pa.Table:
    """Random rows, a little out of order, with nulls, NaN and ties."""
    times = [EPOCH + timedelta(milliseconds=rng.randrange(0, 60_000, 500)) for _ in range(count)]
    times.sort(key=lambda time: time + timedelta(seconds=rng.random() * 4))
    return pa.table(
        {
            "ts": times,
            "k": [rng.choice([None, 1, 2, 2, 3]) for _ in times],
            "seg": [rng.choice([None, 0, 1, 2, 3, 4]) for _ in times],
            "x": [rng.choice([None, math.nan, 0.25, 1.0, 2.5, -3.0]) for _ in times],
            "name": [rng.choice([None, "", "ab", "Ab", "ba", "zz"]) for _ in times],
        },
        schema=CARS,
    )


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value, 9) + 0.0
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(value) for value in row.values()) for row in table.to_pylist())


def check(ours: str, theirs: str, *tables: pa.Table) -> int:
    """Both texts give the same rows; how many."""
    named = dict(zip(("a", "b"), tables, strict=False))
    made = md.collect(md.sql(ours, **{name: table.schema for name, table in named.items()}), **named).only
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for name, table in named.items():
            naive = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us")))
            con.register(name, naive)
        expected = con.sql(theirs).to_arrow_table()
    assert bag(made) == bag(expected), f"{ours}\n{theirs}"
    return made.num_rows


def rows(rng: random.Random) -> int:
    items = ", ".join(f"{each} AS c{i}" for i, each in enumerate(rng.sample(NUMBERS, 3)))
    text = f"SELECT ts, {items}, name FROM a WHERE {rng.choice(PREDICATES)}"
    match rng.randrange(4):
        case 0:
            text += f" UNION ALL {text.replace('WHERE', 'WHERE k = 1 AND')}"
        case 1:
            text = f"WITH w AS ({text}) SELECT c0, w.c1 AS d FROM w WHERE c2 > 0"
        case 2:
            text = f"SELECT * EXCLUDE (c1) FROM ({text}) AS s WHERE s.c0 > 1"
    return check(text, text, rows_of(rng, 40))


def tumbling(rng: random.Random) -> int:
    size = rng.choice([1, 2, 5, 7, 60])
    keys = rng.sample(KEYS, rng.randrange(3))
    aggregates = rng.sample(AGGREGATES, 3)
    items = [f"{each} AS c{i}" for i, each in enumerate([*keys, *aggregates])]
    where = rng.choice(["", f"WHERE {rng.choice(PREDICATES)}"])
    text = "name" in aggregates[0] and "DISTINCT" not in aggregates[0]
    having = rng.choice(["", "HAVING count(*) > 2", f"HAVING c{len(keys)} > {chr(39) * 2 if text else 1}"])
    bucket = f"time_bucket(INTERVAL '{size} s', ts, TIMESTAMP '1970-01-01')"
    window = f"TUMBLE(ts, INTERVAL '{size}' SECOND)"
    ours = f"SELECT window_start, {', '.join(items)} FROM a {where} GROUP BY {', '.join([*keys, window])} {having}"
    theirs = (
        f"SELECT {bucket}, {', '.join(items)} FROM a {where} GROUP BY {', '.join([*keys, bucket])} {having}"
    )
    return check(ours, theirs, rows_of(rng, 60))


def hopping(rng: random.Random) -> int:
    size, slide = rng.choice([(4, 1), (10, 3), (6, 2), (60, 20)])
    aggregates = ", ".join(f"{each} AS c{i}" for i, each in enumerate(rng.sample(AGGREGATES, 2)))
    ours = (
        f"SELECT window_start, seg, {aggregates} FROM a GROUP BY seg,"
        f" HOP(ts, INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)"
    )
    theirs = (
        f"WITH w AS (SELECT *, unnest(generate_series((epoch_us(ts) // {slide * 10**6}) - {-(-size // slide)} ,"
        f" epoch_us(ts) // {slide * 10**6})) * {slide * 10**6} AS w FROM a)"
        f" SELECT make_timestamp(w), seg, {aggregates} FROM w WHERE epoch_us(ts) < w + {size * 10**6} GROUP BY seg, w"
    )
    return check(ours, theirs, rows_of(rng, 50))


def sessions(rng: random.Random) -> int:
    gap, key = rng.choice([1, 2, 4]), rng.choice(["k", "name", "seg"])
    items = f"{key} AS c, count(*) AS n, sum(k) AS s, max(x) AS m"
    ours = f"SELECT window_start AS w, window_end AS e, {items} FROM a GROUP BY {key}, SESSION(ts, INTERVAL '{gap}' SECOND)"
    theirs = (
        f"WITH l AS (SELECT *, CASE WHEN ts - lag(ts) OVER w < INTERVAL '{gap} s' THEN 0 ELSE 1 END AS begins FROM a"
        f" WINDOW w AS (PARTITION BY {key} ORDER BY ts)), g AS (SELECT *, sum(begins) OVER (PARTITION BY {key}"
        f" ORDER BY ts RANGE UNBOUNDED PRECEDING) AS g FROM l)"
        f" SELECT min(ts) AS w, max(ts) + INTERVAL '{gap} s' AS e, {items} FROM g GROUP BY {key}, g"
    )
    return check(ours, theirs, rows_of(rng, 40))


def tops(rng: random.Random) -> int:
    """DuckDB breaks ties as it likes: the order is by values that differ."""
    size, n = rng.choice([5, 20, 60]), rng.choice([1, 2, 4])
    order = rng.choice(["DESC NULLS LAST", "ASC NULLS LAST", "NULLS LAST"])
    table = rows_of(rng, 40)
    table = table.set_column(
        3, "x", pa.array(rng.sample([None, math.nan, *map(float, range(38))], 40), pa.float64())
    )
    text = "SELECT ts, k, x, {0} AS r FROM a WHERE seg > 0 QUALIFY {0} <= {1}"
    ours = f"ROW_NUMBER() OVER (PARTITION BY k, TUMBLE(ts, INTERVAL '{size}' SECOND) ORDER BY x {order})"
    theirs = ours.replace("TUMBLE(ts, INTERVAL", "time_bucket(INTERVAL").replace("SECOND)", "SECOND, ts)")
    return check(text.format(ours, n), text.format(theirs, n), table)


def rows_in_windows(rng: random.Random) -> int:
    """Rows beside the result of the window that they lie in, or of the one before."""
    part = "SELECT k, {} FROM a GROUP BY k, {}"
    bounds = rng.choice(
        [
            "l.ts >= w.window_start AND l.ts < w.window_end",
            "l.ts BETWEEN w.window_end AND w.window_end + INTERVAL '5' SECOND",
        ]
    )
    how = rng.choice(["JOIN", "LEFT JOIN", "SEMI JOIN"])
    items = "l.ts AS t, l.x AS x" + (", n, w.window_start AS s" if how != "SEMI JOIN" else "")
    text = f"WITH w AS ({{}}) SELECT {items} FROM b l {how} w ON l.k = w.k AND {bounds}"
    bucket = "time_bucket(INTERVAL '5 s', ts, TIMESTAMP '1970-01-01')"
    ours = part.format("window_start, window_end, count(*) AS n", "TUMBLE(ts, INTERVAL '5' SECOND)")
    theirs = part.format(
        f"{bucket} AS window_start, {bucket} + INTERVAL '5 s' AS window_end, count(*) AS n", bucket
    )
    return check(text.format(ours), text.format(theirs), rows_of(rng, 30), rows_of(rng, 30))


def nested(rng: random.Random) -> int:
    inner = "SELECT seg, count(*) AS n, max(x) AS m FROM a GROUP BY seg, {}"
    outer = "SELECT sum(n) AS s, max(m) AS m, count(*) AS c FROM ({}) GROUP BY {}"
    bucket = "time_bucket(INTERVAL '{} s', {}, TIMESTAMP '1970-01-01')"
    ours = outer.format(
        inner.format("TUMBLE(ts, INTERVAL '5' SECOND)"), "TUMBLE(tuple_time, INTERVAL '20' SECOND)"
    )
    fives = bucket.format(5, "ts")
    theirs = outer.format(
        inner.format(fives).replace("SELECT", f"SELECT {fives} AS t,"), bucket.format(20, "t")
    )
    return check(ours, theirs, rows_of(rng, 60))


def joins(rng: random.Random) -> int:
    low, high = rng.choice([(2, 2), (0, 3), (5, 1), (0, 0)])
    bounds = rng.choice(
        [
            f"l.ts BETWEEN r.ts - INTERVAL '{low}' SECOND AND r.ts + INTERVAL '{high}' SECOND",
            f"l.ts >= r.ts - INTERVAL '{low}' SECOND AND r.ts > l.ts - INTERVAL '{high + 1}' SECOND",
        ]
    )
    extra = rng.choice(["", "AND l.x < r.x", "AND l.seg = r.seg", "AND (l.name = r.name OR l.seg > 2)"])
    where = rng.choice(["", "WHERE l.x > 0"])
    how = rng.choice(HOWS)
    items = "l.ts AS a, l.seg AS b, l.x AS c, l.k AS d"
    if how not in ("SEMI JOIN", "ANTI JOIN"):
        items += ", r.ts AS e, r.k AS f, r.name AS g"
    text = f"SELECT {items} FROM a l {how} b r ON l.k = r.k AND {bounds} {extra} {where}"
    return check(text, text, rows_of(rng, 25), rows_of(rng, 25))


HOWS = ("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")


def three(rng: random.Random) -> int:
    """The time of a pair is the later one, yet the next join may bound either."""
    side = rng.choice(["l", "r"])
    low, high = rng.choice([(1, 3), (2, 0), (2, 2)])
    how = rng.choice(["JOIN", "LEFT JOIN"])
    text = (
        "SELECT l.ts AS a, r.ts AS b, m.ts AS c, m.x AS d FROM a l JOIN b r ON l.k = r.k"
        " AND l.ts BETWEEN r.ts - INTERVAL '3' SECOND AND r.ts + INTERVAL '1' SECOND"
        f" {how} a m ON r.k = m.k AND m.seg = l.seg"
        f" AND {side}.ts BETWEEN m.ts - INTERVAL '{low}' SECOND AND m.ts + INTERVAL '{high}' SECOND"
    )
    return check(text, text, rows_of(rng, 25), rows_of(rng, 25))


def asof(rng: random.Random) -> int:
    """Where two right rows of a key have one time, DuckDB takes either: so none have."""
    left, right = rows_of(rng, 30), rows_of(rng, 25)
    seen, kept = set(), []
    for place, row in enumerate(right.to_pylist()):
        if (row["k"], row["ts"]) not in seen:
            seen.add((row["k"], row["ts"]))
            kept.append(place)
    how = rng.choice(["ASOF JOIN", "ASOF LEFT JOIN"])
    text = f"SELECT l.ts AS a, l.x AS b, r.ts AS c, r.x AS d, r.k AS e FROM a l {how} b r ON l.k = r.k AND l.ts >= r.ts"
    return check(text, text, left, right.take(kept))


def outer_windows(rng: random.Random) -> int:
    how = rng.choice(["LEFT JOIN", "FULL JOIN", "RIGHT JOIN", "SEMI JOIN", "ANTI JOIN"])
    items = "p.seg AS s, p.n AS n" + ("" if how in ("SEMI JOIN", "ANTI JOIN") else ", q.n AS m, q.seg AS t")
    text = (
        f"WITH p AS ({{}}), q AS ({{}}) SELECT {items} FROM p {how} q"
        " ON p.window_start = q.window_start AND p.seg = q.seg AND p.n <= q.n"
    )
    part = "SELECT {}, seg, count(*) AS n FROM {} GROUP BY seg, {}"
    bucket = "time_bucket(INTERVAL '5 s', ts, TIMESTAMP '1970-01-01')"
    ours = [
        part.format("window_start, window_end", table, "TUMBLE(ts, INTERVAL '5' SECOND)")
        for table in ("a", "b")
    ]
    theirs = [part.format(f"{bucket} AS window_start", table, bucket) for table in ("a", "b")]
    return check(text.format(*ours), text.format(*theirs), rows_of(rng, 30), rows_of(rng, 30))


def window_joins(rng: random.Random) -> int:
    part = "SELECT {} AS window_start, seg, {} AS n FROM {} GROUP BY seg, {}"
    text = (
        "WITH p AS ({}), q AS ({}) SELECT p.window_start AS w, p.seg AS s, p.n AS n, q.n AS m FROM p JOIN q"
        " ON p.window_start = q.window_start AND p.seg = q.seg AND p.n <= q.n"
    )
    window, bucket = (
        "TUMBLE(ts, INTERVAL '5' SECOND)",
        "time_bucket(INTERVAL '5 s', ts, TIMESTAMP '1970-01-01')",
    )
    ours = [
        part.format("window_start", "count(*)", table, window).replace("window_start AS", "window_end,")
        for table in ("a", "b")
    ]
    theirs = [part.format(bucket, "count(*)", table, bucket) for table in ("a", "b")]
    return check(text.format(*ours), text.format(*theirs), rows_of(rng, 30), rows_of(rng, 30))


KINDS = (
    rows,
    tumbling,
    hopping,
    sessions,
    tops,
    rows_in_windows,
    nested,
    joins,
    window_joins,
    outer_windows,
    asof,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rows_are_those_of_duckdb(kind: Any) -> None:
    assert sum(kind(random.Random(f"{kind.__name__} {seed}")) for seed in range(8)) > 10


@pytest.mark.full
@pytest.mark.issue(3)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_many_rows_are_those_of_duckdb(kind: Any) -> None:
    seeds = range(1_000, 1_150)
    assert sum(kind(random.Random(f"{kind.__name__} {seed}")) for seed in seeds) > 250


def test_aggregates_with_where_of_the_builder() -> None:
    given = {
        "n": (md.count(where="x > 1"), "count(*)"),
        "c": (md.count("k", where="x > 1"), "count(k)"),
        "s": (md.sum("k", where=md.col("x") > 1), "sum(k)"),
        "lo": (md.min("name", where="x > 1"), "min(name)"),
        "hi": (md.max("name", where="x > 1"), "max(name)"),
        "a": (md.avg("k", where="x > 1"), "avg(k)"),
        "v": (md.variance("seg", where="x > 1"), "var_samp(seg)"),
        "d": (md.count_distinct("name", where="x > 1"), "count(DISTINCT name)"),
        "m": (md.median("seg", where="x > 1"), "median(seg)"),
    }
    found = 0
    for seed in range(6):
        table = rows_of(random.Random(f"where {seed}"), 80)
        q = md.Query("q")
        windows = q.source("a", table.schema, time="ts").window("10s").group_by("seg")
        q.sink(
            "out", windows.aggregate({name: call for name, (call, _) in given.items()}).select("seg", *given)
        )
        made = md.collect(q, a=table).only
        items = ", ".join(f"{call} FILTER (WHERE x > 1) AS {name}" for name, (_, call) in given.items())
        with duckdb.connect() as con:
            con.register("a", table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us"))))
            text = f"SELECT seg, {items} FROM a GROUP BY seg, time_bucket(INTERVAL '10 seconds', ts)"
            assert bag(made) == bag(con.sql(text).to_arrow_table())
        found += sum(row["n"] for row in made.to_pylist())
    assert found > 50
