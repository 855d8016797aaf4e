"""The node that deployed a query is lost for good, wakes up, or dies amid an undeploy: who has its role."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.nodes.catalog.catalog import RUNNING, Deployment
from medusa.nodes.recovery.coordination import AWAY_US
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import Move
from tests.nodes.taken_over import HALF, ROWS, SCHEMA, Run
from tests.nodes.test_taken_over import CUT, WHOLE, check_removed, counting, run_of

STANDBY = {"m": ["s1", "s2"]}
PLACES = pytest.mark.parametrize("at", [WHOLE, CUT], ids=["no part", "a part"])
"""Whether the coordinator has a part of the query that nobody stands by for."""


def guarded(at: Any, **more: Any) -> Run:
    run, fragment = run_of(counting(), at, STANDBY, **more)
    run.until_guarded(fragment, 2)
    return run


def deployment(run: Run, name: str) -> Deployment | None:
    node = run.fed.nodes[name]
    return node.brain.catalog.deployments.get("q") if node.alive else None


def coordinators(run: Run) -> list[str]:
    return [name for name in run.fed.nodes if deployment(run, name) is not None]


def until_coordinated(run: Run, by: str) -> None:
    def coordinated() -> bool:
        knowing = [each.name for each in run.living if run.current(each.name) is not None]
        agree = all(run.current(name) == run.newest() for name in knowing)
        return agree and run.newest().coordinator == by and coordinators(run) == [by]

    run.until(coordinated, f"{by} coordinates; {coordinators(run)} do")


def found_at(run: Run, name: str) -> str:
    """Where the catalog of a node says that the query is coordinated."""
    entry = run.fed.nodes[name].brain.naming.directory.find("query", "q")
    return "" if entry is None else entry.writer


def undeploy(run: Run, at: str) -> Reply:
    client = run.fed.client(f"removes-{at}-{run.fed.world.now_us}", at)
    reply, _ = run.fed.answer(client, client.undeploy("q"))
    return reply


def lost(at: Any) -> Run:
    """The coordinator is lost for good, and the first of the other voters has its role."""
    run = guarded(at)
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    run.lose("e")
    until_coordinated(run, "m")
    return run


# --- takeover of the role ---------------------------------------------------------------------------------


@PLACES
def test_a_coordinator_that_is_lost_for_good_has_a_successor_that_all_name(at: Any) -> None:
    run = lost(at)
    others = [node.name for node in run.living]
    run.until(lambda: {found_at(run, name) for name in others} == {"m"}, "the catalog says so everywhere")
    for node in run.living:
        owners = node.brain.catalog.owners
        assert set(owners.values()) <= {"m"}
        held = {hosted.held()[0] for hosted in node.brain.fragments.values()}
        assert held <= {"m"}, "checkpoints record it"
    shown = run.fed.nodes["m"].brain.status(run.fed.world.now_us)["queries"]["q"]
    assert shown["state"] == RUNNING
    assert shown["configuration"]["coordinator"] == "m"
    assert set(shown["nodes"]) == {*at, "s1", "s2", "w"}
    made = deployment(run, "m")
    assert made is not None
    assert dict(made.streams)["q.out"] == ("m" if at is WHOLE else "c")


@PLACES
@pytest.mark.parametrize("client_at", ["m", "s2", "c"])
def test_any_node_of_a_query_ends_it_once_its_coordinator_is_lost(at: Any, client_at: str) -> None:
    if at is WHOLE and client_at == "c":
        client_at = "w"
    run = lost(at)
    assert undeploy(run, client_at) == Reply(request=1)
    check_removed(run)
    assert coordinators(run) == []
    run.fed.restart("e")
    run.lost.clear()
    run.until(
        lambda: run.fed.nodes["e"].alive and not coordinators(run) and not run.remains(), "e forgets it"
    )
    run.deployer = run.fed.client("again", "s1")
    run.deploy()
    run.until_guarded(next(iter(run.fed.nodes["m"].brain.fragments)), 2)
    assert coordinators(run) == ["s1"]


def test_a_node_without_a_part_says_who_coordinates_it_now() -> None:
    run = lost(WHOLE)
    run.until(lambda: found_at(run, "x") == "m", "x has heard")
    refused = undeploy(run, "x")
    assert (refused.code, refused.text) == ("E_QUERY", "query 'q' was deployed at node 'm'")


@PLACES
def test_a_coordinator_that_wakes_up_has_its_role_no_more(at: Any) -> None:
    run = lost(at)
    run.fed.restart("e")
    run.lost.clear()
    until_coordinated(run, "m")
    run.publish(HALF, ROWS)
    run.check()
    assert undeploy(run, "e") == Reply(request=1), "it passes on what it is asked"
    check_removed(run)
    assert coordinators(run) == []


def test_a_coordinator_that_is_restarted_keeps_its_role() -> None:
    run = guarded(CUT)
    number = run.newest().number
    run.fed.nodes["e"].crash()
    run.fed.run(for_us=AWAY_US // 2)
    run.fed.restart("e")
    run.fed.run(for_us=5 * AWAY_US)
    assert (run.newest().number, coordinators(run)) == (number, ["e"])


def test_nobody_takes_a_role_over_while_more_than_half_hear_who_has_it() -> None:
    run = guarded(WHOLE)
    number = run.newest().number
    for way in (("e", "m"), ("m", "e")):
        run.fed.network.cut(*way)
    run.fed.run(for_us=6 * AWAY_US)
    assert (run.newest().number, coordinators(run)) == (number, ["e"])


def test_two_coordinators_are_lost_one_after_the_other() -> None:
    run, _ = run_of(counting(), WHOLE, STANDBY, witnesses=("w", "x"))
    run.until_guarded("q/rows", 2)
    run.lose("e")
    until_coordinated(run, "m")
    run.lose("m")
    until_coordinated(run, "s1")
    assert run.owner("q/rows") == "s1"
    run.publish()
    run.check()
    assert undeploy(run, "x") == Reply(request=1)
    check_removed(run)
    run.fed.restart("e")
    run.fed.restart("m")
    run.lost.clear()
    run.until(lambda: len(run.living) == len(run.fed.nodes) and not coordinators(run), "both forget it")
    check_removed(run)


def test_two_voters_alone_leave_the_role_where_it_is() -> None:
    run = Run(counting(), {"m": WHOLE["m"]}, standby={"m": ["s1"]}, witnesses=(), deploys="m")
    run.deploy()
    run.until_guarded("q/rows", 1)
    run.lose("m")
    run.fed.run(for_us=6 * AWAY_US)
    assert coordinators(run) == []
    refused = undeploy(run, "s1")
    assert (refused.code, "coordinates query 'q'" in refused.text) == ("E_TIMEOUT", True)
    run.fed.restart("m")
    run.lost.clear()
    run.until(lambda: coordinators(run) == ["m"], "it has it still")
    assert undeploy(run, "s1") == Reply(request=1)
    check_removed(run)


# --- an undeploy that is begun and never finished -----------------------------------------------------------


@PLACES
@pytest.mark.parametrize("after_us", [1_500, 3_000, 4_500, 6_000])
def test_an_undeploy_whose_coordinator_is_lost_amid_it_is_never_half_done_for_ever(
    at: Any, after_us: int
) -> None:
    run = guarded(at)
    # Some hear it, and some don't.
    for name in ("s1", "s2", "c", "w") if after_us < 4_000 else ("m", "s2"):
        run.fed.network.cut("e", name)
    run.deployer.undeploy("q")
    run.fed.run(for_us=after_us)
    run.lose("e")
    run.fed.network.heal_all()
    run.fed.run(for_us=4 * AWAY_US)
    if run.remains():  # Nobody had heard of it.
        until_coordinated(run, "m")
        assert undeploy(run, "m") == Reply(request=1)
    check_removed(run)
    run.fed.restart("e")
    run.lost.clear()
    run.until(lambda: run.fed.nodes["e"].alive and not coordinators(run), "e has removed it")
    check_removed(run)


@PLACES
@pytest.mark.parametrize("cut_off", ["e", "m"])
def test_an_undeploy_at_a_coordinator_that_was_replaced_and_has_not_heard_ends_it_everywhere(
    at: Any, cut_off: str
) -> None:
    """The nodes on the one side obey the old coordinator; those on the other hear of it when they meet."""
    run = guarded(at)
    with_e = ("e", "c") if cut_off == "e" else ("e", "c", "m")
    sides = [(a, b) for a in with_e for b in run.fed.nodes if b not in with_e]
    for a, b in sides:
        run.fed.network.cut(a, b)
        run.fed.network.cut(b, a)
    new = "m" if cut_off == "e" else "s1"
    run.until(lambda: deployment(run, new) is not None, f"{new} has the role")
    assert set(coordinators(run)) == {"e", new}, "each in a configuration of its own"
    assert run.current("e") != run.current(new)
    assert undeploy(run, "e") == Reply(request=1), "who is away hears of it later"
    run.fed.network.heal_all()
    run.until(lambda: not coordinators(run), "both are done")
    check_removed(run)


def test_a_query_that_was_removed_while_a_node_was_away_goes_from_there_too() -> None:
    """No node waits for it, and it is told by whoever it meets."""
    run = guarded(CUT)
    run.lose("c")
    assert undeploy(run, "e") == Reply(request=1)
    assert coordinators(run) == []
    check_removed(run)
    run.fed.restart("c")
    run.lost.clear()
    run.until(lambda: run.fed.nodes["c"].alive and not run.remains(), "c has removed it")


def test_another_query_of_the_name_is_not_removed_by_who_removes_the_one_before() -> None:
    run = lost(WHOLE)
    assert undeploy(run, "m") == Reply(request=1)
    run.deployer = run.fed.client("again", "s1")
    run.deploy()
    run.fed.restart("e")
    run.lost.clear()
    run.until(lambda: coordinators(run) == ["s1"], "e has forgotten its own")
    run.until_guarded("q/rows", 2)
    run.publish()
    run.until(lambda: run.hosted("q/rows") is not None, "the new one runs")


def deploy_again(run: Run) -> str:
    run.deployer = run.fed.client("again", "e")
    request = run.deployer.deploy_guarded(run.q, run.at, run.standby, run.witnesses)
    reply, _ = run.fed.answer(run.deployer, request)
    return reply.code


def back(run: Run, name: str) -> None:
    run.fed.restart(name)
    run.lost.clear()


@pytest.mark.parametrize("name", ["c", "m"])
def test_a_query_that_is_deployed_again_while_a_node_still_has_the_removed_one_is_there_in_full(
    name: str,
) -> None:
    """It took the part of before for the new one, and dropped it when it heard of the removal."""
    run = guarded(CUT)
    run.lose(name)
    assert undeploy(run, "e").code == ""
    back(run, name)
    assert deploy_again(run) == ""
    run.until_guarded("q/kind", 2)
    run.fed.run(for_us=5_000_000)
    assert [sorted(run.fed.nodes[at].brain.fragments) for at in "emc"] == [["q/rows"], ["q/kind"], ["q/out"]]
    assert {run.current(at) for at in "emc"} == {run.newest()}
    run.publish()


def test_who_stood_by_for_a_removed_query_has_a_part_of_the_next_once_it_has_heard_of_the_removal() -> None:
    """It took the new part, and dropped it when it heard that the query before was removed."""
    run = guarded(CUT)
    run.lose("s1")
    assert undeploy(run, "e").code == ""
    back(run, "s1")
    run.at, run.standby = {"e": CUT["e"], "s1": CUT["m"], "c": CUT["c"]}, {"s1": ["m", "s2"]}
    run.owners.clear()
    assert deploy_again(run) == ""
    run.fed.run(for_us=5_000_000)
    assert sorted(run.fed.nodes["s1"].brain.fragments) == ["q/kind"]
    assert run.current("s1") == run.newest()
    run.until_guarded("q/kind", 2)


def test_what_is_late_of_a_removed_query_is_installed_nowhere() -> None:
    """Whoever asked for it may never have heard of the removal, so it doesn't take the word back either."""
    run = lost(CUT)
    brain, life = run.fed.nodes["c"].brain, run.newest().life
    spec = brain.catalog.fragments["q/out"]
    asked = brain.catalog.installed_by("q/out")
    refused = brain.installed.install(asked + 1, spec, "e", life)
    assert refused is not None
    assert refused.code == "E_CONTENDED", "e will hear that m coordinates it, and undoes nothing before"
    assert undeploy(run, "m").code == ""
    check_removed(run)
    refused = brain.installed.install(asked + 1, spec, "e", life)
    assert refused is not None
    assert refused.code == "E_STALE"
    assert not brain.fragments


