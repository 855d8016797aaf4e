"""Owners that are lost for good, come back, wake up, or die again: who has the fragment then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.migration.state_receiver import StateReceiver
from medusa.nodes.recovery.proposals import LOST_US
from medusa.query.published_stream import PublishedStream
from medusa.query.types import schema_from
from medusa.sim.checkers.delivery import check_restarted
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.outbox import Outbox
from tests.nodes.named_clients import check_last_has_the_name, check_publisher, check_subscription
from tests.nodes.taken_over import HALF, NODES, PIECE, ROWS, SCHEMA, Run, rows, shared_streams


def counting() -> Any:
    """What is guarded reads a source and counts."""
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("out", first.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind"))
    return q


WHOLE = {"m": ["rows", "first", "kind", "out"]}
"""All of it at one node; clients publish into what is guarded, and read it."""

CUT = {"e": ["rows", "first"], "m": ["kind"], "c": ["out"]}
"""Nodes feed what is guarded, and read it."""


def uniting() -> Any:
    """What is guarded puts two sources in the order in which rows arrive, and counts in that order."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    q.sink("all", both.filter("true", name="last"))
    q.sink("totals", both.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind"))
    return q


UNITED = {"e": ["left", "l", "right", "r"], "m": ["both", "kind", "totals"], "c": ["last", "all"]}


def two_sources() -> dict[str, pa.Table]:
    """Rows of the right one have odd values, so each row tells where it is from."""
    made = {}
    for place, name in enumerate(("left", "right")):
        table = rows()
        values = pa.array([2 * number + place for number in range(ROWS)], pa.int64())
        made[name] = table.set_column(table.schema.get_field_index("v"), "v", values)
    return made


def run_of(q: Any, at: Any, standby: Any, *, reads: bool = True, **more: Any) -> tuple[Run, str]:
    """Deployed at ``e``, and read; with the name of what is guarded."""
    run = Run(q, at, standby=standby, deploys="e", **more)
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    if reads:
        run.read()
    return run, fragment


# --- the order of arrival ------------------------------------------------------------------------------


def check_union(run: Run) -> None:
    """One order, that of all readers; in it each source has its own, and each row is there once."""
    run.until_ended()
    assert not any(run.reader.lost.values())
    came = run.got("all").to_pylist()
    for place, source in enumerate(("left", "right")):
        ours = [row for row in came if row["v"] % 2 == place]
        assert ours == run.tables[source].to_pylist()
    seen: dict[str, tuple[int, int]] = {}
    totals = []
    for row in came:
        count, total = seen.get(row["k"], (0, 0))
        seen[row["k"]] = count, total = count + 1, total + row["v"]
        totals.append((row["k"], count, total))
    assert [(row["k"], row["n"], row["t"]) for row in run.got("totals").to_pylist()] == totals


def shown(run: Run) -> int:
    """Rows in the order of arrival that the reader has."""
    return sum(batch.num_rows for batch in run.reader.rows.get("q.all", []))


def arriving(
    *others: str, seed: int = 1, after_us: int = 0, witnesses: Sequence[str] = ("w", "x")
) -> tuple[Run, str]:
    """Guarded by these, and some rows of two sources were shown in the order of arrival."""
    more: dict[str, Any] = {"tables": two_sources(), "seed": seed, "witnesses": witnesses}
    run, fragment = run_of(uniting(), UNITED, {"m": list(others)}, **more)
    run.until_guarded(fragment, len(others))
    run.publish()
    run.until(lambda: shown(run) > 0, "rows are shown")
    run.fed.run(for_us=after_us)
    return run, fragment


@pytest.mark.parametrize("after_us", range(0, 30_000, 3_000))
def test_who_has_seen_an_order_of_arrival_sees_no_other(after_us: int) -> None:
    run, fragment = arriving("s1", "s2", seed=after_us, after_us=after_us, witnesses=("w",))
    run.lose("m")
    run.until_owned(fragment, "s1")
    check_union(run)


@pytest.mark.usefixtures("trains_apart")
@pytest.mark.parametrize("after_us", [0, 1_000, 2_000])
def test_who_is_chosen_and_dies_before_its_disk_has_the_order_that_was_shown_leaves_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch, after_us: int
) -> None:
    """Its catalog is written, and nothing of the fragment."""
    run, fragment = run_of(
        uniting(), UNITED, {"m": ["s1", "s2"]}, tables=two_sources(), seed=after_us, witnesses=("w", "x")
    )
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    successor = run.fed.nodes["s1"]
    run.until(lambda: run.recovery("s1").followings.shadow(fragment).decided.at > 20, "an order is decided")
    run.fed.run(for_us=after_us)
    monkeypatch.setattr(successor.disk, "_fails", lambda kind: kind != "catalog")
    run.fed.run(for_us=20_000)
    assert run.reader.rows["q.all"]
    run.lose("m")
    run.until(lambda: run.owner(fragment) == "s1", "it is chosen")
    run.fed.run(for_us=100_000)
    successor.crash()
    monkeypatch.undo()
    run.fed.run(for_us=5_000)
    run.fed.restart("s1")
    run.publish(HALF)
    check_union(run)
    assert run.owner(fragment) == "s2"


