"""Cutting a query: what stands where, what is refused, and that the answer stays the same."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine.fragment import Fragment as Running
from medusa.engine.input.ingest import normalise
from medusa.errors import QueryError
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.spec.fragment_spec import check_fragment, fragment_from, fragment_to
from medusa.query.boxes import Aggregate, Source, Union

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def windows(q: md.Query, size: str = "10us"):
    flows = q.source("flows", SCHEMA, time="ts", slack="3us")
    return flows.window(size).group_by("k").aggregate(n=md.count(), s=md.sum("v"), name="per_k")


def split_query() -> md.Query:
    """A split window with two branches that meet again on another node."""
    q = md.Query("q")
    per_k = windows(q)
    big = per_k.filter("n > 1", name="big")
    plus = per_k.select("window_start", "window_end", "k", t="s + 1", name="plus")
    q.sink("out", big.join(plus, on=["window", "k"], name="meet"))
    return q


def plain_query() -> md.Query:
    """No window: rows through two nodes, and the late ones apart."""
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts", slack="3us")
    q.sink("out", flows.filter("v > 0", name="positive").select("k", w="v * 2", name="twice"))
    q.sink("late", flows.late)
    return q


def joined_query() -> md.Query:
    """Two sources, a join over time."""
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", slack="3us")
    b = q.source("b", SCHEMA, time="ts", slack="3us")
    q.sink("out", a.filter("v <> 0", name="some").join(b, on="k", within="5us", name="near"))
    return q


def where(plan: PlacementPlan) -> dict[str, list[list[str]]]:
    return {node: [[box.id for box in f.graph.boxes] for f in plan.at(node)] for node in plan.nodes()}


# --- structure ----------------------------------------------------------------------------------


def test_a_split_window_sends_partials_and_is_combined_where_it_is_read():
    at = {"e1": ["flows", "per_k"], "e2": ["flows", "per_k"], "c": ["big", "meet"], "d": ["plus"]}
    plan = cut(split_query().graph, at)
    assert where(plan) == {
        "e1": [["flows", "per_k-partial", "per_k-partial-out"]],
        "e2": [["flows", "per_k-partial", "per_k-partial-out"]],
        "c": [["per_k-partial-e1", "per_k-partial-e2", "per_k", "big", "plus", "meet", "out"]],
        "d": [["per_k-partial-e1", "per_k-partial-e2", "per_k", "plus", "plus-out"]],
    }
    core = plan.at("c")[0]
    boxes = {box.id: box for box in core.graph.boxes}
    assert isinstance(boxes["per_k"], Aggregate)
    assert boxes["per_k"].stage == "combine"
    assert isinstance(boxes["plus"], Source)
    assert boxes["plus"].judged
    assert [(feed.node, feed.stream) for feed in core.feeds] == [
        ("e1", "q.per_k-partial"),
        ("e2", "q.per_k-partial"),
        ("d", "q.plus"),
    ]
    edge = plan.at("e1")[0]
    assert edge.name == "q/flows"
    assert edge.entries == {"flows": "q.flows"}
    assert edge.readers == {"per_k-partial-out": ("c", "d")}
    assert core.streams == {"out": "q.out"}


def test_a_combining_node_can_count_its_own_rows_too():
    plan = cut(split_query().graph, {"e": ["flows", "per_k"], "c": ["flows", "per_k", "big", "plus", "meet"]})
    assert where(plan)["c"] == [
        ["flows", "per_k-partial", "per_k-partial-e", "per_k", "big", "plus", "meet", "out"]
    ]


def test_boxes_left_out_follow_their_input():
    plan = cut(plain_query().graph, {"a": ["flows"], "b": ["twice"]})
    assert where(plan) == {
        "a": [["flows", "positive", "late", "positive-out"]],
        "b": [["positive", "twice", "out"]],
    }


def test_parts_that_are_not_connected_are_fragments_of_their_own():
    q = md.Query("q")
    for name in ("a", "b"):
        q.sink(f"{name}_out", q.source(name, SCHEMA, time="ts").filter("v > 0", name=f"{name}_f"))
    plan = cut(q.graph, {"n": ["a", "b"]})
    assert [f.name for f in plan.at("n")] == ["q/a", "q/b"]


def test_one_stream_read_by_two_branches_is_sent_once():
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts")
    q.sink("x", flows.filter("v > 0", name="up"))
    q.sink("y", flows.filter("v < 0", name="down"))
    plan = cut(q.graph, {"a": ["flows"], "b": ["up", "down"]})
    assert where(plan)["b"] == [["flows", "up", "x", "down", "y"]]
    assert len(plan.at("b")[0].feeds) == 1


def test_copies_of_stateless_boxes_meet_in_a_union_before_a_sink():
    plan = cut(plain_query().graph, {"a": ["flows"], "b": ["flows"], "c": ["out", "late"]})
    out, late = plan.at("c")
    assert [type(box) for box in out.graph.boxes][2:3] == [Union]
    assert [feed.stream for feed in out.feeds] == ["q.twice", "q.twice"]
    assert [feed.stream for feed in late.feeds] == ["q.flows.late", "q.flows.late"]


def test_names_made_for_the_cut_give_way_to_names_of_the_query():
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts")
    taken = flows.filter("v > 0", name="per_k-partial")
    per_k = taken.window("10us").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", per_k)
    at = {"a": ["flows", "per_k-partial", "per_k"], "b": ["flows", "per_k-partial", "per_k"], "c": ["out"]}
    plan = cut(q.graph, at)
    for fragment in plan.fragments:
        check_fragment(fragment)
    assert len(plan.at("c")[0].feeds) == 2


def test_a_spec_survives_the_link():
    for fragment in cut(
        split_query().graph, {"e": ["flows", "per_k"], "c": ["big", "plus", "meet"]}
    ).fragments:
        assert fragment_from(fragment_to(fragment)) == fragment


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "at", "says"),
    [
        (split_query, {"e1": ["flow"]}, "no box 'flow' (named at node 'e1') (did you mean 'flows'?)"),
        (split_query, {"e9": ["flows"]}, "no node 'e9' (there is: e1, e2, c)"),
        (split_query, {"e1": "flows"}, "is the text 'flows', expected a list"),
        (split_query, {"e1": ["flows", "flows"]}, "'flows' is named twice at node 'e1'"),
        (split_query, {"e1": ["per_k"]}, "source 'flows' is at no node"),
        (split_query, {"e1": ["flows", "per_k"], "e2": ["flows", "per_k"]}, "box 'big' is at no node"),
        (joined_query, {"e1": ["a"], "e2": ["b"]}, "box 'near' is at no node, and its inputs are at several"),
        (joined_query, {"e1": ["a", "b", "near", "out"], "e2": ["near"]}, "join 'near' is named at 2 nodes"),
        (plain_query, {"e1": ["flows", "out"], "e2": ["out"]}, "sink 'out' is named at 2 nodes"),
        (
            split_query,
            {"e1": ["flows"], "e2": ["flows"], "c": ["per_k"]},
            "window 'per_k' at node 'c' reads 'flows', which is split over e1, e2",
        ),
        (
            split_query,
            {"e1": ["flows", "per_k"], "e2": ["per_k"], "c": ["big", "plus"]},
            "'per_k' is split over e1, e2, but its input 'flows' is at e1",
        ),
        (
            split_query,
            {"e1": ["flows", "per_k", "big"], "e2": ["flows", "per_k", "big"], "c": ["plus", "meet"]},
            "it reads window 'per_k', which is split: each copy would see the whole result",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused(make, at, says):
    with pytest.raises(QueryError) as caught:
        cut(make().graph, at, nodes=["e1", "e2", "c"])
    assert says in str(caught.value)


def union_query():
    """Windows, and a join of them, behind a union."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in ("a", "b"))
    both = a.union(b, name="both")
    per_k = both.window("10us").group_by("k").aggregate(n=md.count(), s=md.sum("v"), name="per_k")
    more = per_k.select("window_start", "window_end", "k", t="s + n", name="more")
    q.sink("all", per_k)
    q.sink("out", per_k.join(more, on=["window", "k"], name="meet"))
    return q


