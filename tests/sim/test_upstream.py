"""Machines are lost for good and others read rows again, under faults: each row counts at least once."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario

CI = 2
"""Seeds of ``make test``."""

FOUND = (
    # Rows were kept for a reader that was lost at once with their owner; one node had taken both over.
    36,
)
"""Seeds that have shown something before."""


def passed(seed: int) -> None:
    outcome = run_scenario("upstream", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", dict.fromkeys((*range(CI), *FOUND)))
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.upstream`` says."""
    passed(seed)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block: int) -> None:
    """In some of them a sender is succeeded while its reader is started again. 1,000 in all."""
    for seed in range(50 * block, 50 * (block + 1)):
        passed(seed)
