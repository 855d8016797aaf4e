"""A fragment goes to nodes of other participants and comes home, under faults: ``medusa.sim.lending``."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from medusa.sim.scenarios import run_scenario
from tests.sim.conftest import SPENT
from tests.sim.planting import Mistake, edit, noticed, planted

SEEDS = 8


def passed(scenario: str, seed: int) -> None:
    began = time.process_time()
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((scenario, outcome.events, time.process_time() - began))


@pytest.mark.parametrize("scenario", ["abroad", "vanished"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed(scenario: str, seed: int) -> None:
    """The answer is that of one program, one node has it in each epoch, and nothing runs without a permit."""
    passed(scenario, seed)


@pytest.mark.full
@pytest.mark.issue(21)
@pytest.mark.parametrize("scenario", ["abroad", "vanished"])
@pytest.mark.parametrize("block", range(10))
def test_more_seeds(scenario: str, block: int) -> None:
    """1,000 in all."""
    for seed in range(1000 + 50 * block, 1000 + 50 * (block + 1)):
        passed(scenario, seed)


IDLE = "return spec.idle_standby or replicas.abroad"
COMPUTED = Mistake(
    area="lent",
    about="nodes at home compute what a host has, and who lends is rid of nothing",
    edits=edit("nodes.recovery.standby_kind:is_idle", IDLE, "return spec.idle_standby"),
    shows="SimulationError: lent: ",
)


def test_what_is_computed_at_home_while_it_is_lent_is_noticed() -> None:
    with planted(COMPUTED):
        assert noticed(lambda seed: run_scenario("abroad", seed).violation, 0, COMPUTED.shows)


WHYS = ("its host is silent", "its contract is over", "gives it back", "its owner wants it")


def test_in_them_fragments_come_home_for_every_reason() -> None:
    seen: Counter[str] = Counter()
    for scenario in ("abroad", "vanished"):
        for seed in range(10):
            lines = run_scenario(scenario, seed, keep_trace=True).last
            home = [line for line in lines if "fragment is home" in line]
            seen.update(why for why in WHYS for line in home if why in line)
    assert {*seen} == {*WHYS}, seen
