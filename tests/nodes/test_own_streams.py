"""Each guarded fragment that reads what others read too has a stream of its own."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.nodes.placement.own_streams import with_own_streams
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.placement.standby_plan import guarded_as
from medusa.nodes.spec.fragment_spec import check_fragment

SCHEMA = {"ts": "int64", "k": "int64"}
ONE, TWO, THREE = "q/one", "q/two", "q/three"
LONG = "l" * 60


def plan_of(*guarded: str, first: str = "rows", one: str = "one") -> PlacementPlan:
    """One stream has three readers, and one client."""
    q = md.Query("q")
    rows = q.source(first, SCHEMA, time="ts", unit="s")
    q.sink("x", rows)
    for name in (one, "two", "three"):
        q.sink(f"sink_{name[:5]}", rows.filter("k > 0", name=name))
    at = {"b": [first, "x"], "c": [one], "d": ["two"], "e": ["three"]}
    return guarded_as(cut(q.graph, at), dict.fromkeys(guarded, ("s",)))


def read(plan: PlacementPlan) -> dict[str, str]:
    """Fragment -> the stream that it reads, where its node is among the readers of that, at its sender."""
    sent = {
        (each.node, stream): each.readers.get(sink, ())
        for each in plan.fragments
        for sink, stream in each.streams.items()
    }
    found = {}
    for each in plan.fragments:
        check_fragment(each)
        for feed in each.feeds:
            assert each.node in sent[feed.node, feed.stream]
            found[each.name] = feed.stream
    return found


@pytest.mark.parametrize(
    ("guarded", "streams"),
    [
        ((), {ONE: "q.rows", TWO: "q.rows", THREE: "q.rows"}),
        ((TWO,), {ONE: "q.rows", TWO: "q.rows.to.two", THREE: "q.rows"}),
        ((ONE, TWO), {ONE: "q.rows.to.one", TWO: "q.rows.to.two", THREE: "q.rows"}),
        ((ONE, TWO, THREE), {ONE: "q.rows.to.one", TWO: "q.rows.to.two", THREE: "q.rows.to.three"}),
    ],
)
def test_a_guarded_reader_has_a_stream_of_its_own_and_others_share_one(guarded, streams):
    plan = with_own_streams(plan_of(*guarded))
    assert read(plan) == streams
    [sender] = plan.at("b")
    assert set(sender.streams.values()) == {"q.x", *streams.values()}
    shared = tuple(each.node for each in plan.fragments if streams.get(each.name) == "q.rows")
    assert {sender.streams[sink]: nodes for sink, nodes in sender.readers.items()}.get("q.rows", ()) == shared


def test_what_has_one_reader_and_the_sender_itself_stay_as_they_are():
    q = md.Query("q")
    q.sink("x", q.source("rows", SCHEMA, time="ts", unit="s").filter("k > 0", name="one"))
    alone = guarded_as(cut(q.graph, {"b": ["rows"], "c": ["one"]}), {ONE: ("s",), "q/rows": ("s",)})
    assert with_own_streams(alone) == alone
    sender_only = plan_of("q/rows")
    assert with_own_streams(sender_only) == sender_only


def test_applied_twice_it_changes_nothing_more():
    once = with_own_streams(plan_of(ONE, TWO))
    assert with_own_streams(once) == once


def test_long_names_give_legal_ids_that_differ():
    plan = with_own_streams(plan_of(f"q/{LONG}", TWO, first=f"{LONG}f", one=LONG))
    assert len(set(read(plan).values())) == 3


def test_the_failed_rows_of_a_box_have_streams_of_their_own_too():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s").with_columns(z="1 / k", name="div")
    q.sink("x", rows.filter("z > 0", name="one"))
    q.sink("dead", rows.dead.filter("true", name="two"))
    q.sink("dead_too", rows.dead.filter("true", name="three"))
    at = {"b": ["rows", "div"], "c": ["one"], "d": ["two"], "e": ["three"]}
    plan = with_own_streams(guarded_as(cut(q.graph, at), {TWO: ("s",), THREE: ("s",)}))
    assert read(plan) == {ONE: "q.div", TWO: "q.div.dead.to.two", THREE: "q.div.dead.to.three"}