def test_what_is_fed_to_who_follows_makes_no_other_attempt_whole() -> None:
    """Its owner begins anew while frames of the attempt before are under way. What isn't whole follows
    nothing: taken for the one before, it was chosen, and had no state."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]}, witnesses=("w", "x"))
    run.until_guarded(fragment)
    followings = run.recovery("s1").followings
    taking = followings._followed[fragment]
    coming = StateReceiver(
        taking.spec,
        owner=taking.owner,
        attempt=taking.attempt + 1,
        epoch=taking.epoch,
        coordinator=taking.coordinator,
        ticket=taking.ticket + 1,
        make=taking._make,
        outbox=Outbox(),
    )
    followings._coming[fragment] = coming
    before = taking._frames
    run.publish(0, HALF)
    run.until(lambda: taking._frames > before, "it is fed")
    assert (followings._followed[fragment], followings._coming[fragment]) == (taking, coming)


def test_three_owners_are_lost_one_after_the_other() -> None:
    run, fragment = run_of(
        uniting(), UNITED, {"m": ["s1", "s2", "s3"]}, witnesses=("w", "x"), tables=two_sources()
    )
    run.until_guarded(fragment, 3)
    quarter = ROWS // 4 // PIECE * PIECE
    for place, (owner, successor) in enumerate([("m", "s1"), ("s1", "s2"), ("s2", "s3")]):
        run.publish(place * quarter, (place + 1) * quarter)
        run.fed.run(for_us=30_000)
        run.lose(owner)
        run.until_owned(fragment, successor)
        if place < 2:
            run.until_guarded(fragment, 2 - place)
    assert run.replicas(fragment).epoch == 4
    run.publish(3 * quarter, ROWS)
    check_union(run)


def test_who_took_over_says_from_whom_and_how_long_ago_until_another_has_it() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.until_guarded(fragment, 2)

    def told(node: str) -> tuple[int | None, str]:
        recovery = run.recovery(node)
        spec = run.fed.nodes[node].brain.fragments[fragment].spec
        _, replicas = recovery.guarded(run.fed.world.now_us, spec)
        return replicas.taken_over_us, replicas.taken_over_from

    assert told("m") == (None, "")
    run.fed.run(for_us=20_000)  # The others hear who stands by: else the second may be the first to know.
    run.lose("m")
    run.until_owned(fragment, "s1")
    first_us, whose = told("s1")
    assert whose == "m"
    assert first_us is not None
    run.fed.run(for_us=1_000_000)
    assert told("s1")[0] == first_us + 1_000_000
    run.until_guarded(fragment, 1)
    run.lose("s1")
    run.until_owned(fragment, "s2")
    assert told("s2")[1] == "s1"


def test_who_takes_over_waits_for_no_word_of_a_secondary_that_was_lost_with_the_owner() -> None:
    run, fragment = arriving("s1", "s2")
    for name in ("m", "s1"):
        run.lose(name)
    run.until_owned(fragment, "s2")
    # Had s2 died before its disk had it, s1 would be needed.
    assert run.replicas(fragment).secondaries == ("s1",)
    began_us = run.fed.world.now_us
    run.until(lambda: not run.replicas(fragment).secondaries, "s1 counts no more")
    assert run.fed.world.now_us - began_us < LOST_US // 2
    check_union(run)


def test_an_owner_that_comes_back_acknowledges_what_its_secondary_has_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own checkpoint holds all of it. It hears nobody but its sender, so nothing can be decided: the
    secondaries that it had before count."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    run.publish()
    monkeypatch.setattr(run.fed.nodes["s1"].disk, "_fails", lambda kind: kind == "checkpoint")
    run.check()
    hosted = run.hosted(fragment)
    assert hosted is not None
    run.until(lambda: hosted.at_rest, "the owner has taken its last one")
    [output] = [out for at in run.fed.nodes["e"].brain.fragments.values() for out in at.outputs.values()]
    sender = output.sender
    kept = sender.log.start_seq
    assert kept < ROWS
    away = [pair for name in NODES if name not in "em" for pair in (("m", name), (name, "m"))]
    run.fed.nodes["m"].crash()
    for pair in away:
        run.fed.network.cut(*pair)
    run.fed.restart("m")
    run.fed.run(for_us=LOST_US // 2)
    assert sender.log.start_seq == kept
    monkeypatch.undo()
    for pair in away:
        run.fed.network.heal(*pair)
    run.until(lambda: sender.log.start_seq == ROWS, "who owns it then has all, and so has who guards it")


def test_a_checkpoint_that_a_secondary_could_not_write_is_taken_again_though_nothing_more_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner takes none that would bring one: what came would never be acknowledged."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    run.publish()
    disk = run.fed.nodes["s1"].disk
    monkeypatch.setattr(disk, "_fails", lambda kind: kind == "checkpoint")
    run.check()
    hosted = run.hosted(fragment)
    shadow = run.recovery("s1").followings.shadow(fragment)
    assert hosted is not None
    run.until(lambda: shadow.checkpoint_failures > 0 and hosted.at_rest, "the owner has taken its last one")
    assert not all(each.settled for each in hosted.inputs.values())
    monkeypatch.undo()
    run.until(lambda: all(each.settled for each in hosted.inputs.values()), "all is acknowledged")


def test_they_succeed_in_the_order_of_the_plan_whoever_has_caught_up_first() -> None:
    run = Run(counting(), CUT, standby={"m": ["s1", "s2"]}, deploys="e")
    run.fed.nodes["s1"].slowness = 50
    run.deploy()
    run.read()
    run.until_guarded("q/kind", 1)
    assert run.replicas("q/kind").secondaries == ("s2",)
    run.fed.nodes["s1"].slowness = 1
    run.until_guarded("q/kind", 2)
    assert run.replicas("q/kind").secondaries == ("s1", "s2")
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned("q/kind", "s1")
    run.publish(HALF)
    run.check()


# --- several fragments ---------------------------------------------------------------------------------


def forked() -> Any:
    """Two fragments read one stream."""
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("counts", first.group_by("k").running(n=md.count(), name="kind").filter("true", name="last"))
    q.sink("sums", first.group_by("k").running(t=md.sum("v"), name="other").filter("true", name="end"))
    return q


FORKED = {"e": ["rows", "first"], "m": ["kind"], "s3": ["other"], "c": ["last", "counts", "end", "sums"]}


@pytest.mark.parametrize("lost", [["m"], ["m", "s3"]], ids=["one", "both"])
def test_of_two_fragments_that_share_a_stream_a_node_takes_over_one_and_the_other_goes_to_the_next(
    monkeypatch: pytest.MonkeyPatch, lost: list[str]
) -> None:
    shared_streams(monkeypatch)
    run = Run(
        forked(), FORKED, standby={"m": ["s1", "s2"], "s3": ["s1", "s2"]}, witnesses=("w",), deploys="e"
    )
    run.deploy()
    run.read()
    for fragment in ("q/kind", "q/other"):
        run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    for name in lost:
        run.lose(name)
    run.publish(HALF)
    run.check()
    owners = {run.owner("q/kind"), run.owner("q/other")}
    assert owners == ({"s1", "s3"} if lost == ["m"] else {"s1", "s2"})


def test_a_fragment_whose_only_secondary_reads_a_stream_that_it_shares_waits_for_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared_streams(monkeypatch)
    run = Run(forked(), FORKED, standby={"m": ["s1"], "s3": ["s1"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    for fragment in ("q/kind", "q/other"):
        run.until_guarded(fragment)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    for name in ("m", "s3"):
        run.lose(name)
    both = {"q/kind": "m", "q/other": "s3"}
    run.until(lambda: any(run.owner(each) == "s1" for each in both), "one is taken over")
    run.fed.run(for_us=2_000_000)
    [(waits, owner)] = [(each, owner) for each, owner in both.items() if run.owner(each) != "s1"]
    assert (run.owner(waits), run.hosted(waits)) == (owner, None)
    said = [each.what for each in run.fed.nodes["s1"].reports]
    assert said.count("fragment can't be taken over") == 1
    run.fed.restart(owner)
    run.publish(HALF)
    run.check()


# --- an owner that is back -----------------------------------------------------------------------------


@pytest.mark.parametrize("after_us", [0, 300, 1_000, 3_000, 10_000, 100_000])
@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_new_owner_that_dies_at_once_is_back_with_what_its_disk_has(at: Any, after_us: int) -> None:
    run, fragment = run_of(counting(), at, {"m": ["s1"]}, witnesses=("w", "x"))
    run.until_guarded(fragment)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.fed.run(for_us=after_us)
    run.fed.nodes["s1"].crash()
    run.fed.run(for_us=50_000)
    run.fed.restart("s1")
    run.until_owned(fragment, "s1")
    assert run.replicas(fragment).epoch == 2
    run.publish(HALF)
    run.check()


@pytest.mark.parametrize("after_us", [0, 1_500, 2_000, 2_500, 3_000, 3_500, 6_000])
@pytest.mark.parametrize("returns", [True, False], ids=["back", "lost"])
def test_who_is_chosen_and_dies_before_it_hears_so_leaves_it_to_the_next(
    returns: bool, after_us: int
) -> None:
    """It has lost what it followed, and others may have it as the owner."""
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until(lambda: run.recovery("s1").agreement.proposing("q"), "s1 proposes itself")
    run.fed.run(for_us=after_us)
    run.fed.nodes["s1"].crash()
    run.fed.run(for_us=50_000)
    if returns:
        run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    assert run.owner(fragment) in (("s1", "s2") if returns else ("s2",))


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_an_owner_that_is_back_before_the_number_rose_keeps_its_fragment(at: Any) -> None:
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=50_000)
    run.fed.restart("m")
    run.publish(HALF)
    run.check()
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 1)
    run.until_guarded(fragment, 2)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
@pytest.mark.parametrize("after_us", [0, 200, 600, 1_500])
def test_while_nobody_is_seeded_the_query_waits_for_its_owner(at: Any, after_us: int) -> None:
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]})
    run.fed.run(for_us=after_us)
    assert run.replicas(fragment).secondaries == ()
    run.fed.nodes["m"].crash()
    run.publish(0, HALF)
    run.fed.run(for_us=3_000_000)
    assert (run.owner(fragment), run.hosted(fragment)) == ("m", None)
    run.fed.restart("m")
    run.publish(HALF)
    run.check()
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 1)
    run.until_guarded(fragment, 2)


def test_rows_are_kept_for_who_has_it_and_not_for_an_owner_that_is_back_late() -> None:
    """The checkers of the simulator tell that from rows that are gone."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.fed.run(for_us=20_000)  # The others hear who stands by: else the second may be the first to know.
    run.fed.nodes["m"].crash()
    run.until_owned(fragment, "s1")
    run.publish(0, HALF)
    [output] = run.fed.nodes["e"].brain.fragments["q/rows"].outputs.values()
    run.until(lambda: output.sender.log.start_seq > 0, "e forgets rows that s1 has on disk")
    run.fed.restart("m")
    stale = run.fed.nodes["m"]
    assert fragment in stale.brain.fragments
    with pytest.raises(SimulationError, match="trimmed"):
        check_restarted(stale, run.fed.nodes, run.fed.clients)
    check_restarted(stale, run.fed.nodes, run.fed.clients, owners={fragment: run.owner(fragment)})
    run.publish(HALF)
    run.check()


