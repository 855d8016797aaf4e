"""A guarded fragment is ordered to a node that doesn't stand by for it, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.deploy.room_promises import RoomWanted
from medusa.nodes.recovery import followings
from medusa.sim.actors.client import Client
from medusa.wire.messages.configuration import FORMER_MAX, Configuration
from tests.nodes.taken_over import HALF, NODES, Run, shared_streams
from tests.nodes.test_handovers import BOTH, MOMENTS_US, flowing, moved, order
from tests.nodes.test_taken_over import (
    CUT,
    FORKED,
    arriving,
    check_anew,
    check_removed,
    check_union,
    counting,
    forked,
    removing,
    run_of,
)

MEMBERS = ("m", "s1", "s2")


def settled(run: Run, fragment: str) -> bool:
    """Nobody is on its way: as many stand by as were named, they vote, and nobody else beyond those that did
    at first."""
    newest, replicas = run.newest(), run.replicas(fragment)
    having = {*replicas.members, newest.coordinator, *newest.witnesses}
    others = set(newest.voters) - having
    few = not others or len(newest.voters) == newest.voters_least
    return not replicas.guest and len(replicas.members) == 3 and having <= set(newest.voters) and few


def all_know(run: Run) -> bool:
    known = [run.current(node.name) for node in run.living]
    return all(each in (None, run.newest()) for each in known)


def ends(run: Run, fragment: str, *, by: int = 2) -> None:
    run.until(lambda: settled(run, fragment), "nobody is left over")
    run.until_guarded(fragment, by)
    run.until(lambda: all_know(run), "all know")


# --- nobody dies -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("by", ["m", "s1", "e", "s3"])
def test_it_moves_while_rows_flow_and_the_others_stand_by_as_before(at: Any, by: str) -> None:
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]})
    before = run.newest()
    assert moved(run, fragment, "s3", by=by).code == ""
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("s3", 2)
    run.publish(HALF)
    run.check()
    ends(run, fragment)
    replicas, newest = run.replicas(fragment), run.newest()
    assert replicas.members == ("s3", "s1", "s2")
    assert replicas.secondaries == ("s1", "s2")
    assert replicas.former == ("m",)
    gone = {"m"} - {before.coordinator}
    assert set(newest.voters) == {*before.voters, "s3"} - gone
    assert run.fed.nodes["m"].brain.catalog.fragments == {}
    assert run.recovery("m").followings.status() == {}


def test_it_goes_on_and_back_and_each_order_is_done_once() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.until_guarded(fragment, 2)
    number = len(run.newest().voters)
    run.publish()
    for epoch, to in enumerate(("s3", "s3", "m", "w", "s1", "s3", "m"), start=2):
        assert moved(run, fragment, to, by="x").code == ""
        assert run.owner(fragment) == to
        assert run.replicas(fragment).epoch == epoch - (epoch > 2)
    run.check()
    ends(run, fragment)
    assert {"e", "w", "x"} <= set(run.newest().voters)
    assert len(run.newest().voters) == number
    replicas = run.replicas(fragment)
    assert set(replicas.former) == {"m", "w", "s1", "s2", "s3"} - {*replicas.members}


@pytest.mark.parametrize("after_us", range(0, 12_000, 3_000))
def test_who_has_seen_an_order_of_arrival_sees_no_other(after_us: int) -> None:
    run, fragment = arriving("s1", "s2", seed=after_us, after_us=after_us)
    assert moved(run, fragment, "s3").code == ""
    check_union(run)
    ends(run, fragment)


def test_who_took_it_is_taken_over_from_in_turn_and_the_old_owner_is_none_of_them() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    assert moved(run, fragment, "s3").code == ""
    run.until_guarded(fragment, 2)
    run.until(lambda: all_know(run), "all know who stands by")  # Else the second may be the first to know.
    run.lose("s3")
    run.until_owned(fragment, "s1")
    run.publish(HALF)
    run.check()
    assert run.replicas(fragment).members == ("s3", "s1", "s2")
    assert "m" not in run.newest().voters


def test_who_was_away_all_the_time_finds_it_where_it_is() -> None:
    """It knows only the node that had it at first, and that is no member any more."""
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.fed.nodes["c"].crash()
    for to in ("s3", "x"):
        assert moved(run, fragment, to, by="w").code == ""
        run.until_guarded(fragment, 2)
    run.fed.restart("c")
    run.publish(HALF)
    run.check()
    assert run.replicas(fragment).former == ("m", "s3")


def test_a_node_that_has_another_part_of_the_query_may_have_it() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]})
    assert moved(run, fragment, "c").code == ""
    run.publish(HALF)
    run.check()
    ends(run, fragment)


# --- the guest goes again --------------------------------------------------------------------------------


def until_guest(run: Run, fragment: str) -> None:
    run.until(lambda: run.replicas(fragment).guest == "s3", "it is a guest")


def test_an_order_that_is_too_late_leaves_nothing_behind() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    before = run.newest()
    asked = order(run, fragment, "s3", by="m", timeout_ms=2_000)
    until_guest(run, fragment)
    run.fed.network.cut("m", "s3")
    reply, _ = run.fed.answer(*asked)
    assert reply.code == "E_TIMEOUT"
    run.publish(HALF)
    run.check()
    run.fed.network.heal("m", "s3")
    ends(run, fragment)
    assert run.replicas(fragment).members == MEMBERS
    assert set(run.newest().voters) == set(before.voters)
    assert run.owner(fragment) == "m"
    assert run.recovery("s3").followings.status() == {}


def test_an_owner_that_is_restarted_sends_away_a_guest_that_nobody_wishes_any_more() -> None:
    """The client had given the order to that node itself, so nobody passes it on again."""
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    order(run, fragment, "s3", by="m")
    until_guest(run, fragment)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=5_000)
    run.fed.restart("m")
    run.publish(HALF)
    run.check()
    ends(run, fragment)
    assert run.replicas(fragment).members == MEMBERS


def test_who_takes_over_amid_it_sends_the_guest_away() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    order(run, fragment, "s3", by="m")
    until_guest(run, fragment)
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.publish(HALF)
    run.check()
    ends(run, fragment, by=1)
    assert run.replicas(fragment).members == MEMBERS


def test_an_order_that_was_passed_on_is_given_again_to_who_has_it_then() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s3", by="c")
    until_guest(run, fragment)
    run.lose("m")
    assert run.fed.answer(*asked)[0].code == ""
    assert run.owner(fragment) == "s3"
    run.publish(HALF)
    run.check()


def test_who_was_to_have_it_and_lost_it_leaves_it_to_who_had_it_and_its_place_too() -> None:
    """It is killed after it was chosen, and before its disk knows."""
    run, fragment = flowing(counting(), CUT, {"m": ["s1"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s3")
    run.until(lambda: run.recovery("m").succession.stands_by(fragment), "its owner keeps it and rests")
    assert run.replicas(fragment).members == ("s3", "s1")
    run.fed.nodes["s3"].crash("lost")
    run.fed.run(for_us=5_000)
    run.fed.restart("s3")
    run.until(lambda: run.replicas(fragment).members == ("m", "s1"), "the old owner has it and its place")
    run.publish(HALF)
    run.check()
    assert run.fed.answer(*asked)[0].code == ""
    run.until_owned(fragment, "s3")
    run.until_guarded(fragment)
    assert run.replicas(fragment).members == ("s3", "s1")


# --- somebody dies ---------------------------------------------------------------------------------------

LATER_US = [*MOMENTS_US, 15_000, 20_000, 30_000, 40_000, 60_000, 90_000, 130_000]
"""The target is asked, made a guest and seeded before the steps of a handover."""

FULL = (pytest.mark.full, pytest.mark.issue(17))
EACH_SECOND = [
    pytest.param(after_us, marks=FULL if place % 2 else ()) for place, after_us in enumerate(LATER_US)
]
"""The others in ``make test-full``."""


def happened(run: Run, fragment: str, client: Client, number: int, *, lost: str = "") -> None:
    """Or it didn't: the client hears which, no row is lost or doubled, and nobody is left over."""
    run.publish(HALF)
    run.check()
    run.until(lambda: number in client.mind.replies, "the client hears how it ended")
    reply, _ = client.mind.replies[number]
    assert reply.code in ("", "E_TIMEOUT", "E_BROKEN"), reply
    if not reply.code and lost != "s3":
        assert run.owner(fragment) == "s3"
    ends(run, fragment, by=2 - (lost in run.replicas(fragment).members))
    replicas = run.replicas(fragment)
    # Who took over from the lost owner has given its own place to the target.
    after_takeover = ({"m", "s3", "s2"},) if lost == "m" else ()
    assert set(replicas.members) in ({*MEMBERS}, {"s3", "s1", "s2"}, *after_takeover)
    assert {*replicas.members, *replicas.former} <= {*MEMBERS, "s3"}


