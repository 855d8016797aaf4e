"""What leaves of a fork, by which output and when; the engine answers what the test says."""

from __future__ import annotations

import pyarrow as pa

import medusa as md
from medusa.elements import Boundary, Train
from medusa.wire.messages.links import OLDEST, Attach
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows
from tests.nodes.consistency.test_fork_feeding import SCHEMA, Forking, row


def train(at_us: int) -> Train:
    return Train(batch=row(at_us), times=pa.array([at_us], pa.timestamp("us", tz="UTC")))


def read(life: Forking, sink: str) -> None:
    attach = Attach(
        stream=f"q.{sink}", epoch=1, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    life.hosted.from_reader(life.now_us, sink, "reader", attach, owner="", others=0)
    life.settle()


def fails(q: md.Query, *sinks: str) -> Forking:
    """Of three sources b is missing, and there is a fork that has answered what it was asked first."""
    life = Forking(q)
    for peer in "abc":
        life.offers(f"p{peer}", peer)
    for sink in sinks:
        read(life, sink)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.brings("pa", 200)
    life.brings("pc", 200)
    while life.hosted.under_way:
        life.ran()
    life.pass_to(2_800_000)
    life.there()
    while len(life.shown()) > len(answered := life.answered):
        answered.append(life.shown()[len(answered)])
        life.fork_ran()
    life.sent.clear()
    return life


def guessed(life: Forking) -> list[tuple[str, str, int]]:
    """(stream, kind, time of a boundary or number of rows)."""
    found = []
    for each in life.sent:
        match each:
            case TentativeRows():
                found.append((each.stream, "rows", each.rows))
            case TentativeBoundary():
                found.append((each.stream, "boundary", each.time_us))
    return found


def apart() -> md.Query:
    """Of two outputs one has nothing to do with b."""
    q = md.Query("q")
    a, b, c = (q.source(name, SCHEMA, time="ts") for name in "abc")
    both = md.sunion(a, b, bucket="1ms", name="both")
    q.sink("out", both)
    q.sink("other", md.sunion(c, c.filter("v > 0"), bucket="1ms", name="alone"))
    q.sink("shared", md.sunion(both, c, bucket="1ms", name="all"))
    return q


def test_an_output_to_which_nothing_missing_leads_stays_stable() -> None:
    life = fails(apart(), "other", "shared")
    life.brings("pa", 300)
    life.fork_ran([("out", train(300)), ("other", train(300)), ("shared", train(300))])
    assert guessed(life) == [("q.out", "rows", 1), ("q.shared", "rows", 1)]
    assert life.bound.status(life.now_us, "other").state == "stable"
    [missing] = life.bound.status(life.now_us, "out").missing
    assert missing.what == "stream q.b of publisher pb"


def passing() -> md.Query:
    q = md.Query("q")
    a, b, c = (q.source(name, SCHEMA, time="ts") for name in "abc")
    q.sink("out", a.union(b, name="both").union(c, name="all"))
    return q


def test_where_the_stable_lane_has_the_rows_only_the_boundary_of_the_fork_leaves_and_follows_them() -> None:
    life = fails(passing())
    life.brings("pa", 300)
    life.fork_ran([("out", train(300)), ("out", Boundary(290))])
    assert guessed(life) == [], "the fragment itself has not put the row out yet"
    life.ran([("out", train(300))])
    assert guessed(life) == [("q.out", "boundary", 290)]


def test_rows_that_came_by_a_tentative_lane_leave_by_one() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    q.sink("out", a.union(b, name="both"))
    life = Forking(q, judged=True)
    for peer in "ef":
        life.comes(peer)
    life.state("f", "up_failure", fork=1)
    life.there()
    life.sent.clear()
    life.guesses("f", 1, 0, 150)
    life.brings("e", 160)
    life.fork_ran([("out", train(150))])
    life.fork_ran([("out", train(160))])
    assert guessed(life) == [("q.out", "rows", 1)]


def test_of_two_outputs_each_says_how_it_is() -> None:
    life = fails(apart(), "other", "shared")
    assert {each.stream for each in life.sent if isinstance(each, StreamState)} == set()
    read_again = Attach(
        stream="q.shared", epoch=2, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    life.hosted.from_reader(life.now_us, "shared", "reader", read_again, owner="", others=0)
    life.settle()
    [said] = [each for each in life.sent if isinstance(each, StreamState)]
    assert (said.stream, said.state, said.fork) == ("q.shared", "up_failure", 1)


def corrected() -> Forking:
    """The last row that was missing is run, and what came of it waits for the log."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    q.sink("out", a.union(b, name="both"))
    life = Forking(q, judged=True)
    for peer in "ef":
        life.comes(peer)
    life.state("f", "up_failure", fork=1)
    life.there()
    life.log_waits = True
    life.brings("f", 120)
    life.ran([("out", train(120))])
    life.state("f", "stable")
    return life


def test_it_isnt_stable_while_a_correction_waits_for_the_log() -> None:
    life = corrected()
    assert life.states()[-1] == ("stabilization", 1)
    life.hosted.logged(life.now_us, True)
    life.settle()
    assert life.states()[-1] == ("stable", 0)


def test_what_a_fork_promises_first_follows_what_was_held_when_it_was_copied() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    q.sink("out", a.union(b, name="both"))
    life = Forking(q, judged=True)
    for peer in "ef":
        life.comes(peer)
    life.log_waits = True
    life.brings("e", 120)
    life.ran([("out", train(120))])
    life.state("f", "up_failure", fork=1)
    life.there()
    life.guesses_boundary("f", 1, 0, 130)
    life.sent.clear()
    life.fork_ran([("out", Boundary(130))])
    before = guessed(life)
    life.hosted.logged(life.now_us, True)
    life.settle()
    assert (before, guessed(life)) == ([], [("q.out", "boundary", 130)])


def test_of_a_fragment_that_fails_readers_hear_that_nothing_comes() -> None:
    """Else those who wait for it would wait for ever."""
    life = fails(apart(), "other", "shared")
    life.hosted.fail("broken")
    life.settle()
    said = {each.stream: (each.state, each.fork) for each in life.sent if isinstance(each, StreamState)}
    assert said == dict.fromkeys(("q.out", "q.other", "q.shared"), ("up_failure", 0))
    assert life.closed == life.forks


def test_while_a_fragment_rests_readers_dont_wait_for_its_fork() -> None:
    life = fails(apart(), "other", "shared")
    life.hosted.settle()
    life.settle()
    said = {each.stream: (each.state, each.fork) for each in life.sent if isinstance(each, StreamState)}
    assert said == dict.fromkeys(("q.out", "q.shared"), ("up_failure", 0))
