"""Windows against DuckDB, split over nodes, and bit for bit under any cut."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa._native import Times
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Aggregate, Graph, Input, Sink, Source
from medusa.query.graph import check_graph
from tests.engine.queries import numbers

SCHEMA = {"ts": "timestamp", "k": "int64", "s": "utf8", "v": "float64", "n": "int32"}


def events(count: int, *, seed: int = 1, nulls: bool = True) -> pa.Table:
    """Rows up to 50 ms out of order; a tenth of the values null."""
    draw = np.random.default_rng(seed)
    times = np.arange(count) * 100 - draw.integers(0, 50_000, count) * (draw.random(count) < 0.3)

    def some(values: Any) -> pa.Array:
        return pa.array(values, mask=draw.random(count) < 0.1 if nulls else None)

    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": some(draw.integers(-3, 20, count)),
            "s": some(np.array(["x", "yy", "zzz", ""])[draw.integers(0, 4, count)]),
            "v": some(draw.random(count) * 1e3),
            "n": some(draw.integers(-100, 100, count).astype(np.int32)),
        }
    )


def windowed(size: str, advance: str, keys: tuple[str, ...] = ("k", "s")) -> md.Query:
    q = md.Query("windowed")
    s = q.source("e", SCHEMA, time="ts")
    q.sink(
        "o",
        s.window(size, advance=advance)
        .group_by(*keys)
        .aggregate(
            c=md.count(),
            cv=md.count("v"),
            total=md.sum("v"),
            whole=md.sum("n"),
            low=md.min("v"),
            high=md.max("n"),
            mean=md.avg("v"),
            middle=md.avg("n"),
            spread=md.variance("v"),
            kinds=md.count_distinct("n"),
            words=md.count_distinct("s"),
        ),
    )
    return q


def near(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Equal, floats within 1e-9."""
    return len(a) == len(b) and all(
        x == pytest.approx(y, rel=1e-9) if isinstance(x, float) and isinstance(y, float) else x == y
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(("size", "advance"), [("1s", "1s"), ("1s", "300ms"), ("700ms", "100ms")])
def test_windows_give_what_duckdb_gives(size: str, advance: str) -> None:
    rows = events(30_000)
    got = md.collect(windowed(size, advance), e=rows).only
    lengths = {"1s": 1_000_000, "700ms": 700_000, "300ms": 300_000, "100ms": 100_000}
    db = duckdb.connect()
    db.register("e", rows.set_column(0, "ts", rows.column(0).cast(pa.int64())))
    expected = db.execute(
        """
        WITH t AS (SELECT *, floor(ts / $advance)::BIGINT * $advance AS last FROM e),
        w AS (SELECT *, unnest(range(last, ts - $size, -$advance)) AS ws FROM t)
        SELECT ws, k, s, count(*) c, count(v) cv, sum(v) total, sum(n)::BIGINT whole, min(v) low, max(n) high,
               avg(v) mean, avg(n) middle, var_samp(v) spread, count(DISTINCT n) kinds,
               count(DISTINCT s) words
        FROM w GROUP BY ALL
        """,
        {"advance": lengths[advance], "size": lengths[size]},
    ).fetchall()

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            (value is not None, value or 0 if not isinstance(value, str) else value) for value in row[:3]
        )

    ours = [tuple(v for name, v in row.items() if name != "window_end") for row in numbers(got)]
    assert len(ours) == len(expected) > 400
    for a, b in zip(sorted(ours, key=order), sorted(expected, key=order), strict=True):
        assert near(a, b)


