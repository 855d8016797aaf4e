"""The seeds: chains of relays under faults, every invariant after every event, then everything arrives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from medusa.cli import main
from medusa.sim.scenario import SCENARIOS, run_scenario
from tests.sim.planted import PLANTED, AckBeforePersist, Parts

SEEDS = {"cut": 25, "crash": 35, "chaos": 40, "gap": 20}
CAUGHT_WITHIN = 60


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, count in SEEDS.items() for seed in range(count)]
)
def test_seed(name, seed):
    """Chaos and checks: as the scenario's functions and ``medusa.sim.checkers`` say."""
    outcome = run_scenario(name, seed)
    assert outcome.ok, str(outcome)
    assert outcome.delivered


@pytest.mark.full
@pytest.mark.issue(2)
@pytest.mark.parametrize("block", range(40))
@pytest.mark.parametrize("name", SCENARIOS)
def test_more_seeds(name, block):
    for seed in range(1000 + 25 * block, 1025 + 25 * block):
        outcome = run_scenario(name, seed)
        assert outcome.ok, str(outcome)


def test_every_scenario_is_run_and_faults_do_happen():
    assert set(SEEDS) == set(SCENARIOS)
    lost = [run_scenario("gap", seed).lost for seed in range(6)]
    assert any(lost)
    crashed = [line for seed in range(4) for line in run_scenario("crash", seed).last if "crashes" in line]
    assert crashed


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_noticed(mistake):
    name, parts = PLANTED[mistake]
    for seed in range(CAUGHT_WITHIN):
        if not run_scenario(name, seed, parts=parts).ok:
            return
    pytest.fail(f"no seed below {CAUGHT_WITHIN} of {name} notices it")


def test_a_failure_tells_all_that_is_needed_to_see_it_again():
    parts = Parts(relay=AckBeforePersist)
    outcome = run_scenario("crash", 0, parts=parts)
    assert not outcome.ok
    told = str(outcome)
    assert "VIOLATED SimulationError: trimmed:" in told
    assert "options: ChainOptions(relays=" in told
    assert told.endswith("replay: medusa sim crash --seed 0")
    assert len(told.splitlines()) > 5  # and the last events
    assert run_scenario("crash", 0, parts=parts) == outcome


def test_the_command_replays_the_same_run():
    outcome = run_scenario("chaos", 3)
    command = outcome.replay.split()
    result = CliRunner().invoke(main, command[1:])
    assert result.exit_code == 0
    assert outcome.trace_hash in result.output


def test_the_same_seed_gives_the_same_trace_whatever_the_hashes_of_texts():
    program = (
        "from medusa.sim.scenario import run_scenario\n"
        "for name in ('cut', 'crash', 'chaos', 'gap'):\n"
        "    print([run_scenario(name, seed).trace_hash for seed in range(3)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ, PYTHONHASHSEED=hash_seed),
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1