DEATHS = [
    pytest.param(victim, after_us, marks=FULL if place % (2 if near else 6) else ())
    for victim, near in [("m", True), ("s3", True), ("s1", False), ("e", False), ("c", False), ("w", False)]
    for place, after_us in enumerate(LATER_US)
]
"""In CI old owner and target die at each second moment, others at each sixth."""


@pytest.mark.parametrize(("victim", "after_us"), DEATHS)
@BOTH
def test_whoever_dies_meanwhile_and_comes_back(at: Any, victim: str, after_us: int) -> None:
    """e coordinates, c passed the order on."""
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s3", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    run.fed.nodes[victim].crash()
    run.fed.run(for_us=5_000)
    run.fed.restart(victim)
    if victim == "c":  # And with it the client's order.
        run.publish(HALF)
        run.check()
        ends(run, fragment)
    else:
        happened(run, fragment, *asked)


@pytest.mark.parametrize("after_us", EACH_SECOND)
@pytest.mark.parametrize("victim", ["m", "s3"])
@BOTH
def test_whoever_is_lost_for_good_meanwhile(at: Any, victim: str, after_us: int) -> None:
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s3", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    run.lose(victim)
    run.fed.run(for_us=2_000_000)
    if run.owner(fragment) == victim and not run.replicas(fragment).secondaries:
        run.lost.discard(victim)  # Others were about to be seeded: the query waits for it.
        run.fed.restart(victim)
        happened(run, fragment, *asked)
    else:
        happened(run, fragment, *asked, lost=victim)