def test_of_two_nodes_one_alone_decides_nothing_and_the_query_goes_on_when_the_owner_is_back() -> None:
    run = Run(counting(), WHOLE, standby={"m": ["s1"]}, witnesses=(), names=["m", "s1"])
    run.deploy()
    run.read()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.until_guarded(fragment)
    assert run.newest().voters == ("m", "s1")
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    number = run.newest().number
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=5_000_000)
    assert run.newest().number == number
    assert (run.owner(fragment), run.hosted(fragment)) == ("m", None)
    run.fed.restart("m")
    run.publish(HALF)
    run.check()
    # What s1 has accepted for itself is brought to its end by both, unless m was the first to propose.
    assert (run.owner(fragment), run.replicas(fragment).epoch) in [("m", 1), ("s1", 2)]
    run.until_guarded(fragment)


# --- an owner that wakes -------------------------------------------------------------------------------


def test_a_paused_owner_that_wakes_later_steps_down_and_its_clients_are_told_where() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    stays = run.fed.client("stays", "m")
    stays.read("q.out")
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.until(lambda: "q.out" in stays.rows, "it reads")
    owner = run.fed.nodes["m"]
    owner.pause(5_000_000)
    run.until_owned(fragment, "s1")
    before = sum(map(len, stays.rows["q.out"]))
    run.publish(HALF)
    run.check()
    run.until(lambda: fragment not in owner.brain.fragments, "it steps down")
    refused = stays.mind.subscriptions["q.out"].receiver
    run.until(lambda: refused.refusal is not None, "it says so")
    assert refused.refusal.code == "E_MOVED"
    assert sum(map(len, stays.rows["q.out"])) == before
    late = run.fed.client("late", "m")
    late.publish("q.rows", run.tables["rows"].slice(0, PIECE), run.schemas["rows"])
    run.until(lambda: late.publication("q.rows").refusal is not None, "it takes no rows")
    assert late.publication("q.rows").refusal.code == "E_MOVED"
    run.until_guarded(fragment, 2)
    assert run.fed.nodes["m"].brain.catalog.fragments == {}


