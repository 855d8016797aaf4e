"""Outputs of one query are recovered by different methods, and what both read is lost."""

from __future__ import annotations

from collections import Counter

import pytest

import medusa as md
from medusa.elements import END_US
from tests.nodes.taken_over import ROWS, SCHEMA, Run

AT = {"e": ["rows", "first"], "m": ["per_k", "exact", "totals", "trend"], "c": ["some"]}
STANDBY = {"e": ["s1"], "m": ["s2"], "c": ["s3"]}


def two_outputs(method: str) -> md.Query:
    """One is precise, and the other may lose rows; ``first`` feeds both."""
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = first.window("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("exact", per_k, recovery="precise", method=method)
    totals = first.filter("v >= 0", name="some").window("2s").aggregate(n=md.count(), name="totals")
    q.sink("trend", totals, recovery="gap")
    return q


def run_of(method: str) -> Run:
    """Deployed, read and guarded."""
    run = Run(two_outputs(method), AT, standby=STANDBY, witnesses=("x",), deploys="w")
    run.deploy()
    run.read()
    for fragment in ("q/rows", "q/per_k", "q/some", "q/totals"):
        run.until_guarded(fragment, 1)
    return run


@pytest.mark.parametrize("method", ["active_standby", "passive_standby"])
def test_what_feeds_both_is_lost_and_neither_loses_a_row(method: str) -> None:
    run = run_of(method)
    methods = {h.spec.name: h.spec.method for n in run.living for h in n.brain.fragments.values()}
    strong = "" if method == "active_standby" else method
    assert methods == {"q/rows": strong, "q/per_k": strong, "q/some": "amnesia", "q/totals": "amnesia"}
    run.publish()
    run.fed.run(for_us=60_000)
    run.lose("e")
    run.until_owned("q/rows", "s1")
    run.check()


def test_what_was_taken_of_a_sender_that_is_lost_counts_as_taken_at_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cut that says so names the lost node: else its successor would keep the rows for ever."""
    run = run_of("active_standby")
    hosted = run.fed.nodes["c"].brain.fragments["q/some"]
    [input] = hosted.inputs.values()
    with monkeypatch.context() as patch:
        patch.setattr(hosted.durability, "acknowledged", lambda moments, of: [])  # Its readers are slow.
        run.publish()
        run.until(lambda: input.fed_seq == ROWS and input.receiver.boundary_us == END_US, "all is fed")
        run.lose("e")
        run.until(lambda: input.receiver.peer == "s1", "it reads there")
        assert not input.settled
    run.until(lambda: input.settled, "what was fed is durable")


@pytest.mark.parametrize("method", ["active_standby", "passive_standby"])
def test_who_takes_over_hears_of_another_sender_before_its_disk_has_the_fragment(method: str) -> None:
    """It asks nobody for rows before it is the owner."""
    run = run_of(method)
    run.publish()
    run.fed.run(for_us=60_000)
    run.lose("m")
    taking = run.fed.nodes["s2"].brain
    run.until(lambda: "q/per_k" in taking.fragments, "it is chosen")
    hosted = taking.fragments["q/per_k"]
    assert hosted.frozen
    hosted.redirect(run.fed.world.now_us, "first", "e", up=True)
    run.until_owned("q/per_k", "s2")
    run.check()


# --- rows may come again at one output, and may be lost at the other ---------------------------------------


def again_and_lost() -> md.Query:
    """``first`` feeds both."""
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    per_k = first.window("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("exact", per_k, recovery="rollback", method="upstream_backup")
    totals = first.filter("v >= 0", name="some").window("2s").aggregate(n=md.count(), name="totals")
    q.sink("trend", totals, recovery="gap")
    return q


@pytest.mark.parametrize("lost", ["m", "e", "c"])
def test_one_output_repeats_what_it_lost_and_the_other_counts_it(lost: str) -> None:
    run = Run(again_and_lost(), AT, standby=STANDBY, witnesses=("x",), deploys="w")
    run.deploy()
    run.read()
    fragments = ("q/rows", "q/per_k", "q/some", "q/totals")
    for fragment in fragments:
        run.until_guarded(fragment, 1)
    methods = {h.spec.name: h.spec.method for n in run.living for h in n.brain.fragments.values()}
    assert methods == {
        "q/rows": "passive_standby",  # It may neither lose rows nor repeat them.
        "q/per_k": "upstream_backup",
        "q/some": "amnesia",
        "q/totals": "amnesia",
    }
    run.publish()
    run.fed.run(for_us=60_000)
    run.lose(lost)
    run.until_ended()
    want, got = (Counter(map(str, of.to_pylist())) for of in (run.want["exact"], run.got("exact")))
    assert not want - got, "missing"
    assert not got.keys() - want.keys(), "never was there"
    if lost != "m":
        assert got == want, "nothing was lost that makes them"
    counted = sum(
        each["lost_rows"]
        for name in fragments
        for each in run.fed.nodes[run.owner(name)].brain.status(run.fed.world.now_us)["fragments"]
        if each["fragment"] == name
    )
    assert sum(run.got("trend").column("n").to_pylist()) + counted == ROWS
