"""What must be true before output leaves and before input is acknowledged: a policy that is asked."""

from __future__ import annotations

import pytest

from medusa.nodes.fragment.durability import Durability


def of(**words):
    """With secondaries that have said so: (decided, covered) each."""
    made = Durability()
    made.require(tuple(words))
    for name, (decided, covered) in words.items():
        made.heard(name, decided=decided, covered=covered)
    return made


def test_without_secondaries_the_own_disk_decides_alone():
    made = Durability()
    assert made.has_decision(1 << 40)
    assert made.covers(1 << 40)
    assert not made.secondaries


def test_a_new_one_has_said_nothing():
    made = Durability()
    made.require(("a",))
    assert not made.has_decision(0)
    assert not made.covers(1)


def test_each_has_to_have_it_and_below_means_below():
    made = of(a=(5, 20), b=(3, 30))
    assert [made.has_decision(number) for number in (2, 3, 4)] == [True, False, False]
    assert [made.covers(token) for token in (20, 21)] == [True, False]
    made.heard("b", decided=5, covered=30)
    assert [made.has_decision(number) for number in (4, 5)] == [True, False]


def test_an_older_word_that_comes_late_takes_nothing_back():
    made = of(a=(5, 20))
    made.heard("a", decided=2, covered=25)
    made.heard("a", decided=4, covered=10)
    assert made.has_decision(4)
    assert made.covers(25)


def test_the_word_of_others_counts_for_nothing():
    made = of(a=(1, 1))
    made.heard("b", decided=9, covered=9)
    assert list(made.secondaries) == ["a"]
    made.require(("a", "b"))
    assert not made.has_decision(0)


def test_who_stays_is_not_asked_again_and_who_goes_holds_nothing_up():
    made = of(a=(5, 20), b=(0, 0))
    assert not made.has_decision(4)
    made.require(("a",))
    assert made.has_decision(4)
    made.require(("a", "b"))
    assert not made.has_decision(0), "b begins anew"


def test_the_same_requirement_changes_nothing():
    made = of(a=(5, 20))
    made.require(("a",))
    assert made.has_decision(4)


@pytest.mark.parametrize(
    ("decided", "covered", "released", "may"),
    [(5, 20, 5, True), (5, 20, 6, False), (5, 19, 5, False), (6, 21, 5, True), (0, 20, 0, True)],
)
def test_who_may_succeed_has_all_that_was_shown_and_acknowledged(decided, covered, released, may):
    made = of(a=(decided, covered))
    made.acknowledged(20)
    made.acknowledged(10)
    assert made.may_succeed("a", released) is may


def test_a_stranger_may_not_succeed():
    assert not Durability().may_succeed("a", 0)
