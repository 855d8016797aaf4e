"""X of an output, and what of it reaches the fragments of a plan: shared, refused, sent, split and shown."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.delay_plan import delay_warnings, delayed_outputs, with_delays
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.repartition_plan import replan_merge, replan_split
from medusa.nodes.placement.standby_plan import StandbyNode, StandbyWish, with_standby
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.runtime.client.placement import expected
from medusa.sim.actors.federation import Federation
from medusa.wire.link.session import PROMPT, SESSION
from tests.cli.test_status import printed
from tests.nodes.taken_over import SCHEMA
from tests.nodes.test_remote import keep, offering, part

NODES = {name: StandbyNode(name=name, host=name) for name in "abcde"}
MS, S = 1_000, 1_000_000


def source(q, name):
    return q.source(name, SCHEMA, time="ts", slack="0s")


def per_k(stream, name):
    return stream.window("1s").group_by("k").aggregate(n=md.count(), name=name)


def chain(**wish):
    """q/rows at a, q/first at b, q/last at c."""
    q = md.Query("q")
    first = per_k(source(q, "rows").filter("v > 0", name="some"), "first")
    q.sink("out", first.filter("n > 1", name="last"), **wish)
    return q.graph, {"a": ["rows", "some"], "b": ["first"], "c": ["last"]}


def tree(left, right, both=None):
    """Sources at a and b meet at c; of a there is an output of its own at d, and of b one at e."""
    q = md.Query("q")
    one, other = (source(q, name).filter("v > 0", name=f"some_{name}") for name in ("one", "other"))
    q.sink("both", one.join(other, on="k", within="1s", name="meet"), delay=both)
    q.sink("left", per_k(one, "per_one"), delay=left)
    q.sink("right", per_k(other, "per_other"), delay=right)
    at = {"a": ["one", "some_one"], "b": ["other", "some_other"], "c": ["meet"], "d": ["per_one"]}
    return q.graph, {**at, "e": ["per_other"]}


def diamond(**wish):
    """rows at a go by b and by c, and meet at d."""
    q = md.Query("q")
    rows = source(q, "rows")
    low, high = rows.filter("v < 5", name="low"), rows.filter("v > 5", name="high")
    q.sink("out", low.join(high, on="k", within="1s", name="meet"), **wish)
    return q.graph, {"a": ["rows"], "b": ["low"], "c": ["high"], "d": ["meet"]}


def planned(graph, at, *, noticed_us=PROMPT.timeout_us, nodes=NODES):
    return with_delays(cut(graph, at), noticed_us=noticed_us, nodes=nodes)


def delays(plan):
    return {each.node: each.delay_us for each in plan.fragments}


# --- what reaches which fragment --------------------------------------------------------------------


def test_without_a_bound_a_plan_is_what_it_was():
    graph, at = chain()
    plan = planned(graph, at)
    assert plan == cut(graph, at)
    assert all(b"delay" not in fragment_to(each) for each in plan.fragments)
    assert delayed_outputs(plan, graph) == ()


def test_all_fragments_on_the_way_have_it():
    for graph, at in (chain(delay="2s"), diamond(delay="2s")):
        assert set(delays(planned(graph, at)).values()) == {2 * S}


@pytest.mark.parametrize(
    ("wished", "expected_us"),
    [
        ({"left": "2s", "right": "5s"}, {"a": 2, "b": 5, "c": 0, "d": 2, "e": 5}),
        ({"left": "2s", "right": None, "both": "3s"}, {"a": 2, "b": 3, "c": 3, "d": 2, "e": 0}),
        ({"left": "5s", "right": "4s", "both": "1s"}, {"a": 1, "b": 1, "c": 1, "d": 5, "e": 4}),
        ({"left": None, "right": None, "both": "1s"}, {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0}),
    ],
)
def test_a_fragment_has_the_least_of_what_it_feeds(wished, expected_us):
    graph, at = tree(**wished)
    assert delays(planned(graph, at)) == {node: us * S for node, us in expected_us.items()}


def test_it_is_in_the_spec_and_comes_back():
    spec = planned(*chain(delay="2s")).fragments[1]
    assert fragment_from(fragment_to(spec)) == spec
    assert spec.as_deployed == spec
    for wrong in (-1, 3_600 * S + 1):
        with pytest.raises(QueryError, match="no spec of a fragment"):
            fragment_from(fragment_to(msgspec.structs.replace(spec, delay_us=wrong)))


def test_who_stands_by_has_it_with_the_fragment():
    graph, at = diamond(delay="2s", recovery="precise")
    plan = planned(graph, at)
    guarded = with_standby(plan, graph, StandbyWish(standby=(("*", ("e",)),)), here="a", nodes=NODES)
    assert [each.delay_us for each in guarded.fragments] == [2 * S] * 4
    assert all(each.standby == ("e",) for each in guarded.fragments)


def test_what_a_split_makes_has_it_and_what_a_merge_makes():
    graph, _ = chain(delay="2s")
    (spec,) = planned(graph, {"b": ["rows", "some", "first", "last"]}).fragments
    parts = replan_split(spec, "first", 2, node="b", epoch=2, taken=()).made
    assert {each.delay_us for each in parts} == {2 * S}
    (merged,) = replan_merge(parts, "first", node="b", taken=()).made
    assert merged.delay_us == 2 * S


def test_a_split_after_which_rows_would_wait_for_different_inputs_is_refused():
    """The parts of a filter are merged by time; what is united with them waits for nothing."""
    q = md.Query("q")
    one, other = source(q, "one"), source(q, "other")
    q.sink("out", one.filter("v > 0", name="some").union(other, name="all"), delay="2s")
    (spec,) = planned(q.graph, {"b": ["one", "other", "some", "all"]}).fragments
    with pytest.raises(QueryError, match="sink 'out': delay: .* and those of 'other' for nothing"):
        replan_split(spec, "some", 2, node="b", epoch=2, taken=())
    plain = msgspec.structs.replace(spec, delay_us=0)
    assert len(replan_split(plain, "some", 2, node="b", epoch=2, taken=()).made) == 4


# --- policies -------------------------------------------------------------------------------------------

LAZY, LATE = md.Delay("2s", failure="suspend"), md.Delay("5s", failure="delay", stabilization="suspend")


def policies(plan):
    return {each.node: f"{each.delay_failure} & {each.delay_stabilization}" for each in plan.fragments}


def test_a_fragment_has_the_policies_by_which_new_rows_show_first():
    """As X is the least of the outputs that it feeds."""
    plan = planned(*tree(left=LAZY, right=None, both=LATE))
    assert policies(plan) == {
        "a": "delay & suspend",
        "b": "delay & suspend",
        "c": "delay & suspend",
        "d": "suspend & suspend",
        "e": "process & process",
    }
    plan = planned(*tree(left=LAZY, right="1s", both=LATE))
    assert [policies(plan)[node] for node in "abcde"] == [
        "delay & suspend",
        "process & process",
        "delay & suspend",
        "suspend & suspend",
        "process & process",
    ]


def test_an_output_says_whose_policies_hold_for_it():
    graph, at = tree(left=LAZY, right="1s", both=LATE)
    both, left, right = map(str, delayed_outputs(cut(graph, at), graph))
    assert both.startswith("q.both, delay 5s (delay & suspend): a failure adds at most 5s to what inputs")
    assert both.endswith("however long that takes; process & suspend, as another output wants")
    assert left.startswith("q.left, delay 2s (suspend & suspend): nothing of it is tentative: new rows wait")
    assert right.startswith("q.right, delay 1s: a failure adds at most 1s")


def test_what_a_split_makes_has_the_policies_and_what_a_merge_makes():
    graph, _ = chain(delay=LATE)
    (spec,) = planned(graph, {"b": ["rows", "some", "first", "last"]}).fragments
    parts = replan_split(spec, "first", 2, node="b", epoch=2, taken=()).made
    found = {(each.delay_failure, each.delay_stabilization) for each in parts}
    assert found == {("delay", "suspend")}
    (merged,) = replan_merge(parts, "first", node="b", taken=()).made
    assert (merged.delay_failure, merged.delay_stabilization) == ("delay", "suspend")


@pytest.mark.parametrize(("failure", "stabilization"), [("never", "process"), ("suspend", "process")])
def test_a_spec_with_other_policies_is_refused(failure, stabilization):
    (spec,) = planned(chain(delay="2s")[0], {"b": ["rows", "some", "first", "last"]}).fragments
    wrong = msgspec.structs.replace(spec, delay_failure=failure, delay_stabilization=stabilization)
    with pytest.raises(QueryError, match=r"fragment 'q/rows': delay: (failure|stabilization): "):
        fragment_from(fragment_to(wrong))


# --- what is refused -----------------------------------------------------------------------------------


def refused(graph, at, **how):
    with pytest.raises(QueryError) as caught:
        planned(graph, at, **how)
    assert caught.value.message.startswith("sink 'out': delay: ")
    return caught.value


@pytest.mark.parametrize(
    ("session", "least", "noticed", "below"),
    [(PROMPT, "800ms", "700ms", "799ms"), (SESSION, "1s 112ms", "1s", "1s 111ms")],
    ids=["processes", "simulator"],
)
def test_less_than_it_takes_to_notice_a_failure_is_refused(session, least, noticed, below):
    error = refused(*chain(delay=below), noticed_us=session.timeout_us)
    assert error.code == "E_DELAY"
    assert f"{below} is too little: a link that is cut is noticed after {noticed}, and " in error.message
    assert error.hint == f'the least is delay="{least}"'
    assert set(delays(planned(*chain(delay=least), noticed_us=session.timeout_us)).values()) != {0}


def test_a_fragment_of_another_participant_is_refused():
    nodes = {**NODES, "b": replace(NODES["b"], abroad="bob")}
    error = refused(*chain(delay="2s"), nodes=nodes)
    assert error.code == "E_ROLE"
    assert "fragment 'q/first' on its way runs at 'b' of participant 'bob', and partic" in error.message
    assert error.hint == "put its boxes at a node of your own, or leave delay out"
    graph, at = tree(left="2s", right=None)
    assert delays(planned(graph, at, nodes=nodes))["a"] == 2 * S, "what isn't on the way may be anywhere"


def test_a_fragment_that_runs_elsewhere_is_refused():
    nodes = {**NODES, "c": replace(NODES["c"], elsewhere=True)}
    error = refused(*chain(delay="2s"), nodes=nodes)
    assert error.code == "E_DELAY"
    assert "fragment 'q/last' on its way runs at 'c', which has its fragments run elsewhere" in error.message
    assert error.hint == "put its boxes at a node that runs them itself, or leave delay out"


def test_an_output_of_which_some_rows_wait_and_others_do_not_is_refused():
    q = md.Query("q")
    one, other = source(q, "one"), source(q, "other")
    counted = one.window("1s").aggregate(n=md.count(), name="counted").select("n")
    straight = other.select(n="v", name="straight")
    q.sink("out", counted.union(straight, name="all"), delay="2s")
    at = {"a": ["one", "other", "counted", "straight", "all"]}
    error = refused(q.graph, at)
    assert error.code == "E_DELAY"
    assert (
        "of stream 'q.out' of fragment 'q/one' at 'a' rows of 'counted' wait for 'one', and those of 'other' "
        "for nothing: a part of it would be tentative, and the rest not"
    ) in error.message
    assert error.hint.startswith("unite them by md.sunion(one, other, bucket=")


def test_what_the_hint_says_is_taken():
    q = md.Query("q")
    one, other = source(q, "one"), source(q, "other")
    counted = one.window("1s").aggregate(n=md.count(), name="counted").select("n")
    straight = other.select(n="v", name="straight")
    q.sink("out", md.sunion(counted, straight, bucket="100ms", name="all"), delay="2s")
    plan = planned(q.graph, {"a": ["one", "other", "counted", "straight", "all"]})
    assert delays(plan) == {"a": 2 * S}


def test_a_stream_between_nodes_that_mixes_is_refused_and_so_is_another_output_of_the_fragment():
    q = md.Query("q")
    one, other = source(q, "one"), source(q, "other")
    counted = one.window("1s").aggregate(n=md.count(), name="counted").select("n")
    mixed = counted.union(other.select(n="v", name="straight"), name="all")
    q.sink("out", mixed.window("1s").aggregate(n=md.sum("n"), name="sums"), delay="2s")
    whole = ["one", "other", "counted", "straight", "all"]
    error = refused(q.graph, {"a": whole, "b": ["sums"]})
    assert "of stream 'q.all' of fragment 'q/one' at 'a'" in error.message
    assert delays(planned(q.graph, {"a": [*whole, "sums"]})) == {"a": 2 * S}, "the window there has all wait"
    q.sink("beside", mixed)
    error = refused(q.graph, {"a": [*whole, "sums"]})
    assert "of stream 'q.beside'" in error.message


def test_an_async_function_is_refused_as_ever():
    @md.register("delayed_probe", version=1)
    async def probe(row):
        return {"v": 1}

    q = md.Query("q")
    asked = source(q, "rows").apply(probe, {"v": "int64"}, in_flight=2, name="asked")
    q.sink("out", asked, delay="2s")
    with pytest.raises(QueryError, match="'asked' runs an async function") as caught:
        cut(q.graph, {"a": ["rows", "asked"]})
    assert caught.value.code == "query.later"


def test_an_output_that_may_lose_rows_may_be_bounded():
    """Its fork is a copy of what its fragment has; the corrections hold what its stable rows hold."""
    graph, at = chain(delay="2s", recovery="gap")
    plan = with_standby(
        planned(graph, at), graph, StandbyWish(standby=(("*", ("d",)),)), here="a", nodes=NODES
    )
    assert all(each.keeps_nothing and each.delay_us == 2 * S for each in plan.fragments)


def test_what_another_participant_has_run_here_is_never_forked():
    node = offering()
    spec = msgspec.structs.replace(part(), delay_us=2 * S)
    assert node.answer("core", keep(), fragment_to(spec)) == "E_OFFER"
    assert node.brain.catalog.remote.held == {}
    assert node.answer("core", keep(2), fragment_to(part())) == ""


# --- what is said ---------------------------------------------------------------------------------------


def test_each_output_says_what_it_is_promised():
    graph, at = tree(left="2s", right=None, both="5s")
    both, left = delayed_outputs(cut(graph, at), graph)
    assert str(left) == (
        "q.left, delay 2s: a failure adds at most 2s to what inputs that are reached bring, which is "
        "tentative then and corrected afterwards; one of up to 1s 800ms shows nothing (margin 200ms)"
    )
    assert str(both).startswith("q.both, delay 5s: a failure adds at most 5s")
    assert str(both).endswith("(margin 200ms, as another output wants that has less (2s))")


def test_an_output_that_nothing_holds_up_says_so():
    q = md.Query("q")
    q.sink("out", source(q, "one").union(source(q, "other"), name="all"), delay="2s")
    (output,) = delayed_outputs(cut(q.graph, {"a": ["one", "other", "all"]}), q.graph)
    assert str(output) == (
        "q.out, delay 2s: no box on its way waits for an input: nothing holds it up, and none is tentative"
    )


def test_a_plan_prints_them():
    status = {"node": "a", "peers": {"b": "up", "c": "up"}, "fragments": []}
    found = expected(*chain(delay="2s"), status)
    assert [each.stream for each in found.delays] == ["q.out"]
    assert str(found.delays[0]) in str(found).splitlines()
    assert expected(*chain(), status).delays == ()


def test_an_output_of_one_source_alone_is_warned_of():
    """Without that there is nothing to answer."""
    status = {"node": "a", "peers": {"b": "up", "c": "up"}, "fragments": []}
    found = expected(*chain(delay="2s"), status)
    assert found.warnings == (
        "delay of q.out: all of it comes by source 'rows': while that brings nothing there is nothing to "
        "answer, only where several publish into it those that are there are answered",
    )
    assert f"warning: {found.warnings[0]}" in str(found).splitlines()
    assert expected(*chain(), status).warnings == ()
    for graph, at in (tree(left=None, right=None, both="2s"), diamond(delay="2s")):
        assert list(delay_warnings(cut(graph, at), graph)) == [], "others go on"
    graph, at = tree(left="2s", right=None, both="5s")
    assert [each.split(":")[0] for each in delay_warnings(cut(graph, at), graph)] == ["delay of q.left"]
    q = md.Query("q")
    q.sink("out", source(q, "rows").filter("v > 0", name="some"), delay="2s")
    assert list(delay_warnings(cut(q.graph, {"a": ["rows"]}), q.graph)) == [], "it says that nothing waits"


# --- in a node --------------------------------------------------------------------------------------------


def deployed(q, at):
    fed = Federation(1, ["a", "b", "c"])
    fed.start()
    client = fed.client("client", "a")
    fed.run(for_us=S)
    reply, _ = fed.answer(client, client.deploy(q, at))
    return fed, reply


def chained(**wish):
    q = md.Query("q")
    q.sink("out", per_k(source(q, "rows"), "first").filter("n > 1", name="last"), **wish)
    return q, {"b": ["rows", "first"], "c": ["last"]}


def test_nodes_have_it_and_say_so():
    fed, reply = deployed(*chained(delay="2s"))
    assert reply.code == "", reply
    for node, fragment in (("b", "q/rows"), ("c", "q/last")):
        assert fed.nodes[node].brain.fragments[fragment].spec.delay_us == 2 * S
    statuses = [fed.nodes[node].brain.status(fed.nodes[node].clock.monotonic_us()) for node in "bc"]
    assert [each["fragments"][0]["delay_us"] for each in statuses] == [2 * S, 2 * S]
    assert [each["fragments"][0]["outputs"][0]["delay_us"] for each in statuses] == [0, 2 * S]
    before, last = (printed([each]) for each in statuses)
    assert "q.out, delay 2s: a failure adds at most 2s" in last
    assert "delay" not in before


def test_nodes_say_the_policies():
    fed, reply = deployed(*chained(delay=LATE))
    assert reply.code == "", reply
    statuses = [fed.nodes[node].brain.status(fed.nodes[node].clock.monotonic_us()) for node in "bc"]
    fragments = [each["fragments"][0] for each in statuses]
    said = [(each["delay_failure"], each["delay_stabilization"]) for each in fragments]
    assert said == [("delay", "suspend")] * 2
    outputs = [each["outputs"][0] for each in fragments]
    said = [(each["delay_failure"], each["delay_stabilization"]) for each in outputs]
    assert said == [("", ""), ("delay", "suspend")]
    assert "q.out, delay 5s (delay & suspend): a failure adds at most 5s" in printed(statuses[1:])


def test_without_it_they_say_nothing():
    fed, reply = deployed(*chained())
    assert reply.code == "", reply
    status = fed.nodes["c"].brain.status(fed.nodes["c"].clock.monotonic_us())
    assert status["fragments"][0]["delay_us"] == 0
    assert "delay" not in printed([status])


def test_a_refused_deployment_changes_nothing():
    fed, reply = deployed(*chained(delay="1s"))
    assert reply.code == "E_DELAY"
    assert reply.hint == 'the least is delay="1s 112ms"'
    fed.run(for_us=S)
    assert all(not node.brain.fragments and not node.brain.catalog.deployments for node in fed.nodes.values())
