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
    ("decided", "covered", "has"),
    [(5, 20, True), (6, 20, False), (5, 21, False), (4, 19, True), (0, 0, True)],
)
def test_it_is_asked_whether_one_has_said_so_much(decided, covered, has):
    assert of(a=(5, 20), b=(0, 0)).has("a", decided=decided, covered=covered) is has


def test_one_whose_word_does_not_count_has_nothing():
    made = of(a=(5, 20))
    made.require(())
    assert not made.has("a", decided=0, covered=0)
    assert not made.has("b", decided=0, covered=0)