@pytest.mark.parametrize("after_us", EACH_SECOND)
@pytest.mark.parametrize("unsynced", ["lost", "kept"])
def test_owner_and_target_die_at_once_and_come_back(unsynced: str, after_us: int) -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s3", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    for name in ("m", "s3"):
        run.fed.nodes[name].crash(unsynced)
    run.fed.run(for_us=5_000)
    for name in ("m", "s3"):
        run.fed.restart(name)
    happened(run, fragment, *asked)


# --- it is refused ---------------------------------------------------------------------------------------


def refused(run: Run, fragment: str, to: str, code: str, text: str, *, by: str = "c") -> None:
    """Before anything changes."""
    number = run.newest().number
    reply = moved(run, fragment, to, by=by)
    assert (reply.code, reply.hint != "") == (code, True)
    assert text in reply.text
    assert run.newest().number == number
    assert run.owner(fragment) != to


def test_a_target_without_a_disk_is_refused() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    sessions = run.fed.nodes["m"].brain.sessions
    sessions["s3"].forgets = True
    refused(run, fragment, "s3", "E_STORE", "it forgets over its end what it promised")


def test_a_target_without_room_is_refused_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]})
    number = run.newest().number
    wanted = RoomWanted(request=3, fragment="p/other", fragments=2, streams=2)
    at = run.recovery("s3").followings
    at.promise_room(run.fed.world.now_us, "x", wanted)
    monkeypatch.setattr(followings, "FOLLOWED_MAX", 2)
    refusal = moved(run, fragment, "s3")
    assert refusal.code == "E_LIMIT"
    assert "follows 0 fragments already and has promised room for 2, at most 2" in refusal.text
    assert run.newest().number == number
    at.removed("p")
    assert moved(run, fragment, "s3").code == ""
    run.publish(HALF)
    run.check()


def test_a_target_of_a_release_that_doesn_t_agree_is_refused() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.fed.nodes["m"].brain.sessions["s3"].version = 1
    refused(run, fragment, "s3", "E_VERSION", "its release doesn't know how nodes agree")


