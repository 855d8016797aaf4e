"""A fragment that others stand by for is split and merged: guarded before and after, and exact throughout."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.nodes.recovery import followings
from medusa.nodes.repartition.job import RepartitionJob
from medusa.sim.actors.client import Client
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge, Split
from tests.nodes.taken_over import HALF, SCHEMA, Run

AT = {"e": ["rows"], "m": ["per_k"], "c": ["after", "out"]}
WHOLE = {"m": ["rows", "per_k", "after", "out"]}
"""Clients publish into what is guarded, and read it."""


def query() -> Any:
    q = md.Query("q")
    per_k = (
        q.source("rows", SCHEMA, time="ts").group_by("k").running(n=md.count(), t=md.sum("v"), name="per_k")
    )
    q.sink("out", per_k.filter("n > 0", name="after"))
    return q


def parts(run: Run) -> list[str]:
    """Guarded fragments of ``per_k`` that are there."""
    return [each.fragment for each in run.newest().fragments if not each.gone]


def ordered(run: Run, what: str) -> tuple[Client, int]:
    client = run.fed.clients.get("splits") or run.fed.client("splits", "m")
    home = next(name for name in parts(run) if what == "split" or name.endswith("router"))
    request = client.mind.request(
        lambda number: (
            Split(request=number, fragment=home, box="per_k", parts=2)
            if what == "split"
            else Merge(request=number, fragment=home, box="per_k")
        )
    )
    client.do(lambda mind: None)
    return client, request


def all_guarded(run: Run, by: int = 2) -> None:
    run.until(lambda: all(run.guarded(name, by) for name in parts(run)), f"{by} follow {parts(run)}")


def flowing(what: str, at: dict[str, list[str]] = AT) -> Run:
    run = Run(query(), at, standby={"m": ["s1", "s2"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    all_guarded(run)
    if what == "merge":
        assert run.fed.answer(*ordered(run, "split"))[0].code == ""
        run.until(lambda: len(parts(run)) > 1, "it is in parts")
        all_guarded(run)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run


@pytest.mark.parametrize("what", ["split", "merge"])
def test_as_many_stand_by_afterwards(what: str) -> None:
    run = flowing(what)
    reply, _ = run.fed.answer(*ordered(run, what))
    assert reply.code == "", reply
    run.until(lambda: (len(parts(run)) > 1) == (what == "split"), "the configuration says so")
    all_guarded(run)
    run.publish(HALF)
    run.check()


STATES = ["asking", "cutting", "writing", "switching"]
"""The others pass within one turn of the node."""

BOTH = pytest.mark.parametrize("what", ["split", "merge"])


def amid(run: Run, what: str, state: str) -> tuple[Client, int]:
    """It is ordered, and in this state."""
    run.fed.nodes["m"].slowness = 20
    asked = ordered(run, what)
    splits = run.fed.nodes["m"].brain.orders.splits
    run.until(lambda: [each.state for each in splits.status()] == [state], f"it is {state}")
    return asked


def ends_whole(run: Run) -> None:
    """All is guarded as before, and each row comes once."""
    all_guarded(run)
    run.publish(HALF)
    run.check()


@pytest.mark.parametrize("state", STATES)
@BOTH
def test_its_node_is_killed_and_comes_back(what: str, state: str) -> None:
    run = flowing(what)
    amid(run, what, state)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=1_500_000)
    run.fed.restart("m")
    ends_whole(run)


@pytest.mark.parametrize(
    "node",
    ["s1", pytest.param("e", marks=(pytest.mark.full, pytest.mark.issue(17))), "w"],
)
@pytest.mark.parametrize("state", STATES)
@BOTH
def test_another_is_killed_and_comes_back(what: str, state: str, node: str) -> None:
    run = flowing(what)
    amid(run, what, state)
    run.fed.nodes[node].crash()
    run.fed.nodes["m"].slowness = 1
    run.fed.run(for_us=1_500_000)
    run.fed.restart(node)
    ends_whole(run)


@pytest.mark.parametrize("state", STATES)
@BOTH
def test_who_stood_by_is_lost_for_good(what: str, state: str) -> None:
    run = flowing(what)
    asked = amid(run, what, state)
    run.lose("s1")
    run.fed.nodes["m"].slowness = 1
    assert run.fed.answer(*asked)[0].code == ""
    all_guarded(run, 1)
    run.publish(HALF)
    run.check()


def taken_over(run: Run, fragment: str) -> bool:
    return run.hosted(fragment) is not None and run.owner(fragment) in ("s1", "s2")


@pytest.mark.parametrize("state", ["cutting", "switching"])
@BOTH
def test_clients_feed_it_and_its_node_is_killed(what: str, state: str) -> None:
    run = flowing(what, WHOLE)
    amid(run, what, state)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=1_500_000)
    run.fed.restart("m")
    ends_whole(run)


@pytest.mark.parametrize("at", [AT, WHOLE], ids=["nodes", "clients"])
@BOTH
def test_what_was_made_is_taken_over(what: str, at: dict[str, list[str]]) -> None:
    run = flowing(what, at)
    assert run.fed.answer(*ordered(run, what))[0].code == ""
    run.until(lambda: (len(parts(run)) > 1) == (what == "split"), "it is done")
    all_guarded(run)
    run.lose("m")
    run.until(lambda: all(taken_over(run, name) for name in parts(run)), "others have all of it")
    run.publish(HALF)
    run.check()


def moved(run: Run, fragment: str, to: str) -> None:
    client = run.fed.clients.get("mover") or run.fed.client("mover", "e")
    request = client.mind.request(
        lambda number: Move(request=number, fragment=fragment, to=to, timeout_ms=20_000)
    )
    client.do(lambda mind: None)
    reply, _ = run.fed.answer(client, request)
    assert reply.code == "", reply


def test_parts_go_elsewhere_and_come_back_before_they_are_merged() -> None:
    run = flowing("merge")
    moved(run, "q/per_k-1", "s3")
    moved(run, "q/per_k-2", "s1")
    all_guarded(run)
    run.lose("s3")
    run.until(lambda: taken_over(run, "q/per_k-1"), "another has the part")
    for name in ("q/per_k-1", "q/per_k-2"):
        moved(run, name, "m")
    reply, _ = run.fed.answer(*ordered(run, "merge"))
    assert reply.code == "", reply
    run.until(lambda: parts(run) == ["q/per_k"], "it is one again")
    all_guarded(run)
    run.publish(HALF)
    run.check()


def test_who_was_away_steps_down_from_what_is_no_more() -> None:
    """It had the fragment before its successor split it."""
    run = flowing("split")
    run.fed.nodes["m"].crash()
    run.until(lambda: taken_over(run, "q/per_k"), "another has it")
    run.until_guarded("q/per_k")
    home = run.owner("q/per_k")
    client = run.fed.client("splits", home)
    order = Split(request=0, fragment="q/per_k", box="per_k", parts=2)
    request = client.mind.request(lambda number: msgspec.structs.replace(order, request=number))
    client.do(lambda mind: None)
    assert run.fed.answer(client, request)[0].code == ""
    run.until(lambda: len(parts(run)) > 1, "it is in parts")
    run.fed.restart("m")
    all_guarded(run)
    run.publish(HALF)
    run.check()
    assert all(run.owner(name) == home for name in parts(run))
    assert not run.fed.nodes["m"].brain.fragments


def test_it_is_undeployed() -> None:
    run = flowing("split")
    assert run.fed.answer(*ordered(run, "split"))[0].code == ""
    run.until(lambda: len(parts(run)) > 1, "it is in parts")
    all_guarded(run)
    run.undeploy()
    run.until(lambda: not run.remains(), "nothing is left")


def test_it_is_refused_while_too_few_answer() -> None:
    run = flowing("split")
    for node in ("s1", "s2", "w"):
        run.fed.nodes[node].crash()
    peers = run.fed.nodes["m"].brain.peers
    run.until(lambda: peers["s1"] == peers["s2"] == peers["w"] == "silent", "m has noticed")
    reply, _ = run.fed.answer(*ordered(run, "split"))
    assert (reply.code, "more than half of 6 voters decide that" in reply.text) == ("E_STANDBY", True)
    for node in ("s1", "s2", "w"):
        run.fed.restart(node)
    ends_whole(run)


def test_where_who_stands_by_has_no_room_for_the_parts_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = flowing("split")
    number = run.newest().number
    monkeypatch.setattr(followings, "FOLLOWED_MAX", 3)
    reply, _ = run.fed.answer(*ordered(run, "split"))
    assert (reply.code, reply.hint) == ("E_LIMIT", "have other nodes stand by for some of them")
    assert "which stands by for fragment 'q/per_k', has no room for its parts: node" in reply.text
    assert "follows 1 fragments already, at most 3" in reply.text
    run.fed.run(for_us=500_000)
    assert run.newest().number == number, "nobody had to leave it"
    assert run.guarded("q/per_k", 2)
    ends_whole(run)
    assert parts(run) == ["q/per_k"]


def test_who_stands_by_is_asked_whether_there_is_memory_for_what_the_parts_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = flowing("split")
    asked = []

    def memory(streams: int) -> None:
        asked.append(streams)
        raise LinkError("no more streams", hint="raise limits.memory", code="E_MEMORY")

    monkeypatch.setattr(run.recovery("s2").followings, "_memory", memory)
    reply, _ = run.fed.answer(*ordered(run, "split"))
    assert (reply.code, reply.hint) == ("E_MEMORY", "raise limits.memory")
    assert "node 's2', which stands by for fragment 'q/per_k'" in reply.text
    assert asked == [5], "the router reads one, each part one, and the merge both"
    ends_whole(run)


def side_by_side() -> Run:
    """Two boxes at two nodes, and s1 stands by for both."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts")
    for name, sink in (("per_k", "out"), ("per_v", "two")):
        q.sink(sink, rows.group_by("k").running(n=md.count(), t=md.sum("v"), name=name))
    at = {"e": ["rows"], "m": ["per_k", "out"], "c": ["per_v", "two"]}
    run = Run(q, at, standby={"m": ["s1"], "c": ["s1"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    all_guarded(run, 1)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run


def split(run: Run, node: str, box: str) -> tuple[Client, int]:
    client = run.fed.clients.get(f"at-{node}") or run.fed.client(f"at-{node}", node)
    request = client.mind.request(lambda number: Split(request=number, fragment=f"q/{box}", box=box, parts=2))
    client.do(lambda mind: None)
    return client, request


def test_room_is_promised_once_to_two_that_ask_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone has room: four fragments come in the place of one."""
    run = side_by_side()
    monkeypatch.setattr(followings, "FOLLOWED_MAX", 7)
    orders = [split(run, "m", "per_k"), split(run, "c", "per_v")]
    replies = sorted((run.fed.answer(*each)[0] for each in orders), key=lambda reply: reply.code)
    assert [each.code for each in replies] == ["", "E_LIMIT"]
    assert "has no room for its parts: node 's1' follows" in replies[1].text
    all_guarded(run, 1)
    assert len(parts(run)) == 5
    run.publish(HALF)
    run.check()


def test_room_that_is_not_needed_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator refuses what s1 has promised room for."""
    run = side_by_side()
    monkeypatch.setattr(followings, "FOLLOWED_MAX", 7)
    monkeypatch.setattr(RepartitionJob, "_begin", refused)
    reply, _ = run.fed.answer(*split(run, "m", "per_k"))
    assert reply.code == "E_BUSY"
    monkeypatch.undo()
    monkeypatch.setattr(followings, "FOLLOWED_MAX", 7)
    all_guarded(run, 1)
    reply, _ = run.fed.answer(*split(run, "c", "per_v"))
    assert reply.code == "", reply
    all_guarded(run, 1)
    run.publish(HALF)
    run.check()


def refused(job: RepartitionJob, now_us: int) -> None:
    """It can't be, after all."""
    job._fail(now_us, "E_BUSY", "not now")


def test_who_stands_by_and_is_away_is_not_asked() -> None:
    run = flowing("split")
    run.fed.nodes["s1"].pause(3_000_000)
    peers = run.fed.nodes["m"].brain.peers
    run.until(lambda: peers["s1"] == "silent", "m has noticed")
    reply, _ = run.fed.answer(*ordered(run, "split"))
    assert reply.code == "", reply
    ends_whole(run)


def test_it_stays_guarded_if_too_few_answer_once_it_is_ordered() -> None:
    run = flowing("split")
    asked = amid(run, "split", "asking")
    for node in ("s1", "s2", "w"):
        run.fed.nodes[node].crash()
    run.fed.nodes["m"].slowness = 1
    reply, _ = run.fed.answer(*asked)
    assert (reply.code, "voters of query 'q'" in reply.text) == ("E_TIMEOUT", True)
    for node in ("s1", "s2", "w"):
        run.fed.restart(node)
    ends_whole(run)
    assert parts(run) == ["q/per_k"]


def test_meanwhile_nobody_takes_it_over_and_the_status_says_so() -> None:
    run = flowing("split")
    amid(run, "split", "cutting")
    status = run.recovery("m").status(run.fed.world.now_us, "q")
    of = status.fragments["q/per_k"]
    assert (of.secondaries, of.alone_us is not None) == ({}, True)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=3_000_000)
    assert run.owner("q/per_k") == "m"
    run.fed.restart("m")
    ends_whole(run)


@BOTH
def test_it_is_lost_for_good_before_others_have_left_it(what: str) -> None:
    run = flowing(what)
    amid(run, what, "asking")
    run.lose("m")
    run.until(lambda: all(taken_over(run, name) for name in parts(run)), "others have all of it")
    run.publish(HALF)
    run.check()


def test_what_is_made_has_no_name_of_a_fragment_at_another_node() -> None:
    """Who has a guarded fragment is decided by its name: the other node would step down from its own."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts")
    counted = rows.group_by("k").running(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("out", counted.filter("n > 0", name="per_k-router"))
    at = {"e": ["rows"], "m": ["per_k"], "c": ["per_k-router", "out"]}
    run = Run(q, at, standby={"m": ["s1", "s2"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    all_guarded(run)
    assert "q/per_k-router" in run.fed.nodes["c"].brain.fragments
    run.publish(0, HALF)
    reply, _ = run.fed.answer(*ordered(run, "split"))
    assert (reply.code, reply.text) == (
        "query.split",
        "all names that its boxes give are those of other fragments",
    )
    ends_whole(run)
    assert "q/per_k-router" in run.fed.nodes["c"].brain.fragments
