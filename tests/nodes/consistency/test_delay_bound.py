"""``delay=``: a tentative answer within X while an input is missing, and the exact one afterwards."""

from __future__ import annotations

import pytest

from tests.nodes.consistency.delayed_run import CHAIN, PAIR, STEP_US, DelayedRun, chain, pair, second


def begun(**more: object) -> DelayedRun:
    return DelayedRun(pair(), PAIR, **more).begin()  # type: ignore[arg-type]


def test_one_of_two_publishers_is_cut_off() -> None:
    run = begun(span_us=second(14))
    run.cut("pub-b", "m", 3, 9)
    run.ends()
    assert run.late() == []
    assert run.states == ["up_failure", "stabilization", "stable"]
    assert run.forks("m") == 1
    first_us = min(at for at, _, _ in run.reader.guesses) - run.begin_us
    assert second(4.5) < first_us < second(5.2), "not before X less the margin"


def test_what_is_tentative_lacks_the_rows_of_who_is_missing_and_comes_again_whole() -> None:
    run = begun(span_us=second(14))
    run.cut("pub-b", "m", 3, 9)
    run.ends()
    exact = {(row["window_end"], row["k"]): row["n"] for row in run.want.to_pylist()}
    guessed = [row for _, _, rows in run.reader.guesses for row in rows]
    fewer = [row for row in guessed if row["n"] < exact[row["window_end"], row["k"]]]
    assert len(fewer) > 10
    assert not [row for row in guessed if row["n"] > exact[row["window_end"], row["k"]]]


def test_a_failure_that_is_shorter_shows_nothing() -> None:
    run = begun()
    run.cut("pub-b", "m", 3, 4.3)
    run.ends()
    assert run.states == []
    assert run.reader.guesses == []
    assert run.forks("m") == 0


def test_the_first_link_of_a_chain_is_cut_and_both_fork_at_once() -> None:
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(14)).begin()
    run.cut("pub-b", "m", 3, 9)
    run.ends()
    assert run.late() == [], "waits don't add up"
    assert (run.forks("m"), run.forks("n")) == (1, 1)
    assert run.states == ["up_failure", "stabilization", "stable"]


@pytest.mark.full
@pytest.mark.issue(19)
def test_the_second_link_of_a_chain_is_cut_and_nothing_is_held_up_behind_it() -> None:
    """Its reader has one input: without it nothing new is there to be answered."""
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(14)).begin()
    run.cut("m", "n", 3, 7)
    run.ends()
    assert run.reader.guesses == []
    assert run.forks("n") == 0


def test_both_publishers_fail_one_after_the_other() -> None:
    """As in the authors' first case: A 6 to 12 s, B 8 to 16 s."""
    run = begun(span_us=second(22))
    run.cut("pub-a", "m", 6, 12)
    run.cut("pub-b", "m", 8, 16)
    run.ends()
    assert run.forks("m") == 2, "rows of A that came back are in the second"
    assert [end_s for end_s, _ in run.late() if not 8 <= end_s <= 10] == [], "from 8 to 12 s nothing comes"


def test_an_input_fails_again_while_corrections_come() -> None:
    """As in the authors' second case: B fails as the recovery from A's failure begins."""
    run = begun(span_us=second(22))
    run.cut("pub-a", "m", 6, 12)
    run.cut("pub-b", "m", 12.02, 16)
    run.ends()
    assert run.late() == []
    assert run.forks("m") == 2


@pytest.mark.full
@pytest.mark.issue(19)
def test_the_same_input_fails_again_soon() -> None:
    run = begun(span_us=second(20))
    run.cut("pub-b", "m", 3, 8)
    run.cut("pub-b", "m", 8.6, 13)
    run.ends()
    assert run.late() == []


def test_a_node_that_is_back_soon_shows_nothing() -> None:
    """It has run for longer than X, and knows of no input since when it is missing: it says it is behind."""
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(8)).begin()
    node = run.fed.nodes["m"]
    run.at_second(4, node.crash)
    run.at_second(4.3, node.restart)
    run.ends()
    assert "up_failure" not in run.states
    assert run.reader.guesses == []
    assert (run.forks("m"), run.forks("n")) == (0, 0)


def test_a_node_that_stood_still_has_missed_all_whose_words_came_meanwhile() -> None:
    """What pub-b had said before it noticed is read first, and is old: it isn't there, as pub-a isn't."""
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(8)).begin()
    run.at_second(4.03, lambda: run.fed.nodes["m"].pause(second(2.5)))
    run.ends()
    assert run.states == ["failure", "stabilization", "failure", "stabilization", "stable"]


def test_rows_of_a_publisher_that_has_finished_show_without_the_one_that_is_missing() -> None:
    run = begun(span_us=second(9))
    run.cut("pub-b", "m", 3, 16)
    run.run_to(15)
    assert run.late() == []
    assert second(9) in run.first_seen_us(), "pub-a has finished then"
    run.ends()


def test_a_publisher_finishes_and_then_the_other_one_goes_missing() -> None:
    """What that one last promised holds the last rows up."""
    run = DelayedRun(pair(), PAIR, span_us=second(9))
    run.tables["b"] = run.tables["b"].slice(0, 2 * (second(8) // STEP_US))
    run.begin()
    run.cut("pub-b", "m", 8, 16)
    run.run_to(15)
    assert run.late() == []
    run.fed.run(for_us=second(8))