def test_a_target_of_a_release_that_knows_no_such_question_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    monkeypatch.setattr(run.recovery("s3").handovers, "asked", lambda now_us, peer, message: False)
    refused(run, fragment, "s3", "E_VERSION", "the release of node 's3' gives it no fragment")


def test_a_target_that_doesn_t_know_a_neighbour_is_refused() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    settings = run.fed.nodes["s3"].brain.settings
    run.recovery("s3").handovers._settings = msgspec_without(settings, "w")
    refused(run, fragment, "s3", "E_PEER", "'w', which fragment 'q/kind' is linked with, is no peer of 's3'")


def msgspec_without(settings: Any, peer: str) -> Any:
    """These settings, and this node is no peer."""
    from dataclasses import replace

    return replace(settings, peers={name: at for name, at in settings.peers.items() if name != peer})


def test_a_target_that_reads_a_stream_that_it_shares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_streams(monkeypatch)
    run = Run(forked(), FORKED, standby={"m": ["s1"], "s3": ["s1"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    for fragment in ("q/kind", "q/other"):
        run.until_guarded(fragment)
    run.publish()
    refused(run, "q/other", "m", "E_MOVE", "another fragment at node 'm' reads")
    run.check()


def test_more_than_eight_never_stand_by() -> None:
    spares = [f"t{number}" for number in range(8)]
    run = Run(counting(), CUT, standby={"m": spares}, names=(*NODES, *spares))
    run.deploy()
    refused(run, "q/kind", "s3", "E_STANDBY", "and 8 do: as many as may")


def altered(run: Run, change: Callable[[Configuration], Configuration]) -> None:
    """As if the nodes had agreed on that."""
    for node in run.living:
        kept = node.brain.catalog.configurations.get("q")
        if kept is not None:
            node.brain.catalog.configurations["q"] = KeptConfiguration(current=change(kept.current))


def test_a_query_that_has_been_at_too_many_nodes_is_refused_another() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    former = tuple(f"n{number}" for number in range(FORMER_MAX))

    def change(current: Configuration) -> Configuration:
        [replicas] = current.fragments
        return msgspec.structs.replace(current, fragments=(msgspec.structs.replace(replicas, former=former),))

    altered(run, change)
    refused(run, fragment, "s3", "E_LIMIT", "has been at as many nodes as it may")


def test_a_query_that_only_who_deployed_it_can_remove_is_refused() -> None:
    """A node that had become a guest meanwhile might not hear of the removal."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    altered(run, lambda current: msgspec.structs.replace(current, parts=None))
    refused(run, fragment, "s3", "E_STANDBY", "only who deployed query 'q' can remove it")


def test_a_target_that_would_vote_counts_as_lost_where_others_are_away() -> None:
    """Else the loss of one that has nothing of the query yet would leave too few."""
    run, fragment = flowing(counting(), CUT, {"m": ["s1"]}, witnesses=())
    assert run.newest().voters == ("e", "m", "s1")
    run.fed.nodes["s1"].crash()
    peers = run.fed.nodes["m"].brain.peers
    run.until(lambda: peers["s1"] == "silent", "it is silent")
    text = "more than half of 4 voters, 's3' among them decide that, and node 'm' doesn't hear 's1'"
    refused(run, fragment, "s3", "E_STANDBY", text, by="m")
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()


# --- removal ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("after_us", [0, 1_000, 2_500, 4_000, 8_000, 20_000, 40_000, 70_000, 120_000])
def test_a_query_that_is_removed_amid_it_leaves_nothing(at: Any, after_us: int) -> None:
    run, fragment = removing(at)
    asked = order(run, fragment, "s3")
    run.fed.run(for_us=after_us)
    run.undeploy()
    check_removed(run)
    assert run.fed.answer(*asked)[0].code in ("", "E_REMOVED", "E_FRAGMENT", "E_TIMEOUT")
    check_anew(run)


def test_a_query_that_was_moved_and_moved_is_removed_everywhere() -> None:
    run, fragment = removing(CUT)
    for to in ("s3", "x", "s1", "m"):
        assert moved(run, fragment, to).code == ""
    run.undeploy()
    check_removed(run)
    check_anew(run)