def test_a_window_over_gathered_copies_is_refused():
    q = md.Query("q")
    some = q.source("a", SCHEMA, time="ts").filter("v > 0", name="some")
    q.sink("out", some.window("10us").aggregate(n=md.count(), name="w"))
    with pytest.raises(QueryError, match="box 'w' depends on the order of the rows of 'some', which"):
        cut(q.graph, {"n": ["a"], "m": ["a"], "c": ["some", "w"]})


# --- the same answer ------------------------------------------------------------------------------

rows = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from("abc"), st.integers(-5, 5)), min_size=1, max_size=60
)


def table(values) -> pa.Table:
    ts, k, v = zip(*values, strict=True)
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", tz="UTC")), "k": pa.array(k), "v": pa.array(v)})


class Wired:
    """The fragments of a plan in one process; arcs between nodes are lists."""

    def __init__(self, plan: PlacementPlan) -> None:
        self.running = [(spec, Running(spec.graph)) for spec in plan.fragments]
        self.out: dict[str, list] = {}

    def feed(self, node: str, source: str, element) -> None:
        spec, running = next((s, r) for s, r in self.running if s.node == node and source in s.entries)
        running.feed(source, element)
        self._settle(spec, running)

    def _settle(self, spec, running) -> None:
        for sink, stream in spec.streams.items():
            for element in running.drain(sink):
                if sink not in spec.readers:
                    self.out.setdefault(sink, []).append(element)
                for other, reader in self.running:
                    for feed in other.feeds:
                        if (feed.node, feed.stream) == (spec.node, stream):
                            reader.feed(feed.source, element)
                            self._settle(other, reader)

    def table(self, sink: str, schema) -> pa.Table:
        return pa.Table.from_batches(
            [e.batch for e in self.out.get(sink, []) if isinstance(e, Train)], schema
        )


