"""Two owners under faults, ``medusa.sim.trials.owners``, and mistakes in what they do with each other."""

from __future__ import annotations

import time

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.conftest import SPENT
from tests.sim.planted_owners import OWNERS
from tests.sim.planting import fails_its_tests, noticed, planted

SEEDS = 16
SEARCHED = 200
CAUGHT_MIN = 15
"""Of 18. Fewer: something that was seen isn't any more."""
CAUGHT = {name: mistake for name, mistake in OWNERS.items() if mistake.seed is not None}
BY_TESTS = {name: mistake for name, mistake in OWNERS.items() if mistake.tests}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed(seed):
    passed(seed)


def passed(seed):
    began = time.process_time()
    outcome = run_scenario("owners", seed)
    assert outcome.ok, str(outcome)
    SPENT.append(("owners", outcome.events, time.process_time() - began))


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block):
    """1,000 in all."""
    for seed in range(1000 + 50 * block, 1000 + 50 * (block + 1)):
        passed(seed)


def test_in_them_definitions_and_keys_are_withdrawn_and_readers_die():
    outcomes = [run_scenario("owners", seed, keep_trace=True) for seed in range(3)]
    trace = "\n".join(line for outcome in outcomes for line in outcome.last)
    for what in ("alice    has revoked", "bob      has revoked", "has withdrawn a key", "reads-1 dies"):
        assert what in trace


@pytest.mark.parametrize("name", CAUGHT)
def test_the_recorded_seed_notices_it(name):
    mistake = CAUGHT[name]
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("owners", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", CAUGHT)
def test_a_search_notices_it(name):
    """And without the mistake the seed that does is as it should be."""
    mistake = CAUGHT[name]
    for seed in range(SEARCHED):
        with planted(mistake):
            found = run_scenario("owners", seed).violation
        if found and found.startswith(mistake.shows):
            passed(seed)
            return
    pytest.fail(f"none of {SEARCHED} seeds notices it")


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("name", BY_TESTS)
def test_a_unit_test_notices_it_too(name):
    """The test file passes without it, which ``make test`` shows, and fails with it."""
    assert fails_its_tests("tests.sim.planted_owners:OWNERS", name) == ""


def test_the_table_is_whole():
    assert len(OWNERS) >= 10
    for mistake in OWNERS.values():
        assert mistake.scenarios == ("owners",)
        assert mistake.about.endswith(".")
    assert len(CAUGHT) >= CAUGHT_MIN