def test_an_owner_that_was_cut_off_and_hears_again_steps_down() -> None:
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    others = [name for name in NODES if name != "m"]
    for other in others:
        run.fed.network.cut("m", other)
        run.fed.network.cut(other, "m")
    run.publish(HALF)
    run.until_owned(fragment, "s1")
    assert fragment in run.fed.nodes["m"].brain.fragments
    run.check()
    for other in others:
        run.fed.network.heal("m", other)
        run.fed.network.heal(other, "m")
    run.until(lambda: fragment not in run.fed.nodes["m"].brain.fragments, "it steps down")
    run.until(lambda: "m" in run.replicas(fragment).secondaries, "it follows")


def test_an_owner_that_wakes_is_refused_by_the_number_of_its_configuration_and_told_the_newer_one() -> None:
    """Who sends to it and who reads from it go by the newer one before it says its first word."""
    run, fragment = run_of(counting(), CUT, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    owner = run.fed.nodes["m"]
    number = run.newest().number
    owner.pause(3_000_000)
    run.until_owned(fragment, "s1")
    refused = {name: dict(run.fed.nodes[name].brain.refusals) for name in "ec"}
    run.publish(HALF)
    run.check()
    assert run.current("m").number == number
    run.until(lambda: fragment not in owner.brain.fragments, "it steps down")
    assert run.fed.nodes["e"].brain.refusals["E_CONFIGURATION"] > refused["e"].get("E_CONFIGURATION", 0)
    assert run.current("m").number > number
    run.until_guarded(fragment, 2)
    view = run.fed.nodes["e"].brain.fragments["q/rows"].outputs
    assert all("m" not in output.sender.receivers for output in view.values())


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_who_steps_down_stands_by_once_its_disk_says_that_it_has(at: Any) -> None:
    """Its catalog isn't written; then both die, and what it had as the owner is older than what was shown."""
    run, fragment = run_of(counting(), at, {"m": ["s1"]}, witnesses=("w", "x"))
    run.until_guarded(fragment)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    before = run.fed.nodes["m"]
    before.pause(2_000_000)
    before.disk.fail_writes_of("catalog", all=True)
    run.until_owned(fragment, "s1")
    run.until(lambda: fragment not in before.brain.fragments, "it steps down")
    run.fed.run(for_us=3_000_000)
    assert run.replicas(fragment).secondaries == ()
    why = run.recovery("s1").replication._links[fragment, "m"].why
    assert "doesn't say yet" in why
    for name in ("s1", "m"):
        run.fed.nodes[name].crash()
    before.disk.mend()
    run.fed.restart("m")
    run.fed.run(for_us=3_000_000)
    assert (run.owner(fragment), run.hosted(fragment)) == ("s1", None)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    run.until_guarded(fragment)


def test_who_steps_down_is_seeded_as_soon_as_its_disk_says_so() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1"]}, witnesses=("w", "x"))
    run.until_guarded(fragment)
    before = run.fed.nodes["m"]
    before.pause(2_000_000)
    run.until_owned(fragment, "s1")
    followings, succession = run.recovery("m").followings, run.recovery("m").succession
    run.until(lambda: bool(followings._deferred_seeds), "it was asked too early")
    assert succession.leaving(fragment)
    run.until(lambda: not succession.leaving(fragment), "it is on disk")
    assert not followings._deferred_seeds
    run.until(lambda: fragment in followings.status(), "it is being seeded", for_us=20_000)
    run.until_guarded(fragment)
    assert run.recovery("s1").replication._links[fragment, "m"].why == ""


# --- names ---------------------------------------------------------------------------------------------


STAYS_OR_DIES = pytest.mark.parametrize("restarts", [False, True], ids=["stays", "dies too"])


@STAYS_OR_DIES
@pytest.mark.parametrize("after_us", [0, 7_000, 40_000])
def test_a_named_subscription_survives_its_owner(after_us: int, restarts: bool) -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]}, reads=False)
    run.until_guarded(fragment, 2)
    check_subscription(run, fragment, after_us=100_000 + after_us, restarts=restarts)


