"""Nodes that split and merge a box by themselves, under faults: ``medusa.sim.scaling``; mistakes in that."""

from __future__ import annotations

import time

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.conftest import SPENT
from tests.sim.planted_scale import SCALE
from tests.sim.planting import noticed, planted

SEEDS = 40
FULL = (pytest.mark.full, pytest.mark.issue(22))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < SEEDS // 4 else FULL) for seed in range(SEEDS)]
)
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.scaling`` says."""
    began = time.process_time()
    outcome = run_scenario("scale", seed)
    assert outcome.ok, str(outcome)
    SPENT.append(("scale", outcome.events, time.process_time() - began))


def test_nodes_do_split_move_and_merge_by_themselves() -> None:
    outcome = run_scenario("scale", 6, keep_trace=True)
    trace = "\n".join(outcome.last)
    for what in ("split per_k in", "move per_k-", "merge per_k at", "box split", "box merged"):
        assert what in trace


@pytest.mark.parametrize("name", SCALE)
def test_the_recorded_seed_notices_a_mistake(name: str) -> None:
    mistake = SCALE[name]
    assert mistake.seed is not None

    def violation(seed: int) -> str:
        with planted(mistake, also=mistake.beside):
            return run_scenario("scale", seed).violation

    assert noticed(violation, mistake.seed, mistake.shows)
