"""An owner is lost for good while another fragment of its query, which nobody stands by for, is split or
merged."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.sim.actors.client import Client
from medusa.wire.messages.split import Merge, Split
from tests.nodes.taken_over import HALF, SCHEMA, Run

AT = {"e": ["rows", "first"], "m": ["kind"], "c": ["after", "last", "out"]}
"""``kind`` is guarded; ``first`` feeds it and ``after`` reads it."""


WRITTEN_US = 2_000
"""The disk may have a write by then, or not."""


def query() -> Any:
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    kind = first.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind")
    q.sink("out", kind.filter("n > 0", name="after").filter("t >= 0", name="last"))
    return q


def ordered(run: Run, what: str, box: str) -> tuple[Client, int]:
    """Who asks, and the number of the request."""
    node = "e" if box == "first" else "c"
    client = run.fed.clients.get("splits") or run.fed.client("splits", node)
    fragments = run.fed.nodes[node].brain.fragments
    boxes = [box] if what == "split" else [f"{box}-router"]
    fragment = next(
        name
        for name, hosted in fragments.items()
        if any(each.id in boxes for each in hosted.spec.graph.boxes)
    )
    number = client.mind.request(
        lambda number: (
            Split(request=number, fragment=fragment, box=box, parts=2)
            if what == "split"
            else Merge(request=number, fragment=fragment, box=box)
        )
    )
    client.do(lambda mind: None)
    return client, number


def flowing(what: str, box: str) -> Run:
    """Guarded, in parts if they are to be merged, and rows are on their way."""
    run = Run(query(), AT, standby={"m": ["s1", "s2"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    run.until_guarded("q/kind", 2)
    if what == "merge":
        assert run.fed.answer(*ordered(run, "split", box))[0].code == ""
        run.until_guarded("q/kind", 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run


def goes_on(run: Run, asked: tuple[Client, int]) -> None:
    """It is done, another node has what was lost, and each row comes once."""
    run.until_owned("q/kind", "s1")
    assert run.fed.answer(*asked)[0].code == ""
    run.publish(HALF)
    run.check()
    run.until_guarded("q/kind", 1)


BOTH = pytest.mark.parametrize("what", ["split", "merge"])
BOXES = pytest.mark.parametrize("box", ["first", "after"])


@pytest.mark.parametrize("after_us", [0, 1_000, 2_500, 4_000, 6_000, 9_000, 15_000])
@BOXES
@BOTH
def test_it_is_lost_at_each_step(what: str, box: str, after_us: int) -> None:
    run = flowing(what, box)
    asked = ordered(run, what, box)
    run.fed.run(for_us=after_us)
    run.lose("m")
    goes_on(run, asked)


@pytest.mark.parametrize("after_us", [0, 1_000, 2_500, 4_000, 6_000, 9_000])
@BOXES
@BOTH
def test_it_is_taken_over_at_each_step(what: str, box: str, after_us: int) -> None:
    run = flowing(what, box)
    run.lose("m")
    run.until(lambda: run.recovery("s1").agreement.proposing("q"), "s1 proposes itself")
    run.fed.run(for_us=after_us)
    goes_on(run, ordered(run, what, box))


@BOXES
@BOTH
def test_what_is_under_way_when_it_is_taken_over_is_done_all_the_same(what: str, box: str) -> None:
    """Its node is slow, so that the takeover is amid it."""
    run = flowing(what, box)
    node = run.fed.nodes["e" if box == "first" else "c"]
    run.lose("m")
    run.until(lambda: run.recovery("s1").agreement.proposing("q"), "s1 proposes itself")
    node.slowness = 20
    asked = ordered(run, what, box)
    run.until(lambda: bool(node.brain.orders.splits.status()), "it has begun")
    run.until_owned("q/kind", "s1")
    assert node.brain.orders.splits.status()
    goes_on(run, asked)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "and-restarts"])
@pytest.mark.parametrize("state", ["cutting", "writing", "switching"])
@BOTH
def test_who_reads_it_hears_of_the_takeover_at_each_step(what: str, state: str, restarts: bool) -> None:
    """What is made in place of the reader was copied before, and goes on with the new owner."""
    run = flowing(what, "after")
    reader, successor = run.fed.nodes["c"], run.fed.nodes["s1"]
    run.lose("m")
    run.until(lambda: run.recovery("s1").agreement.proposing("q"), "s1 proposes itself")
    successor.slowness = 50
    asked = ordered(run, what, "after")
    reader.slowness = 60

    def states() -> list[str]:
        return [each.state for each in reader.brain.orders.splits.status()]

    def senders() -> set[str]:
        specs = [hosted.spec for hosted in reader.brain.fragments.values()]
        return {feed.node for spec in specs for feed in spec.feeds if feed.stream == "q.kind"}

    run.until(lambda: states() == [state], f"it is {state}")
    reader.slowness = 200
    run.until(lambda: senders() == {"s1"}, "c reads the stream of s1")
    assert states()  # And it isn't done.
    reader.slowness = successor.slowness = 1
    if restarts:  # It is done or isn't, as the disk says; the client asks again.
        run.fed.run(for_us=WRITTEN_US)
        reader.crash()
        run.fed.restart("c")
        run.until_owned("q/kind", "s1")
        run.until(lambda: senders() == {"s1"}, "c reads the stream of s1")
        run.publish(HALF)
        run.check()
        return
    run.until(lambda: not states(), "it is done")
    assert senders() == {"s1"}
    goes_on(run, asked)