def test_a_node_that_knows_a_query_of_the_name_deploys_no_other_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it has neither a part, nor the word of who coordinates it in its directory."""
    run = guarded(WHOLE)
    brain = run.fed.nodes["s2"].brain
    monkeypatch.setattr(brain.coordinator, "elsewhere", lambda query: "")
    client = run.fed.client("beside", "s2")
    reply, _ = run.fed.answer(client, client.deploy_guarded(run.q, run.at, run.standby, run.witnesses))
    assert (reply.code, reply.text) == ("E_DEPLOYED", "query 'q' is there already, from node 'e'")
    assert coordinators(run) == ["e"]


def test_an_undeploy_of_a_removed_query_that_a_node_passes_on_spares_the_next_of_its_name() -> None:
    run = guarded(CUT)
    run.lose("c")
    assert undeploy(run, "e").code == ""
    back(run, "c")
    run.fed.run(for_us=1)
    assert run.current("c") is not None, "or it doesn't pass it on"
    late = run.fed.client("late", "c")
    request = late.undeploy("q")
    run.fed.run(for_us=60_000)
    run.until(lambda: run.current("c") is None, "c has heard of the removal")
    assert deploy_again(run) == ""
    reply, _ = run.fed.answer(late, request)
    assert reply.code == "", "it is removed"
    run.fed.run(for_us=5_000_000)
    assert coordinators(run) == ["e"]
    assert sorted(run.fed.nodes["m"].brain.fragments) == ["q/kind"]


def test_a_client_whose_node_passed_its_undeploy_on_hears_that_it_is_done_though_who_did_it_died() -> None:
    run = guarded(CUT)
    for name in ("m", "s2", "c", "w"):
        run.fed.network.cut("e", name)
    client = run.fed.client("removes", "s1")
    request = client.undeploy("q")
    run.fed.run(for_us=4_000)
    assert run.current("s1") is not None, "or it passes nothing on"
    run.lose("e")
    run.fed.network.heal_all()
    reply, _ = run.fed.answer(client, request)
    assert reply.code == ""
    run.until(lambda: not run.remains(), "nothing is left")


# --- what moves --------------------------------------------------------------------------------------------


def move(run: Run, fragment: str, to: str, client_at: str) -> str:
    client = run.fed.client(f"moves-{to}", client_at)
    request = client.mind.request(lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=20_000))
    client.do(lambda mind: None)
    reply, _ = run.fed.answer(client, request)
    return reply.code


def test_parts_move_after_the_role_was_taken_over_and_whoever_succeeds_knows_where_they_are() -> None:
    run = lost(CUT)
    assert move(run, "q/out", "s3", "m") == ""
    made = deployment(run, "m")
    assert made is not None
    assert dict(made.streams)["q.out"] == "s3"

    def told() -> bool:
        parts = run.newest().parts
        return parts is not None and dict(parts.streams)["q.out"] == "s3" and "s3" in parts.nodes

    run.until(told, "the configuration says so")
    run.lose("m")
    until_coordinated(run, "s1")
    assert undeploy(run, "s3") == Reply(request=1)
    check_removed(run)


def test_a_part_that_moved_just_before_its_coordinator_is_lost_is_known_to_the_next() -> None:
    run = guarded(CUT)
    assert move(run, "q/out", "s3", "s1") == ""
    run.lose("e")
    until_coordinated(run, "m")

    def known() -> bool:
        made = deployment(run, "m")
        return made is not None and dict(made.streams)["q.out"] == "s3" and "s3" in made.nodes

    run.until(known, "m knows")
    assert undeploy(run, "s3") == Reply(request=1)
    check_removed(run)


def test_what_the_coordinator_took_over_meanwhile_goes_with_the_rest_when_it_is_undone():
    """Else the query could not be deployed again."""
    q = md.Query("q")
    per_k = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first").window("1s").group_by("k")
    q.sink("out", per_k.aggregate(n=md.count(), name="per_k").filter("n > 0", name="last"))
    at = {"e": ["rows", "first"], "m": ["per_k"], "c": ["last", "out"]}
    run = Run(q, at, standby={"m": ["s1"]}, witnesses=("w", "x"), deploys="s1")
    run.fed.network.cut("c", "s1")  # Its answer doesn't come.
    request = run.deployer.deploy_guarded(run.q, run.at, run.standby, run.witnesses)
    run.until(lambda: "q/per_k" in run.fed.nodes["m"].brain.fragments, "the middle is installed")
    run.until_guarded("q/per_k", 1)
    run.lose("m")
    run.until_owned("q/per_k", "s1")
    reply, _ = run.fed.answer(run.deployer, request)
    assert reply.code == "E_TIMEOUT"
    coordinator = run.fed.nodes["s1"].brain
    assert not coordinator.fragments
    assert not coordinator.catalog.fragments
