"""What an input holds up that isn't heard for less than X less the margin isn't corrected meanwhile."""

from __future__ import annotations

from tests.nodes.consistency.test_fork_feeding import FORKS_AFTER_US, Forking, query


def one_is_back_while_the_other_is_not_heard() -> Forking:
    """e has failed and is stable again; f, which it meets, was heard last at 1 s."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    life.state("e", "up_failure", fork=1)
    life.there()
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 200)
    life.promises("e", 201)
    life.state("e", "stable")
    runs_all(life)
    return life


def runs_all(life: Forking) -> None:
    while life.hosted.under_way:
        life.ran()


def test_what_waits_for_an_input_that_is_not_heard_isnt_corrected() -> None:
    life = one_is_back_while_the_other_is_not_heard()
    assert life.states()[-1] == ("stabilization", 1)
    assert life.closed == []
    life.now_us = 2_000_000
    life.back("f", end_seq=2)
    life.brings("f", 150)
    runs_all(life)
    assert life.states()[-1] == ("stabilization", 1), "its sender had two rows when it was back"
    life.brings("f", 160)
    life.promises("f", 201)
    assert life.states()[-1] == ("stabilization", 1), "that isn't run"
    runs_all(life)
    assert life.states()[-1] == ("stable", 0)
    assert life.closed == life.forks


def test_what_came_before_an_input_went_is_not_enough() -> None:
    """It goes while what came is done, and is back before that is."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    life.state("e", "up_failure", fork=1)
    life.there()
    life.brings("e", 200)
    life.promises("e", 201)
    life.state("e", "stable")
    assert life.states()[-1] == ("stabilization", 1), "the row isn't run"
    before = len(life.fed["q/both"])
    life.now_us = 100_000
    life.goes("f", heard_us=0)
    life.back("f", end_seq=1)
    life.brings("f", 150)
    life.promises("f", 201)
    for _ in range(before):
        life.ran()
    assert life.states()[-1] == ("stabilization", 1), "the row of f isn't run"
    runs_all(life)
    assert life.states()[-1] == ("stable", 0)


def one_is_back_and_the_other_is_far() -> Forking:
    """e has failed and is stable again; f, which it meets, is heard and said to be stable all the time, and
    its own input is late."""
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 1_000_000)
    life.state("e", "up_failure", fork=1)
    life.there()
    life.pass_to(5_000_000)
    life.brings("e", 4_900_000)
    life.promises("e", 5_000_000)
    life.state("e", "stable")
    runs_all(life)
    return life


def test_what_waits_for_an_input_whose_sender_is_held_up_isnt_corrected() -> None:
    """It says nothing of that, since it is too short to show: but what came of the other one waits for it."""
    life = one_is_back_and_the_other_is_far()
    assert life.states()[-1] == ("stabilization", 1)
    life.brings("f", 4_000_000)
    life.promises("f", 4_900_000)
    runs_all(life)
    assert life.states()[-1] == ("stabilization", 1)
    life.promises("f", 5_000_000)
    assert life.states()[-1] == ("stabilization", 1), "that isn't run"
    runs_all(life)
    assert life.states()[-1] == ("stable", 0)
    assert life.closed == life.forks


def test_an_input_that_comes_no_nearer_is_not_waited_for() -> None:
    life = one_is_back_and_the_other_is_far()
    due_us = 5_000_000 + FORKS_AFTER_US
    assert life.hosted.wake_at_us() <= due_us  # type: ignore[operator]
    life.pass_to(due_us - 1)
    assert life.states()[-1] == ("stabilization", 1)
    life.pass_to(due_us)
    assert life.states()[-1] == ("stable", 0)


def test_nothing_is_due_of_an_input_that_is_far_while_another_one_is_behind_again() -> None:
    """The node would look at it without a rest."""
    life = one_is_back_and_the_other_is_far()
    life.state("e", "stabilization", fork=1)
    life.pass_to(5_000_000 + FORKS_AFTER_US)
    due_us = life.bound.wake_at_us()
    assert due_us is None or due_us > life.now_us


def test_an_input_that_was_missing_is_waited_for_once() -> None:
    """Once it was near it isn't to come to where others are by then: it lags behind them all the time."""
    life = Forking(query(), judged=True)
    for peer, at_us in ("e", 1_000_000), ("f", 900_000):
        life.comes(peer)
        life.promises(peer, at_us)
    life.state("f", "up_failure", fork=1)
    life.there()
    life.pass_to(1_000_000)
    life.state("f", "stable")
    assert life.states()[-1] == ("stabilization", 1)
    for at_us in range(1_050_000, 1_500_000, 50_000):
        life.pass_to(at_us)
        life.brings("e", at_us - 2)
        life.promises("e", at_us)
        life.brings("f", at_us - 100_002)
        life.promises("f", at_us - 100_000)
        runs_all(life)
        is_near = at_us >= 1_100_000
        assert life.states()[-1] == (("stable", 0) if is_near else ("stabilization", 1)), at_us


def test_it_is_missing_after_x_less_the_margin_as_ever() -> None:
    life = one_is_back_while_the_other_is_not_heard()
    assert life.hosted.wake_at_us() <= 1_000_000 + FORKS_AFTER_US  # type: ignore[operator]
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 1)


def test_a_stream_that_was_stable_is_so_while_an_input_is_only_late() -> None:
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
        life.promises(peer, 100)
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 200)
    life.back("f", end_seq=1)
    life.brings("f", 150)
    runs_all(life)
    assert life.states() == [("stable", 0)]


def test_what_waits_for_a_source_into_which_nobody_publishes_isnt_corrected() -> None:
    """Publishers of before have 10 s to come back; then this one has held up the other for 0.1 s."""
    life = Forking(query())
    life.hosted.begin(0)
    life.settle()
    life.offers("pa", "a")
    life.pass_to(9_900_000)
    life.brings("pa", 100)
    runs_all(life)
    assert state(life) == "stabilization"
    life.pass_to(10_100_000)
    assert state(life) == "stabilization"
    life.pass_to(9_900_000 + FORKS_AFTER_US)
    assert state(life) == "up_failure"


def state(life: Forking) -> str:
    said: str = life.bound.status(life.now_us, "out").state
    return said
