"""Machines are lost for good from queries that others hold checkpoints for, and whose outputs want different
things: each has what it was promised."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario

FULL = (pytest.mark.full, pytest.mark.issue(18))

CI = 8
"""Seeds of ``make test-ci``."""

FOUND = (
    # What was taken of a sender that was lost was never said to be durable at its successor.
    24,
    # A coordinator that had lost the first word of a node never heard it: a deployment stayed half done.
    110,
    # A deployment was undone, and what its coordinator had taken over meanwhile stayed.
    118,
    # Who was to take a fragment over asked for rows before it was the owner, and broke.
    372,
)
"""Seeds of ``wishes`` that have shown something."""


def passed(scenario: str, seed: int) -> None:
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", [*range(CI), *(pytest.param(seed, marks=FULL) for seed in FOUND)])
def test_seed_of_wishes(seed: int) -> None:
    """As ``medusa.sim.trials.wishes`` says."""
    passed("wishes", seed)


@pytest.mark.parametrize("seed", range(CI))
def test_seed_of_passive(seed: int) -> None:
    """Secondaries hold checkpoints: as ``medusa.sim.trials.standby`` says."""
    passed("passive", seed)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("block", range(40))
def test_more_seeds_of_wishes(block: int) -> None:
    """2,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed("wishes", seed)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds_of_passive(block: int) -> None:
    """1,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed("passive", seed)
