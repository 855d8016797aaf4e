"""Machines are lost for good, and others read rows again and number them as before, under faults: the same
answer."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.planted_precise import PRECISE
from tests.sim.planting import noticed, planted

CI = 20
"""Seeds of ``make test-ci``."""


def passed(seed: int) -> None:
    outcome = run_scenario("precise", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", range(CI))
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.precise`` says."""
    passed(seed)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block: int) -> None:
    """1,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed(seed)


@pytest.mark.parametrize("name", PRECISE)
def test_the_recorded_seed_notices_it(name: str) -> None:
    mistake = PRECISE[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("precise", seed).violation, mistake.seed, mistake.shows)
