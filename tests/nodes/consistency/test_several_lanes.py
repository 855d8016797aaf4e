"""What a fork that goes on until its successor answers takes of another fork of a sender."""

from __future__ import annotations

from tests.nodes.consistency.test_fork_feeding import Forking, query

FIRST = "q/both#1"


def two_lanes() -> Forking:
    """Both senders fail, and their forks stand in for them."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    for peer in "ef":
        life.state(peer, "up_failure", fork=1)
    life.there()
    life.guesses("e", 1, 0, 140)
    life.guesses("f", 1, 0, 150)
    life.guesses("f", 1, 1, 160)
    assert life.shown()[-3:] == [[140], [150], [160]]
    return life


def test_what_a_sender_has_another_fork_say_again_enters_once() -> None:
    life = two_lanes()
    before = len(life.shown(FIRST))
    life.state("f", "up_failure", fork=2)
    for seq, at_us in enumerate((150, 160, 165, 130, 170)):
        life.guesses("f", 2, seq, at_us)
    life.guesses("e", 1, 1, 145)
    assert life.shown(FIRST)[before:] == [[165], [170], [145]]
    assert life.closed == []
    assert life.bound.status(life.now_us, "out").late_rows == 3


def test_a_third_fork_brings_what_neither_of_the_others_did() -> None:
    life = two_lanes()
    life.state("f", "up_failure", fork=2)
    life.guesses("f", 2, 0, 155)
    life.state("f", "up_failure", fork=3)
    before = len(life.shown(FIRST))
    for seq, at_us in enumerate((155, 160, 161)):
        life.guesses("f", 3, seq, at_us)
    assert life.shown(FIRST)[before:] == [[161]]


def test_rows_of_one_fork_enter_in_any_order() -> None:
    life = two_lanes()
    before = len(life.shown())
    life.guesses("f", 1, 2, 155)
    assert life.shown()[before:] == [[155]]


def corrected() -> Forking:
    """e says again on its stable lane what its fork had put out, and not promised."""
    life = two_lanes()
    life.state("e", "stabilization", fork=1)
    life.brings("e", 120)
    return life


def test_a_row_that_comes_by_both_lanes_enters_once() -> None:
    life = corrected()
    before = len(life.shown())
    life.brings("e", 140)
    life.brings("e", 145)
    assert life.shown()[before:] == [[145]]
    life.guesses("e", 1, 1, 145)
    life.guesses("e", 1, 2, 148)
    assert life.shown()[before:] == [[145], [148]]
    assert life.bound.status(life.now_us, "out").late_rows == 0


def test_rows_that_are_equal_enter_as_often_as_one_of_the_lanes_has_them() -> None:
    life = corrected()
    before = len(life.shown())
    life.brings("e", 140)
    life.brings("e", 140)
    life.guesses("e", 1, 1, 140)
    life.guesses("e", 1, 2, 140)
    assert life.shown()[before:] == [[140], [140]]


def test_what_another_sender_has_is_another_row() -> None:
    life = corrected()
    before = len(life.shown())
    life.brings("e", 150)
    assert life.shown()[before:] == [[150]], "f's fork has one of that time"
