"""What the builder refuses at once, and with which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import medusa as md
from medusa.query.builder import Query, Stream

CARS = {"ts": "timestamp", "vid": "int64", "speed": "float64", "seg": "int32", "tag": "utf8"}


@pytest.fixture
def q() -> Query:
    return md.Query("tolls")


@pytest.fixture
def cars(q: Query) -> Stream:
    return q.source("cars", CARS)


REFUSED: list[tuple[Callable[[Query, Stream, Stream], object], str]] = [
    # names
    (lambda q, s, w: md.Query("no spaces"), "md.Query: 'no spaces' can't be a name (a letter or _"),
    (lambda q, s, w: md.Query(""), "md.Query: '' can't be a name"),
    (lambda q, s, w: md.Query("x" * 65), "can't be a name"),
    (lambda q, s, w: s.filter("speed > 0", name="1st"), "filter: '1st' can't be a name"),
    (lambda q, s, w: s.filter("speed > 0", name=7), "filter: int 7 can't be a name"),
    (lambda q, s, w: s.filter("speed > 0", name="cars"), "filter 'cars': the name is taken by source 'cars'"),
    (lambda q, s, w: q.source("w", CARS), "source 'w': the name is taken by aggregate 'w' of query 'tolls'"),
    (lambda q, s, w: q.sink("cars", s), "sink 'cars': the name is taken by source 'cars'"),
    # sources
    (lambda q, s, w: q.source("x", {"a": "int8"}), "the time column 'ts' is not in the schema (say which"),
    (lambda q, s, w: q.source("x", CARS, time="tsx"), "'tsx' is not in the schema (did you mean 'ts'?)"),
    (lambda q, s, w: q.source("x", CARS, time=7), "source 'x': time is the name of a column, got int"),
    (lambda q, s, w: q.source("x", CARS, time="vid"), "the time column 'vid' is int64 and needs unit="),
    (
        lambda q, s, w: q.source("x", CARS, time="vid", unit="h"),
        'needs unit="s", "ms", "us" or "ns", got \'h\'',
    ),
    (lambda q, s, w: q.source("x", CARS, time="tag"), "'tag' is utf8, expected a timestamp or an integer"),
    (lambda q, s, w: q.source("x", CARS, unit="us"), "unit= is for integer columns; 'ts' is a timestamp"),
    (
        lambda q, s, w: q.source("x", CARS, time=None, slack="1s"),
        "slack= is for sources with time=",
    ),
    (lambda q, s, w: q.source("x", CARS, slack="soon"), "source 'x': slack: 'soon' is no duration"),
    (lambda q, s, w: q.source("x", {"ts": "timestmp"}), "source 'x': column 'ts': type 'timestmp'"),
    (lambda q, s, w: q.source("x", 7), "source 'x': expected a schema, got int"),
    # expressions
    (
        lambda q, s, w: s.filter("sped > 0"),
        "filter after 'cars': there is no column 'sped' (did you mean 'speed'?)",
    ),
    (
        lambda q, s, w: s.filter("speed"),
        "filter after 'cars': the predicate must be bool, got float64 (compare",
    ),
    (lambda q, s, w: s.filter("speed > "), "filter after 'cars': can't read the expression"),
    (lambda q, s, w: s.filter(7), "filter after 'cars': expected an expression, got int"),
    (lambda q, s, w: s.filter("speed > 'x'"), "filter after 'cars': speed > 'x'"),
    (lambda q, s, w: s.filter("sqroot(speed) > 1"), "there is no function 'sqroot'"),
    (lambda q, s, w: s.late.filter("tuple_time IS NULL"), "tuple_time"),
    (lambda q, s, w: s.filter("left.speed > 0"), "there is no column 'left.speed'"),
    # select
    (lambda q, s, w: s.select(), "select after 'cars': needs at least one column"),
    (lambda q, s, w: s.with_columns(), "with_columns after 'cars': needs at least one column"),
    (
        lambda q, s, w: s.select("vidd"),
        "select after 'cars': column 'vidd': there is no column 'vidd' (did you",
    ),
    (lambda q, s, w: s.select(7), "expected the name of a column, got int"),
    (
        lambda q, s, w: s.select("vid", vid="seg"),
        "select after 'cars': column 'vid' stands twice in the output",
    ),
    (lambda q, s, w: s.with_columns({"a": "1"}, a="2"), "column 'a' stands twice"),
    (lambda q, s, w: s.select(md.col("vid") + 1), "<Expr vid + 1> needs a name (write name=expression)"),
    (
        lambda q, s, w: s.select(x=7),
        "column 'x': expected an expression, got int (a constant is md.lit(value))",
    ),
    (lambda q, s, w: s.select({"a\nb": "vid"}), "can't be a column name"),
    (lambda q, s, w: s.select({7: "vid"}), "7 can't be a column name"),
    (lambda q, s, w: s.select(x="NULL"), "column 'x'"),
    # windows
    (
        lambda q, s, w: s.window("1s").aggregate(n=md.count()).window("1s").top(1, by="n"),
        "or leave them out, in a select before",
    ),
    (lambda q, s, w: s.window("5 m"), "window: size: '5 m' is no duration (minutes are \"min\""),
    (lambda q, s, w: s.window(0), "window: size: expected a duration of longer than 0, got 0"),
    (
        lambda q, s, w: s.window("1s", advance="2s"),
        "advance is 2s, expected more than 0 and at most the size, 1s",
    ),
    (lambda q, s, w: s.window("1s", advance=0), "window: advance: expected a duration of longer than 0"),
    (
        lambda q, s, w: s.late.window("1s"),
        "a window needs a time, and the rows of source 'cars.late' have none",
    ),
    (lambda q, s, w: s.window("1s").group_by(), "group_by after 'cars': needs at least one key"),
    (
        lambda q, s, w: s.window("1s").group_by("sg").aggregate(n=md.count()),
        "key 'sg': there is no column 'sg'",
    ),
    (lambda q, s, w: s.window("1s").aggregate(), "aggregate after 'cars': needs at least one aggregate"),
    (lambda q, s, w: s.window("1s").aggregate(md.count()), "an aggregate needs a name (n=md.count()"),
    (
        lambda q, s, w: s.window("1s").aggregate({"n": "count(*)"}, n="count(*)"),
        "'n' can't name an aggregate",
    ),
    (
        lambda q, s, w: s.window("1s").aggregate(n=7),
        "aggregate 'n': expected an aggregate, got int (md.count()",
    ),
    (lambda q, s, w: s.window("1s").aggregate(n=md.sum("vidd")), "aggregate 'n': there is no column 'vidd'"),
    (
        lambda q, s, w: s.window("1s").aggregate(n=md.sum("tag")),
        "sum takes integers, floats, decimals and bools, got utf8",
    ),
    (
        lambda q, s, w: s.window("1s").aggregate(n=md.quantile("tag", 0.5)),
        "quantile takes integers, floats and decimals, got utf8",
    ),
    (
        lambda q, s, w: s.window("1s").aggregate(n="medan(speed)"),
        "there is no aggregate 'medan'",
    ),
    (lambda q, s, w: s.window("1s").aggregate(n="speed + 1"), "expected one aggregate call"),
    (lambda q, s, w: s.window("1s").aggregate(window_end=md.count()), "column 'window_end' stands twice"),
    (lambda q, s, w: s.window("1s").group_by("seg").aggregate(seg=md.count()), "column 'seg' stands twice"),
    (
        lambda q, s, w: q.sink("o", s.window("1s")),
        "expected a stream, got WindowedStream (a window needs .aggregate",
    ),
    # union
    (lambda q, s, w: s.union(), "union after 'cars': expected at least 2 inputs, got 1"),
    (lambda q, s, w: s.union(w), "source 'cars' has a column 'ts' that aggregate 'w' lacks"),
    (lambda q, s, w: s.union(s.late), "source 'cars' has a time and source 'cars.late' has none"),
    (
        lambda q, s, w: s.union(s.with_columns(vid="seg")),
        "column 'vid' is int64 in source 'cars' and int32 in",
    ),
    (lambda q, s, w: s.select("vid", "seg").union(s.select("seg", "vid")), "same columns in different order"),
    (lambda q, s, w: s.union(7), "union after 'cars': expected a stream, got int"),
    # joins
    (lambda q, s, w: s.join(s, on="vid"), "join after 'cars': within is missing: how far apart"),
    (lambda q, s, w: s.join(s, on="vid", within="soon"), "join after 'cars': within: 'soon' is no duration"),
    (lambda q, s, w: s.join(s, on="vid", within=-1), "within: expected a duration of at least 0s"),
    (
        lambda q, s, w: s.join(s, on="vidd", within=1),
        "key 'vidd': there is no column 'vidd' (did you mean 'vid'?)",
    ),
    (
        lambda q, s, w: s.join(s, on={"vid": "tag"}, within=1),
        "key 'vid' is int64 in source 'cars' and 'tag' is utf8",
    ),
    (lambda q, s, w: s.join(s, on=7, within=1), "on: expected names of columns, got int"),
    (lambda q, s, w: s.join(s, on=[], within=1), "on: needs at least one column"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="outer"), "how='outer' is none of inner, left"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="ful"), "did you mean 'full'"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="outer"), "did you mean 'full'"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="FULL OUTER"), "did you mean 'full'"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="left_semi"), "did you mean 'semi'"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how="anti_join"), "did you mean 'anti'"),
    (lambda q, s, w: s.asof_join(s, on="vid", how="left_outer"), "did you mean 'left'"),
    (lambda q, s, w: s.asof_join(s, on="vid", how="outer"), "there is: left, inner"),
    (lambda q, s, w: w.join(w, on="window", how="cross"), "how='cross' is none of inner, left"),
    (lambda q, s, w: s.asof_join(s, on="vid", how="right"), "how='right' is none of left, inner"),
    (lambda q, s, w: s.asof_join(s, on="vid", where="left.vid < right.vid"), "where reads both sides"),
    (lambda q, s, w: s.asof_join(s, on="window"), "an as-of join looks back in time"),
    (lambda q, s, w: s.asof_join(s, on="vid", within="-1 s"), "within"),
    (lambda q, s, w: s.join(s, on="vid", within=1, how=7), "how is a text, got int"),
    (lambda q, s, w: s.join(s, on="vid", within=1, suffixes=("",)), "suffixes are two texts"),
    (lambda q, s, w: s.join(s, on="vid", within=1, suffixes=("", "")), "column 'ts' stands twice"),
    (
        lambda q, s, w: s.join(s, on="vid", within=1, where="left.sped > 1"),
        "where: there is no column 'left.sped'",
    ),
    (lambda q, s, w: s.join(s, on="vid", within=1, where="speed > 1"), "where: there is no column 'speed'"),
    (lambda q, s, w: s.join(s, on="vid", within=1, where="left.speed"), "where: must be bool, got float64"),
    (
        lambda q, s, w: s.join(s, on="vid", within=1, where="tuple_time > left.ts"),
        "tuple_time is of neither side",
    ),
    (
        lambda q, s, w: s.join(s.late, on="vid", within=1),
        "a join needs a time, and the rows of source 'cars.late'",
    ),
    (lambda q, s, w: s.join(s, on="window"), "source 'cars' doesn't, source 'cars' doesn't"),
    (lambda q, s, w: w.join(w, on="window", within="1s"), 'on="window" takes no within'),
    (lambda q, s, w: w.join(w, on=["window", "window_end"]), "on=\"window\" already means 'window_end'"),
    (
        lambda q, s, w: w.join(w.select("seg"), on="window"),
        "(select 'select-1-380a' doesn't keep window_start)",
    ),
    (
        lambda q, s, w: w.join(w.with_columns(window_end="window_start"), on="window"),
        "doesn't keep window_end",
    ),
    (
        lambda q, s, w: w.join(s.window("2s").aggregate(n=md.count(), name="v"), on="window"),
        "aggregate 'w' comes from tumbling windows of 1s, aggregate 'v' comes from tumbling windows of 2s",
    ),
    (
        lambda q, s, w: w.join(s.window("1s", "500ms").aggregate(n=md.count()), on="window"),
        "comes from windows of 1s every 500ms",
    ),
    (lambda q, s, w: w.join(w.join(w, on="seg", within=1), on="window"), "joins over time"),
    # streams
    (lambda q, s, w: w.late, "aggregate 'w': only a source with time= has .late"),
    (lambda q, s, w: s.late.late, "only a source with time= has .late"),
    (lambda q, s, w: q.source("n", CARS, time=None).late, "only a source with time= has .late"),
    (lambda q, s, w: q.sink("out", 7), "sink 'out': expected a stream, got int"),
    (
        lambda q, s, w: q.sink("out", md.Query("other").source("x", CARS)),
        "sink 'out': source 'x' belongs to query 'other', not to 'tolls'",
    ),
    (lambda q, s, w: s.join(md.Query("b").source("x", CARS), on="vid", within=1), "belongs to query 'b'"),
    (lambda q, s, w: q.stream("cras"), "query 'tolls': there is no stream 'cras' (did you mean 'cars'?)"),
]


@pytest.mark.parametrize(("wrong", "says"), REFUSED, ids=[says[:60] for _, says in REFUSED])
def test_what_is_refused(
    q: Query, cars: Stream, wrong: Callable[[Query, Stream, Stream], object], says: str
) -> None:
    w = cars.window("1s").group_by("seg").aggregate(n=md.count(), name="w")
    before = q.graph
    with pytest.raises(md.QueryError) as caught:
        wrong(q, cars, w)
    assert says in str(caught.value)
    assert caught.value.code.startswith("query")
    # Boxes made on the way to the refused one may stand; what was there is unchanged.
    assert q.graph.boxes[: len(before.boxes)] == before.boxes


def test_decimals_are_refused_where_they_cannot_go(q: Query) -> None:
    money = q.source("money", {"ts": "timestamp", "fee": "decimal(10, 2)"})
    assert money.filter("fee > 1").schema["fee"] == "decimal128(10, 2)"
    for wrong, says in (
        (lambda: money.window("1s").group_by("fee").aggregate(n=md.count()), "can't be a key"),
        (lambda: money.distinct("fee", within=1), "can't be a key"),
        (lambda: money.wsort("fee", timeout=1), "expected a number or a time to sort by"),
        (lambda: money.join(money, on="fee", within=1), "can't be a key"),
    ):
        with pytest.raises(md.QueryError) as caught:
            wrong()
        assert says in str(caught.value)


def test_a_query_has_at_most_a_thousand_boxes(q: Query, cars: Stream) -> None:
    for index in range(999):
        cars.filter("speed > 0", name=f"f{index}")
    with pytest.raises(md.QueryError, match="more than 1,000 boxes"):
        cars.filter("speed > 0")
    assert len(q.graph.boxes) == 1_000


def test_columns_do_not_grow_without_bound(q: Query) -> None:
    wide = q.source("wide", {"ts": "timestamp", **{f"c{i}": "int8" for i in range(6_000)}})
    with pytest.raises(md.QueryError, match="more than 10,000 columns"):
        wide.join(wide, on="c0", within=1)
