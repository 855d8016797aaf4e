"""Fragment: rows judged elsewhere, refusals, state that doesn't belong, and times that travel."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, RecDone, Train, Undo
from medusa.engine.core.box import show_time
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Aggregate, AggregateCall, Field, Filter, Graph, Input, Sink, Source
from medusa.query.expressions.expression import Call, Column, Literal, Named
from tests.engine import kinds
from tests.engine.queries import numbers

TIME = pa.timestamp("us", "UTC")
SCHEMA = (Field("k", "int64"),)
COUNTS = Aggregate(
    id="counts",
    inputs=(Input("in"),),
    size_us=10,
    advance_us=10,
    keys=(Named("k", Column("k")),),
    aggregates=(AggregateCall("n", "count"),),
)
JUDGED = Graph(
    name="core",
    boxes=(
        Source(id="in", schema=SCHEMA, judged=True),
        Filter(id="some", inputs=(Input("in"),), predicate=Call("gt", (Column("k"), Literal("int64", 0)))),
        COUNTS,
        Sink(id="all", inputs=(Input("some"),)),
        Sink(id="out", inputs=(Input("counts"),)),
    ),
)


def train(keys: list[int], times: list[int] | None, late: list[bool] | None = None) -> Train:
    return Train(
        batch=pa.record_batch({"k": pa.array(keys, pa.int64())}),
        times=None if times is None else pa.array(times, TIME),
        late=None if late is None else pa.array(late),
    )


def test_rows_judged_elsewhere_keep_their_times_and_marks() -> None:
    fragment = Fragment(JUDGED)
    fragment.feed("in", Boundary(5))
    fragment.feed("in", train([1, 0, 2], [5, 1, 9], [False, True, False]))
    fragment.feed("in", Boundary(10))
    (boundary, rows, last) = fragment.drain("all")
    assert (boundary, last) == (Boundary(5), Boundary(10))
    assert isinstance(rows, Train)
    assert rows.times is not None
    assert rows.times.cast(pa.int64()).to_pylist() == [5, 9]
    assert rows.late is not None
    assert rows.late.to_pylist() == [False, False]
    (counted, *_) = [e for e in fragment.drain("out") if isinstance(e, Train)]
    assert [(r["k"], r["n"]) for r in counted.batch.to_pylist()] == [(1, 1), (2, 1)]
    assert fragment.sources["in"].late == 1
    assert fragment.positions() == {"in": 3}


@pytest.mark.parametrize(
    ("element", "match"),
    [
        (train([1], [4]), "below its boundary"),
        (train([1], None), "without their times"),
        (train([1], [1 << 61]), "out of range"),
        (Train(batch=pa.record_batch({"x": [1]}), times=pa.array([9], TIME)), "expected columns"),
        (train([1, 2], [9]), "without their times"),
        (Boundary(4), "may not decrease"),
        (Undo(0), "Undo"),
        (RecDone(), "RecDone"),
    ],
)
def test_what_breaks_a_promise_is_refused_and_changes_nothing(element: Any, match: str) -> None:
    fragment = Fragment(JUDGED)
    fragment.feed("in", Boundary(5))
    before = fragment.snapshot()
    with pytest.raises(md.DataError, match=match):
        fragment.feed("in", element)
    assert {n: bytes(d) for n, d in fragment.snapshot().items()} == {n: bytes(d) for n, d in before.items()}
    fragment.feed("in", train([1], [5]))


def test_finish_ends_every_sink_once() -> None:
    fragment = Fragment(JUDGED)
    fragment.feed("in", train([1], [5]))
    fragment.finish()
    fragment.finish()
    assert fragment.drain("out")[-1] == Boundary(END_US)
    with pytest.raises(md.DataError, match="ended"):
        fragment.feed("in", train([1], [50]))
    assert all(row["finished"] for row in fragment.stats().to_pylist())


def test_results_have_times_only_where_something_reads_them() -> None:
    for sink_times in (True, False):
        fragment = Fragment(JUDGED, sink_times=sink_times)
        fragment.feed("in", train([1], [5]))
        fragment.feed("in", Boundary(20))
        (rows,) = [e for e in fragment.drain("out") if isinstance(e, Train)]
        assert (rows.times is not None) == sink_times
        if rows.times is not None:
            assert rows.times.cast(pa.int64()).to_pylist() == [9]


def test_a_window_of_windows_waits_for_nothing_longer_than_it_must() -> None:
    """A window's boundary is the end of the next one less 1 us, so the next box closes with it."""
    q = md.Query("q")
    s = q.source("s", {"ts": "int64"}, time="ts", unit="us", slack=0)
    w = s.window(10).aggregate(n=md.count())
    q.sink("twice", w.window(10).aggregate(m=md.sum("n")))
    fragment = Fragment(q.graph)
    fragment.feed("s", Train(batch=pa.record_batch({"ts": [1, 2, 9]})))
    assert fragment.drain("twice") == [Boundary(8)] or not any(
        isinstance(e, Train) for e in fragment.drain("twice")
    )
    fragment.feed("s", Train(batch=pa.record_batch({"ts": [20]})))
    trains = [e.batch for e in fragment.drain("twice") if isinstance(e, Train)]
    assert [row["m"] for row in numbers(pa.Table.from_batches(trains))] == [3]


