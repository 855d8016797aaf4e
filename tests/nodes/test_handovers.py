"""A guarded fragment is ordered to a node that stands by for it, while rows flow, whoever dies meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medusa.sim.actors.client import Client
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import Move
from tests.nodes.named_clients import Named, Program
from tests.nodes.taken_over import HALF, ROWS, Run, shared_streams
from tests.nodes.test_taken_over import (
    CUT,
    FORKED,
    UNITED,
    WHOLE,
    arriving,
    check_anew,
    check_removed,
    check_union,
    counting,
    forked,
    removing,
    run_of,
    two_sources,
    uniting,
)

BOTH = pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])


def order(run: Run, fragment: str, to: str, *, by: str = "c", timeout_ms: int = 20_000) -> tuple[Client, int]:
    """Asked of this node; who asks, and the number of the request."""
    client = run.fed.clients.get(f"mover-{by}") or run.fed.client(f"mover-{by}", by)
    number = client.mind.request(
        lambda number: Move(request=number, fragment=fragment, to=to, timeout_ms=timeout_ms)
    )
    client.do(lambda mind: None)
    return client, number


def moved(run: Run, fragment: str, to: str, **more: Any) -> Reply:
    reply, figures = run.fed.answer(*order(run, fragment, to, **more))
    if not reply.code:
        assert json.loads(bytes(figures or b""))["node"] == to
    return reply


def flowing(q: Any, at: Any, standby: Any, **more: Any) -> tuple[Run, str]:
    """Deployed and guarded, and the first half of the rows is on its way."""
    run, fragment = run_of(q, at, standby, **more)
    run.until_guarded(fragment, len(standby["m"]))
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run, fragment


# --- nobody dies -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("by", ["m", "s1", "s2", "e", "c"])
def test_it_moves_while_rows_flow_and_who_had_it_follows(at: Any, by: str) -> None:
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]})
    assert moved(run, fragment, "s1", by=by).code == ""
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("s1", 2)
    run.publish(HALF)
    run.check()
    run.until_guarded(fragment, 2)
    assert run.replicas(fragment).members == ("m", "s1", "s2")
    assert run.replicas(fragment).secondaries == ("m", "s2")
    assert run.fed.nodes["m"].brain.catalog.fragments == {}


@pytest.mark.parametrize("after_us", range(0, 12_000, 3_000))
def test_who_has_seen_an_order_of_arrival_sees_no_other(after_us: int) -> None:
    run, fragment = arriving("s1", "s2", seed=after_us, after_us=after_us)
    assert moved(run, fragment, "s2").code == ""
    check_union(run)


@BOTH
def test_it_goes_there_and_back_and_to_the_next_and_each_order_is_done_once(at: Any) -> None:
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish()
    for epoch, to in enumerate(("s1", "m", "m", "s2", "s1"), start=2):
        assert moved(run, fragment, to, by="w").code == ""
        assert run.owner(fragment) == to
        assert run.replicas(fragment).epoch == epoch - (epoch > 3)
    run.check()
    run.until_guarded(fragment, 2)


@BOTH
def test_every_node_knows_all_the_way_that_it_is_somewhere(at: Any) -> None:
    """Who had it says no higher epoch than who has it: that it is gone from there would hide where it is."""
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish()

    def places() -> set[str | None]:
        return {each.brain.naming.names.fragment_at(fragment) for each in run.living}

    for to in ("s1", "m", "s2", "s1"):
        client, number = order(run, fragment, to)
        run.until(lambda at=client, n=number: None in places() or n in at.mind.replies, f"{to} has it")  # type: ignore[misc]
        assert None not in places()
        assert client.mind.replies[number][0].code == ""
        assert not run.fed.run(lambda: None in places(), for_us=1_500_000)
        assert places() == {to}
    run.check()


def test_two_nodes_alone_do_it_too() -> None:
    run = Run(counting(), WHOLE, standby={"m": ["s1"]}, witnesses=(), names=["m", "s1"])
    run.deploy()
    run.read()
    run.until_guarded("q/rows")
    run.publish()
    run.fed.run(for_us=30_000)
    assert moved(run, "q/rows", "s1", by="m").code == ""
    run.check()
    run.until_guarded("q/rows")
    assert (run.owner("q/rows"), run.replicas("q/rows").secondaries) == ("s1", ("m",))


def test_a_target_that_is_being_seeded_has_it_once_it_has_caught_up() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    assert run.replicas(fragment).secondaries == ()
    run.publish()
    assert moved(run, fragment, "s2").code == ""
    assert run.owner(fragment) == "s2"
    run.check()


def test_asked_twice_at_once_it_is_done_once_and_another_target_has_to_wait() -> None:
    run, fragment = flowing(counting(), WHOLE, {"m": ["s1", "s2"]})
    first = order(run, fragment, "s1", by="m")
    second = order(run, fragment, "s1", by="c")
    run.until(lambda: fragment in run.fed.nodes["m"].brain.status(0)["moves"]["going"], "it is on its way")
    assert moved(run, fragment, "s2", by="m").code == "E_BUSY"
    for asked in (first, second):
        assert run.fed.answer(*asked)[0].code == ""
    assert run.replicas(fragment).epoch == 2
    run.publish(HALF)
    run.check()


def test_each_client_waits_for_as_long_as_it_said() -> None:
    """The target is away; who has less patience hears so first, whoever asked first."""
    run, fragment = flowing(counting(), WHOLE, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.lose("s1")
    patient, hasty = order(run, fragment, "s1", by="m"), order(run, fragment, "s1", by="c", timeout_ms=1_000)
    client, number = hasty
    run.until(lambda: number in client.mind.replies, "the hasty one hears", for_us=2_000_000)
    assert run.fed.answer(*hasty)[0].code == "E_TIMEOUT"
    assert patient[1] not in patient[0].mind.replies
    run.fed.nodes["s1"].restart()
    run.lost.discard("s1")
    assert run.fed.answer(*patient)[0].code == ""
    run.publish(HALF)
    run.check()


def test_an_owner_is_counted_out_once_the_disk_of_the_next_has_the_fragment() -> None:
    """It keeps its state for as long as that might be lost, also where another change is proposed."""
    run, fragment = flowing(counting(), WHOLE, {"m": ["s1", "s2"]})
    succession, proposals = run.recovery("s1").succession, run.recovery("s1").proposals
    order(run, fragment, "s1", by="m")
    run.until(lambda: fragment in succession._takeovers, "it is being written")
    current = run.current("s1")
    assert current is not None
    wish = proposals._revised(run.fed.world.now_us, current) or current
    assert wish.replicas(fragment) == current.replicas(fragment)
    run.until(lambda: fragment not in succession._takeovers, "it is written")
    wish = proposals._revised(run.fed.world.now_us, current) or current
    assert "m" not in wish.replicas(fragment).secondaries


def test_voters_that_hear_the_owner_don_t_refuse_it() -> None:
    """As they do when it is counted out."""
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    client, number = order(run, fragment, "s1", by="m")
    refused: set[str] = set()

    def done() -> bool:
        refused.update(run.recovery("s1").agreement.status()["q"].refused.values())
        return number in client.mind.replies

    run.until(done, "it is there")
    assert refused == set()
    assert run.owner(fragment) == "s1"


IN_TWO = {"e": ["rows"], "m": ["first"], "c": ["kind", "out"]}
"""Two fragments that are guarded, one after the other."""


def test_an_owner_that_only_the_target_can_t_hear_doesn_t_keep_it_from_another_fragment() -> None:
    """Those that hear it refuse that it is counted out, and the move counts out nobody."""
    run, fragment = flowing(counting(), IN_TWO, {"m": ["s1", "s2"], "c": ["s1", "s2"]})
    run.until_guarded("q/kind", 2)
    run.fed.network.cut("c", "s1")
    proposals = run.recovery("s1").proposals
    run.until(lambda: proposals.silent_us(run.fed.world.now_us, "c") is not None, "it is silent")
    assert moved(run, fragment, "s1", by="m", timeout_ms=5_000).code == ""
    assert run.owner(fragment) == "s1"
    # Whom its new sender can't hear gets no rows of it, and hands over to who is heard.
    assert run.owner("q/kind") in ("c", "s2")


# --- names -----------------------------------------------------------------------------------------------


def test_a_named_subscription_goes_along() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]}, reads=False)
    run.until_guarded(fragment, 2)
    stored: list[Any] = []
    reader = Named(run, "named-1", stored)
    run.publish(0, HALF)
    run.until(lambda: len(stored) >= HALF // 2, "half of it comes")
    reader.ack()
    assert moved(run, fragment, "s1").code == ""
    run.publish(HALF)
    run.until(lambda: "q.out" in reader.ended, "all rows come")
    assert not reader.sent_again
    assert stored == run.want["out"].to_pylist()


def test_a_named_publisher_goes_along() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    program = Program(run, "program-1", ROWS)
    run.until(lambda: program.durable >= HALF // 2, "something is durable")
    assert moved(run, fragment, "s1").code == ""
    run.until(lambda: program.durable == ROWS, "all is durable")
    program.finish("q.rows", run.schemas["rows"])
    run.check()


@pytest.mark.usefixtures("trains_apart")
def test_who_is_to_have_it_sleeps_until_its_disk_has_the_order_in_which_it_was_fed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, fragment = run_of(uniting(), UNITED, {"m": ["s1"]}, tables=two_sources(), witnesses=("w", "x"))
    run.until_guarded(fragment)
    run.publish(0, HALF)
    target, recovery = run.fed.nodes["s1"], run.recovery("s1")
    run.until(lambda: recovery.followings.shadow(fragment).decided.at > 20, "an order is decided")
    monkeypatch.setattr(target.disk, "_fails", lambda kind: kind != "catalog")
    asked = order(run, fragment, "s1")
    run.until(lambda: run.owner(fragment) == "s1", "it is chosen")
    run.fed.run(for_us=100_000)
    assert not recovery.followings.on_disk(fragment)
    assert recovery.proposals.wake_at_us(run.fed.world.now_us) is None
    monkeypatch.undo()
    run.until(lambda: recovery.followings.shadow(fragment) is None, "it is on disk")
    assert run.fed.answer(*asked)[0].code == ""
    run.publish(HALF)
    check_union(run)


# --- somebody dies ---------------------------------------------------------------------------------------

MOMENTS_US = [0, 300, 800, 1_300, 1_800, 2_300, 2_800, 3_300, 3_800, 4_300, 5_000, 6_000, 8_000, 11_000]
"""After the order: over all of its steps, one write of a disk each."""

FULL = (pytest.mark.full, pytest.mark.issue(17))

DEATHS = [
    pytest.param(victim, after_us, marks=() if near or not place % 3 else FULL)
    for victim, near in [("m", True), ("s1", True), ("s2", False), ("e", False), ("w", False)]
    for place, after_us in enumerate(MOMENTS_US)
]
"""Old owner and target die at each moment, others at each third."""


def ends(run: Run, fragment: str, client: Client, number: int, *, lost: bool) -> None:
    """It happened or it didn't, the client hears which, and no row is lost or doubled."""
    run.publish(HALF)
    run.check()
    run.until(lambda: number in client.mind.replies, "the client hears how it ended")
    reply, _ = client.mind.replies[number]
    assert reply.code in ("", "E_TIMEOUT", "E_BROKEN"), reply
    if not reply.code:
        # Of a target that is lost right after it, others may have it by now.
        assert run.owner(fragment) == "s1" or (lost and run.replicas(fragment).epoch > 2)
    elif run.owner(fragment) == "s1":
        assert "may yet happen" in reply.hint or reply.code == "E_BROKEN"
    run.until_guarded(fragment, 1 if lost else 2)


