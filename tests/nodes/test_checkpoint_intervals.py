"""How often fragments take a checkpoint: what a wish means, what is refused, and that it stays with them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.checkpoint_intervals import intervals_of, with_intervals
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.repartition_plan import replan_merge, replan_split
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.sim.actors.federation import Federation
from medusa.wire.messages.move import Move
from medusa.wire.messages.standby import DeployGuarded
from tests.nodes.taken_over import LIMITS, SCHEMA, Run
from tests.nodes.test_remote import keep, offering, part
from tests.nodes.test_remote import run as instantiate

NODES = {name: StandbyNode(name=name, host=name) for name in "abcd"}
AT = {"b": ["rows", "per_k"], "c": ["some"]}
S, MS = 1_000_000, 1_000


def query(name: str = "q") -> md.Query:
    """q/rows at b, then q/some at c."""
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
    per_k = rows.window("10s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="some"))
    return q


def planned(wish, nodes=NODES, at=AT):
    graph = query().graph
    return with_intervals(cut(graph, at), graph, tuple(dict(wish).items()), nodes=nodes)


# --- what is wished for -----------------------------------------------------------------------------


def test_without_a_wish_a_plan_is_what_it_was():
    plan = planned({})
    assert plan == cut(query().graph, AT)
    assert intervals_of(plan) == ()
    assert all(b"checkpoint" not in fragment_to(each) for each in plan.fragments)


@pytest.mark.parametrize(
    ("wish", "rows", "some"),
    [
        ({"b": S}, S, 0),
        ({"per_k": S}, S, 0),
        ({"out": S}, 0, S),
        ({"q/some": S, "some": 2 * S, "c": 3 * S}, 0, S),
        ({"b": S, "rows": 2 * S}, 2 * S, 0),
        ({"*": S}, S, S),
        ({"*": S, "c": 2 * S}, S, 2 * S),
    ],
)
def test_the_keys_are_those_of_standby(wish, rows, some):
    plan = planned(wish)
    assert [each.checkpoint_every_us for each in plan.fragments] == [rows, some]
    assert {(name, us) for name, _, us in intervals_of(plan)} == {
        (name, us) for name, us in (("q/rows", rows), ("q/some", some)) if us
    }


def test_a_fragment_at_two_nodes_under_one_name_has_one_for_each():
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts")
    q.sink("out", rows.filter("v > 0", name="some").union(rows, name="all"))
    at = {"b": ["rows", "some"], "c": ["rows", "some"], "d": ["all"]}
    plan = with_intervals(cut(q.graph, at), q.graph, (("b", S), ("c", 2 * S)), nodes=NODES)
    assert intervals_of(plan) == (("q/rows", "b", S), ("q/rows", "c", 2 * S))


FORGETFUL = {**NODES, "b": replace(NODES["b"], forgets=True)}
ABROAD = {**NODES, "b": replace(NODES["b"], abroad="bob")}


@pytest.mark.parametrize(
    ("wish", "nodes", "code", "text", "hint"),
    [
        ({"b": S}, FORGETFUL, "E_STORE", "takes no checkpoints", 'give b store = "disk"'),
        ({"b": S}, ABROAD, "E_ROLE", "of participant 'bob'", "leave the fragment out"),
        ({"nothing": S}, NODES, "query.placement.box", "no box and no node of that name", "there is"),
        ({"d": S}, NODES, "query.placement.node", "nothing of query 'q' runs at 'd'", "there is: b, c"),
        ({"rows": S, "per_k": 2 * S}, NODES, "query.placement", "another thing of each", "'q/rows'"),
    ],
)
def test_a_wish_that_does_not_hold_is_refused_with_what_to_do(wish, nodes, code, text, hint):
    with pytest.raises(QueryError) as refused:
        planned(wish, nodes)
    assert refused.value.code == code
    assert "checkpoint_every" in refused.value.message
    assert text in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("nodes", [FORGETFUL, ABROAD])
def test_the_key_for_all_others_means_those_where_it_can_be(nodes):
    assert intervals_of(planned({"*": S}, nodes)) == (("q/some", "c", S),)
    with pytest.raises(QueryError, match="'q/rows' runs at 'b'"):
        planned({"*": S}, nodes, {"b": ["rows", "per_k", "some"]})


def test_one_key_twice_is_refused():
    graph = query().graph
    with pytest.raises(QueryError, match="checkpoint_every names a fragment, box or node twice"):
        with_intervals(cut(graph, AT), graph, (("b", S), ("b", S)), nodes=NODES)


def test_it_is_in_the_spec_and_comes_back():
    spec = planned({"b": 200 * MS}).fragments[0]
    assert fragment_from(fragment_to(spec)) == spec
    assert spec.as_deployed == spec
    for wrong, why in ((49_999, "too often"), (-1, "no spec"), (600 * S + 1, "no spec")):
        with pytest.raises(QueryError, match=why):
            fragment_from(fragment_to(msgspec.structs.replace(spec, checkpoint_every_us=wrong)))


@pytest.mark.parametrize("wrong", [0, 49_999, 600 * S + 1])
def test_a_message_with_one_out_of_bounds_is_refused(wrong):
    message = DeployGuarded(request=1, at=(("n", ("rows",)),), checkpoint_every=(("*", wrong),))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=DeployGuarded)


def test_what_a_split_makes_has_it_and_what_a_merge_makes():
    spec = planned({"*": S}, at={"b": ["rows", "per_k", "some"]}).fragments[0]
    parts = replan_split(spec, "per_k", 2, node="b", epoch=2, taken=()).made
    assert {each.checkpoint_every_us for each in parts} == {S}
    (merged,) = replan_merge(parts, "per_k", node="b", taken=()).made
    assert merged.checkpoint_every_us == S
    own = [msgspec.structs.replace(each, checkpoint_every_us=0) for each in parts]
    assert replan_merge(own, "per_k", node="b", taken=()).made[0].checkpoint_every_us == 0


# --- that it stays -----------------------------------------------------------------------------------

CUT = {"e": ["rows", "first"], "m": ["kind"], "c": ["out"]}
KIND = "q/kind"
WISHED_US, NODES_US = 700 * MS, LIMITS.checkpoint_every_us


def counting() -> md.Query:
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("out", first.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind"))
    return q


class Wished(Run):
    """One fragment takes its checkpoints less often than its node has it."""

    def deploy(self) -> None:
        wish = {"standby": self.standby, "witnesses": self.witnesses, "checkpoint_every": {KIND: WISHED_US}}
        reply, _ = self.fed.answer(self.deployer, self.deployer.deploy(self.q, self.at, **wish))
        assert reply.code == "", reply

    def every_us(self, node: str, fragment: str = KIND) -> int:
        return self.fed.nodes[node].brain.fragments[fragment].checkpoint_every_us

    def has(self, node: str) -> bool:
        brain = self.fed.nodes[node].brain
        return KIND in brain.fragments and not brain.fragments[KIND].frozen


def started(standby=(), witnesses=()) -> Wished:
    run = Wished(counting(), CUT, standby=dict(standby), witnesses=witnesses)
    run.deploy()
    run.read()
    return run


def test_one_fragment_goes_at_its_own_pace_and_the_others_at_that_of_their_nodes():
    run = started()
    run.publish()
    run.check()
    assert run.every_us("m") == WISHED_US
    assert [run.every_us("e", "q/rows"), run.every_us("c", "q/out")] == [NODES_US, NODES_US]
    often, seldom = (
        run.fed.nodes[node].brain.fragments[name] for node, name in (("e", "q/rows"), ("m", KIND))
    )
    assert often.checkpoints > 0
    assert seldom.checkpoints == 0, "all rows came in less than its interval"
    run.until(lambda: seldom.checkpoints == 1, "its checkpoint", for_us=WISHED_US)


def test_it_stays_when_its_node_restarts():
    run = started()
    run.publish()
    run.fed.run(for_us=60 * MS)
    run.fed.nodes["m"].crash()
    run.fed.nodes["m"].restart()
    run.check()
    assert run.every_us("m") == WISHED_US


def test_it_stays_when_it_is_moved():
    run = started()
    run.publish()
    run.fed.run(for_us=60 * MS)
    mover = run.fed.client("mover", "m")
    request = mover.ask(
        lambda mind: mind.request(lambda n: Move(request=n, fragment=KIND, to="s1", timeout_ms=5_000))
    )
    reply, _ = run.fed.answer(mover, request)
    assert reply.code == "", reply
    run.check()
    assert run.has("s1")
    assert run.every_us("s1") == WISHED_US


def test_it_stays_when_another_node_takes_it_over():
    run = started({"m": ["s1"]}, ("w",))
    run.until_guarded(KIND)
    run.publish()
    run.fed.run(for_us=60 * MS)
    run.lose("m")
    run.until_owned(KIND, "s1")
    run.check()
    assert run.every_us("s1") == WISHED_US


@pytest.mark.parametrize(
    ("wished", "taken"), [(0, S), (50 * MS, S), (5 * S, 5 * S)], ids=["none", "more often", "less often"]
)
def test_what_another_participant_has_run_here_never_writes_more_often_than_our_own(wished, taken):
    node = offering()
    assert node.brain.settings.limits.checkpoint_every_us == S
    spec = msgspec.structs.replace(part(), checkpoint_every_us=wished)
    assert node.answer("core", keep(), fragment_to(spec)) == ""
    assert node.answer("core", instantiate()) == ""
    assert node.brain.fragments["r/kept"].checkpoint_every_us == taken


def test_a_node_without_a_disk_takes_none_whatever_is_wished():
    fed = Federation(1, ["a"], memory=["a"])
    fed.start()
    client = fed.client("client", "a")
    reply, _ = fed.answer(client, client.deploy(query(), {"a": ["rows", "per_k", "some"]}))
    assert reply.code == "", reply
    assert fed.nodes["a"].brain.fragments["q/rows"].checkpoint_every_us == 0
    wish = {"a": S}
    at = {"a": ["rows", "per_k", "some"]}
    reply, _ = fed.answer(client, client.deploy(query("p"), at, checkpoint_every=wish))
    assert reply.code == "E_STORE"
