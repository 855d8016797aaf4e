"""A source into which nobody publishes holds up the others as one does whose publisher is lost."""

from __future__ import annotations

import medusa as md
from medusa.elements import Boundary
from tests.nodes.consistency.delayed_run import PAIR, DelayedRun, pair, second
from tests.nodes.consistency.test_fork_feeding import FORKS_AFTER_US, SCHEMA, Forking, query


def only_b(**more: object) -> Forking:
    """Since 0 nobody publishes into a."""
    life = Forking(query(**more))
    life.pass_to(0)
    life.offers("pb", "b")
    life.brings("pb", 100)
    return life


def missing(life: Forking) -> tuple[str, ...]:
    return tuple(each.text for each in life.bound.status(life.now_us, "out").missing)


def test_it_is_missing_after_x_less_the_margin() -> None:
    life = only_b()
    life.pass_to(FORKS_AFTER_US - 1)
    assert life.forks == []
    assert life.states() == [("stable", 0)]
    assert life.hosted.wake_at_us() <= FORKS_AFTER_US  # type: ignore[operator]
    life.pass_to(FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert life.states() == [("stable", 0), ("up_failure", 1)]
    assert missing(life) == ("source q.a: nobody publishes into it, for 1 s",)


def test_it_counts_anew_where_the_node_comes_back() -> None:
    life = only_b()
    life.now_us = 1_500_000
    life.hosted.begin(life.now_us)
    life.comes("pb")
    life.pass_to(1_500_000 + FORKS_AFTER_US - 1)
    assert life.forks == []
    life.pass_to(1_500_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]


def test_where_nothing_comes_of_others_nothing_is_missing() -> None:
    life = Forking(query())
    life.pass_to(0)
    life.offers("pb", "b")
    life.pass_to(4_000_000)
    assert life.states() == [("stable", 0)]
    assert missing(life) == ()
    assert (life.hosted.wake_at_us() or 1 << 60) > life.now_us, "it isn't looked again and again"
    life.brings("pb", 100)
    assert life.hosted.wake_at_us() <= 4_000_000 + FORKS_AFTER_US  # type: ignore[operator]
    life.pass_to(4_000_000 + FORKS_AFTER_US - 1)
    assert life.states() == [("stable", 0)]
    life.pass_to(4_000_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert life.states()[-1] == ("up_failure", 1)


def test_publishers_that_begin_one_after_the_other_long_after_the_query_show_nothing() -> None:
    life = Forking(query())
    life.pass_to(0)
    life.pass_to(4_000_000)
    life.offers("pb", "b")
    life.brings("pb", 100)
    life.pass_to(5_000_000)
    columns = next(box.schema for box in life.spec.graph.boxes if box.id == "a")
    life.hosted.open_publisher(life.now_us, "pa", "a", columns)
    life.pass_to(5_010_000)
    life.attached("pa")
    life.brings("pa", 100)
    life.pass_to(6_500_000)
    assert life.states() == [("stable", 0)]
    assert life.forks == []


def test_one_who_opens_it_and_is_not_heard_gains_no_time() -> None:
    life = only_b()
    life.pass_to(1_700_000)
    columns = next(box.schema for box in life.spec.graph.boxes if box.id == "a")
    life.hosted.open_publisher(life.now_us, "pa", "a", columns)
    life.pass_to(1_750_000)
    assert life.states() == [("stable", 0)]
    life.pass_to(FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert missing(life) == ("stream q.a of publisher pa, which isn't heard, for 1 s",)


def test_alone_or_where_it_may_bring_nothing_it_is_never_missing() -> None:
    q = md.Query("q")
    a, b = q.source("a", SCHEMA, time="ts", idle="1s"), q.source("b", SCHEMA, time="ts")
    q.sink("out", md.sunion(a, b, bucket="1ms", name="both"))
    q.sink("other", q.source("c", SCHEMA, time="ts").filter("v > 0", name="some"))
    life = Forking(q)
    life.pass_to(0)
    life.offers("pb", "b")
    life.brings("pb", 100)
    life.pass_to(10_000_000)
    assert life.states() == [("stable", 0)]
    assert missing(life) == ()


def test_the_fork_goes_on_without_it() -> None:
    life = only_b()
    life.pass_to(FORKS_AFTER_US)
    life.there()
    life.brings("pb", 300)
    asked = [each for each in life.shown() if isinstance(each, tuple)]
    assert asked == [("a",)]
    assert [300] in life.shown()
    for each in list(life.shown()):
        life.fork_ran([("a", Boundary(300))] if each == ("a",) else [])
    assert 300 in life.shown()
    assert 300 not in [each.time_us for each in life.fed["q/a"] if isinstance(each, Boundary)]


def test_it_ends_when_a_publisher_is_there_and_has_caught_up() -> None:
    life = only_b()
    life.pass_to(FORKS_AFTER_US)
    life.there()
    life.now_us += 100_000
    columns = next(box.schema for box in life.spec.graph.boxes if box.id == "a")
    life.hosted.open_publisher(life.now_us, "pa", "a", columns)
    life.pass_to(life.now_us)
    assert life.states()[-1] == ("up_failure", 1), "it is asked, and has said nothing yet"
    assert missing(life) == ("stream q.a of publisher pa, which isn't heard, for 1 s",)
    life.attached("pa", end_seq=2)
    assert life.states()[-1] == ("stabilization", 1)
    life.brings("pa", 100)
    life.brings("pa", 200)
    for _ in range(len(life.fed["q/a"])):
        life.ran()
    assert life.states()[-1] == ("stable", 0)
    assert life.closed == ["q/a#1"]
    life.pass_to(10_000_000)
    assert life.states()[-1] == ("stable", 0)


def test_a_publisher_that_comes_in_time_shows_nothing() -> None:
    life = only_b()
    life.pass_to(1_700_000)
    life.offers("pa", "a")
    life.pass_to(10_000_000)
    assert life.states() == [("stable", 0)]


def test_its_last_publisher_goes_for_good() -> None:
    life = only_b()
    life.offers("pa", "a")
    life.promises("pa", 100)
    life.pass_to(5_000_000)
    del life.hosted.inputs["a", "pa"]
    life.pass_to(6_000_000)
    life.brings("pb", 200)
    life.pass_to(6_000_000 + FORKS_AFTER_US - 1)
    assert life.states() == [("stable", 0)]
    life.pass_to(6_000_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 1)


def test_nobody_publishes_and_then_somebody_does() -> None:
    run = DelayedRun(pair(), PAIR, span_us=second(14))
    run.begin()
    publisher = run.publishers["b"]
    come = publisher.publish, publisher.finish
    waiting: list[tuple[object, ...]] = []
    publisher.publish = lambda *about: waiting.append(about)  # type: ignore[method-assign,assignment]

    def comes() -> None:
        publisher.publish = come[0]  # type: ignore[method-assign]
        for about in waiting:
            publisher.publish(*about)  # type: ignore[arg-type]

    run.at_second(8, comes)
    run.ends()
    assert run.late() == []
    assert run.states == ["up_failure", "stabilization", "stable"]
    assert run.forks("m") == 1
