"""Owners that are lost for good, come back, wake up, or die again: who has the fragment then, and who is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.wire.messages.links_and_commands import OLDEST
from tests.nodes.taken_over import NODES, PIECE, ROWS, SCHEMA, Run, rows

HALF = ROWS // 2 // PIECE * PIECE


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
    """What is guarded puts rows of two sources in the order in which they arrive, and counts in that order."""
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


def run_of(q: Any, at: Any, standby: Any, **more: Any) -> tuple[Run, str]:
    """Deployed and read; with the name of what is guarded."""
    run = Run(q, at, standby=standby, **more)
    run.deployer = run.fed.client("deployer-e", more.get("deploys", "e"))
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    return run, fragment


# --- the order of arrival -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("after_us", range(0, 30_000, 3_000))
def test_who_has_seen_an_order_of_arrival_sees_no_other(after_us: int) -> None:
    run, fragment = run_of(uniting(), UNITED, {"m": ["s1", "s2"]}, tables=two_sources(), seed=after_us)
    run.until_guarded(fragment, 2)
    run.publish()
    run.fed.run(for_us=60_000 + after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    check_union(run)


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


# --- an owner that is back ------------------------------------------------------------------------------------


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


def test_two_nodes_alone_decide_nothing_and_the_owner_that_is_back_goes_on() -> None:
    run = Run(counting(), WHOLE, standby={"m": ["s1"]}, witnesses=(), names=["m", "s1"])
    run.deployer = run.fed.client("deployer-m", "m")
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
    assert (run.owner(fragment), run.replicas(fragment).epoch) == ("m", 1)


# --- an owner that wakes --------------------------------------------------------------------------------------


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
