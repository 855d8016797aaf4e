"""Machines are lost for good from queries that others hold checkpoints for, and whose outputs want different
things: each has what it was promised."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.planted_backup import BACKUP
from tests.sim.planted_standby import BY_METHOD
from tests.sim.planting import fails_its_tests, noticed, planted

CI = 8
"""Seeds of ``make test-ci``."""

FOUND = (
    # Who was chosen died before its disk knew, and the owner before had only slept: nobody had the state.
    *(72, 172),
    # A fault that lasts until all end began after they had.
    23,
    # Power went amid the owner's newest checkpoint, and the only node that held its state was lost.
    43,
    # Who stands by by amnesia counts as soon as the takeover is decided, and its disk did not say so.
    475,
    # Results that nobody had read died with their node, and nobody said so.
    463,
)
"""Seeds that have shown something before."""


def passed(scenario: str, seed: int) -> None:
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", dict.fromkeys((*range(CI), *FOUND)))
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


@pytest.mark.parametrize("name", [name for name, each in BY_METHOD.items() if each.tests])
def test_its_tests_notice_it(name: str) -> None:
    assert not fails_its_tests("tests.sim.planted_standby:BY_METHOD", name)


@pytest.mark.parametrize("name", [*(name for name, each in BY_METHOD.items() if not each.tests), *BACKUP])
def test_the_recorded_seed_notices_it(name: str) -> None:
    mistake = {**BY_METHOD, **BACKUP}[name]
    assert mistake.seed is not None
    [scenario] = mistake.scenarios
    with planted(mistake):
        assert noticed(lambda seed: run_scenario(scenario, seed).violation, mistake.seed, mistake.shows)
