"""What a fork that goes on until its successor answers takes of another fork of a sender."""

from __future__ import annotations

import pyarrow as pa
import pytest

from medusa.elements import Boundary, Train
from medusa.nodes.consistency import kept_lanes
from medusa.nodes.fragment.host import RUNNING_MAX
from medusa.nodes.fragment.inputs import TentativeWork, Work
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


def test_a_fork_that_takes_another_ones_place_has_what_the_other_lane_had_said() -> None:
    """Found by seed 1427 of ``delay``: it was missing until all was corrected, X or not."""
    life = two_lanes()
    life.guesses_boundary("e", 1, 1, 141)
    life.state("f", "up_failure", fork=2)
    life.there()
    assert life.shown() == [[140], 141], "and nothing of the fork of f that is gone"
    life.guesses("f", 2, 0, 150)
    life.guesses("e", 1, 1, 145)
    assert life.shown() == [[140], 141, [150], [145]]


def test_what_is_stable_by_then_is_in_its_state() -> None:
    life = two_lanes()
    life.guesses("e", 1, 1, 145)
    life.guesses("e", 1, 2, 148)
    life.state("e", "stabilization", fork=1)
    life.brings("e", 140)
    life.promises("e", 141)
    life.brings("e", 145)
    runs_all(life)
    life.state("f", "up_failure", fork=2)
    life.there()
    assert life.shown() == [[148]], "145 was run, and isn't promised yet"


def test_what_waits_for_the_stable_instance_enters_the_next_fork_once() -> None:
    life = two_lanes()
    life.guesses("e", 1, 1, 145)
    life.state("e", "stabilization", fork=1)
    for at_us in range(200, 200 + 2 * RUNNING_MAX):
        life.brings("e", at_us)
    life.brings("e", 145)
    life.state("f", "up_failure", fork=2)
    assert not life.input("e").fed, "all that isn't fed waits"
    life.there()
    fed = life.fed[life.forks[-1]]
    for _ in fed:  # It is given more for each.
        life.fork_ran()
    shown = life.shown()
    assert shown.count([145]) == 1, "it waits, and the tentative lane had it"
    assert shown.count([140]) == 1, "the tentative lane had it"
    assert len(shown) == len({str(each) for each in shown}) >= RUNNING_MAX


def runs_all(life: Forking) -> None:
    while life.hosted.under_way:
        life.ran()


def healed() -> Forking:
    """Forks of both senders stand in; f is back, and all that it had was fed."""
    life = two_lanes()
    life.fork_ran()
    life.state("f", "stabilization", fork=1)
    life.brings("f", 120)
    life.promises("f", 200)
    life.state("f", "stable")
    runs_all(life)
    return life


def test_where_an_input_is_back_the_next_fork_has_what_came_too_late() -> None:
    """Found by seed 873 of ``delay``: the other one is still missing, and its tentative lane stands in."""
    life = healed()
    assert len(life.forks) == 2
    life.there()
    assert life.shown() == [[140]]
    assert life.bound.status(life.now_us, "out").state == "up_failure"
    runs_all(life)
    life.brings("f", 210)
    assert len(life.forks) == 2, "once"


def test_not_where_what_the_other_lane_said_is_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that lacks that is more wrong than one for which something came too late."""
    monkeypatch.setattr(kept_lanes, "KEPT_BYTES_MAX", 0)
    life = healed()
    assert len(life.forks) == 1


def test_no_more_is_kept_than_there_is_room_for() -> None:
    life = two_lanes()
    input = life.input("e")
    kept = kept_lanes.KeptLanes(3 * (kept_lanes.ELEMENT_BYTES + 1))
    for time_us in (150, 160, 170):
        kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(time_us), cost=0))
    assert [each.element.time_us for each in kept.guesses(input)] == [150, 160, 170]
    assert kept.has_all(input)
    kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(180), cost=0))
    assert [each.element.time_us for each in kept.guesses(input)] == [160, 170, 180]
    assert not kept.has_all(input)
    kept.guessed(TentativeWork(input=input, fork=2, element=Boundary(190), cost=0))
    assert kept.guesses(input) == [], "it has fork 1 now"
    assert kept.has_all(input), "of fork 2"
    kept.look([])
    kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(150), cost=0))
    assert len(kept.guesses(input)) == 1
    life.promises("e", 160)
    kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(170), cost=0))
    assert [each.element.time_us for each in kept.guesses(input)] == [170], "the other one is void"


def test_what_the_stable_lane_brings_is_kept_no_longer_than_there_is_room_for() -> None:
    """Rows of a long backlog may come without a promise."""
    life = two_lanes()
    input = life.input("e")
    batch = pa.record_batch({"v": pa.array([140], pa.int64())})
    row = Train(batch=batch, times=pa.array([140], pa.timestamp("us", "UTC")))
    size = kept_lanes.ELEMENT_BYTES + batch.nbytes
    kept = kept_lanes.KeptLanes(size * 3 + kept_lanes.ELEMENT_BYTES)
    kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(150), cost=0))
    for count in (1, 2, 3):
        kept.came(Work(input, row, next_seq=count, boundary_us=100, cost=0))
        assert len(kept.stable(input)) == count
        assert kept.has_all(input)
    kept.came(Work(input, row, next_seq=4, boundary_us=100, cost=0))
    assert not kept.has_all(input)
    assert kept.guesses(input) == kept.stable(input) == []
    kept.guessed(TentativeWork(input=input, fork=1, element=Boundary(160), cost=0))
    assert len(kept.guesses(input)) == 1
