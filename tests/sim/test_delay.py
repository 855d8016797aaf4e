"""Inputs of queries with ``delay=`` go missing: new results within X, and in the end exact ones alone."""

from __future__ import annotations

import pytest

from medusa.sim.checkers.first_publishers import FirstPublishers
from medusa.sim.checkers.outages import Outages
from medusa.sim.scenarios import run_scenario
from tests.sim.planted_delay import DELAY, POLICIES
from tests.sim.planting import fails_its_tests, noticed, planted

CI = 20
"""Seeds of ``make test-ci``."""


FOUND = {
    (
        "delay",
        68,
    ): "a node stood still, and what its publisher had said meanwhile hid that it hadn't been heard",
    ("delay", 109): "a machine stood still while the query was deployed: that it was down wasn't seen",
    ("delay", 125): "a node crashed before a checkpoint knew of its publisher",
    ("delay", 180): "a node crashed before the first checkpoint of what another one sends",
    ("delay", 269): "a source came nearer to another one by itself, and was waited for",
    ("delay", 286): "a node stood still, and looked what flows before it looked who is heard",
    (
        "delay",
        399,
    ): "an input wasn't heard for a little less than X less the margin while another one's corrections came",
    (
        "delay",
        401,
    ): "a publisher could never reach the node where its source stands alone: nobody can miss it",
    ("delay", 772): "a stream was called stable before its corrections, with a fork that hadn't waited",
    (
        "delay",
        1121,
    ): "a fork didn't wait for an input that was corrected for a moment: its rows came too late",
    ("delay", 1440): "the same, of a source that was started again",
    (
        "delay",
        1760,
    ): "a stream was called stable while another input's sender was held up, for too short to say so",
    ("delay", 1664): "the same, of a sender that had stood still",
    ("delay", 2008): "the same, of a stream that was behind since a sender was started again",
    ("delay", 873): "a fork wasn't renewed where an input was back, as another's tentative lane stood in",
    ("delay", 1427): "a fork took another one's place, and lacked what a tentative lane had said before",
    ("delay", 411): "the only way was down for less than X less the margin, of which nobody is told",
    ("delay", 515): "a source that stands alone had its first publisher when the stream was being corrected",
    ("delay", 1767): "the same",
    ("delay", 1991): "that a stream is stable overtook the boundary that closes its last windows",
    ("delay", 2055): "a source that lags attached anew, and was to show again that it comes no nearer",
    ("policies", 111): "an input was taken for stable before its sender had said how it is",
}
"""Seeds that have failed, and why."""


def passed(seed: int, scenario: str = "delay") -> None:
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", range(CI))
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.delay`` says."""
    passed(seed)


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_seed_that_has_failed(scenario: str, seed: int) -> None:
    passed(seed, scenario)


def test_x_counts_once_all_sources_have_had_a_publisher() -> None:
    """Of one that goes again somebody knows: it is missing."""
    there: set[str] = set()
    first = FirstPublishers(["left", "right"], there.__contains__)
    there.add("left")
    first.look(100)
    assert first.last_us is None
    there.clear()
    first.look(200)
    assert first.last_us is None
    there.add("right")
    first.look(300)
    assert first.last_us == 300
    there.add("left")
    first.look(400)
    assert first.last_us == 300


def test_what_was_down_for_a_short_time_counts_where_it_is_back() -> None:
    down: set[str] = set()
    outages = Outages(["a", "b"], lambda part: part not in down, lambda part: 0)
    for now_us, parts in (100, ""), (200, "a"), (300, "ab"), (400, "b"), (500, "b"), (600, ""):
        down.clear()
        down.update(parts)
        outages.look(now_us)
    assert outages.ended(["a", "b"], 0, 600, for_us=400) == [(100, 300), (200, 500)]
    assert outages.ended(["b"], 0, 600, for_us=299) == []
    assert outages.ended(["a", "b"], 301, 600, for_us=400) == [(200, 500)]
    assert outages.ended(["a", "b"], 0, 299, for_us=400) == []


@pytest.mark.parametrize("seed", range(CI))
def test_policies(seed: int) -> None:
    """The same, where new rows are delayed or suspended in a failure or while corrections come."""
    passed(seed, "policies")


@pytest.mark.full
@pytest.mark.issue(19)
@pytest.mark.parametrize("block", range(40))
def test_more_seeds(block: int) -> None:
    """2,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed(seed)


@pytest.mark.parametrize("name", [name for name, each in DELAY.items() if each.tests])
def test_a_unit_test_notices_what_no_seed_does(name: str) -> None:
    assert fails_its_tests("tests.sim.planted_delay:DELAY", name) == ""


@pytest.mark.parametrize("name", [name for name, each in DELAY.items() if each.scenarios])
def test_the_recorded_seed_notices_it(name: str) -> None:
    mistake = DELAY[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("delay", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", POLICIES)
def test_the_recorded_seed_notices_a_wrong_policy(name: str) -> None:
    mistake = POLICIES[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("policies", seed).violation, mistake.seed, mistake.shows)
