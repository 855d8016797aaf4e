"""What others stand by for is moved to them at random moments, under faults; mistakes in that are noticed."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from medusa.nodes.repartition.completed_orders import CompletedOrders
from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.sim.trials.handovers import HandoverOrders
from medusa.sim.world.virtual_time import World
from medusa.wire.messages.configuration import Configuration, Replicas
from tests.sim.conftest import SPENT
from tests.sim.planted_regroup import REGROUP
from tests.sim.planted_standby import HANDOVERS
from tests.sim.planting import fails_its_tests, noticed, planted

SEEDS = 30
FULL = (pytest.mark.full, pytest.mark.issue(17))

MERGES = 55
"""A seed of ``regroup`` in which two boxes are split, and one is merged again."""

FOUND = (
    # Who was chosen died before its disk knew, and the owner before had only slept: nobody had the state.
    2003,
)
"""Seeds that have shown something before."""


def passed(seed: int, scenario: str = "handover") -> None:
    began = time.process_time()
    outcome = run_scenario(scenario, seed)
    assert outcome.ok, str(outcome)
    SPENT.append((scenario, outcome.events, time.process_time() - began))


@pytest.mark.parametrize(
    "seed", [*range(SEEDS), *FOUND, *(pytest.param(seed, marks=FULL) for seed in range(SEEDS, 2 * SEEDS))]
)
def test_seed(seed: int) -> None:
    """Chaos and checks: as ``medusa.sim.trials.handovers`` and ``medusa.sim.checkers.replicas`` say."""
    passed(seed)


@pytest.mark.parametrize(
    "seed", [*range(SEEDS // 4), *(pytest.param(seed, marks=FULL) for seed in range(SEEDS // 4, 2 * SEEDS))]
)
def test_seed_of_splits_and_merges(seed: int) -> None:
    """As ``medusa.sim.trials.regroupings`` says."""
    passed(seed, "regroup")


def test_in_a_seed_of_splits_and_merges_both_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would show nothing."""
    done: Counter[str] = Counter()
    honest = CompletedOrders.done

    def counted(self: CompletedOrders, client: str, request: int, token: int, content: bytes) -> None:
        done["split" if b'"ranges"' in content else "merge"] += 1
        honest(self, client, request, token, content)

    monkeypatch.setattr(CompletedOrders, "done", counted)
    passed(MERGES, "regroup")
    assert done["split"] >= 2
    assert done["merge"] >= 1


def test_no_order_is_drawn_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    monkeypatch.setattr(HandoverOrders, "_order", lambda orders, trial, *what: drawn.add(what))
    fragments = tuple(Replicas(fragment=f"q/{n}", owner="a", epoch=1, members=("a", "b")) for n in range(3))
    newest = Configuration(query="q", number=1, coordinator="a", voters=("a", "b"), fragments=fragments)
    nodes = {name: SimpleNamespace(name=name, alive=True) for name in "abcd"}
    trial: Any = SimpleNamespace(newest=newest, nodes=nodes, living=list(nodes.values()))
    orders = HandoverOrders(World(1, name="handover"), 20)
    for _ in range(20):
        orders._order_one(trial)
    assert len(drawn) > 10


def test_who_rests_lets_go_what_all_had_before_and_that_is_no_mistake() -> None:
    """Its disk has the decisions only when it rests already."""
    passed(534)


@pytest.mark.full
@pytest.mark.issue(17)
@pytest.mark.parametrize("block", range(20))
def test_more_seeds(block: int) -> None:
    """2,000 in all."""
    for seed in range(2000 + 100 * block, 2000 + 100 * (block + 1)):
        passed(seed)


@pytest.mark.parametrize("name", HANDOVERS)
def test_the_recorded_seed_notices_it(name: str) -> None:
    mistake = HANDOVERS[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("handover", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", [name for name, each in REGROUP.items() if not each.tests])
def test_the_recorded_seed_of_splits_and_merges_notices_it(name: str) -> None:
    mistake = REGROUP[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(lambda seed: run_scenario("regroup", seed).violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", [name for name, each in REGROUP.items() if each.tests])
def test_a_unit_test_notices_what_few_seeds_do(name: str) -> None:
    assert fails_its_tests("tests.sim.planted_regroup:REGROUP", name) == ""


@pytest.mark.parametrize("name", [*HANDOVERS, *REGROUP])
def test_the_words_that_it_changes_are_there(name: str) -> None:
    with planted({**HANDOVERS, **REGROUP}[name]):
        pass


def test_the_table_is_whole() -> None:
    for mistake in (*HANDOVERS.values(), *REGROUP.values()):
        assert set(mistake.scenarios) <= set(SCENARIOS)
        assert mistake.about.endswith(".")
