"""Fragments move between nodes at random moments under faults; and mistakes in that are noticed."""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.planted_moves import MOVED

EVER_FAILED = [
    # The last owner of a stream became its reader too, and what it asked as that counted as its last word:
    # that the stream had moved on was dropped as late, for ever.
    286,
    299,
]

SEEDS = [*range(6), *EVER_FAILED]


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed):
    """Chaos and checks: as ``medusa.sim.move_trial`` says."""
    outcome = run_scenario("move", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("first", range(0, 5000, 100))
def test_seeds(first):
    outcomes = [run_scenario("move", seed) for seed in range(first, first + 100)]
    assert [str(outcome) for outcome in outcomes if not outcome.ok] == []


@pytest.mark.parametrize("mistake", MOVED)
def test_a_planted_mistake_is_noticed_by_its_recorded_seed(mistake, monkeypatch):
    seed, plant = MOVED[mistake]
    plant(monkeypatch)
    assert run_scenario("move", seed).violation.startswith("SimulationError: ")