@pytest.mark.parametrize(("victim", "after_us"), DEATHS)
@BOTH
def test_whoever_dies_meanwhile_and_comes_back(at: Any, victim: str, after_us: int) -> None:
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s1", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    run.fed.nodes[victim].crash()
    run.fed.run(for_us=5_000)
    run.fed.restart(victim)
    ends(run, fragment, *asked, lost=False)


@pytest.mark.parametrize("after_us", MOMENTS_US)
@pytest.mark.parametrize("victim", ["m", "s1"])
@BOTH
def test_whoever_is_lost_for_good_meanwhile(at: Any, victim: str, after_us: int) -> None:
    run, fragment = flowing(counting(), at, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s1", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    run.lose(victim)
    ends(run, fragment, *asked, lost=True)


@pytest.mark.parametrize("after_us", MOMENTS_US)
def test_the_only_one_that_stands_by_dies_meanwhile_and_the_state_is_not_lost(after_us: int) -> None:
    run, fragment = flowing(counting(), WHOLE, {"m": ["s1"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s1", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    run.fed.nodes["s1"].crash()
    run.fed.run(for_us=5_000)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    assert run.fed.answer(*asked)[0].code in ("", "E_TIMEOUT")
    run.until_guarded(fragment)


@pytest.mark.parametrize("after_us", MOMENTS_US)
@pytest.mark.parametrize("unsynced", ["lost", "kept"])
def test_both_die_at_once_and_come_back(unsynced: str, after_us: int) -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s1", timeout_ms=4_000)
    run.fed.run(for_us=after_us)
    for name in ("m", "s1"):
        run.fed.nodes[name].crash(unsynced)
    run.fed.run(for_us=5_000)
    for name in ("m", "s1"):
        run.fed.restart(name)
    run.publish(HALF)
    run.check()
    assert run.fed.answer(*asked)[0].code in ("", "E_TIMEOUT", "E_BROKEN")
    run.until_guarded(fragment)


@pytest.mark.parametrize("after_us", MOMENTS_US)
def test_an_order_of_arrival_survives_who_was_to_have_it(after_us: int) -> None:
    run, fragment = arriving("s1", seed=after_us)
    order(run, fragment, "s1")
    run.fed.run(for_us=after_us)
    run.lose("s1")
    check_union(run)
    assert run.owner(fragment) in ("m", "s1")


@BOTH
def test_who_was_to_have_it_and_lost_it_leaves_it_to_who_had_it(at: Any) -> None:
    """It is killed after it was chosen, and before its disk knows."""
    run, fragment = flowing(counting(), at, {"m": ["s1"]}, witnesses=("w", "x"))
    asked = order(run, fragment, "s1")
    run.until(lambda: run.recovery("m").succession.stands_by(fragment), "its owner keeps it and rests")
    hosted = run.fed.nodes["m"].brain.fragments[fragment]
    assert hosted.frozen
    run.fed.nodes["s1"].crash("lost")
    run.fed.run(for_us=5_000)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    assert run.fed.answer(*asked)[0].code == ""
    run.until_owned(fragment, "s1")
    run.until_guarded(fragment)


# --- it is refused ---------------------------------------------------------------------------------------


def test_a_target_that_nobody_knows_is_refused_and_nothing_changes() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    number = run.newest().number
    unknown = moved(run, fragment, "nobody")
    assert (unknown.code, unknown.text) == ("E_PEER", "node 'nobody' is no peer of 'm'")
    assert moved(run, fragment, "m").code == ""
    assert (run.owner(fragment), run.newest().number) == ("m", number)


def test_a_target_that_reads_a_stream_that_it_shares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_streams(monkeypatch)
    run = Run(forked(), FORKED, standby={"m": ["s1"], "s3": ["s1"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    for fragment in ("q/kind", "q/other"):
        run.until_guarded(fragment)
    assert moved(run, "q/kind", "s1").code == ""
    run.publish()
    refused = moved(run, "q/other", "s1")
    assert refused.code == "E_MOVE"
    assert "another fragment at node 's1' reads" in refused.text
    run.check()
    assert (run.owner("q/kind"), run.owner("q/other")) == ("s1", "s3")


def resting(monkeypatch: pytest.MonkeyPatch) -> Run:
    """``q/kind`` rests at s1, and s2, which was chosen, can't write that it has it; ``q/other`` shares its
    stream, at s3."""
    shared_streams(monkeypatch)
    standby = {"m": ["s1", "s2"], "s3": ["s1", "s2"]}
    run = Run(forked(), FORKED, standby=standby, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    for fragment in ("q/kind", "q/other"):
        run.until_guarded(fragment, 2)
    assert moved(run, "q/kind", "s1").code == ""
    run.until_guarded("q/kind", 2)
    run.publish(0, HALF)
    order(run, "q/kind", "s2", by="e")
    run.until(lambda: run.recovery("s1").succession.stands_by("q/kind"), "it rests there")
    run.fed.nodes["s2"].disk.fail_writes_of("catalog", all=True)
    run.fed.run(for_us=100_000)
    assert run.recovery("s1").succession.stands_by("q/kind")
    return run


def test_where_what_reads_the_same_stream_is_about_to_leave_an_order_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = resting(monkeypatch)
    asked = order(run, "q/other", "s1")
    run.fed.run(for_us=1_000_000)
    run.fed.nodes["s2"].disk.mend()
    assert run.fed.answer(*asked)[0].code == ""
    assert (run.owner("q/kind"), run.owner("q/other")) == ("s2", "s1")
    run.publish(HALF)
    run.check()


def test_who_could_have_a_fragment_back_takes_over_none_that_reads_the_same_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = resting(monkeypatch)
    run.lose("s3")
    run.fed.run(for_us=2_000_000)
    run.lose("s2")
    run.until_owned("q/kind", "s1")
    run.fed.run(for_us=2_000_000)
    assert (run.owner("q/other"), list(run.fed.nodes["s1"].brain.fragments)) == ("s3", ["q/kind"])
    run.fed.restart("s3")
    run.publish(HALF)
    run.check()


def test_without_more_than_half_of_the_voters_it_is_refused_at_once() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1"]})
    assert run.newest().voters == ("e", "m", "s1", "w")
    for name in ("s1", "w"):
        run.fed.nodes[name].crash()
    peers = run.fed.nodes["m"].brain.peers
    run.until(lambda: peers["w"] == peers["s1"] == "silent", "both are silent")
    refused = moved(run, fragment, "s1", by="m")
    assert refused.code == "E_STANDBY"
    assert refused.text == "more than half of 4 voters decide that, and node 'm' doesn't hear 's1', 'w'"
    for name in ("s1", "w"):
        run.fed.restart(name)
    run.publish(HALF)
    run.check()


def test_a_target_that_doesn_t_come_back_in_time_is_named() -> None:
    run, fragment = flowing(counting(), CUT, {"m": ["s1", "s2"]})
    run.lose("s1")
    run.until(lambda: run.fed.nodes["m"].brain.peers["s1"] == "silent", "it is silent")
    late = moved(run, fragment, "s1", timeout_ms=2_000)
    assert (late.code, late.text) == ("E_TIMEOUT", "node 's1' is silent")
    run.publish(HALF)
    run.check()
    assert run.owner(fragment) == "m"


# --- removal ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("after_us", [0, 1_000, 2_500, 4_000, 6_000, 20_000])
def test_a_query_that_is_removed_amid_it_leaves_nothing(at: Any, after_us: int) -> None:
    run, fragment = removing(at)
    asked = order(run, fragment, "s1")
    run.fed.run(for_us=after_us)
    run.undeploy()
    check_removed(run)
    assert run.fed.answer(*asked)[0].code in ("", "E_REMOVED", "E_FRAGMENT", "E_TIMEOUT")
    check_anew(run)
