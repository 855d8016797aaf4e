"""``md.Delay``: what becomes of new rows while an input is missing, and while corrections come."""

from __future__ import annotations

import pytest

import medusa as md
from tests.nodes.consistency.delayed_run import (
    CHAIN,
    PAIR,
    SCHEMA,
    SLACK_US,
    STEP_US,
    DelayedRun,
    chain,
    pair,
    second,
)

HOLD_US = second(1.8)
WINDOW_US = 500_000


def run_of(failure: str, stabilization: str | None, *, chained: bool = False) -> DelayedRun:
    delay = md.Delay("2s", failure=failure, stabilization=stabilization)
    q, at, read_at = (chain(delay), CHAIN, "n") if chained else (pair(delay), PAIR, "m")
    run = DelayedRun(q, at, read_at=read_at, span_us=second(14)).begin()
    run.cut("pub-b", "m", 3, 9)
    return run


def waited(run: DelayedRun, *, from_s: float = 0, to_s: float = 1e9) -> list[int]:
    """How long after the end of its window each tentative row came first, of windows that end meanwhile."""
    first: dict[tuple[object, object], int] = {}
    for at_us, _, rows in run.reader.guesses:
        for row in rows:
            first.setdefault((row["window_end"], row["k"]), at_us - run.begin_us)
    found = []
    for (end, _), at_us in first.items():
        end_us = int(end.timestamp() * 1_000_000)  # type: ignore[attr-defined]
        if from_s * 1e6 <= end_us <= to_s * 1e6:
            found.append(at_us - end_us)
    return found


def test_processed_at_once() -> None:
    run = run_of("process", "process")
    run.ends()
    assert run.late() == []
    assert max(waited(run, from_s=5, to_s=8.5)) < SLACK_US + STEP_US


@pytest.mark.parametrize("chained", [False, True], ids=["alone", "chain"])
def test_delayed_as_long_as_it_may_be_and_no_longer(chained: bool) -> None:
    """However many nodes there are on the way, each row waits once."""
    run = run_of("delay", "delay", chained=chained)
    run.ends()
    assert run.late() == []
    found = waited(run)
    assert len(found) > 20
    assert min(found) >= HOLD_US
    assert max(found) <= second(2) + SLACK_US


def test_delayed_where_a_source_has_ended() -> None:
    """Nothing waits for that one, and what waits for others waits as long."""
    q = md.Query("q")
    sources = [q.source(name, SCHEMA, time="ts") for name in "abc"]
    counts = md.sunion(*sources, bucket="100ms", name="both").window("500ms").group_by("k")
    delay = md.Delay("2s", failure="delay")
    q.sink("out", counts.aggregate(n=md.count(), t=md.sum("v"), name="counts"), delay=delay)
    run = DelayedRun(q, {"m": ["a", "b", "c"]}, read_at="m", span_us=second(14))
    run.tables["c"] = run.tables["c"].slice(0, 6)
    run.want = md.collect(q, **run.tables)["out"]
    run.begin()
    run.at_second(0.5, lambda: run.publishers["c"].finish("q.c", run.schemas["c"]))
    run.cut("pub-b", "m", 3, 9)
    run.ends()
    assert run.late() == []
    assert len(waited(run, to_s=7)) > 10
    assert min(waited(run, to_s=7)) >= HOLD_US


def test_delayed_in_a_failure_and_not_while_corrections_come() -> None:
    """When the input is back, what waited shows at once where the corrections aren't there yet."""
    delayed, both = run_of("delay", "process"), run_of("delay", "delay")
    for run in (delayed, both):
        run.ends()
        assert run.late() == []
    assert min(waited(delayed, to_s=7)) >= HOLD_US
    assert len(waited(delayed, from_s=7.5)) >= len(waited(both, from_s=7.5))


def test_fewer_rows_are_tentative_where_they_wait() -> None:
    counts = {}
    for policies in (("process", "process"), ("process", "delay"), ("delay", "delay")):
        run = run_of(*policies)
        run.ends()
        counts[policies] = len(waited(run))
    assert counts["delay", "delay"] < counts["process", "process"]
    assert counts["process", "delay"] <= counts["process", "process"]


@pytest.mark.parametrize("chained", [False, True], ids=["alone", "chain"])
def test_suspended_in_a_failure_nothing_is_tentative_and_its_state_is_said(chained: bool) -> None:
    run = run_of("suspend", None, chained=chained)
    run.ends()
    assert run.reader.guesses == []
    # Who reads a stream of which nothing comes, and nothing else, has lost all of its inputs.
    assert run.states == ["failure" if chained else "up_failure", "stabilization", "stable"]
    assert [fork for _, _, fork in run.reader.states] == [0, 0, 0]
    assert run.forks("m") == 0
    assert run.late(before_s=3) == []
    assert run.late() != [], "X isn't promised meanwhile"


@pytest.mark.parametrize("chained", [False, True], ids=["alone", "chain"])
def test_suspended_while_corrections_come_what_was_shown_stays_until_then(chained: bool) -> None:
    run = run_of("process", "suspend", chained=chained)
    run.until(lambda: "stabilization" in run.states, "corrections")
    back_us = next(at for at, state, _ in run.reader.states if state == "stabilization")
    forks = [fork for _, state, fork in run.reader.states if state == "stabilization"]
    assert forks == [1], "rows of before hold until they are corrected"
    run.until(lambda: not run.forks_of("m"), "the engine has the corrections alone", for_us=STEP_US)
    run.ends()
    assert run.late(before_s=7) == []
    late = [at for at, _, _ in run.reader.guesses if at > back_us + STEP_US]
    assert late == [], "nothing new is tentative any more"


def test_an_input_that_fails_again_is_answered_again_after_a_suspension() -> None:
    run = DelayedRun(pair(md.Delay("2s", stabilization="suspend")), PAIR, span_us=second(20)).begin()
    run.cut("pub-a", "m", 4, 8)
    run.cut("pub-b", "m", 8.05, 14)
    run.ends()
    assert run.forks("m") == 2
    assert [end for end, _ in run.late() if end > 10 and end < 14] == []


def test_each_output_has_its_own_policy_where_it_suspends() -> None:
    """The fork is there for the other one."""
    both = md.Query("q")
    a, b = (both.source(name, SCHEMA, time="ts") for name in "ab")
    serial = md.sunion(a, b, bucket="100ms", name="both").window("500ms").group_by("k")
    rows = serial.aggregate(n=md.count(), t=md.sum("v"), name="counts")
    both.sink("out", rows, delay=md.Delay("2s", failure="suspend"))
    both.sink("shown", rows.filter("n > 0", name="some"), delay="2s")
    run = DelayedRun(both, PAIR, span_us=second(14)).begin()
    run.cut("pub-b", "m", 3, 9)
    run.ends()
    assert run.reader.guesses == []
    assert run.states == ["up_failure", "stabilization", "stable"]
