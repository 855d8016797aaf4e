"""A statement makes the boxes that the builder makes, with the same ids."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Callable

import pytest

import medusa as md
from medusa.query.builder import Query, Stream

CARS = {"ts": "timestamp", "vid": "int64", "seg": "int32", "speed": "float64", "name": "utf8"}
TOLLS = {"ts": "timestamp", "car": "int64", "fee": "float64", "seg": "int32"}
CALLS = {"t": "int64", "k": "int64", "x": "float64"}

MINUTE = "TUMBLE(ts, INTERVAL '1' MINUTE)"
HALF = "INTERVAL '30' SECOND"

Build = Callable[[Stream, Stream, Stream], Stream]


def by_seg(cars: Stream) -> md.Stream:
    return cars.window("1 min").group_by("seg").aggregate(n=md.count())


ROWS: dict[str, Build] = {
    "SELECT * FROM cars": lambda cars, tolls, calls: cars,
    "select ts, vid, seg, speed, name from cars": lambda cars, tolls, calls: cars,
    "FROM cars": lambda cars, tolls, calls: cars,
    "SELECT * FROM cars WHERE speed > 0": lambda cars, tolls, calls: cars.filter("speed > 0"),
    "SELECT vid, speed * 2 AS twice FROM cars AS c WHERE c.speed > 0;": lambda cars, tolls, calls: (
        cars.filter("speed > 0").select("vid", twice="speed * 2")
    ),
    "SELECT *, speed * 2 AS twice FROM cars": lambda cars, tolls, calls: cars.with_columns(twice="speed * 2"),
    "SELECT * REPLACE (upper(name) AS name) FROM cars": lambda cars, tolls, calls: cars.with_columns(
        {"name": "upper(name)"}
    ),
    "SELECT * EXCLUDE (ts, name) FROM cars": lambda cars, tolls, calls: cars.select("vid", "seg", "speed"),
    "SELECT c.*, 1 AS one FROM cars c": lambda cars, tolls, calls: cars.select(*CARS, one="1"),
    "SELECT tuple_time AS at FROM cars": lambda cars, tolls, calls: cars.select(at="tuple_time"),
    "SELECT CASE WHEN speed > 80 THEN 'fast' ELSE lower(name) END AS c, CAST(seg AS BIGINT) s FROM cars": (
        lambda cars, tolls, calls: cars.select(
            c="CASE WHEN speed > 80 THEN 'fast' ELSE lower(name) END", s="CAST(seg AS BIGINT)"
        )
    ),
    "SELECT vid FROM (SELECT * FROM cars WHERE seg = 1) AS one WHERE one.speed > 0": (
        lambda cars, tolls, calls: cars.filter("seg = 1").filter("speed > 0").select("vid")
    ),
    "WITH fast AS (SELECT * FROM cars WHERE speed > 80) SELECT vid FROM fast": (
        lambda cars, tolls, calls: cars.filter("speed > 80", name="fast").select("vid")
    ),
    "WITH f AS (SELECT * FROM cars WHERE speed > 80), g AS (SELECT vid FROM f) SELECT * FROM g": (
        lambda cars, tolls, calls: cars.filter("speed > 80", name="f").select("vid", name="g")
    ),
    "SELECT vid, seg FROM cars UNION ALL SELECT vid, seg FROM cars WHERE speed > 0": (
        lambda cars, tolls, calls: cars.select("vid", "seg").union(
            cars.filter("speed > 0").select("vid", "seg")
        )
    ),
    "SELECT vid AS b, fee AS a FROM (SELECT vid, speed AS fee FROM cars) UNION ALL SELECT car AS z, fee AS y FROM tolls": (
        lambda cars, tolls, calls: (
            cars.select("vid", fee="speed")
            .select(b="vid", a="fee")
            .union(tolls.select(z="car", y="fee").select(b="z", a="y"))
        )
    ),
    "SELECT vid FROM cars UNION ALL SELECT car FROM tolls UNION ALL SELECT seg FROM cars": (
        lambda cars, tolls, calls: (
            lambda a, b, c: a.union(b.select(vid="car"), c.select(vid="CAST(seg AS int64)"))
        )(cars.select("vid"), tolls.select("car"), cars.select("seg"))
    ),
}

WINDOWS: dict[str, Build] = {
    f"SELECT window_start, window_end, seg, COUNT(*) AS n FROM cars GROUP BY seg, {MINUTE}": (
        lambda cars, tolls, calls: by_seg(cars)
    ),
    f"SELECT seg, COUNT(*) AS n FROM cars GROUP BY {MINUTE}, seg": (
        lambda cars, tolls, calls: by_seg(cars).select("seg", "n")
    ),
    "SELECT window_start, window_end, seg, count() AS n FROM cars"
    " GROUP BY seg, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)": (
        lambda cars, tolls, calls: (
            cars.window("5 min", advance="1 min").group_by("seg").aggregate(n=md.count())
        )
    ),
    "SELECT window_start, window_end, count(*) AS n FROM calls GROUP BY TUMBLE(t, '10 s')": (
        lambda cars, tolls, calls: calls.window("10 s").aggregate(n=md.count())
    ),
    "SELECT time_bucket(INTERVAL '1 minute', ts) AS b, max(speed) AS m FROM cars GROUP BY b": (
        lambda cars, tolls, calls: (
            cars.window("1 min").aggregate(m="max(speed)").select(b="window_start", m="m")
        )
    ),
    "SELECT time_bucket(INTERVAL '1 minute', ts), max(speed) AS m FROM cars GROUP BY 1": (
        lambda cars, tolls, calls: cars.window("1 min").aggregate(m="max(speed)").select("window_start", "m")
    ),
    "SELECT window_start, window_end, h, sum(speed) AS s FROM (SELECT *, seg // 2 AS h FROM cars)"
    f" GROUP BY ALL, {MINUTE}".replace("ALL, ", "h, "): (
        lambda cars, tolls, calls: (
            cars.with_columns(h="seg // 2").window("1 min").group_by("h").aggregate(s="sum(speed)")
        )
    ),
    f"SELECT window_start, window_end, seg // 2 AS h, sum(speed) AS s FROM cars GROUP BY h, {MINUTE}": (
        lambda cars, tolls, calls: cars.window("1 min").group_by(h="seg // 2").aggregate(s="sum(speed)")
    ),
    f"SELECT window_start, window_end, seg // 2 AS h, sum(speed) AS s FROM cars GROUP BY seg // 2, {MINUTE}": (
        lambda cars, tolls, calls: cars.window("1 min").group_by(h="seg // 2").aggregate(s="sum(speed)")
    ),
    f"SELECT seg // 2 + 1 AS h, sum(speed) AS s FROM cars GROUP BY seg // 2, {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .group_by({"seg // 2": "seg // 2"})
            .aggregate(s="sum(speed)")
            .select(h='"seg // 2" + 1', s="s")
        )
    ),
    f"SELECT window_start, window_end, count(DISTINCT vid) AS d, avg(speed) AS v FROM cars WHERE speed > 0"
    f" GROUP BY {MINUTE} HAVING d > 3 AND avg(speed) < 50": (
        lambda cars, tolls, calls: (
            cars.filter("speed > 0")
            .window("1 min")
            .aggregate(d=md.count_distinct("vid"), v=md.avg("speed"))
            .filter("d > 3 AND v < 50")
        )
    ),
    f"SELECT avg(speed) + 1 AS a, sum(speed) / count(*) AS b, sum(speed) AS s FROM cars GROUP BY {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .aggregate({"s": md.sum("speed"), "avg(speed)": md.avg("speed"), "count(*)": md.count()})
            .select(a='"avg(speed)" + 1', b='s / "count(*)"', s="s")
        )
    ),
    f"SELECT sum(speed) FILTER (WHERE seg = 1) AS s, count(*) FILTER (WHERE seg = 2) AS n, count_if(seg = 3) AS m"
    f" FROM cars GROUP BY {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .aggregate(
                s=md.sum("speed", where="seg = 1"),
                n=md.count(where="seg = 2"),
                m="count(CASE WHEN seg = 3 THEN 1 END)",
            )
            .select("s", "n", "m")
        )
    ),
    f"SELECT seg FROM cars GROUP BY seg, {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min").group_by("seg").aggregate({"count(*)": md.count()}).select("seg")
        )
    ),
    f"SELECT seg AS n, count(*) AS seg FROM cars GROUP BY seg, {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .group_by("seg")
            .aggregate({"count(*)": md.count()})
            .select(n="seg", seg='"count(*)"')
        )
    ),
    "SELECT window_end AS e, max(n) AS n FROM (SELECT window_start, window_end, seg, count(*) AS n FROM cars"
    f" GROUP BY seg, {MINUTE}) GROUP BY TUMBLE(tuple_time, INTERVAL '1' HOUR)": (
        lambda cars, tolls, calls: (
            by_seg(cars).window("1h").aggregate(n="max(n)").select(e="window_end", n="n")
        )
    ),
    "SELECT window_start, window_end, max(n) AS n FROM (SELECT window_start, window_end, seg, count(*) AS n FROM"
    f" cars GROUP BY seg, {MINUTE}) GROUP BY window_start, window_end": (
        lambda cars, tolls, calls: by_seg(cars).window("1 min").aggregate(n="max(n)")
    ),
    "SELECT TUMBLE_END(ts, INTERVAL '60' SECOND) AS e, seg, count(*) AS n FROM cars GROUP BY 2, " + MINUTE: (
        lambda cars, tolls, calls: by_seg(cars).select({"e": "window_end", "seg": "seg", "n": "n"})
    ),
    **{
        f"SELECT window_start, window_end, seg, count(*) AS n FROM {table} GROUP BY window_start, window_end, seg": (
            lambda cars, tolls, calls: by_seg(cars)
        )
        for table in (
            "TABLE(TUMBLE(TABLE cars, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
            "TUMBLE(TABLE cars, DESCRIPTOR(ts), INTERVAL '1' MINUTE) AS w",
            "TUMBLE(cars, ts, INTERVAL '1' MINUTE)",
        )
    },
    "SELECT window_start, window_end, count(*) AS n FROM HOP(cars, ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)"
    " GROUP BY window_start": (
        lambda cars, tolls, calls: cars.window("2 min", advance="1 min").aggregate(n=md.count())
    ),
}

JOINS: dict[str, Build] = {
    f"SELECT * FROM cars c JOIN tolls t ON c.vid = t.car AND {bounds}": (
        lambda cars, tolls, calls: cars.join(tolls, on={"vid": "car"}, within="30s")
    )
    for bounds in (
        f"c.ts BETWEEN t.ts - {HALF} AND t.ts + {HALF}",
        f"t.ts BETWEEN c.ts - {HALF} AND c.ts + {HALF}",
        f"c.ts >= t.ts - {HALF} AND c.ts <= t.ts + {HALF}",
        f"c.ts - t.ts <= {HALF} AND t.ts - c.ts <= {HALF}",
        f"c.ts - t.ts BETWEEN -{HALF} AND {HALF}",
        f"abs(c.ts - t.ts) <= {HALF}",
        f"{HALF} >= abs(t.ts - c.ts)",
        "abs(c.ts - t.ts) < INTERVAL '30000001' MICROSECOND",
        f"c.ts + {HALF} >= t.ts AND t.ts + {HALF} >= c.ts",
    )
} | {
    f"SELECT * FROM cars c JOIN tolls t ON c.vid = t.car AND c.ts >= t.ts AND c.ts <= t.ts + {HALF}": (
        lambda cars, tolls, calls: cars.join(
            tolls, on={"vid": "car"}, within="30s", where="left.ts >= right.ts"
        )
    ),
    f"SELECT * FROM cars c JOIN tolls t ON c.ts BETWEEN t.ts - INTERVAL '5' SECOND AND t.ts + {HALF}"
    " AND c.vid = t.car AND c.speed > t.fee AND c.seg = t.seg": (
        lambda cars, tolls, calls: cars.join(
            tolls,
            on=[{"vid": "car"}, "seg"],
            within="30s",
            where="left.ts BETWEEN right.ts - INTERVAL '5s' AND right.ts + INTERVAL '30s'"
            " AND left.speed > right.fee",
        )
    ),
    f"SELECT c.vid, t.car, c.ts AS a, t.ts AS b, fee, t.seg FROM cars AS c INNER JOIN tolls t ON t.car = c.vid AND"
    f" abs(c.ts - t.ts) <= {HALF}": (
        lambda cars, tolls, calls: cars.join(tolls, on={"vid": "car"}, within="30s").select(
            {"vid": "vid", "car": "vid", "a": "ts", "b": "ts_right", "fee": "fee", "seg": "seg_right"}
        )
    ),
    "SELECT * FROM calls a JOIN calls b ON a.k = b.k AND a.t - b.t BETWEEN -5 AND 5": (
        lambda cars, tolls, calls: calls.join(calls, on="k", within="5 s")
    ),
    "SELECT * FROM calls a JOIN calls b ON a.k = b.k AND a.t = b.t": (
        lambda cars, tolls, calls: calls.join(calls, on="k", within=0)
    ),
    "WITH a AS (SELECT window_start, window_end, seg, count(*) AS n FROM cars GROUP BY seg, TUMBLE(ts, '1 min')),"
    " b AS (SELECT window_start, window_end, seg, sum(fee) AS f FROM tolls GROUP BY seg, TUMBLE(ts, '1 min'))"
    " SELECT * FROM a JOIN b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.seg = b.seg"
    " AND b.f > a.n": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .group_by("seg")
            .aggregate(n=md.count(), name="a")
            .join(
                tolls.window("1 min").group_by("seg").aggregate(f="sum(fee)", name="b"),
                on=["window", "seg"],
                where="right.f > left.n",
            )
        )
    ),
    "WITH a AS (SELECT window_start, window_end, count(*) AS n FROM cars GROUP BY TUMBLE(ts, '1 min'))"
    " SELECT x.n, y.n AS m FROM a x JOIN a y USING (window_start)": (
        lambda cars, tolls, calls: (lambda a: a.join(a, on="window"))(
            cars.window("1 min").aggregate(n=md.count(), name="a")
        ).select(n="n", m="n_right")
    ),
    f"WITH j AS (SELECT * FROM cars c JOIN tolls t ON c.vid = t.car AND abs(c.ts - t.ts) <= {HALF})"
    " SELECT count(*) AS n FROM j GROUP BY TUMBLE(tuple_time, '1 h')": (
        lambda cars, tolls, calls: (
            cars.join(tolls, on={"vid": "car"}, within="30s", name="j")
            .window("1h")
            .aggregate(n=md.count())
            .select("n")
        )
    ),
}


SESSIONS: dict[str, Build] = {
    "SELECT window_start, window_end, vid, count(*) AS n FROM cars GROUP BY vid, SESSION(ts, INTERVAL '30' SECOND)": (
        lambda cars, tolls, calls: cars.session("30s").group_by("vid").aggregate(n=md.count())
    ),
    "SELECT SESSION_START(ts, '30s') AS s, count(*) AS n FROM cars GROUP BY SESSION(ts, INTERVAL '30' SECOND)": (
        lambda cars, tolls, calls: cars.session("30s").aggregate(n=md.count()).select(s="window_start", n="n")
    ),
    "SELECT vid, max(speed) AS m FROM SESSION(TABLE cars, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, vid": (
        lambda cars, tolls, calls: (
            cars.session("1 min").group_by("vid").aggregate(m="max(speed)").select("vid", "m")
        )
    ),
}

RANKED = "ROW_NUMBER() OVER (PARTITION BY TUMBLE(ts, INTERVAL '1' MINUTE), seg ORDER BY speed DESC)"
COUNTS = f"SELECT window_start, window_end, seg, count(*) AS n FROM cars GROUP BY seg, {MINUTE}"


def top_segs(cars: Stream) -> Stream:
    return by_seg(cars).select("seg", "n").window("1 min").top(2, by="n")


TOPS: dict[str, Build] = {
    f"SELECT window_end, seg, vid, {RANKED} AS r FROM cars WHERE vid > 1 QUALIFY {RANKED} <= 3": (
        lambda cars, tolls, calls: (
            cars.filter("vid > 1")
            .window("1 min")
            .group_by("seg")
            .top(3, by="speed")
            .select({"window_end": "window_end", "seg": "seg", "vid": "vid", "r": "rank"})
        )
    ),
    "SELECT * FROM cars QUALIFY ROW_NUMBER() OVER (PARTITION BY time_bucket('1 min', ts) ORDER BY speed) < 2": (
        lambda cars, tolls, calls: cars.window("1 min").top(1, by="speed", descending=False).select(*CARS)
    ),
    f"SELECT window_start, window_end, seg, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end"
    f" ORDER BY n DESC) AS r FROM ({COUNTS})) WHERE r <= 2": (
        lambda cars, tolls, calls: (
            top_segs(cars)
            .select("window_start", "window_end", "seg", "n", r="rank")
            .select("window_start", "window_end", "seg", "n")
        )
    ),
    f"SELECT seg, r FROM (SELECT seg, n, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC) AS r"
    f" FROM ({COUNTS}) c) x WHERE n > 1 AND x.r <= 2 AND seg > 0": (
        lambda cars, tolls, calls: (
            top_segs(cars).select("seg", "n", r="rank").filter("n > 1 AND seg > 0").select("seg", "r")
        )
    ),
    f"WITH counts AS ({COUNTS}), ranked AS (SELECT seg, n, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC) AS rn"
    " FROM counts) SELECT seg, n FROM ranked r WHERE r.rn <= 2": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .group_by("seg")
            .aggregate(n=md.count(), name="counts")
            .select("seg", "n")
            .window("1 min")
            .top(2, by="n")
            .select("seg", "n", rn="rank", name="ranked")
            .select("seg", "n")
        )
    ),
}

OTHER_JOINS: dict[str, Build] = {
    f"SELECT * FROM cars c {sql} tolls t ON c.vid = t.car AND abs(c.ts - t.ts) <= {HALF}": (
        lambda cars, tolls, calls, how=how: cars.join(tolls, on={"vid": "car"}, within="30s", how=how)
    )
    for sql, how in {
        "LEFT JOIN": "left",
        "LEFT OUTER JOIN": "left",
        "RIGHT JOIN": "right",
        "FULL OUTER JOIN": "full",
        "SEMI JOIN": "semi",
        "LEFT SEMI JOIN": "semi",
        "ANTI JOIN": "anti",
    }.items()
} | {
    f"SELECT c.vid, t.car FROM cars c LEFT JOIN tolls t ON c.vid = t.car AND abs(c.ts - t.ts) <= {HALF}": (
        lambda cars, tolls, calls: cars.join(
            tolls.with_columns({"t.car": "car"}), on={"vid": "car"}, within="30s", how="left"
        ).select({"vid": "vid", "car": '"t.car"'})
    ),
    "SELECT * FROM cars c ASOF JOIN tolls t ON c.vid = t.car AND c.ts >= t.ts": (
        lambda cars, tolls, calls: cars.asof_join(tolls, on={"vid": "car"}, how="inner")
    ),
    "SELECT * FROM cars c ASOF LEFT JOIN tolls t ON t.ts <= c.ts AND c.seg = t.seg AND c.ts - t.ts <= INTERVAL '2' MINUTE": (
        lambda cars, tolls, calls: cars.asof_join(tolls, on="seg", within="2 min")
    ),
    "SELECT * FROM cars ASOF JOIN tolls USING (seg, ts)": (
        lambda cars, tolls, calls: cars.asof_join(tolls, on="seg", how="inner")
    ),
    "SELECT count(*) AS n FROM cars c ASOF JOIN tolls t ON c.vid = t.car AND c.ts >= t.ts GROUP BY TUMBLE(c.ts, '1 min')": (
        lambda cars, tolls, calls: (
            cars.asof_join(tolls, on={"vid": "car"}, how="inner")
            .window("1 min")
            .aggregate(n=md.count())
            .select("n")
        )
    ),
    f"SELECT stddev(speed) AS a, median(speed) AS b, quantile(speed, 0.9) AS c, approx_count_distinct(vid) AS d,"
    f" first(seg) AS e, last(seg) AS f, mean(speed) AS g, approx_quantile(speed, 0.5) AS h FROM cars GROUP BY {MINUTE}": (
        lambda cars, tolls, calls: (
            cars.window("1 min")
            .aggregate(
                a=md.stddev("speed"),
                b=md.median("speed"),
                c=md.quantile("speed", 0.9),
                d=md.approx_count_distinct("vid"),
                e=md.first("seg"),
                f=md.last("seg"),
                g=md.avg("speed"),
                h=md.approx_quantile("speed", 0.5),
            )
            .select(*"abcdefgh")
        )
    ),
}


def sources(q: Query) -> tuple[Stream, Stream, Stream]:
    cars = q.source("cars", CARS, slack="2s")
    tolls = q.source("tolls", TOLLS)
    return cars, tolls, q.source("calls", CALLS, time="t", unit="s")


def by_sql(text: str) -> Query:
    return md.sql(
        text,
        cars=md.source(CARS, slack="2s"),
        tolls=TOLLS,
        calls=md.source(CALLS, time="t", unit="s"),
    )


BUILT = ROWS | WINDOWS | SESSIONS | TOPS | JOINS | OTHER_JOINS


@pytest.mark.parametrize("text", BUILT)
def test_sql_makes_the_boxes_of_the_builder(text: str) -> None:
    q = md.Query("sql")
    q.sink("out", BUILT[text](*sources(q)))
    made = by_sql(text)
    assert made.explain() == q.explain()
    assert made.graph == q.graph


def test_the_boxes_are_the_same_data_in_a_file() -> None:
    made = by_sql(f"SELECT seg, count(*) AS n FROM cars GROUP BY seg, {MINUTE}")
    assert md.Query.from_json(made.to_json()).graph == made.graph


def test_several_statements() -> None:
    made = by_sql(
        "CREATE VIEW fast AS SELECT * FROM cars WHERE speed > 80;\n"
        "INSERT INTO ids SELECT vid FROM fast;\n"
        "INSERT INTO segs SELECT seg FROM fast; -- the end\n"
    )
    q = md.Query("sql")
    fast = sources(q)[0].filter("speed > 80", name="fast")
    q.sink("ids", fast.select("vid"))
    q.sink("segs", fast.select("seg"))
    assert made.graph == q.graph


def test_into_and_name() -> None:
    q = md.sql("SELECT * FROM t", into="there", name="mine", t=CARS)
    assert (q.name, q.sinks) == ("mine", ("there",))


@pytest.mark.parametrize(
    ("text", "schema", "time"),
    [
        ("SELECT count(*) FROM t GROUP BY TUMBLE(at, '1 s')", {"at": "timestamp", "ts": "timestamp"}, "at"),
        (
            "SELECT count(*) FROM TUMBLE(TABLE t, DESCRIPTOR(at), '1 s') GROUP BY window_start",
            {"at": "timestamp"},
            "at",
        ),
        ("SELECT * FROM t", {"ts": "timestamp"}, "ts"),
        ("SELECT * FROM t", {"ts": "int64"}, None),
        ("SELECT * FROM t", {"x": "int64"}, None),
        (
            "SELECT * FROM t a JOIN t b ON a.k = b.k AND a.at - b.at BETWEEN -INTERVAL '1' SECOND AND INTERVAL '1' SECOND",
            {"at": "timestamp", "k": "int64"},
            "at",
        ),
    ],
)
def test_a_schema_alone_takes_its_time_from_the_text(
    text: str, schema: dict[str, str], time: str | None
) -> None:
    (box,) = (box for box in md.sql(text, t=schema).graph.boxes if box.id == "t")
    assert box.time == time  # type: ignore[union-attr]


def test_a_part_that_nothing_reads_makes_no_boxes_but_is_checked() -> None:
    made = by_sql("WITH a AS (SELECT vid FROM cars), b AS (SELECT vid FROM a) SELECT seg FROM cars")
    assert [box.id for box in made.graph.boxes][3:] == ["select-1-380a", "out"]
    with pytest.raises(md.QueryError, match="'zz'"):
        by_sql("WITH a AS (SELECT zz FROM cars) SELECT seg FROM cars")
    with pytest.raises(md.QueryError, match="'zz'"):
        by_sql("WITH a AS (SELECT vid FROM cars), b AS (SELECT zz FROM a) SELECT vid FROM a")