def test_results_stand_in_order_of_window_and_first_appearance() -> None:
    rows = events(20_000)
    got = numbers(md.collect(windowed("1s", "300ms"), e=rows).only)
    bounds = [(row["window_end"], row["window_start"]) for row in got]
    assert bounds == sorted(bounds)
    first: dict[Any, int] = {}
    for place, row in enumerate(rows.set_column(0, "ts", rows.column(0).cast(pa.int64())).to_pylist()):
        start = row["ts"] // 300_000 * 300_000
        while start > row["ts"] - 1_000_000:
            first.setdefault((start, row["k"], row["s"]), place)
            start -= 300_000
    for a, b in pairwise(got):
        if a["window_end"] == b["window_end"]:
            assert first[a["window_start"], a["k"], a["s"]] < first[b["window_start"], b["k"], b["s"]]


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), advance=st.sampled_from(["1s", "300ms"]))
def test_the_same_rows_give_the_same_bits(seed: int, advance: str) -> None:
    """Whatever the cuts, and with state taken out and put back on the way: floats of any size."""
    rows = events(3_000, seed=seed).combine_chunks().to_batches()[0]
    graph = windowed("1s", advance).graph
    graph = msgspec.structs.replace(
        graph,
        boxes=tuple(
            msgspec.structs.replace(box, slack_us=50_000) if isinstance(box, Source) else box
            for box in graph.boxes
        ),
    )
    draw = random.Random(seed)
    answers = []
    for cuts in (1, 7, 60):
        fragment = Fragment(graph)
        edges = sorted({0, rows.num_rows, *(draw.randrange(rows.num_rows) for _ in range(cuts))})
        got = []
        for start, end in pairwise(edges):
            fragment.feed("e", Train(batch=rows.slice(start, end - start)))
            if draw.random() < 0.1:
                fragment = Fragment.restore(graph, fragment.snapshot())
            got += fragment.drain("o")
        fragment.finish()
        got += fragment.drain("o")
        answers.append(pa.Table.from_batches([t.batch for t in got if isinstance(t, Train)]).combine_chunks())
    for other in answers[1:]:
        assert other.equals(answers[0])
        for a, b in zip(other.columns, answers[0].columns, strict=True):
            if pa.types.is_floating(a.type):
                bits = [c.combine_chunks().drop_null().to_numpy().view(np.int64) for c in (a, b)]
                assert (bits[0] == bits[1]).all()


# Split over nodes


def split(q: md.Query, copies: int) -> tuple[Graph, Graph]:
    """The window of a query as a partial copy, and a combine box that reads ``copies`` of them."""
    source, window, _sink = q.graph.boxes
    assert isinstance(source, Source)
    assert isinstance(window, Aggregate)
    partial = msgspec.structs.replace(window, stage="partial")
    sender = Graph(name="edge", boxes=(source, partial, Sink(id="out", inputs=(Input(window.id),))))
    schema = check_graph(sender).schemas[Input(window.id)]
    sources = [Source(id=f"in{i}", schema=schema, judged=True) for i in range(copies)]
    combine = msgspec.structs.replace(
        window, stage="combine", inputs=tuple(Input(each.id) for each in sources)
    )
    boxes = (*sources, combine, Sink(id="o", inputs=(Input(window.id),)))
    return sender, Graph(name="core", boxes=boxes)


def with_slack(graph: Graph, slack_us: int) -> Graph:
    first = msgspec.structs.replace(graph.boxes[0], slack_us=slack_us)
    return msgspec.structs.replace(graph, boxes=(first, *graph.boxes[1:]))


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), advance=st.sampled_from(["1s", "300ms"]), reload=st.booleans())
def test_partials_of_several_nodes_combine_to_the_whole(seed: int, advance: str, reload: bool) -> None:
    """Equal as rows sorted by window and key, floats within 1e-9; and equal to the last bit however
    the elements of the nodes interleave."""
    q = windowed("1s", advance)
    rows = events(2_000, seed=seed).combine_chunks().to_batches()[0]
    sender, core = split(q, 3)
    sender = with_slack(sender, 50_000)
    outputs = []
    for copy in range(3):
        mine = pa.array(np.flatnonzero(np.arange(rows.num_rows) % 3 == copy))
        edge = Fragment(sender)
        part = rows.take(mine)
        elements = []
        for start in range(0, part.num_rows, 97):
            edge.feed("e", Train(batch=part.slice(start, 97)))
            elements += edge.drain("out")
        edge.finish()
        outputs.append([*elements, *edge.drain("out")])
    answers = []
    for order in range(3):
        draw = random.Random(order)
        fragment, got = Fragment(core), []
        waiting = [list(each) for each in outputs]
        while any(waiting):
            copy = draw.choice([i for i in range(3) if waiting[i]])
            fragment.feed(f"in{copy}", waiting[copy].pop(0))
            if reload and draw.random() < 0.1:
                got += fragment.drain("o")
                fragment = Fragment.restore(core, fragment.snapshot())
        got += fragment.drain("o")
        assert got[-1] == Boundary(1 << 62)
        answers.append(pa.Table.from_batches([t.batch for t in got if isinstance(t, Train)]).combine_chunks())
    assert answers[1].equals(answers[0])
    assert answers[2].equals(answers[0])
    whole = numbers(md.collect(q, e=pa.Table.from_batches([rows])).only)

    def by_key(row: dict[str, Any]) -> tuple[Any, ...]:
        key = [(row[name] is not None, row[name] if row[name] is not None else 0) for name in ("k", "s")]
        return (row["window_end"], row["window_start"], *key)

    got_rows = numbers(answers[0])
    assert got_rows == sorted(got_rows, key=by_key), "rows leave by window, then by key, null first"
    for a, b in zip(got_rows, sorted(whole, key=by_key), strict=True):
        assert near(tuple(a.values()), tuple(b.values()))


