"""Deployments and removals under all faults, at two coordinators, under the same names."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario


@pytest.mark.parametrize("seed", range(12))
def test_all_of_each_query_runs_or_nothing_of_it_is_left(seed):
    outcome = run_scenario("deploys", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("block", range(10))
def test_more_seeds(block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        outcome = run_scenario("deploys", seed)
        assert outcome.ok, str(outcome)
