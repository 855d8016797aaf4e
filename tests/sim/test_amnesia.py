"""Machines are lost for good and others begin empty, under faults: no row twice, the missing are counted."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario

CI = 20
"""Seeds of ``make test-ci``."""


def passed(seed: int) -> None:
    outcome = run_scenario("amnesia", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", range(CI))
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.amnesia`` says."""
    passed(seed)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block: int) -> None:
    """1,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed(seed)
