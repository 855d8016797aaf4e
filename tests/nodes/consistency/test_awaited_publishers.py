"""A node starts, and its last checkpoint knows of nobody who published: somebody may have, and has rows."""

from __future__ import annotations

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.nodes.consistency.awaited_publishers import AwaitedPublishers
from medusa.wire.link.automaton import LinkSettings
from tests.nodes.consistency.delayed_run import CHAIN, DelayedRun, chain, second
from tests.nodes.consistency.test_fork_feeding import SCHEMA, Forking, query

GRACE_US = LinkSettings().idle_us


def started(*, judged: bool = False) -> Forking:
    """The node that has it has just started, and found no checkpoint of it."""
    life = Forking(query(), judged=judged)
    life.hosted.begin(0)
    life.pass_to(0)
    return life


def test_it_is_behind_until_they_are_back_and_have_brought_what_they_had() -> None:
    life = started()
    assert life.states()[-1] == ("stabilization", 0)
    for peer, source in (("pa", "a"), ("pb", "b")):
        columns = next(box.schema for box in life.spec.graph.boxes if box.id == source)
        life.hosted.open_publisher(life.now_us, peer, source, columns)
        life.settle()
        life.attached(peer, end_seq=1)
    assert life.states()[-1] == ("stabilization", 0), "neither row has come"
    life.brings("pa", 100)
    assert life.states()[-1] == ("stabilization", 0), "the row of b hasn't come"
    life.brings("pb", 100)
    for _ in range(len(life.fed["q/a"])):
        life.ran()
    assert life.states()[-1] == ("stable", 0)


def test_it_is_behind_until_another_node_has_sent_what_it_had() -> None:
    life = started(judged=True)
    for peer in ("e", "f"):
        life.comes(peer, end_seq=1)
    assert life.states()[-1] == ("stabilization", 0), "neither row has come"


def test_where_nobody_comes_they_are_awaited_for_some_time() -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="ts").filter("v > 0", name="some"))
    life = Forking(q)
    life.hosted.begin(0)
    life.pass_to(0)
    life.pass_to(GRACE_US - 1)
    assert life.bound.status(life.now_us, "out").state == "stabilization"
    assert life.hosted.wake_at_us() <= GRACE_US  # type: ignore[operator]
    life.pass_to(GRACE_US)
    assert life.bound.status(life.now_us, "out").state == "stable"
    assert life.forks == []


def test_of_a_source_that_has_ended_nobody_is_awaited() -> None:
    awaited = AwaitedPublishers(["a", "b"], lambda source: source == "a", 10)
    assert (awaited.sources, awaited.due_at_us()) == (set(), None), "the node hasn't started"
    awaited.begin(5, ())
    assert (awaited.sources, awaited.due_at_us()) == ({"b"}, 15)
    awaited.look(14, ())
    assert awaited.sources == {"b"}
    awaited.look(15, ())
    assert (awaited.sources, awaited.due_at_us()) == (set(), None)


def test_a_node_crashes_before_the_first_checkpoint() -> None:
    """Of what its publishers had brought it has nothing left, and it doesn't know of them."""
    limits = Limits(checkpoint_every_us=second(60))
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(8), limits=limits).begin()
    node = run.fed.nodes["m"]
    run.at_second(0.3, node.crash)
    run.at_second(2.8, node.restart)
    run.ends()
    assert run.states == ["failure", "stabilization", "stable"]
    [stable_us] = [at_us for at_us, state, _ in run.reader.states if state == "stable"]
    first_us = min(at_us for at_us, _ in run.reader.came)
    assert first_us <= stable_us, "it wasn't said to be stable before the first correction"