@STAYS_OR_DIES
@pytest.mark.parametrize("after_us", [0, 3_000, 11_000, 26_000])
def test_what_a_named_publisher_hears_is_durable_a_takeover_keeps(after_us: int, restarts: bool) -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    check_publisher(run, fragment, after_us=after_us, restarts=restarts)


@pytest.mark.parametrize("after_us", [0, 9_000])
def test_who_opened_a_name_last_has_it_after_a_takeover_too(after_us: int) -> None:
    """Both are connected when the owner is lost; the secondary was seeded while the first had the name."""
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    check_last_has_the_name(run, fragment, after_us=after_us)


# --- removal -------------------------------------------------------------------------------------------


def check_removed(run: Run) -> None:
    run.until(lambda: not run.remains(), f"nothing is left: {run.remains()}")


def check_anew(run: Run) -> None:
    """A query of that name is deployed afterwards, and is another one."""
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    assert run.replicas(fragment).epoch == 1
    run.until_guarded(fragment, 2)


def removing(at: Any = WHOLE) -> tuple[Run, str]:
    run, fragment = run_of(counting(), at, {"m": ["s1", "s2"]}, reads=False)
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    return run, fragment


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
@pytest.mark.parametrize("after_us", [0, 1_000, 3_000, 20_000, 200_000])
def test_a_query_that_is_removed_while_others_are_seeded_leaves_nothing(at: Any, after_us: int) -> None:
    run, _ = run_of(counting(), at, {"m": ["s1", "s2"]}, reads=False)
    run.fed.run(for_us=after_us)
    run.undeploy()
    check_removed(run)
    check_anew(run)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_guarded_query_that_is_removed_leaves_nothing(at: Any) -> None:
    run, _ = removing(at)
    run.undeploy()
    check_removed(run)
    check_anew(run)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
