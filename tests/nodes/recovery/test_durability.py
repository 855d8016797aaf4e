"""What must be true before output leaves and before input is acknowledged: a policy that is asked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from medusa.nodes.fragment.durability import (
    ALL,
    Durability,
    OwnDisk,
    Receivers,
    Secondaries,
    policy_of,
)


@dataclass
class At:
    """How far a fragment is."""

    decisions_on_disk: int = 1 << 40
    checkpoint_on_disk: int = 1 << 40
    has: dict[str, int | None] = field(default_factory=dict)

    def received(self, sink: str) -> int | None:
        return self.has[sink]


@dataclass(frozen=True)
class Then:
    """A moment of a fragment."""

    token: int
    outputs: tuple[tuple[str, int], ...] = ()


def of(**words):
    """On the own disk, with secondaries that have said so: (decided, covered) each."""
    made = policy_of(disk=True, guarded=True)
    made.require(tuple(words))
    for name, (decided, covered) in words.items():
        made.heard(name, decided=decided, covered=covered)
    return made


def acknowledged(policy, *moments, at=None):
    """The tokens that leave, and those that wait."""
    waiting = deque(moments)
    done = policy.acknowledged(waiting, at or At())
    return [each.token for each in done], [each.token for each in waiting]


def covers(policy, token, at=None):
    return acknowledged(policy, Then(token), at=at)[0] == [token]


# --- its parts -------------------------------------------------------------------------------------


def test_the_own_disk_alone_decides_where_nobody_stands_by():
    policy = policy_of(disk=True, guarded=False)
    at = At(decisions_on_disk=7, checkpoint_on_disk=20)
    assert policy.released(at) == 7
    assert acknowledged(policy, Then(10), Then(20), Then(21), at=at) == ([10, 20], [21])
    assert policy.keeps
    assert not policy.guarded
    assert not policy.secondaries


def test_a_node_without_a_disk_goes_by_what_was_received():
    policy = policy_of(disk=False, guarded=False)
    at = At(decisions_on_disk=0, checkpoint_on_disk=0, has={"out": 5, "unread": None})
    assert policy.released(at) == ALL
    moments = [Then(token, (("out", seq), ("unread", 9))) for token, seq in ((1, 4), (2, 5), (3, 6))]
    assert acknowledged(policy, *moments, at=at) == ([1, 2], [3])
    assert not policy.keeps


def test_own_disk_and_secondaries_both_have_to_have_it():
    policy = of(a=(5, 20))
    assert policy.released(At(decisions_on_disk=3)) == 3
    assert policy.released(At(decisions_on_disk=9)) == 5
    assert covers(policy, 20)
    assert not covers(policy, 20, At(checkpoint_on_disk=19))
    assert not covers(policy, 21)


def test_any_parts_make_a_policy():
    secondaries = Secondaries()
    policy = Durability(OwnDisk(), Receivers(), secondaries=secondaries)
    policy.require(("a",))
    policy.heard("a", decided=5, covered=20)
    then = Then(20, (("out", 8),))
    assert acknowledged(policy, then, at=At(has={"out": 7})) == ([], [20])
    assert acknowledged(policy, then, at=At(has={"out": 8})) == ([20], [])
    assert acknowledged(policy, then, at=At(checkpoint_on_disk=19, has={"out": 8})) == ([], [20])
    policy.require(("a", "b"))
    assert acknowledged(policy, then, at=At(has={"out": 8})) == ([], [20])
    assert policy.keeps


def test_nothing_has_to_be_true_of_a_policy_without_parts():
    policy = Durability()
    assert policy.released(At(decisions_on_disk=0)) == ALL
    assert acknowledged(policy, Then(1), Then(2), at=At(checkpoint_on_disk=0)) == ([1, 2], [])
    assert not policy.keeps


def test_a_moment_that_waits_holds_up_those_after_it():
    policy = Durability(Receivers())
    waits, there = Then(1, (("out", 9),)), Then(2, (("out", 3),))
    assert acknowledged(policy, waits, there, at=At(has={"out": 5})) == ([], [1, 2])


def test_nobody_is_waited_for_where_nobody_stands_by():
    policy = policy_of(disk=True, guarded=False)
    policy.require(())
    policy.heard("a", decided=1, covered=1)
    assert not policy.has("a", decided=0, covered=0)
    with pytest.raises(AssertionError, match="nobody stands by"):
        policy.require(("a",))


# --- the word of secondaries -----------------------------------------------------------------------


def test_before_somebody_counts_the_own_disk_decides_alone():
    made = policy_of(disk=True, guarded=True)
    assert made.released(At(decisions_on_disk=4)) == 4
    assert covers(made, 1 << 39)
    assert not made.secondaries
    assert made.guarded


def test_a_new_one_has_said_nothing():
    made = policy_of(disk=True, guarded=True)
    made.require(("a",))
    assert made.released(At()) == 0
    assert not covers(made, 1)


def test_each_has_to_have_it():
    made = of(a=(5, 20), b=(3, 30))
    assert made.released(At()) == 3
    assert [covers(made, token) for token in (20, 21)] == [True, False]
    made.heard("b", decided=5, covered=30)
    assert made.released(At()) == 5


def test_an_older_word_that_comes_late_takes_nothing_back():
    made = of(a=(5, 20))
    made.heard("a", decided=2, covered=25)
    made.heard("a", decided=4, covered=10)
    assert made.released(At()) == 5
    assert covers(made, 25)


def test_the_word_of_others_counts_for_nothing():
    made = of(a=(1, 1))
    made.heard("b", decided=9, covered=9)
    assert list(made.secondaries) == ["a"]
    made.require(("a", "b"))
    assert made.released(At()) == 0


def test_who_stays_is_not_asked_again_and_who_goes_holds_nothing_up():
    made = of(a=(5, 20), b=(0, 0))
    assert made.released(At()) == 0
    made.require(("a",))
    assert made.released(At()) == 5
    made.require(("a", "b"))
    assert made.released(At()) == 0, "b begins anew"


def test_the_same_requirement_changes_nothing():
    made = of(a=(5, 20))
    made.require(("a",))
    assert made.released(At()) == 5


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
