"""Disks are lost while others stand by, and the nodes are rebuilt from what their peers know."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario
from medusa.sim.trials.standby import StandbyTrial

FOUND = (
    # A rebuilt owner was heard, so nobody took over until all its peers had been; clients gave up meanwhile.
    30,
    # A deployment was undone whose answer was lost: what it had installed was wired anew by a takeover.
    45,
    # A publisher that had rested since before the loss was told that there is no such source.
    63,
    # Who was chosen died before its disk knew, and the owner before had only slept: nobody had the state.
    192,
)
"""Seeds that have shown something before."""

CI = 4
"""Seeds of ``make test-ci``, beside those."""


def passed(seed: int) -> None:
    outcome = run_scenario("rebuild", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.parametrize("seed", dict.fromkeys((*range(CI), *FOUND)))
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.standby`` says."""
    passed(seed)


def test_in_them_disks_are_lost_and_seldom_more_than_stood_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would show nothing."""
    ends: list[tuple[int, bool]] = []

    def look(trial: StandbyTrial) -> None:
        ends.append((sum(node.disk.history.lost for node in trial.nodes.values()), trial.may_lose))

    monkeypatch.setattr(StandbyTrial, "check_end", look)
    for seed in range(6):
        run_scenario("rebuild", seed)
    assert sum(lost for lost, beyond in ends if not beyond) >= 4


@pytest.mark.full
@pytest.mark.issue(17)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block: int) -> None:
    """1,000 in all."""
    for seed in range(2000 + 50 * block, 2000 + 50 * (block + 1)):
        passed(seed)