@pytest.mark.parametrize("after_us", [100_000, 900_000, 970_000, 973_500, 974_000, 980_000, 1_200_000])
def test_a_query_that_is_removed_amid_a_takeover_leaves_nothing(at: Any, after_us: int) -> None:
    """At nodes that are there; the lost one forgets it when it is back."""
    run, _ = removing(at)
    run.lose("m")
    run.fed.run(for_us=after_us)
    asked = run.deployer.undeploy("q")
    run.fed.run(for_us=5_000_000)
    run.until(lambda: not [each for each in run.remains() if not each.startswith("e:")], f"{run.remains()}")
    run.lost.clear()
    run.fed.restart("m")
    reply, _ = run.fed.answer(run.deployer, asked)
    check_removed(run)
    if reply.code:
        run.undeploy()
    check_anew(run)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_query_that_is_removed_after_a_takeover_leaves_nothing(at: Any) -> None:
    run, fragment = removing(at)
    run.fed.nodes["m"].crash()
    run.until_owned(fragment, "s1")
    run.fed.restart("m")
    run.until_guarded(fragment, 2)
    run.undeploy()
    check_removed(run)
    check_anew(run)


def test_a_query_of_the_same_name_is_not_said_to_have_been_alone_since_the_one_before() -> None:
    run = Run(counting(), WHOLE, standby={"m": ["s1"]}, deploys="e")

    def alone_us() -> int | None:
        return run.recovery("m").succession.alone_us(run.fed.world.now_us, run.replicas("q/rows"))

    run.deploy()
    run.until_guarded("q/rows")
    assert alone_us() is None
    run.lose("s1")
    run.until(lambda: (since_us := alone_us()) is not None and since_us > 10_000_000, "alone for 10 s")
    asked = run.deployer.undeploy("q")
    run.until(lambda: not run.fed.nodes["m"].brain.fragments, "m has removed it")
    run.lost.clear()
    run.fed.restart("s1")
    assert run.fed.answer(run.deployer, asked)[0].code == ""
    run.standby = {"m": ["s2"]}
    run.deploy()
    seen: list[int] = []

    def guarded() -> bool:
        seen.append(alone_us() or 0)
        return run.guarded("q/rows", 1)

    run.until(guarded, "s2 follows")
    assert max(seen) < 5_000_000


