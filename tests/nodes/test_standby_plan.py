"""Who stands by for what: what a wish means, who is chosen, and what is refused with which words."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.deploy.query_plan import planned_standby
from medusa.nodes.placement.backup_nodes import backup_order
from medusa.nodes.placement.estimating import traffic_of
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.recovered_outputs import recovered_outputs, ways_of
from medusa.nodes.placement.standby_plan import (
    StandbyNode,
    StandbyWish,
    standby_warnings,
    voters,
    with_standby,
)
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.query.boxes import Graph
from medusa.query.recovery import METHODS
from medusa.wire.messages.standby import PlannedStandby

NAMES = ("a", "b", "c", "d", "e")
NODES = {name: StandbyNode(name=name, host=name) for name in NAMES}
SCHEMA = {"ts": "int64", "k": "int64"}
AT = {"b": ["rows", "per_k"], "c": ["some"]}


def query(**recovery: str) -> Graph:
    """q/rows at b, then q/some at c."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="0s")
    per_k = rows.window("10s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="some"), **recovery)
    return q.graph


def two_ways() -> Graph:
    """``exact`` of a and ``plain`` of b; both at c in the end."""
    q = md.Query("q")
    for name, wish in (("exact", {"recovery": "precise"}), ("plain", {})):
        rows = q.source(f"rows_{name}", SCHEMA, time="ts", unit="s")
        q.sink(name, rows.filter("k > 0", name=f"some_{name}"), **wish)
    return q.graph


def united() -> Graph:
    """A source at two nodes and a union of its copies."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    q.sink("out", rows.filter("k > 0", name="some").union(rows, name="all"))
    return q.graph


def planned(graph, at=AT, standby=(), witnesses=(), nodes=NODES, here="a"):
    wish = StandbyWish(standby=tuple(dict(standby).items()), witnesses=tuple(witnesses))
    return with_standby(cut(graph, at), graph, wish, here=here, nodes=nodes)


def who(plan):
    return {fragment.name: fragment.standby for fragment in plan.guarded()}


# --- what is wished for -------------------------------------------------------------------------------


def test_a_plan_without_a_wish_is_what_it_was():
    plan = planned(query())
    assert plan == cut(query(), AT)
    assert all(b"standby" not in fragment_to(each) for each in plan.fragments)
    assert (plan.guarded(), plan.idle(), voters(plan, "a"), ways_of(plan)) == ((), (), (), ())


@pytest.mark.parametrize(
    ("standby", "expected"),
    [
        ({"b": ("d", "e")}, {"q/rows": ("d", "e")}),
        ({"per_k": ("d",)}, {"q/rows": ("d",)}),
        ({"out": ("d",)}, {"q/some": ("d",)}),
        ({"q/some": ("e",), "some": ("d",), "c": ("a",)}, {"q/some": ("e",)}),
        ({"b": ("e",), "rows": ("d",)}, {"q/rows": ("d",)}),
        ({"*": ("d",)}, {"q/rows": ("d",), "q/some": ("d",)}),
        ({"*": ("d",), "c": ("e",)}, {"q/rows": ("d",), "q/some": ("e",)}),
    ],
)
def test_a_key_names_a_fragment_a_box_a_node_or_the_rest(standby, expected):
    assert who(planned(query(), standby=standby)) == expected


def test_a_box_belongs_to_where_it_stands_and_not_to_who_reads_it():
    """The fragment at c has a source in its place, of the same name."""
    assert [feed.source for feed in cut(query(), AT).fragments[1].feeds] == ["per_k"]
    assert who(planned(query(), standby={"per_k": ("d",)})) == {"q/rows": ("d",)}


def test_of_a_name_that_a_node_and_a_box_bear_the_box_is_meant():
    at = {"b": ["rows", "per_k"], "rows": ["some"]}
    nodes = {**NODES, "rows": StandbyNode(name="rows")}
    assert who(planned(query(), at, {"rows": ("d",)}, nodes=nodes)) == {"q/rows": ("d",)}


def test_who_stands_by_is_in_the_spec_and_comes_back():
    (guarded,) = planned(query(), standby={"b": ("d", "e")}).guarded()
    assert fragment_from(fragment_to(guarded)) == guarded
    for wrong in (("b",), ("d", "d"), tuple(f"n{i}" for i in range(9))):
        spec = fragment_to(msgspec.structs.replace(guarded, standby=wrong))
        with pytest.raises(QueryError, match="standby names its own node, one twice, or more than 8"):
            fragment_from(spec)


def test_who_runs_nothing_and_who_votes():
    plan = planned(query(), standby={"b": ("c", "d")}, witnesses=("e",))
    assert plan.nodes() == ("b", "c")
    assert plan.idle() == ("d", "e")
    assert voters(plan, "a") == ("b", "c", "d", "a", "e")


# --- choosing -------------------------------------------------------------------------------------------


def test_who_is_chosen_is_on_another_machine_and_has_the_least_to_do():
    nodes = {
        "b": StandbyNode(name="b", host="one"),
        "near": StandbyNode(name="near", host="one"),
        "busy": StandbyNode(name="busy", host="two", load=0.5),
        "free": StandbyNode(name="free", host="three", load=0.1),
        "a": StandbyNode(name="a", host="four", load=0.9),
    }
    at = {"b": ["rows", "per_k", "some"]}
    assert who(planned(query(), at, {"*": ()}, nodes=nodes)) == {"q/rows": ("free",)}
    fewer = {name: node for name, node in nodes.items() if name in ("b", "near", "a")}
    assert who(planned(query(), at, {"*": ()}, nodes=fewer)) == {"q/rows": ("a",)}
    only = {name: node for name, node in nodes.items() if name in ("b", "near")}
    assert who(planned(query(), at, {"*": ()}, nodes=only, here="b")) == {"q/rows": ("near",)}


def test_what_a_node_stands_by_for_counts_as_load():
    at = {"a": ["rows_exact", "exact"], "b": ["rows_plain", "plain"]}
    nodes = {name: NODES[name] for name in ("a", "b", "c", "d")}
    chosen = who(planned(two_ways(), at, {"a": (), "b": ()}, nodes=nodes))
    assert sorted(chosen.values()) == [("c",), ("d",)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"up": False}, "d: it doesn't answer"),
        ({"forgets": True}, "d: it forgets over its end"),
        ({"elsewhere": True}, "d: it has its fragments run elsewhere"),
        ({"peer": False}, "d: it is no peer of 'b'"),
        ({"abroad": "bob"}, "d: it is of participant 'bob'"),
        ({"agrees": False}, "d: its release doesn't know"),
    ],
)
def test_nobody_unfit_is_chosen(change, why):
    nodes = {"b": NODES["b"], "d": replace(NODES["d"], **change)}
    with pytest.raises(QueryError) as refused:
        planned(query(), {"b": ["rows", "per_k", "some"]}, {"*": ()}, nodes=nodes, here="b")
    assert refused.value.code == "E_STANDBY"
    assert why in refused.value.message
    assert "add a node to [peers] of b" in refused.value.hint


def test_who_reads_one_of_its_streams_already_may_be_chosen():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    q.sink("x", rows.filter("k > 0", name="one"))
    q.sink("y", rows.filter("k > 1", name="two"))
    at = {"a": ["rows"], "b": ["one"], "c": ["two"]}
    nodes = {name: NODES[name] for name in ("b", "c")} | {"a": replace(NODES["a"], load=0.9)}
    assert who(planned(q.graph, at, {"one": ()}, nodes=nodes)) == {"q/one": ("c",)}
    assert who(planned(q.graph, at, {"b": ("c",), "c": ("b",)})) == {"q/one": ("c",), "q/two": ("b",)}


# --- outputs that are to be recovered ----------------------------------------------------------------


def test_an_output_that_is_to_be_recovered_needs_a_standby_for_all_on_its_way():
    for standby, missing in (({}, "q/rows"), ({"b": ("d",)}, "q/some"), ({"c": ("d",)}, "q/rows")):
        with pytest.raises(QueryError) as refused:
            planned(query(recovery="precise"), standby=standby)
        assert refused.value.code == "E_STANDBY"
        assert f"sink 'out' is to be recovered, and nobody stands by for fragment '{missing}'" in str(
            refused.value
        )
        assert 'standby="auto"' in refused.value.hint
    assert len(planned(query(recovery="precise"), standby={"b": ("d",), "c": ("d",)}).guarded()) == 2


def test_what_no_output_asks_for_is_left_alone():
    at = {"a": ["rows_exact", "some_exact"], "b": ["rows_plain", "some_plain"]}
    assert set(who(planned(two_ways(), at, {"*": ()}))) == {"q/rows_exact"}
    assert set(who(planned(two_ways(), at, {"*": (), "b": ("d",)}))) == {"q/rows_exact", "q/rows_plain"}


def test_a_part_of_another_participant_is_not_ours_to_guard():
    nodes = {**NODES, "c": replace(NODES["c"], abroad="bob")}
    plan = planned(query(recovery="precise"), standby={"*": ()}, nodes=nodes)
    assert set(who(plan)) == {"q/rows"}
    (output,) = recovered_outputs(plan, query(), traffic_of(query()), voters=3)
    assert output.guarantee == "as without standby: would wait while the node of q/some is away"


def test_what_an_output_costs_and_promises():
    graph = query(recovery="precise")
    plan = planned(graph, standby={"b": ("d", "e"), "c": ("d",)})
    traffic = traffic_of(graph, rates={"rows": 1000.0})
    (output,) = recovered_outputs(plan, graph, traffic, voters=len(voters(plan, "a")))
    assert output.method == "active_standby"
    assert output.standby == {"q/rows": ("d", "e"), "q/some": ("d",)}
    assert output.guarantee == "exactly once, and goes on when a node is lost for good"
    # Two of 16 bytes a row, and one of what the window brings.
    window = next(arc for box in graph.boxes if box.id == "some" for arc in box.inputs)
    assert output.bytes_per_s == 2 * 16_000 + traffic.bytes_per_s[window]
    assert "no row waits" in output.overhead
    assert ways_of(plan) == (("q.out", "active_standby", ("q/rows", "q/some")),)
    (two,) = recovered_outputs(plan, graph, traffic, voters=2)
    assert "two voters can't decide" in two.guarantee


def both_ways() -> Graph:
    """One output is precise, and the other may lose rows."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="0s")
    per_k = rows.window("10s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("exact", per_k, recovery="precise", method="active_standby")
    q.sink("loose", rows.window("1s").aggregate(n=md.count(), name="loosely"), recovery="gap")
    return q.graph


def test_each_method_is_shown_of_the_fragments_that_go_by_it():
    graph = both_ways()
    plan = planned(graph, {"a": ["rows"], "b": ["per_k"], "c": ["loosely"]}, {"*": ("d",)})
    exact, loose = recovered_outputs(plan, graph, traffic_of(graph), voters=5)
    lines = str(loose).splitlines()
    assert lines[0].startswith("q.loose: at most once")
    assert lines[1:3] == ["  active standby: d for q/rows", "  amnesia: d for q/loosely"]
    assert str(exact).splitlines()[1] == "  active standby: d for q/rows; d for q/per_k"


def test_an_output_is_promised_what_all_fragments_on_its_way_keep_for_others():
    graph = both_ways()
    plan = planned(graph, {"a": ["rows", "per_k", "loosely"]}, {"*": ("d",)})
    for output in recovered_outputs(plan, graph, traffic_of(graph), voters=3):
        assert output.method == "active_standby"
        assert output.guarantee == "exactly once, and goes on when a node is lost for good"


def test_what_is_promised_counts_voters_that_do_not_answer():
    graph = query(recovery="precise")
    nodes = {**NODES, "d": replace(NODES["d"], up=False)}
    plan = planned(graph, standby={"*": ("d", "a")}, nodes=nodes)
    said = msgspec.json.decode(planned_standby(plan, StandbyWish(), "a", nodes), type=PlannedStandby)
    assert (said.voters, said.away) == (("b", "d", "a", "c"), ("d",))
    (output,) = recovered_outputs(plan, graph, traffic_of(graph), voters=4, away=said.away)
    assert output.guarantee == "exactly once; 1 of 4 voters is away (d), and one more loss stops it"
    (output,) = recovered_outputs(plan, graph, traffic_of(graph), voters=4, away=("d", "b"))
    assert output.guarantee == (
        "2 of 4 voters are away (d, b): nothing is taken over until one of them is back"
    )


def test_an_output_that_may_lose_rows_nobody_can_count_is_not_promised_to_count_them():
    """Where a session shares its fragment with a window nobody can count either; filters lose none."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    alarm = (
        rows.filter("k > 0", name="hot").session("10s").group_by("k").aggregate(n=md.count(), name="alarm")
    )
    q.sink("alerts", alarm, recovery="gap")
    q.sink("board", rows.window("10s").aggregate(n=md.count(), name="per_10s"), recovery="gap")
    q.sink("all", rows.filter("k > 1", name="some"), recovery="gap")
    counted = "at most once: what a lost node held is lost and counted; "
    unknown = (
        "at most once: what a lost node held is lost, and nobody can say how many rows: those in 'alarm'"
    )

    def promised(at):
        plan = planned(q.graph, at, {"*": ("e",)})
        outputs = recovered_outputs(plan, q.graph, traffic_of(q.graph), voters=3)
        return {each.stream: each.guarantee for each in outputs}

    apart = promised({"a": ["rows", "some"], "b": ["hot"], "c": ["per_10s"]})
    assert apart["q.alerts"].startswith(unknown)
    assert apart["q.board"].startswith(counted)
    assert apart["q.all"].startswith(counted)
    together = promised({"a": ["rows", "some"], "b": ["hot", "per_10s"]})
    assert together["q.alerts"] == together["q.board"] == apart["q.alerts"]


def test_rows_that_wait_for_a_round_trip_are_named():
    graph = united()
    plan = planned(graph, {"b": ["rows", "some", "all", "out"]}, {"b": ("c",)})
    (output,) = recovered_outputs(plan, graph, traffic_of(graph), voters=3)
    assert (
        "rows of q/rows depend on the order in which others came, and wait one round trip" in output.overhead
    )


# --- warnings -------------------------------------------------------------------------------------------


def warned(graph, at, standby, witnesses=(), nodes=NODES, here="a"):
    wish = StandbyWish(standby=tuple(standby.items()), witnesses=witnesses)
    plan = with_standby(cut(graph, at), graph, wish, here=here, nodes=nodes)
    return standby_warnings(plan, wish, here=here, nodes=nodes)


def test_two_voters_are_warned_of_and_a_third_is_enough():
    at = {"a": ["rows", "per_k", "some"]}
    (text,) = warned(query(), at, {"a": ("b",)})
    assert text.startswith("a and b alone can't decide which of them goes on when the other is lost")
    assert text.endswith("witness=['c']")
    assert warned(query(), at, {"a": ("b",)}, ("c",)) == ()
    assert warned(query(), at, {"a": ("b", "c")}) == ()
    assert warned(query(), at, {"a": ("b",)}, here="d") == ()


def test_an_even_number_of_voters_bears_no_more_than_one_less():
    at = {"a": ["rows", "per_k", "some"]}
    (text,) = warned(query(), at, {"a": ("b", "c", "d")})
    assert text == (
        "4 voters bear the loss of 1, no more than 3 do, since more than half must be there: "
        "witness=['e'] would bear one more"
    )
    assert warned(query(), at, {"a": ("b", "c", "d")}, ("e",)) == ()


def test_a_witness_that_does_not_answer_is_warned_of_though_enough_others_vote():
    nodes = {**NODES, "e": replace(NODES["e"], up=False)}
    (text,) = warned(query(), {"a": ["rows", "per_k", "some"]}, {"a": ("b",)}, ("e",), nodes=nodes)
    assert text == "'e', which is to be a witness, doesn't answer: it votes when it does"


def test_who_does_not_answer_is_warned_of_and_suffices_for_no_output_that_is_to_be_recovered():
    nodes = {**NODES, "d": replace(NODES["d"], up=False), "e": replace(NODES["e"], up=False)}
    (text,) = warned(query(), AT, {"b": ("d",)}, nodes=nodes)
    assert text == "'d', which is to stand by for 'q/rows', doesn't answer: it begins when it does"
    *_, of_witness, text = warned(query(), AT, {"b": ("d",)}, ("e",), nodes=nodes)
    assert of_witness == "'e', which is to be a witness, doesn't answer: it votes when it does"
    assert text == "of 4 voters d, e don't answer: nobody takes over until more than half do"
    assert warned(query(), AT, {}, nodes=nodes) == ()
    both = {"b": ("d", "a"), "c": ("a",)}
    assert len(planned(query(recovery="precise"), standby=both, nodes=nodes).guarded()) == 2
    with pytest.raises(QueryError) as refused:
        planned(query(recovery="precise"), standby={"b": ("d",), "c": ("a",)}, nodes=nodes)
    assert refused.value.code == "E_STANDBY"
    assert "of those that are to stand by for fragment 'q/rows' at 'b' none answers: d" in str(refused.value)


def test_one_machine_for_all_is_warned_of():
    nodes = {**NODES, "d": replace(NODES["d"], host="b")}
    (text,) = warned(query(), AT, {"b": ("d",)}, nodes=nodes)
    assert text == "b, d are on one machine: were that lost nobody would have 'q/rows'"
    assert warned(query(), AT, {"b": ("d", "e")}, ("c",), nodes=nodes) == ()
    near = {name: replace(node, host="b") for name, node in NODES.items()}
    text = warned(query(), AT, {"b": ("d",), "c": ("a", "d")}, nodes=near)[-1]
    assert text == "b, d, c, a are on one machine: were that lost nobody would have 'q/rows' or 'q/some'"
    unknown = {name: replace(node, host="") for name, node in NODES.items()}
    assert warned(query(), AT, {"b": ("d",)}, nodes=unknown) == ()


def test_a_fragment_that_stands_at_several_nodes_under_one_name_is_left_out_and_said():
    at = {"b": ["rows", "some"], "c": ["rows", "some"], "d": ["all"]}
    texts = warned(united(), at, {"*": ()})
    assert [text for text in texts if "nobody stands by" in text] == [
        "nobody stands by for fragment 'q/rows' at 'b'",
        "nobody stands by for fragment 'q/rows' at 'c'",
    ]


# --- refusals -------------------------------------------------------------------------------------------

MEMORY = {**NODES, "d": replace(NODES["d"], forgets=True)}
FORGETFUL_OWNER = {**NODES, "b": replace(NODES["b"], forgets=True)}
FORGETFUL_HERE = {**NODES, "a": replace(NODES["a"], forgets=True)}
ABROAD = {**NODES, "d": replace(NODES["d"], abroad="bob")}
OWNER_ABROAD = {**NODES, "b": replace(NODES["b"], abroad="bob")}
NO_PEER = {**NODES, "d": replace(NODES["d"], peer=False)}
OLD = {**NODES, "d": replace(NODES["d"], agrees=False)}

REFUSED = [
    ({"b": ("z",)}, (), NODES, "query.placement.node", "knows no such node", "there is: a, b, c"),
    ({"b": ("b",)}, (), NODES, "E_STANDBY", "its own node is to stand by for it", "name another node"),
    ({"b": ("d", "d")}, (), NODES, "E_STANDBY", "'d' is to stand by for it twice", "name it once"),
    ({"b": ("d",)}, (), NO_PEER, "E_PEER", "it is no peer of 'a'", "add d to [peers] of a"),
    ({"b": ("d",)}, (), ABROAD, "E_ROLE", "of participant 'bob'", "a node of your own"),
    ({"b": ("d",)}, (), MEMORY, "E_STORE", "it forgets over its end what it promised", 'store = "disk"'),
    ({"b": ("d",)}, (), FORGETFUL_OWNER, "E_STORE", "nobody can stand by for fragment 'q/rows'", "a disk"),
    ({"b": ("d",)}, (), FORGETFUL_HERE, "E_STORE", "votes on who takes over, and forgets", "with a disk"),
    ({"b": ("d",)}, (), OWNER_ABROAD, "E_ROLE", "it runs at 'b' of participant 'bob'", "of your own"),
    ({"b": ("d",)}, (), OLD, "E_VERSION", "its release doesn't know", "update it"),
    ({"nobody": ("d",)}, (), NODES, "query.placement.box", "no box and no node of that name", "there is"),
    ({"d": ("e",)}, (), NODES, "query.placement.node", "nothing of query 'q' runs at 'd'", "there is: b, c"),
    ({"rows": ("d",), "per_k": ("e",)}, (), NODES, "E_STANDBY", "says another thing of each", "'q/rows'"),
    ({}, ("d",), NODES, "E_STANDBY", "'d' is to be a witness, and nobody stands by", 'standby="auto"'),
    ({"b": ("d",)}, ("d",), NODES, "E_STANDBY", "witness 'd' votes already", "leave it out"),
    ({"b": ("d",)}, ("a",), NODES, "E_STANDBY", "witness 'a' votes already", "leave it out"),
    ({"b": ("d",)}, ("e", "e"), NODES, "E_STANDBY", "witness 'e' is named twice", "leave it out"),
    ({"b": ("e",)}, ("d",), MEMORY, "E_STORE", "'d' is to be a witness, and it forgets", 'store = "disk"'),
    ({"b": ("e",)}, ("z",), NODES, "query.placement.node", "knows no such node", "there is"),
]


@pytest.mark.parametrize(("standby", "witnesses", "nodes", "code", "text", "hint"), REFUSED)
def test_what_does_not_hold_is_refused_with_what_to_do(standby, witnesses, nodes, code, text, hint):
    with pytest.raises(QueryError) as refused:
        planned(query(), standby=standby, witnesses=witnesses, nodes=nodes)
    assert refused.value.code == code
    assert text in refused.value.message
    assert hint in refused.value.hint


def test_one_name_at_several_nodes_can_not_be_guarded():
    at = {"b": ["rows", "some"], "c": ["rows", "some"], "d": ["all"]}
    with pytest.raises(QueryError, match="it runs under one name at b, c") as refused:
        planned(united(), at, {"b": ("e",)})
    assert refused.value.code == "E_STANDBY"


def test_a_box_that_runs_nowhere_is_named():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    rows.filter("k > 0", name="unread")
    q.sink("out", rows)
    with pytest.raises(QueryError, match="box 'unread', which leads to no sink") as refused:
        planned(q.graph, {"b": ["rows"]}, {"unread": ("c",)})
    assert refused.value.code == "query.placement.box"


def two_wishes(first: dict[str, str], second: dict[str, str]) -> Graph:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "v": "int64"})
    for name, wish in (("one", first), ("two", second)):
        q.sink(f"{name}_out", rows.filter(md.col("v") > 0, name=name), **wish)
    return q.graph


PASSIVE, AMNESIA = ({"recovery": "precise", "method": "passive_standby"}, {"recovery": "gap"})


@pytest.mark.parametrize(
    ("first", "second", "methods"),
    [
        (PASSIVE, PASSIVE, ("passive_standby",) * 3),
        (AMNESIA, AMNESIA, ("amnesia",) * 3),
        (PASSIVE, AMNESIA, ("passive_standby", "passive_standby", "amnesia")),
        ({"recovery": "precise", "method": "active_standby"}, AMNESIA, ("", "", "amnesia")),
        ({}, AMNESIA, ("passive_standby", "", "amnesia")),
        ({}, {}, ("", "", "")),
    ],
)
def test_a_fragment_that_feeds_two_outputs_gets_the_stronger_method(first, second, methods, monkeypatch):
    for kind, known in (("precise", ("passive_standby", "active_standby")), ("gap", ("amnesia",))):
        monkeypatch.setitem(METHODS, kind, known)
    at = {"a": ["rows"], "b": ["one"], "c": ["two"]}
    plan = planned(two_wishes(first, second), at=at, standby={"*": ("e",)})
    assert {each.name: each.method for each in plan.fragments} == dict(
        zip(("q/rows", "q/one", "q/two"), methods, strict=True)
    )
    assert fragment_from(fragment_to(plan.fragments[0])).method == methods[0]


@pytest.mark.parametrize(
    ("wish", "box", "methods"),
    [
        ({}, "windows", ("upstream_backup",) * 2),
        ({}, "running", ("passive_standby",) * 2),
        ({"method": "active_standby"}, "windows", ("", "")),
        ({"method": "upstream_backup"}, "windows", ("upstream_backup",) * 2),
    ],
)
def test_rollback_without_a_method_takes_the_first_that_the_boxes_allow(wish, box, methods):
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "v": "int64"}, time="ts").filter(md.col("v") > 0, name="some")
    if box == "windows":
        counted = rows.window("1s").group_by("v").aggregate(n=md.count())
    else:
        counted = rows.group_by("v").running(n=md.count())
    q.sink("out", counted, recovery="rollback", **wish)
    last = [each.id for each in q.graph.boxes if each.id not in ("rows", "some", "out")]
    plan = planned(q.graph, at={"a": ["rows", "some"], "b": last}, standby={"*": ("e",)})
    assert tuple(each.method for each in plan.fragments) == methods
    [(_, method, _)] = ways_of(plan)
    assert method == (methods[0] or "active_standby")


def test_rollback_by_upstream_backup_is_refused_for_a_box_that_reaches_back_for_ever():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "v": "int64"}, time="ts")
    kind = rows.group_by("v").running(n=md.count(), name="kind")
    q.sink("out", kind, recovery="rollback", method="upstream_backup")
    with pytest.raises(QueryError, match="kind") as refused:
        planned(q.graph, at={"a": ["rows"], "b": ["kind"]}, standby={"*": ("e",)})
    assert "passive_standby" in refused.value.hint


@pytest.mark.parametrize(
    ("wish", "at", "counts_again"),
    [
        ({"recovery": "rollback"}, {"a": ["rows"], "b": ["per_k", "some"]}, "'per_k'"),
        ({"recovery": "rollback"}, {"a": ["rows"], "b": ["per_k"], "c": ["some"]}, "'per_k'"),
        ({"recovery": "rollback"}, {"a": ["rows", "per_k"], "b": ["some"]}, ""),
        ({"recovery": "rollback"}, {"a": ["rows", "per_k", "some"]}, ""),
        ({"recovery": "rollback", "method": "passive_standby"}, {"a": ["rows"], "b": ["per_k", "some"]}, ""),
        (
            {"recovery": "precise", "method": "upstream_backup"},
            {"a": ["rows"], "b": ["per_k"], "c": ["some"]},
            "",
        ),
    ],
)
def test_windows_behind_a_fragment_that_repeats_rows_are_warned_of(wish, at, counts_again):
    texts = warned(query(**wish), at, {"*": ("d",)}, ("e",))
    found = [text for text in texts if "may come again" in text]
    assert [counts_again in text for text in found] == ([True] if counts_again else [])
    if counts_again:
        assert found[0].startswith(
            "rows of fragment 'q/rows' may come again when 'a' is lost, and count again"
        )


# --- state that is backed up upstream ------------------------------------------------------------------

BACKUP = {"recovery": "precise", "method": "state_backup"}


def held(plan):
    return {fragment.name: fragment.backup_nodes for fragment in plan.guarded()}


def test_an_upstream_node_holds_the_state_and_the_least_busy_other_goes_on():
    nodes = {**NODES, "a": replace(NODES["a"], load=0.9), "d": replace(NODES["d"], load=0.9)}
    plan = planned(query(**BACKUP), nodes=nodes)
    assert held(plan)["q/some"] == ("b",)
    assert who(plan)["q/some"] == ("b", "e")
    assert who(plan)["q/rows"] == held(plan)["q/rows"], "no node sends to it: whoever stands by holds it"
    assert len(who(plan)["q/rows"]) == 1
    assert all(fragment_from(fragment_to(each)) == each for each in plan.fragments)


def test_who_is_named_goes_on_with_it():
    plan = planned(query(**BACKUP), standby={"c": ("d", "e"), "b": ("d", "e")})
    assert who(plan) == {"q/rows": ("d", "e"), "q/some": ("b", "d", "e")}
    assert held(plan) == {"q/rows": ("d",), "q/some": ("b",)}
    plan = planned(query(**BACKUP), standby={"c": ("b",), "b": ("c",)})
    assert held(plan) == who(plan) == {"q/rows": ("c",), "q/some": ("b",)}


@pytest.mark.parametrize("change", [{"up": False}, {"forgets": True}, {"abroad": "bob"}, {"agrees": False}])
def test_an_unfit_node_upstream_holds_nothing(change):
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s")
    some = rows.filter("k > 0", name="some")
    q.sink("out", some.filter("k > 1", name="more"), **BACKUP)
    at = {"a": ["rows"], "b": ["some"], "c": ["more"]}
    assert held(planned(q.graph, at))["q/more"] == ("b",)
    nodes = {**NODES, "b": replace(NODES["b"], **change)}
    if change.keys() & {"up", "abroad"}:  # A node of our own with a fragment of its has to be fit for others.
        plan = planned(q.graph, at, nodes=nodes)
        assert held(plan)["q/more"] != ("b",)
        assert "b" not in who(plan)["q/more"]
    else:
        with pytest.raises(QueryError, match="'b'|agree|forgets"):
            planned(q.graph, at, {"b": ("b",)}, nodes=nodes)


def test_nobody_else_is_there_and_who_holds_it_goes_on():
    nodes = {name: NODES[name] for name in ("b", "c")}
    plan = planned(query(**BACKUP), nodes=nodes, here="b")
    assert who(plan) == held(plan) == {"q/rows": ("c",), "q/some": ("b",)}
    with pytest.raises(QueryError, match="no node can stand by for fragment 'q/rows' at 'b'"):
        planned(query(**BACKUP), {"b": ["rows", "per_k", "some"]}, nodes={"b": NODES["b"]}, here="b")


def test_what_several_nodes_send_to_is_spread_over_them():
    names = [f"q/box{number}" for number in range(300)]
    first = Counter(backup_order(name, ["a", "b", "c"])[0] for name in names)
    assert set(first) == {"a", "b", "c"}
    assert all(70 <= times <= 130 for times in first.values())
    assert backup_order("q/x", ["a", "b", "a"]) in (("a", "b"), ("b", "a"))
    assert backup_order("q/some", ["a", "b", "c"]) == backup_order("q/some", ["a", "b", "c"])
    assert backup_order("q/x", []) == ()


def test_what_a_backup_costs_and_promises():
    graph = query(**BACKUP)
    plan = planned(graph, standby={"b": ("d",), "c": ("d", "e")})
    (output,) = recovered_outputs(plan, graph, traffic_of(graph), voters=5)
    assert output.method == "state_backup"
    assert output.guarantee == "exactly once, and goes on when a node is lost for good"
    assert output.bytes_per_s == 0
    assert "the state of q/some is held by b, which is sent each checkpoint" in output.overhead
    assert "d or e goes on with it" in output.overhead
    said = msgspec.json.decode(planned_standby(plan, StandbyWish(), "a", NODES), type=PlannedStandby)
    assert said.backups == {"q/rows": ("d",), "q/some": ("b",)}


def test_backup_nodes_belong_to_that_method():
    plan = planned(query(**BACKUP))
    spec = plan.fragments[0]
    for wrong in ({"method": "passive_standby"}, {"backup_nodes": ()}, {"backup_nodes": ("d", "d")}):
        with pytest.raises(QueryError, match="backup_nodes"):
            fragment_from(fragment_to(msgspec.structs.replace(spec, **wrong)))
