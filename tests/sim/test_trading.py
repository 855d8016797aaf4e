"""Whole nodes that trade, under faults: ``medusa.sim.lending.trading``; mistakes of the market on nodes."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.conftest import SPENT
from tests.sim.planted_trading import TRADING
from tests.sim.planting import fails_its_tests, noticed, planted

SCENARIOS = ("trading", "deserted")
SEEDS = 25
"""Of each of the two."""
FOUND = {
    154: "a host that rested when its contract was revoked wanted to be woken at once, for ever",
    171: "checkers: a stop after two intervals was taken for one that came too late",
    177: "checkers: its owner was thirty times slower, and took its guest home late",
    207: "checkers: an owner pays to be rid of load, also of what isn't its fragments'",
    243: "checkers: a guest that nobody pays for goes home after an interval, and some",
}
"""Seeds of ``trading`` that failed once, and why."""
SEARCHED = 200
CAUGHT_MIN = 18
"""Of 23. Fewer: something that was seen isn't any more."""
CAUGHT = {name: mistake for name, mistake in TRADING.items() if mistake.seed is not None}
BY_TESTS = {name: mistake for name, mistake in TRADING.items() if mistake.tests}


def passed(scenario: str, seed: int) -> None:
    began = time.process_time()
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((scenario, outcome.events, time.process_time() - began))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed(scenario: str, seed: int) -> None:
    """Nothing runs without a contract that allows it, each move was worth it to both, one node has a fragment
    in each epoch, the answer is that of one program, and both book the same."""
    passed(scenario, seed)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_failed_once(seed: int) -> None:
    passed("trading", seed)


@pytest.mark.full
@pytest.mark.issue(21)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(scenario: str, block: int) -> None:
    """1,000 in all."""
    for seed in range(1000 + 25 * block, 1000 + 25 * (block + 1)):
        passed(scenario, seed)


SEEN = ("fragment is home", "its host is silent")


def test_in_them_load_goes_to_partners_and_comes_home() -> None:
    seen: Counter[str] = Counter()
    for scenario in SCENARIOS:
        for seed in range(4):
            lines = run_scenario(scenario, seed, keep_trace=True).last
            seen.update(what for what in SEEN for line in lines if what in line)
    assert {*seen} == {*SEEN}, seen


def violation(name: str, seed: int) -> str:
    mistake = CAUGHT[name]
    with planted(mistake, also=mistake.beside):
        return run_scenario(mistake.scenarios[0], seed).violation


@pytest.mark.parametrize("name", CAUGHT)
def test_the_recorded_seed_notices_it(name: str) -> None:
    mistake = CAUGHT[name]
    assert mistake.seed is not None
    assert noticed(lambda seed: violation(name, seed), mistake.seed, mistake.shows)


@pytest.mark.full
@pytest.mark.issue(21)
@pytest.mark.parametrize("name", CAUGHT)
def test_a_search_notices_it(name: str) -> None:
    """And without the mistake the seed that does is as it should be."""
    mistake = CAUGHT[name]
    for seed in range(SEARCHED):
        found = violation(name, seed)
        if found and found.startswith(mistake.shows):
            passed(mistake.scenarios[0], seed)
            return
    pytest.fail(f"none of {SEARCHED} seeds notices it")


@pytest.mark.parametrize("name", BY_TESTS)
def test_a_unit_test_notices_it_too(name: str) -> None:
    """The test passes without it, which ``make test`` shows, and fails with it."""
    assert fails_its_tests("tests.sim.planted_trading:TRADING", name) == ""


def test_the_table_is_whole() -> None:
    for name, mistake in TRADING.items():
        assert mistake.seed is not None or mistake.tests, name
        assert {*mistake.scenarios} <= {*SCENARIOS}
        assert mistake.about.endswith(".")
    assert len(CAUGHT) >= CAUGHT_MIN
