"""Boxes with several outputs over nodes: every arc is cut by box and port."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import check_fragment, fragment_from, fragment_to
from tests.nodes.test_placement import SCHEMA, Wired, answer, rows, table

SINKS = ("low", "mid", "rest", "failed", "gone", "counts")


def routed_query() -> md.Query:
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts", slack="500us")
    low, mid, rest = flows.route("6 // v < 0", "v = 0 or k = 'b'", otherwise=True, name="ways")
    q.sink("low", low)
    q.sink("mid", mid.select("k", "v", name="mid_cols"))
    q.sink("rest", rest)
    q.sink("failed", low.dead)
    few = rest.drop(where="v > 3", name="few")
    q.sink("gone", few.dropped)
    q.sink("counts", few.window("10us").group_by("k").aggregate(n=md.count(), name="per_k"))
    return q


PLACES = [
    {"a": ["flows"]},
    {"a": ["flows"], "b": ["ways"]},
    {"a": ["flows", "ways"], "b": ["low", "mid_cols", "few", "rest", "failed"]},
    {"a": ["flows", "ways"], "b": ["low", "rest"], "c": ["mid_cols", "failed"], "d": ["few"]},
    {"a": ["flows", "ways", "few"], "b": ["gone"], "c": ["per_k"], "d": ["failed"]},
]


@settings(max_examples=25, deadline=None)
@given(values=rows, cuts=st.lists(st.integers(1, 20), max_size=3), at=st.sampled_from(PLACES))
def test_every_port_brings_its_own_rows(values, cuts, at):
    q = routed_query()
    want = answer(q, PLACES[0], {"flows": table(values)}, [])
    got = answer(q, at, {"flows": table(values)}, cuts)
    for sink in SINKS:
        assert rows_of(got, sink) == rows_of(want, sink)


def rows_of(wired: Wired, sink: str) -> list[dict[str, object]]:
    return [row for e in wired.out.get(sink, []) if isinstance(e, md.Train) for row in e.batch.to_pylist()]


def test_copies_of_a_route_meet_per_port():
    q = routed_query()
    at = {
        "e1": ["flows", "ways", "few", "mid_cols", "per_k"],
        "e2": ["flows", "ways", "few", "mid_cols", "per_k"],
        "c": [*SINKS],
    }
    data = table([(n, "abc"[n % 3], n % 9 - 4) for n in range(50)])
    want = answer(q, PLACES[0], {"flows": data}, [])
    got = answer(q, at, {"flows": data}, [7])
    for sink in SINKS:
        assert sorted(map(str, rows_of(got, sink))) == sorted(map(str, rows_of(want, sink)))
    streams = {feed.stream for part in cut(q.graph, at).at("c") for feed in part.feeds}
    assert {"q.ways", "q.ways.otherwise", "q.ways.dead", "q.few.dropped"} <= streams


@pytest.mark.parametrize("at", PLACES)
def test_a_fragment_with_ports_survives_the_link(at):
    for fragment in cut(routed_query().graph, at).fragments:
        again = fragment_from(fragment_to(fragment))
        assert again == fragment
        check_fragment(again)


def test_what_has_state_is_not_copied():
    for add in (
        lambda s: s.drop(0.5, name="x"),
        lambda s: s.distinct("k", within="1s", name="x"),
        lambda s: s.bsort("v", name="x"),
        lambda s: s.resample("1s", gap="1s", name="x"),
    ):
        q = md.Query("q")
        q.sink("o", add(q.source("flows", SCHEMA, time="ts")))
        with pytest.raises(QueryError, match="can't be split"):
            cut(q.graph, {"e1": ["flows", "x"], "e2": ["flows", "x"], "c": ["o"]})


def test_failed_rows_of_a_split_window_are_refused_with_a_way_out():
    q = md.Query("q")
    window = q.source("flows", SCHEMA, time="ts").window("10us").aggregate(s=md.sum("1 // v"), name="w")
    q.sink("o", window)
    q.sink("d", window.dead)
    with pytest.raises(QueryError, match="split over nodes"):
        cut(q.graph, {"e1": ["flows", "w"], "e2": ["flows", "w"], "c": ["o", "d"]})


def test_the_late_rows_are_those_of_the_source():
    """A route is no source: its rows carry the marks on, and windows behind it leave late ones out."""
    q = routed_query()
    late = [(1000, "a", 1), (3, "a", 1), (1001, "a", 1)]
    for at in PLACES:
        wired = answer(q, at, {"flows": table(late)}, [1, 1])
        assert sum(row["n"] for row in rows_of(wired, "counts")) == 2
        assert len(rows_of(wired, "rest")) == 3
    assert pa.Table.from_pylist(rows_of(wired, "rest")).num_rows == 3


def test_copies_meet_in_a_sunion_in_the_order_of_time():
    """Which is that of the whole query, where no two rows have one time; a window may follow."""
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts", slack="3us")
    both = md.sunion(flows.filter("v > 0", name="up"), flows.filter("v <= 0", name="down"), bucket="7us")
    q.sink("all", both.filter("true", name="same"))
    q.sink("counts", both.window("10us").aggregate(n=md.count(), s=md.sum("v")))
    data = table([(n, "abc"[n % 3], n % 5 - 2) for n in range(60)])
    want = md.collect(q, flows=data)
    copies = ["flows", "up", "down"]
    ids = [box.id for box in q.graph.boxes if box.id not in copies]
    got = answer(q, {"e1": copies, "e2": copies, "c": ids}, {"flows": data}, [3, 4])
    for sink in q.sinks:
        assert got.table(sink, want[sink].schema).equals(want[sink])