def test_dead_rows_keep_positions_of_a_join() -> None:
    """A failed row is left out, but the numbers of the others stay what they were."""
    q = md.Query("q")
    a, b = (q.source(n, {"ts": "int64", "k": "int64"}, time="ts", unit="us", slack=0) for n in "ab")
    keyed = {"on": {"k": "k"}, "within": 5}
    q.sink("o", a.join(b.with_columns(k="12 // k", name="divide"), **keyed))
    with pytest.warns(md.DeadRowWarning, match="divide"):
        out = md.collect(q, a={"ts": [1, 1, 2], "k": [12, 6, 4]}, b={"ts": [1, 1, 2], "k": [0, 2, 1]})
    assert [(r["k"], r["ts"], r["ts_right"]) for r in out.only.to_pylist()] == [(12, 1, 2), (6, 1, 1)][::-1]


class TestState:
    def test_state_of_another_query_is_refused(self) -> None:
        files = Fragment(JUDGED).snapshot()
        other = Graph(name="other", boxes=JUDGED.boxes)
        with pytest.raises(md.StateError, match="another query"):
            Fragment.restore(other, files)

    def test_missing_and_foreign_tables_are_named(self) -> None:
        fragment = Fragment(JUDGED)
        fragment.feed("in", train([1], [5]))
        files = fragment.snapshot()
        for name in files:
            rest = {n: d for n, d in files.items() if n != name}
            with pytest.raises(md.StateError, match=name.replace(".", r"\.")):
                Fragment.restore(JUDGED, rest)
        foreign = pa.table({"x": [1]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, foreign.schema) as writer:
            writer.write_table(foreign)
        for name in files:
            if name.endswith(".arrow"):
                with pytest.raises(md.StateError, match=name.replace(".", r"\.")):
                    Fragment.restore(JUDGED, {**files, name: memoryview(sink.getvalue())})

    def test_an_index_that_lies_is_refused(self) -> None:
        fragment = Fragment(JUDGED)
        fragment.feed("in", train([1], [5]))
        files = fragment.snapshot()
        good = json.loads(bytes(files["fragment.json"]))
        lies: list[Any] = [[], None, {}, {**good, "version": 3}, {**good, "boxes": {}}, {**good, "boxes": 1}]
        for id, key, value in [
            ("in", "accepted", "1"),
            ("in", "inputs_us", [1, 2]),
            ("counts", "position", [0]),
            ("counts", "boundary_us", None),
            ("out", "counts", [1, -1, 0]),
            ("all", "counts", [0, 0, 0, 0]),
        ]:
            lie = json.loads(bytes(files["fragment.json"]))
            lie["boxes"][id]["meta"][key] = value
            lies.append(lie)
        for lie in lies:
            with pytest.raises(md.StateError):
                Fragment.restore(JUDGED, {**files, "fragment.json": json.dumps(lie).encode()})

    def test_a_snapshot_does_not_change_when_the_fragment_goes_on(self) -> None:
        fragment = Fragment(JUDGED)
        fragment.feed("in", train([1, 2], [5, 6]))
        files = fragment.snapshot()
        copy = {name: bytes(data) for name, data in files.items()}
        fragment.feed("in", train([3], [25]))
        fragment.feed("in", Boundary(30))
        fragment.drain("out")
        assert {name: bytes(data) for name, data in files.items()} == copy


def test_times_are_shown_as_people_read_them() -> None:
    assert show_time(-(1 << 62)) == "nothing yet"
    assert show_time(1 << 62) == "the end"
    assert show_time(1_500_000) == "1970-01-01 00:00:01.5 UTC"
    assert show_time(-1) == "1969-12-31 23:59:59.999999 UTC"
    assert show_time(1 << 60).endswith(" us")


@pytest.mark.parametrize("kind", kinds.BUILDS)
def test_explain_says_of_every_kind_that_it_waits_and_that_it_has_finished(kind: str) -> None:
    fragment = Fragment(kinds.query(kind).graph)
    kinds.push(fragment, 0, 40)
    assert "finished" not in fragment.explain()
    fragment.finish()
    lines = fragment.explain().splitlines()[1:]
    lines = [line for line in lines if ", which nothing changes" not in line]
    assert [line for line in lines if ": finished" not in line] == []


def test_explain_names_the_input_that_holds_a_box_back() -> None:
    fragment = Fragment(kinds.query("sunion").graph)
    fragment.push_rows("b", [kinds.rows(0, 1, "b")], fragment.check_rows("b", [kinds.rows(0, 1, "b")]))
    assert (
        "sunion x from a, b: waits for a, which holds its boundary at nothing yet; 1 rows"
        in fragment.explain()
    )
    kinds.push(fragment, 100, 1)
    assert "waits for a, which holds its boundary at 1970-01-01 00:00:00.000095 UTC" in fragment.explain()
