"""Ledgers under deaths, partitions, loss, replays, reordering and versions that change; planted mistakes."""

from __future__ import annotations

from collections import Counter

import pytest

from medusa.errors import MedusaError
from tests.market.ledger.planted import PLANTED
from tests.market.ledger.trial import Broken, run_trial
from tests.sim.planting import noticed, planted

SEEDS = 40
FOUND = (
    # A settlement was proposed while a reading that was taken back was receipted.
    214,
    # A reading was taken back, the receipt of it was lost, and nothing more was said.
    562,
)
"""Seeds that have shown something before."""
BLOCK = 50
FULL = 1_000


def violation(seed: int) -> str:
    """What a seed shows; a mistake may show by an error of the ledger itself."""
    try:
        run_trial(seed)
    except (Broken, MedusaError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_seed(seed):
    """As ``tests.market.ledger.trial`` says: zero together, each interval once, exposure of two intervals."""
    run_trial(seed)


@pytest.mark.full
@pytest.mark.issue(20)
@pytest.mark.parametrize("block", range(FULL // BLOCK))
def test_more_seeds(block):
    """1,000 in all."""
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        run_trial(seed)


def test_in_them_everything_happens():
    """Else they would show nothing."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        seen += run_trial(seed).seen
    wanted = {
        "deaths": 50,
        "receipts": 200,
        "SettlementSaid": 100,
        "DisputeSaid": 10,
        "contract.unreceipted": 10,
        "contract.ended": 10,
        "contract.cap": 5,
        "contract.silent": 5,
    }
    assert not {what: seen[what] for what, least in wanted.items() if seen[what] < least}


def test_a_seed_is_the_same_each_time():
    assert run_trial(7).seen == run_trial(7).seen


@pytest.mark.parametrize("name", [name for name, each in PLANTED.items() if each.seed is not None])
def test_the_recorded_seed_notices_it(name):
    mistake = PLANTED[name]
    assert mistake.seed is not None
    with planted(mistake):
        assert noticed(violation, mistake.seed, mistake.shows)


@pytest.mark.parametrize("name", [name for name, each in PLANTED.items() if each.test is not None])
def test_its_test_notices_it(name):
    mistake = PLANTED[name]
    assert mistake.test is not None
    with planted(mistake), pytest.raises(AssertionError):
        mistake.test()
