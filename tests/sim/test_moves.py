"""Fragments move, boxes are split and merged at random moments under faults; mistakes in that are noticed."""

from __future__ import annotations

import time

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.conftest import SPENT
from tests.sim.planted_moves import MOVED, SPLIT

SEEDS = {"move": 140, "splits": 60}
"""200 in all."""

CASES = [(name, seed) for name, count in SEEDS.items() for seed in range(count)]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_seed(name, seed):
    """Chaos and checks: as ``medusa.sim.move_trial`` and ``split_trial`` say."""
    passed(name, seed)


def passed(name, seed):
    began = time.process_time()
    outcome = run_scenario(name, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((name, outcome.events, time.process_time() - began))


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("block", range(25))
@pytest.mark.parametrize("name", SEEDS)
def test_more_seeds(name, block):
    """5,000 in all."""
    for seed in range(1000 + SEEDS[name] * block, 1000 + SEEDS[name] * (block + 1)):
        passed(name, seed)


def test_there_are_200_seeds_and_in_them_fragments_do_move():
    assert sum(SEEDS.values()) == 200
    outcomes = [run_scenario(name, seed, keep_trace=True) for name in SEEDS for seed in range(4)]
    trace = "\n".join(line for outcome in outcomes for line in outcome.last)
    for what in ("fragment taken", "stream moved", "goes after", "box split", "box merged"):
        assert what in trace


@pytest.mark.parametrize("mistake", [*MOVED, *SPLIT])
def test_a_planted_mistake_is_noticed_by_its_recorded_seed(mistake, monkeypatch):
    """Or by another of the first ones: whatever nodes say more to each other moves all that follows."""
    name = "move" if mistake in MOVED else "splits"
    seed, plant = (MOVED | SPLIT)[mistake]
    plant(monkeypatch)
    seen = (run_scenario(name, each).violation for each in [seed, *range(16)])
    assert next(violation for violation in seen if violation).startswith("SimulationError: ")