def answer(q: md.Query, at, inputs: dict[str, pa.Table], cuts: list[int]) -> Wired:
    """Rows dealt to the copies of each source in turn, in slices of random lengths."""
    plan = cut(q.graph, at)
    wired = Wired(plan)
    entries = [(f.node, source) for f in plan.fragments for source in f.entries]
    for name, data in inputs.items():
        nodes = [node for node, source in entries if source == name]
        box = next(b for b in q.graph.boxes if b.id == name)
        for place, node in enumerate(nodes):
            part = data.take(pa.array(range(place, len(data), len(nodes)), pa.int64()))
            begin = 0
            for step in [*cuts, len(part)]:
                for batch in normalise(part.slice(begin, step), box.schema):
                    wired.feed(node, name, Train(batch=batch))
                begin += step
    for node, source in entries:
        wired.feed(node, source, Boundary(END_US))
    return wired


@settings(max_examples=40)
@given(
    values=rows,
    cuts=st.lists(st.integers(1, 20), max_size=3),
    at=st.sampled_from(
        [
            {"e1": ["flows", "per_k"], "e2": ["flows", "per_k"], "c": ["big", "plus", "meet"]},
            {"e1": ["flows", "per_k"], "e2": ["flows", "per_k"], "c": ["big", "meet"], "d": ["plus"]},
            {"e1": ["flows", "per_k"], "c": ["flows", "per_k", "big", "plus", "meet"]},
            {"e1": ["flows"], "c": ["per_k"], "d": ["big", "plus"], "e": ["meet"]},
            {"e1": ["flows"]},
        ]
    ),
)
def test_a_split_window_gives_the_whole_answer(values, cuts, at):
    # Times in order: which rows are late depends on who sees them.
    data = table(sorted(values, key=lambda row: row[0]))
    q = split_query()
    want = md.collect(q, flows=data).only
    got = answer(q, at, {"flows": data}, cuts).table("out", want.schema)
    key = [("window_end", "ascending"), ("k", "ascending")]
    assert got.sort_by(key).to_pylist() == want.sort_by(key).to_pylist()


