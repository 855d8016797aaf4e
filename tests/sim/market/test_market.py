"""Markets of real traders: nobody does worse than alone, in any seed; and what comes of small ones."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse
from medusa.sim.market.auction import run_auction
from medusa.sim.market.liars import liar_figures
from medusa.sim.market.population import draw_population
from medusa.sim.market.run import (
    MarketFigures,
    failed_chain_micro,
    moves_bound,
    range_needed,
    run_market,
    trader,
)
from medusa.sim.market.setup import LIES, LOADS, MarketSetup
from tests.sim.market.test_world import joined, world

SMALL = MarketSetup(participants=12, contracts=3, task_cores=0.05)
GRAPHS = ("random", "mesh", "star", "chain", "ring", "grid")


def varied(seed: int) -> MarketSetup:
    """Another graph, load, pricing and inequality with each seed."""
    return msgspec.structs.replace(
        SMALL,
        seed=seed,
        graph=GRAPHS[seed % len(GRAPHS)],
        load=list(LOADS)[seed % 4],
        pricing="fixed" if seed % 5 == 0 else "bounded",
        price_spread=0.2 * (seed % 3),
        cost_spread=0.5 * (seed % 2),
        task_sizes="pareto" if seed % 7 == 0 else "same",
        loads=("pareto", "exponential", "mix")[seed % 3],
    )


def nobody_loses(seed: int) -> MarketFigures:
    """``run_market`` raises where somebody has done worse than alone in the end."""
    figures = run_market(varied(seed)).figures
    assert figures.losers == 0
    assert figures.loss_low >= -failed_chain_micro(draw_population(varied(seed)))
    assert figures.rule_breaks == 0
    return figures


@pytest.mark.parametrize("seed", range(30))
def test_nobody_does_worse_than_alone(seed: int) -> None:
    nobody_loses(seed)


@pytest.mark.full
@pytest.mark.issue(20)
@pytest.mark.parametrize("start", range(30, 330, 20))
def test_nobody_does_worse_than_alone_in_hundreds_of_seeds(start: int) -> None:
    for seed in range(start, start + 20):
        nobody_loses(seed)


@pytest.mark.parametrize("seed", range(5))
def test_two_end_where_the_best_of_all_allocations_is(seed: int) -> None:
    """By enumeration: of all ways to share the tasks of two participants none in which somebody is overloaded
    while the other has room; and none that is cheaper by more than a few tasks at the price."""
    setup = MarketSetup(participants=2, graph="chain", load="heavy", seed=seed, task_cores=0.05)
    population = draw_population(setup)
    first, second = (member.curve for member in population.members)
    tasks = sum(len(member.tasks) for member in population.members)
    costs = [first.cost(here * 0.05) + second.cost((tasks - here) * 0.05) for here in range(tasks + 1)]
    figures = run_market(setup).figures
    assert figures.acceptable
    assert min(costs) <= figures.cost * (1 + 1e-9)
    # Below their thresholds no one pays the other: what is left on the table is less than the price.
    assert figures.cost - min(costs) <= setup.price_micro * 0.8


def test_the_same_seed_is_the_same_run() -> None:
    setup = varied(3)
    one, two = run_market(setup), run_market(setup)
    assert one.figures == two.figures
    assert one.figures.moves > 0
    assert run_market(varied(4)).figures.trace_hash != one.figures.trace_hash


def test_messages_that_are_lost_change_nothing_in_the_end() -> None:
    kept, lost = (run_market(msgspec.structs.replace(varied(2), loss=loss)).figures for loss in (0.0, 0.1))
    assert lost.wasted <= kept.wasted + 0.05
    assert lost.losers == 0
    assert sum(lost.messages.values()) != sum(kept.messages.values())


def test_a_range_lets_load_through_who_is_full() -> None:
    """A chain of three, tasks of 0.02 cores: the first is overloaded, the second full, the third empty. With
    one price next to nothing comes to the third; with a range it does."""
    ends = []
    for range_micro in (0, 10_000):
        market = joined([50, 39, 0], [(0, 1), (1, 2)], trader(), range_micro=range_micro, size=0.02)
        market.run()
        ends.append([round(seat.load, 2) for seat in market.books.seats])
    assert ends[0][0] > 0.9
    assert ends[0][2] <= 0.05
    assert ends[1][0] <= 0.82
    assert ends[1][2] >= 0.1


def test_the_bound_on_moves_holds() -> None:
    for seed, graph in itertools.product(range(3), ("ring", "star")):
        setup = msgspec.structs.replace(SMALL, graph=graph, seed=seed)
        figures = run_market(setup).figures
        assert figures.moves + figures.returns <= figures.moves_bound


def test_the_bound_on_moves_by_hand() -> None:
    """Two of ten tasks of 0.1 cores are above 0.8; the longest way is one step, in a chain of three two."""
    assert moves_bound(world([10, 2, 0]).population) == 2 * 2 * 2
    assert moves_bound(joined([10, 2, 0], [(0, 1), (1, 2)]).population) == 2 * 2 * 3


def test_the_range_of_the_theorem_by_hand() -> None:
    """The tenth task of 0.1 cores from 0.8 down costs (4,000 - 2,333.33) / 0.1 a unit, the one below it
    (2,333.33 - 1,500) / 0.1: they differ by a third of 25,000."""
    setup = MarketSetup(participants=2, graph="chain", task_cores=0.1)
    assert range_needed(draw_population(setup)) == pytest.approx((16_666.7 - 8_333.3) / 25_000, rel=1e-4)


def test_unequal_prices_send_load_to_the_cheaper_one() -> None:
    figures = run_market(msgspec.structs.replace(SMALL, price_spread=0.3, participants=20)).figures
    assert figures.price_low < figures.price_high <= 1
    assert figures.wasted < 0.1


def test_changing_load_loses_little_and_saves_peaks() -> None:
    """Late losses are refused by ``run_market``."""
    setup = MarketSetup(participants=20, load="medium", change_s=600, limit_s=1_500, task_cores=0.05)
    figures = run_market(setup).figures
    assert figures.moves > 0
    assert figures.peak < figures.peak_alone
    assert figures.loss_share < 0.02


def test_an_auction_spreads_load_as_well_with_more_messages() -> None:
    setup = MarketSetup(participants=50, task_cores=0.05, pricing="auction")
    auction = run_auction(draw_population(setup))
    assert auction.settled
    auctioned = run_market(setup).figures
    alone = run_market(msgspec.structs.replace(setup, pricing="alone")).figures
    assert alone.moves == alone.messages_each == 0
    assert alone.gain_share == 0
    assert auctioned.gain_share > 0.9
    assert auctioned.losers == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lie", ["low-cost", "high-cost", "refuse"])
def test_nobody_honest_does_worse_than_alone_by_lies_about_costs(lie: str, seed: int) -> None:
    setup = msgspec.structs.replace(SMALL, lie=lie, liars=0.2, limit_s=300.0, seed=seed)
    figures = run_market(setup).figures
    assert figures.losers == 0
    assert figures.moves > 0


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie])
def test_no_lie_gains_on_average(lie: str) -> None:
    """Beyond two standard errors."""
    setup = msgspec.structs.replace(SMALL, lie=lie, liars=0.2, limit_s=300.0)
    found = liar_figures(setup, range(3))
    assert found.gain <= 2 * found.gain_error + 1


class Greedy(Trader):
    """Planted: takes what would overload it."""

    def __init__(self, name: str, cost: Any, **more: Any) -> None:
        super().__init__(name, _Blind(cost), **more)


class _Blind:
    """Costs nearly nothing, whatever comes."""

    def __init__(self, cost: Any) -> None:
        self._cost = cost

    def cost(self, use: ResourceUse) -> float:
        return 0.5 * float(self._cost.cost(ResourceUse(cpu_cores=min(use.cpu_cores, 0.3)))) + use.cpu_cores


def test_a_receiver_that_takes_what_overloads_it_is_noticed() -> None:
    def make(name: str, cost: Any, effects: Any, pick: Any) -> Trader:
        kind = Greedy if name == "p03" else Trader
        return kind(name, cost, settings=TradeSettings(), effects=effects, pick=pick)

    with pytest.raises(AssertionError, match="participants lose"):
        run_market(msgspec.structs.replace(SMALL, graph="mesh", load="overload"), make=make)


def test_a_thousand_participants() -> None:
    """In the time of a test: tasks of 0.1 cores, two minutes, prices said again each minute."""
    setup = MarketSetup(
        participants=1_000, task_cores=0.1, range_share=0.6, heartbeat_s=60, limit_s=120, quiet_s=60
    )
    figures = run_market(setup).figures
    assert figures.participants == 1_000
    assert figures.losers == figures.rule_breaks == 0
    assert figures.overload < figures.overload_before / 2