def test_every_type_is_a_key_and_an_argument() -> None:
    types: dict[str, Any] = {
        "bool": [True, False, None],
        "int8": [-128, 127, None],
        "int16": [-5, 5, None],
        "uint8": [255, 0, None],
        "uint32": [1 << 31, 2, None],
        "uint64": [(1 << 64) - 1, 2, None],
        "float32": [0.5, float("inf"), None],
        "float64": [0.1, -0.0, None],
        "utf8": ["é", "", None],
        "binary": [b"\x00\xff", b"", None],
        "date32": [pa.scalar(19_000, pa.date32()).as_py(), pa.scalar(-5, pa.date32()).as_py(), None],
        "timestamp": [pa.scalar(5, pa.timestamp("us", "UTC")).as_py()] * 2 + [None],
        "duration": [pa.scalar(7, pa.duration("us")).as_py()] * 2 + [None],
    }
    for type, values in types.items():
        q = md.Query("q")
        s = q.source("s", {"ts": "int64", "x": type}, time="ts", unit="us")
        aggregates: dict[str, Any] = {"n": md.count("x"), "d": md.count_distinct("x")}
        if type not in ("utf8", "binary"):
            aggregates |= {"low": md.min("x"), "high": md.max("x")}
        q.sink("keyed", s.window(10).group_by("x").aggregate(**aggregates))
        arrow = q.graph.boxes[0].schema[1].type
        from medusa.query.types import to_arrow

        table = pa.table({"ts": [1, 2, 3], "x": pa.array(values, to_arrow(arrow))})
        out = md.collect(q, s=table).only
        assert out.schema.field("x").type == to_arrow(arrow), type
        distinct = list(dict.fromkeys(values))
        assert out.column("x").to_pylist() == distinct
        assert out.column("d").to_pylist() == [int(v is not None) for v in distinct]
        if "low" in aggregates:
            assert out.column("low").to_pylist() == distinct
            assert out.schema.field("high").type == to_arrow(arrow)


def test_columns_reach_native_code_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of the user's buffers are those that the native window is given."""
    from medusa.engine.operators.windows import aggregate

    seen: list[tuple[int, ...]] = []

    class Spy:
        def __init__(self, **options: Any) -> None:
            self._window = real(**options)

        def read_from(self, positions: list[int]) -> None:
            self._positions = positions
            self._window.read_from(positions)

        def add(self, rows: pa.RecordBatch, times: Times) -> None:
            columns = [times.array if place < 0 else rows.column(place) for place in self._positions]
            seen.append(tuple(column.buffers()[1].address for column in columns))
            self._window.add(rows, times)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._window, name)

    real = aggregate.Window
    monkeypatch.setattr(aggregate, "Window", Spy)
    rows = pa.table(
        {
            "ts": np.arange(1000) * 1000,
            "k": np.arange(1000) % 7,
            "v": np.arange(1000) / 3,
        }
    )
    q = md.Query("q")
    s = q.source("e", {"ts": "int64", "k": "int64", "v": "float64"}, time="ts", unit="us")
    q.sink("o", s.window("1s").group_by("k").aggregate(a=md.avg("v"), b=md.sum("v")))
    md.collect(q, e=rows)
    assert seen == [tuple(column.chunk(0).buffers()[1].address for column in rows.columns)]
