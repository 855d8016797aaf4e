"""Queries as text."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings

import medusa as md
from medusa.query.boxes import Aggregate, AggregateCall, Field, Filter, Graph, Input, Sink, Source
from medusa.query.builder import Query
from medusa.query.expressions.expression import Column, Literal, Named
from medusa.query.render.explain import explain
from tests.query.queries import queries

TS = "timestamp[us, UTC]"
GOLDEN = """\
query tolls: 15 boxes, 4 of them sinks

sink tolls
└─ window_join j: equal windows, on seg where left.n > right.m
   │  gives window_start timestamp[us, UTC], window_end timestamp[us, UTC], seg int32, n int64, m int64
   │  waits for the boundaries of both inputs to pass the window
   ├─ aggregate w: windows of 5 min every 1 min by seg: n = count(*)
   │  │  gives window_start timestamp[us, UTC], window_end timestamp[us, UTC], seg int32, n int64
   │  │  waits for the boundary to reach the end of the window
   │  └─ filter fast: speed > 0
   │     └─ source cars: time ts, slack 2s
   │           gives ts timestamp[us, UTC], vid int64, speed float64, seg int32
   └─ select few: window_start, window_end, seg, m = n * 2
      │  gives window_start timestamp[us, UTC], window_end timestamp[us, UTC], seg int32, m int64
      └─ aggregate w (see above)

sink pairs
└─ join p: on vid within 30s
   │  gives vid int64, seg int32
   │  waits for the boundaries of both inputs to pass the later time of the pair
   ├─ select ids: vid
   │  │  gives vid int64
   │  └─ filter fast (see above)
   └─ select segs: vid, seg
      │  gives vid int64, seg int32
      └─ source cars (see above)

sink late
└─ source cars.late (see above)

sink all
└─ with_columns wide: mph = speed * 0.621
   │  gives at int64, speed float64, mph float64
   │  has no time
   └─ source raw: without time
         gives at int64, speed float64
         has no time

u leads to no sink:
union u: in order of arrival
├─ source cars (see above)
└─ filter fast (see above)
"""


def test_a_query_explained() -> None:
    q = md.Query("tolls")
    cars = q.source(
        "cars", {"ts": "timestamp", "vid": "int64", "speed": "float64", "seg": "int32"}, slack="2s"
    )
    raw = q.source("raw", {"at": "int64", "speed": "float64"}, time=None)
    fast = cars.filter("speed > 0", name="fast")
    w = fast.window("5 min", advance="1 min").group_by("seg").aggregate(
        n=md.count(), name="w"
    )  # fmt: skip
    few = w.select("window_start", "window_end", "seg", m="n * 2", name="few")
    ids, segs = fast.select("vid", name="ids"), cars.select("vid", "seg", name="segs")
    q.sink("tolls", w.join(few, on=["window", "seg"], where="left.n > right.m", name="j"))
    q.sink("pairs", ids.join(segs, on="vid", within="30s", name="p"))
    q.sink("late", cars.late)
    q.sink("all", raw.with_columns(mph="speed * 0.621", name="wide"))
    cars.union(fast, name="u")
    assert q.explain() == GOLDEN


def test_fragments_explained() -> None:
    columns = (Field("ts", "timestamp[us, UTC]"), Field("k", "int64"))
    source = Source(id="in", schema=columns, judged=True)
    partial = Aggregate(
        id="w",
        inputs=(Input("in"),),
        size_us=1_000_000,
        advance_us=1_000_000,
        keys=(Named("k", Column("k")),),
        aggregates=(AggregateCall("n", "count"),),
        stage="partial",
    )
    combine = msgspec.structs.replace(partial, id="c", inputs=(Input("w"),), stage="combine")
    text = explain(Graph(name="f", boxes=(source, partial, combine, Sink(id="out", inputs=(Input("c"),)))))
    assert "aggregate c: combines tumbling windows of 1s by k: n = count(*)" in text
    assert "waits for the boundaries of all inputs to reach the end of the window" in text
    assert "aggregate w: partials of tumbling windows of 1s by k: n = count(*)" in text
    assert "gives window_start timestamp[us, UTC], window_end timestamp[us, UTC], k int64, n.n int64" in text
    assert "source in: from another fragment, lateness judged there" in text
    results = (Field("window_start", TS), Field("window_end", TS))
    windows = Source(id="in", schema=results, judged=True, window_us=(2_000_000, 1_000_000))
    assert "judged there, results of windows of 2s every 1s\n" in explain(Graph(name="f", boxes=(windows,)))


def test_wide_schemas_are_cut() -> None:
    q = md.Query("q")
    q.sink("out", q.source("s", {"ts": "timestamp", **{f"c{i}": "int8" for i in range(50)}}))
    assert "c10 int8, ... 39 more" in q.explain()


def test_a_query_of_nothing() -> None:
    assert md.Query("q").explain() == "query q: 0 boxes, 0 of them sinks\n"


def test_a_thousand_boxes_in_a_row() -> None:
    source = Source(id="f0", schema=(Field("a", "int8"),), timed=False)
    rest = [
        Filter(id=f"f{index}", inputs=(Input(f"f{index - 1}"),), predicate=Literal("bool", True))
        for index in range(1, 1_000)
    ]
    text = explain(Graph(name="long", boxes=(source, *rest)))
    assert text.count("filter f") == 999
    assert "f999 leads to no sink:" in text


@settings(max_examples=30)
@given(queries())
def test_every_box_is_told_once(q: Query) -> None:
    told = [line for line in q.explain().splitlines() if "see above" not in line]
    for box in q.graph.boxes:
        heads = [
            line for line in told if line.lstrip("│├└─ ").split(":")[0].split(".")[0].endswith(f" {box.id}")
        ]
        assert len(heads) == 1, box.id
