"""How many corrections are to come, and which input is missing, as the status says."""

from __future__ import annotations

from typing import Any

import pytest

from medusa.nodes.consistency.corrections import TRAINS_MAX, UncorrectedRows
from medusa.runtime.client.status.bounded_streams import unstable_text
from medusa.wire.status_and_metrics import ConsistencyStatus, status_of
from tests.nodes.consistency.delayed_run import CHAIN, PAIR, STEP_US, DelayedRun, chain, pair, second
from tests.nodes.consistency.test_fork_feeding import Forking, missing_b, query
from tests.nodes.consistency.test_fork_outputs import apart, fails, train


def status(life: Forking, sink: str = "out", **queues: int) -> ConsistencyStatus:
    figures = {box: {"queue_rows": rows} for box, rows in queues.items()}
    found: ConsistencyStatus = life.bound.status(life.now_us, sink, figures)
    return found


def seen(run: DelayedRun, node: str) -> Any:
    """What the status of a node says of the one stream with ``delay``, as JSON has it."""
    known = run.fed.nodes[node]
    [fragment] = status_of(known.brain.status(known.clock.monotonic_us())).fragments
    [output] = fragment.outputs
    assert isinstance(output.consistency, ConsistencyStatus)
    return output.consistency


def test_tentative_rows_count_until_the_stable_boundary_is_past_their_train() -> None:
    rows = UncorrectedRows()
    rows.shown(1, train(100), 0)
    rows.shown(1, train(200), 50)
    assert rows.count(1, 100) == 2, "a boundary of 100 leaves the row of 100 open"
    assert rows.count(1, 101) == 1
    assert rows.count(1, 201) == 0
    rows.shown(1, train(200), 201)
    assert rows.count(1, 201) == 0, "it is void when it comes"


def test_rows_of_another_fork_are_void() -> None:
    rows = UncorrectedRows()
    rows.shown(1, train(100), 0)
    rows.shown(2, train(300), 0)
    assert rows.count(2, 0) == 1
    assert rows.count(0, 0) == 0, "there is none any more"


def test_through_a_long_failure_memory_is_bounded_and_no_row_is_forgotten() -> None:
    rows = UncorrectedRows()
    count = 5 * TRAINS_MAX
    for at_us in range(count):
        rows.shown(1, train(at_us), 0)
    assert len(rows._trains) <= TRAINS_MAX
    assert rows.count(1, 0) == count
    assert 0 < rows.count(1, count // 2) <= count // 2 + 64
    assert rows.count(1, count) == 0


def test_rows_that_wait_count_where_they_lead_to_the_stream_alone() -> None:
    life = fails(apart(), "other", "shared")
    life.brings("pa", 300)
    life.fork_ran([("out", train(300)), ("shared", train(300))])
    told = status(life, both=7, alone=100, all=1000, out=5)
    assert (told.uncorrected_rows, told.behind_rows) == (1, 7), "rows at the sink have left the boxes"
    assert status(life, "shared", both=7, alone=100, all=1000).behind_rows == 1007
    assert status(life, "other", both=7, alone=100, all=1000) == ConsistencyStatus()


def test_rows_that_came_and_are_not_fed_wait_too() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    before = status(life).behind_rows
    for at_us in range(300, 300 + 200):  # The engine, which does nothing here, takes no more than so many.
        life.brings("pa", at_us)
    assert status(life).behind_rows > before + 100


def test_the_time_is_that_between_what_holds_it_up_and_the_furthest_and_counts_the_lane_of_a_sender() -> None:
    life = Forking(query(), judged=True)
    for peer, at_us in (("e", 420), ("f", 120)):
        life.comes(peer)
        assert status(life).behind_us == 0
        life.promises(peer, at_us)
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 500)
    life.pass_to(2_800_000)
    assert (status(life).state, status(life).behind_us) == ("up_failure", 300)
    life.state("e", "up_failure", 1)
    life.guesses_boundary("e", 1, 0, 620)
    assert status(life).behind_us == 500


def test_of_an_input_by_which_nothing_has_come_nobody_knows_how_far_behind_it_is() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    assert status(life).behind_us is None


def test_a_publisher_that_is_cut_off_is_named_with_its_age_and_corrections_come_down_to_none() -> None:
    run = DelayedRun(pair(), PAIR, span_us=second(14)).begin()
    run.cut("pub-b", "m", 3, 9)
    run.run_to(8.5)
    told = seen(run, "m")
    [missing] = told.missing
    assert (missing.kind, missing.origin, missing.stream) == ("publisher", "pub-b", "q.b")
    assert missing.text == "stream q.b of publisher pub-b, which isn't heard, for 5 s"
    assert (told.state, told.fork) == ("up_failure", 1)
    shown = sum(len(rows) for _, _, rows in run.reader.guesses)
    assert 0 < told.uncorrected_rows <= told.tentative_rows
    assert abs(told.uncorrected_rows - shown) <= 10, "all that was shown is to be corrected"
    rows_a_second = 2 * second(1) // STEP_US
    assert 4 * rows_a_second < told.behind_rows < 7 * rows_a_second, "what a has brought since"
    run.ends()
    after = seen(run, "m")
    assert after == ConsistencyStatus(for_us=after.for_us, tentative_rows=after.tentative_rows)
    assert after.tentative_rows > told.tentative_rows


def test_where_the_fragment_has_failed_no_input_is_missing_and_that_is_said() -> None:
    life = missing_b()
    life.back("pb")
    life.hosted.fail("a box divides by 0")
    told = status(life)
    assert (told.state, told.missing, told.why) == ("failure", (), "the fragment has failed")
    assert unstable_text(told).startswith("nothing new comes of it; ")
    assert unstable_text(told).endswith("; no fork: the fragment has failed")


@pytest.mark.full
@pytest.mark.issue(19)
def test_behind_a_node_that_says_so_it_is_named_as_the_one_of_which_an_input_is_missing() -> None:
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(14)).begin()
    run.cut("pub-b", "m", 3, 9)
    run.run_to(8.5)
    [missing] = seen(run, "n").missing
    assert (missing.kind, missing.origin) == ("node", "m")
    which = f"stream {missing.stream} of node m"
    assert missing.text.startswith(f"{which}, which says that an input of it is missing, for ")
    assert missing.for_us < second(8.5 - 3 - 1.5)
    behind_us = seen(run, "n").behind_us
    assert second(4) < behind_us < second(7), "by the lane of m"
    run.ends()


def test_a_source_into_which_nobody_publishes_has_no_sender() -> None:
    run = DelayedRun(pair(), PAIR, span_us=second(14))
    run.tables["b"] = run.tables["b"].slice(0, 0)
    run.publishers["b"].dead = True
    run.begin()
    run.run_to(6)
    [missing] = seen(run, "m").missing
    assert missing.text in (f"source q.b: nobody publishes into it, for {count} s" for count in (4, 5, 6))
    assert seen(run, "m").behind_us is None