@settings(max_examples=30)
@given(
    left=rows,
    right=rows,
    cuts=st.lists(st.integers(1, 20), max_size=3),
    at=st.sampled_from(
        [
            {"a": ["a"], "b": ["b"], "c": ["near"]},
            {"a": ["a", "some"], "b": ["b", "near"]},
            {"a": ["a"], "b": ["b"], "c": ["some"], "d": ["near"], "e": ["out"]},
        ]
    ),
)
def test_a_join_over_nodes_gives_the_same_sequence(left, right, cuts, at):
    inputs = {name: table(sorted(rows)) for name, rows in (("a", left), ("b", right))}
    q = joined_query()
    want = md.collect(q, **inputs).only
    assert answer(q, at, inputs, cuts).table("out", want.schema).equals(want)


@settings(max_examples=30)
@given(
    left=rows,
    right=rows,
    cuts=st.lists(st.integers(1, 20), max_size=3),
    at=st.sampled_from(
        [
            {"n": ["a", "b"]},
            {"a": ["a"], "b": ["b"], "c": ["both"]},
            {"a": ["a", "b", "both"], "c": ["per_k"]},
            {"a": ["a"], "b": ["b", "both"], "c": ["per_k", "more"], "d": ["meet"]},
            {
                "e1": ["a", "b", "both", "per_k"],
                "e2": ["a", "b", "both", "per_k"],
                "c": ["all", "more", "meet"],
            },
            {"e1": ["a"], "e2": ["a"], "c": ["b", "both"]},
        ]
    ),
)
def test_windows_behind_a_union_give_the_whole_answer(left, right, cuts, at):
    inputs = {name: table(sorted(rows)) for name, rows in (("a", left), ("b", right))}
    q = union_query()
    wired = answer(q, at, inputs, cuts)
    for sink, want in md.collect(q, **inputs).items():
        key = [("window_end", "ascending"), ("k", "ascending")]
        assert wired.table(sink, want.schema).sort_by(key).to_pylist() == want.sort_by(key).to_pylist()


@settings(max_examples=30)
@given(values=rows, cuts=st.lists(st.integers(1, 20), max_size=3))
def test_rows_without_windows_keep_their_order_and_the_late_ones_come_apart(values, cuts):
    data, q = table(values), plain_query()
    whole = answer(q, {"n": ["flows"]}, {"flows": data}, [])
    apart = answer(q, {"a": ["flows"], "b": ["twice"], "c": ["late"]}, {"flows": data}, cuts)
    for sink, columns in (("out", {"k": pa.string(), "w": pa.int64()}), ("late", None)):
        schema = pa.schema(columns) if columns else data.schema
        assert apart.table(sink, schema).equals(whole.table(sink, schema))


def test_boxes_that_lead_to_no_sink_run_nowhere():
    q = md.Query("lone")
    rows = q.source("a", {"t": "int64"}, time="t", unit="s")
    q.source("b", {"t": "int64"}, time="t", unit="s").filter("t > 0", name="unread")
    q.sink("out", rows)
    plan = cut(q.graph, {"n": ["a"], "m": ["b"]})
    assert [box.id for part in plan.fragments for box in part.graph.boxes] == ["a", "out"]
    assert plan.nodes() == ("n",)
    with pytest.raises(QueryError, match="nosuch"):
        cut(q.graph, {"n": ["a"], "m": ["nosuch"]})


def test_a_query_of_nearly_a_thousand_boxes_in_a_row_is_cut():
    """Once its depth ended the node that a client had asked to deploy it."""
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    for number in range(900):
        rows = rows.filter("v > 0", name=f"f{number}")
    q.sink("out", rows)
    plan = cut(q.graph, {"a": ["rows", "out"], "b": [f"f{number}" for number in range(900)]})
    assert [len(each.graph.boxes) for each in plan.at("b")] == [902]
