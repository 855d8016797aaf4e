"""A fragment of which all inputs are missing says so: who reads it isn't to wait for it."""

from __future__ import annotations

from medusa.elements import Boundary
from tests.nodes.consistency.test_fork_feeding import FORKS_AFTER_US, Forking, missing_b, query


def test_it_says_so_once_the_last_input_is_missing_too_and_that_it_goes_on() -> None:
    life = missing_b()
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    life.there()
    life.goes("pa", heard_us=2_800_000)
    life.pass_to(2_800_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 1), "the same, but that it is lost"
    assert [each.lost for each in life.sent if hasattr(each, "lost")][-2:] == [False, True]
    assert life.bound.status(life.now_us, "out").state == "failure"
    life.now_us = 5_000_000
    life.back("pa")
    life.brings("pa", 300)
    assert [each.lost for each in life.sent if hasattr(each, "lost")][-1] is False
    assert life.bound.status(life.now_us, "out").state == "up_failure"
    assert (life.forks, life.closed) == (["q/a#1"], []), "its fork has gone on standing where it was"


def two_senders() -> Forking:
    """e fails, and its fork stands in for it."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    life.state("e", "up_failure", fork=1)
    life.there()
    life.guesses("e", 1, 0, 140)
    life.guesses_boundary("e", 1, 1, 141)
    life.brings("f", 150)
    life.promises("f", 151)
    return life


def test_who_reads_a_sender_that_has_lost_all_its_inputs_goes_on_without_it() -> None:
    life = two_senders()
    assert ("a",) not in life.shown()
    life.state("e", "up_failure", fork=1, lost=True)
    assert life.shown()[-1] == ("a",), "how far does it hold others up?"
    before = len(life.shown())
    for _ in range(before - 1):
        life.fork_ran()
    life.fork_ran([("a", Boundary(151))])
    assert (life.shown()[before], life.sources[life.forks[-1]][before]) == (151, "a")
    assert (len(life.forks), life.closed) == (1, [])
    assert life.bound.status(life.now_us, "out").state == "up_failure"


def test_it_waits_for_it_again_once_something_comes_of_it() -> None:
    life = two_senders()
    life.state("e", "up_failure", fork=1, lost=True)
    life.state("e", "up_failure", fork=1)
    before = len(life.shown())
    life.guesses("e", 1, 1, 160)
    assert life.shown()[before:] == [[160]]
    assert len(life.forks) == 1


def test_nothing_of_a_sender_that_never_said_more_than_that_it_is_lost_is_waited_for() -> None:
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    life.pass_to(1_000_000)
    life.state("e", "up_failure", lost=True)
    life.brings("f", 150)
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert len(life.forks) == 1
    assert life.bound.status(life.now_us, "out").state == "up_failure"


def test_a_sender_that_has_lost_all_is_itself_one_of_two_that_are_missing() -> None:
    life = two_senders()
    life.state("e", "up_failure", fork=1, lost=True)
    life.state("f", "up_failure", lost=True)
    assert life.bound.status(life.now_us, "out").state == "failure"