# --- other queries read it ------------------------------------------------------------------------------


def test_a_query_that_reads_a_guarded_stream_goes_on_with_who_took_it_over() -> None:
    """Its node has no part in the configuration, and votes on nothing: it looks the stream up."""
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1"]}, reads=False)
    columns = schema_from(run.want["out"].schema)
    other = md.Query("p")
    stream = PublishedStream(name="local/q.out", columns=columns, timed=True)
    other.sink("seen", other.source("read", of=stream).filter("n > 0", name="kept"))
    reads = [("read", "m", "q.out", 1)]
    reply, _ = run.fed.answer(
        run.deployer, run.deployer.deploy(other, {"c": ["read", "kept", "seen"]}, reads)
    )
    assert reply.code == "", reply
    reader = run.client("second", "c")
    reader.read("p.seen")
    run.until_guarded(fragment)
    run.publish(0, HALF)
    run.until(lambda: bool(reader.rows.get("p.seen")), "rows come")
    run.lose("m")
    run.until_owned(fragment, "s1")
    taken_us = run.fed.world.now_us
    [kept] = run.fed.nodes["c"].brain.fragments.values()
    run.until(lambda: [feed.node for feed in kept.spec.feeds] == ["s1"], "it reads from s1")
    assert run.fed.world.now_us - taken_us <= 500_000
    run.publish(HALF, ROWS)
    run.until(lambda: "p.seen" in reader.ended, "all rows come")
    assert not any(reader.lost.values())
    got = [row for batch in reader.rows["p.seen"] for row in batch.to_pylist()]
    assert got == run.want["out"].to_pylist()
