"""Voters that are away: what a node says before and once too few are left for a takeover."""

from __future__ import annotations

from typing import Any

import medusa as md
from medusa.runtime.client.status.overview import explanation
from tests.nodes.taken_over import SCHEMA, Run

AT = {"e": ["rows", "first"], "m": ["kind", "out"]}


def run_of(**wish: str) -> Run:
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("out", first.group_by("k").running(n=md.count(), name="kind"), **wish)
    made = Run(
        q,
        AT,
        standby={"e": ("s1",), "m": ("s1",)},
        witnesses=("w",),
        names=("e", "m", "s1", "w"),
        deploys="e",
    )
    made.deploy()
    return made


def status_of(run: Run, node: str) -> dict[str, Any]:
    at = run.fed.nodes[node]
    return at.brain.status(at.clock.monotonic_us())


def guarantee(run: Run) -> str:
    return status_of(run, "e")["queries"]["q"]["outputs"]["q.out"]["guarantee"]


def undecided(run: Run, node: str) -> tuple[list[str], str]:
    found = status_of(run, node)["undecided"].get("q", {"waits": [], "why": ""})
    return list(found["waits"]), found["why"]


def said(run: Run, node: str, what: str) -> list[str]:
    return [str(each.fields.get("why", "")) for each in run.fed.nodes[node].reports if each.what == what]


STUCK = "nothing is taken over until one of them is back"


def test_who_is_away_is_told_before_nothing_can_be_taken_over_and_then():
    run = run_of(recovery="precise", method="active_standby")
    run.until(lambda: guarantee(run).startswith("exactly once, and goes on"), "a standby follows")
    run.lose("w")
    last = "exactly once; 1 of 4 voters is away (w), and one more loss stops it"
    run.until(lambda: guarantee(run) == last, "the last loss that is borne is told")
    assert not said(run, "e", "no takeover can be decided")
    run.lose("m")
    run.until(lambda: guarantee(run).endswith(STUCK), "that nothing can be decided is told")
    why = f"2 of 4 voters are away (m, w): {STUCK}"
    assert guarantee(run) == why
    for node in ("e", "s1"):
        run.until(lambda node=node: undecided(run, node) == (["takeovers"], why), f"{node} knows")
        assert said(run, node, "no takeover can be decided") == [why], "once"
    placed = [{"name": "q/kind", "query": "q", "node": "m", "boxes": ["kind"]}]
    (box,) = [each for each in explanation([status_of(run, "e")], "q", placed) if each["node"] == "m"]
    assert box["waits_for"].endswith(STUCK)
    run.fed.nodes["w"].start()
    run.until(lambda: status_of(run, "e")["undecided"] == {}, "one is back")
    assert len(said(run, "e", "takeovers can be decided again")) == 1
    run.until_owned("q/kind", "s1")


def test_of_a_query_that_was_removed_nothing_more_is_said():
    run = run_of(recovery="precise", method="active_standby")
    run.until(lambda: guarantee(run).startswith("exactly once, and goes on"), "a standby follows")
    run.lose("w")
    run.lose("m")
    run.until(lambda: bool(said(run, "e", "no takeover can be decided")), "too many are away")
    run.recovery("e").removed("q")
    run.fed.nodes["w"].start()
    run.until(lambda: run.fed.nodes["e"].brain.peers["w"] == "up", "one is back")
    assert not said(run, "e", "takeovers can be decided again")


def test_a_fragment_that_keeps_nothing_says_why_it_rests():
    run = run_of(recovery="gap", method="amnesia")
    run.until(lambda: guarantee(run).startswith("at most once"), "somebody stands by")
    run.lose("w")
    run.lose("s1")
    run.until(lambda: bool(status_of(run, "m")["undecided"]), "that nothing can be decided is told")
    boxes = explanation([status_of(run, "m")], "q")
    why = f"2 of 4 voters are away (s1, w): {STUCK}"
    assert any(each["waits_for"].endswith(why) for each in boxes), boxes
