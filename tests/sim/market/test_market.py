"""Markets of real traders: nobody does worse than alone, in any seed; and what comes of small ones."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import msgspec
import pytest

from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.messages import LoadMessage, LoadOffer, LoadRequest
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse
from medusa.sim.market.auction import run_auction
from medusa.sim.market.liars import liar_figures
from medusa.sim.market.population import draw_population
from medusa.sim.market.run import (
    MarketFigures,
    ProfitError,
    RuleError,
    broken_rules,
    failed_chain_micro,
    moves_bound,
    range_needed,
    run_market,
    trader,
)
from medusa.sim.market.setup import LIES, LOADS, MarketSetup
from medusa.sim.market.world import MarketWorld
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
    assert figures.losers == figures.below == 0
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


def test_more_moves_than_the_bound_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of one move less than there are. Under changing load, and among liars, there is none."""
    figures = run_market(SMALL).figures
    moves = figures.moves + figures.returns
    monkeypatch.setattr("medusa.sim.market.run.moves_bound", lambda population: moves - 1)
    with pytest.raises(RuleError, match=f"{moves} moves and returns: at most {moves - 1} suffice"):
        run_market(SMALL)
    monkeypatch.setattr("medusa.sim.market.run.moves_bound", lambda population: 0)
    run_market(msgspec.structs.replace(SMALL, change_s=600.0, limit_s=100.0))
    run_market(msgspec.structs.replace(SMALL, lie="refuse", liars=0.2, limit_s=100.0))


class Chiseller(Trader):
    """Planted: offers a price that the contract doesn't allow, before it answers."""

    def __init__(self, name: str, cost: Any, *, effects: TradeEffects, **more: Any) -> None:
        super().__init__(name, cost, effects=effects, **more)
        self._says = effects.say

    def receive(self, now_us: int, partner: str, message: LoadMessage) -> None:
        if isinstance(message, LoadRequest):
            offer = LoadOffer(
                contract=message.contract,
                version=message.version,
                negotiation=message.negotiation,
                tasks=(message.tasks[0].name,),
                price_micro=1,
                within_us=message.within_us,
            )
            self._says(partner, offer)
        super().receive(now_us, partner, message)


def test_a_message_against_a_rule_ends_the_run() -> None:
    def make(name: str, cost: Any, effects: Any, pick: Any) -> Trader:
        return Chiseller(name, cost, settings=TradeSettings(), effects=effects, pick=pick)

    with pytest.raises(RuleError, match="messages broke a rule of the protocol"):
        run_market(SMALL, make=make)
    run = run_market(SMALL, make=make, strict=False)
    assert run.figures.rule_breaks > 0
    assert broken_rules(run) == [f"{run.figures.rule_breaks} messages broke a rule of the protocol"]


def test_what_a_failed_chain_may_cost_by_hand() -> None:
    """A task of 0.1 cores at 25,000 for the 10 s before it may be called home, and 2 s to move."""
    setup = MarketSetup(participants=2, graph="chain", task_cores=0.1)
    assert failed_chain_micro(draw_population(setup)) == pytest.approx(25_000 * 0.1 * 12)
    assert failed_chain_micro(draw_population(msgspec.structs.replace(setup, pricing="fixed"))) == 0


@pytest.mark.parametrize("slow", [{"delay_ms": 2_000.0}, {"move_s": 60.0}, {"delay_ms": 10_000.0}])
def test_patience_follows_the_delay_and_the_moves(slow: dict[str, float]) -> None:
    """An answer takes 4 to 8 s, or a move a minute: nothing moved, since nobody waited for so long."""
    setup = MarketSetup(participants=12, contracts=3, load="light", task_cores=0.05, seed=2, **slow)
    figures = run_market(setup).figures
    assert figures.moves > 0
    assert figures.acceptable


def test_a_hundred_end_acceptable() -> None:
    setup = MarketSetup(load="light", task_cores=0.05, heartbeat_s=60)
    figures = run_market(setup).figures
    assert figures.participants == 100
    assert figures.overload_before > 0.1
    assert figures.acceptable
    assert figures.settled
    assert figures.wasted == pytest.approx(0)
    assert figures.gain_share > 0.99


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


@pytest.mark.parametrize(("load", "seed"), [("medium", 1), ("heavy", 7)])
def test_what_is_called_home_while_it_is_passed_on_comes_home(load: str, seed: int) -> None:
    """In both seeds a task was recalled from a host that was handing it on. It went on, its host waited for
    it for ever, and its owner, who calls home one at a time, called no other: a loss without end."""
    setup = MarketSetup(
        participants=30, load=load, task_cores=0.05, heartbeat_s=60, change_s=600, limit_s=1_800, seed=seed
    )
    assert run_market(setup).figures.losers == 0


def test_an_auction_spreads_load_as_well_at_wilder_prices() -> None:
    """A market that says its prices each minute sends no more messages than 1.5 times those of the auction,
    and no fewer than half; its prices stay in the range, those of the auction don't."""
    setup = MarketSetup(participants=50, task_cores=0.05, pricing="auction")
    auction = run_auction(draw_population(setup))
    assert auction.settled
    auctioned = run_market(setup).figures
    alone = run_market(msgspec.structs.replace(setup, pricing="alone")).figures
    assert alone.moves == alone.messages_each == 0
    assert alone.gain_share == 0
    assert auctioned.gain_share > 0.9
    assert auctioned.losers == 0
    by_contract = run_market(msgspec.structs.replace(setup, pricing="bounded", heartbeat_s=60)).figures
    assert by_contract.wasted == pytest.approx(auctioned.wasted, abs=0.01)
    assert by_contract.gain_share == pytest.approx(auctioned.gain_share, abs=0.01)
    assert 0.5 < by_contract.messages_each / auctioned.messages_each < 1.5
    assert 0.7 <= by_contract.price_low <= by_contract.price_high <= 1
    assert auctioned.price_low < 0.1
    assert auctioned.price_high > 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lie", ["low-cost", "high-cost", "refuse"])
def test_nobody_honest_does_worse_than_alone_by_lies_about_costs(lie: str, seed: int) -> None:
    setup = msgspec.structs.replace(SMALL, lie=lie, liars=0.2, limit_s=300.0, seed=seed)
    figures = run_market(setup).figures  # which raises otherwise
    assert figures.losers == figures.rule_breaks == 0
    assert figures.moves > 0


def test_an_honest_loser_ends_the_run_unless_partners_are_cheated() -> None:
    """Planted: somebody honest takes what overloads it; p03 lies. Where lies cheat partners it is counted."""

    def make(name: str, cost: Any, effects: Any, pick: Any) -> Trader:
        kind = Greedy if name == "p04" else Trader
        return kind(name, cost, settings=TradeSettings(), effects=effects, pick=pick)

    setup = msgspec.structs.replace(SMALL, graph="mesh", load="overload", liars=0.1, limit_s=300.0)
    with pytest.raises(ProfitError, match="participant 4 "):
        run_market(msgspec.structs.replace(setup, lie="refuse"), make=make)
    assert run_market(msgspec.structs.replace(setup, lie="bill"), make=make).figures.losers > 0


PAIRS = range(8)
"""Seeds of which each market is run twice, with its liars lying and honest: 16 liars."""

HONEST = cache(run_market)


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie])
def test_most_liars_would_have_done_better_honest(lie: str) -> None:
    """Of 16 pairs at most half gain, the median doesn't, and together they lose."""
    setup = msgspec.structs.replace(SMALL, lie=lie, liars=0.2, limit_s=300.0)
    found = liar_figures(setup, PAIRS, honest_run=HONEST)
    assert found.liars == 16
    assert found.gained <= found.liars / 2
    assert found.gain_median <= 1e-3
    assert found.gain < 0
    assert found.rule_breaks == 0


def test_who_never_pays_gains_where_nothing_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above says of ``receipts`` comes of the end of the contract after two intervals."""
    monkeypatch.setattr("medusa.sim.market.world.EXPOSURE_US", 1 << 60)
    setup = msgspec.structs.replace(SMALL, lie="receipts", liars=0.2, limit_s=300.0)
    found = liar_figures(setup, PAIRS, honest_run=HONEST)
    assert found.gain_median > 0
    assert found.gain > 0


def test_who_understates_its_tasks_gets_them_back() -> None:
    """It is found out by what the receiver measures after 10 s; until then it pays half."""
    setup = msgspec.structs.replace(SMALL, lie="load", liars=0.2, limit_s=300.0, seed=0)
    market = MarketWorld(draw_population(setup), trader(), keep_trace=True)
    market.run()
    back = [line for line in market.trace if line.endswith("E_UNDERSTATED")]
    assert len(back) > 10
    assert {int(line.split()[3]) for line in back} <= market.liars
    assert market.rule_breaks == 0


class Greedy(Trader):
    """Planted: takes what would overload it."""

    def __init__(self, name: str, cost: Any, **more: Any) -> None:
        super().__init__(name, _Blind(cost), **more)


class _Blind:
    """Costs nearly nothing, whatever comes."""

    def __init__(self, cost: Any) -> None:
        self._cost = cost

    def cost(self, use: ResourceUse) -> float:
        return use.cpu_cores * float(self._cost.cost(ResourceUse(cpu_cores=0.3))) / 0.6


def test_a_receiver_that_takes_what_overloads_it_is_noticed() -> None:
    def make(name: str, cost: Any, effects: Any, pick: Any) -> Trader:
        kind = Greedy if name == "p03" else Trader
        return kind(name, cost, settings=TradeSettings(), effects=effects, pick=pick)

    with pytest.raises(AssertionError, match="participants lose"):
        run_market(msgspec.structs.replace(SMALL, graph="mesh", load="overload"), make=make)


def test_a_thousand_participants() -> None:
    """In the time of a test: tasks of 0.1 cores, two minutes, prices said again each minute. Heavy load isn't
    spread by then; medium load is (below)."""
    setup = MarketSetup(
        participants=1_000, task_cores=0.1, range_share=0.6, heartbeat_s=60, limit_s=120, quiet_s=60
    )
    figures = run_market(setup).figures
    assert figures.participants == 1_000
    assert figures.losers == figures.rule_breaks == 0
    assert figures.overload < figures.overload_before * 0.3
    assert figures.gain_share > 0.7
    assert figures.price_low >= 0.4


def test_a_thousand_participants_end_acceptable() -> None:
    """Medium load, tasks of 0.1 cores, five minutes: nothing is left of 22 % overload."""
    setup = MarketSetup(participants=1_000, load="medium", task_cores=0.1, heartbeat_s=60, limit_s=300)
    figures = run_market(setup).figures
    assert figures.participants == 1_000
    assert figures.overload_before > 0.2
    assert figures.acceptable
    assert figures.wasted == pytest.approx(0)
    assert figures.gain_share > 0.99
    assert figures.moves + figures.returns <= figures.moves_bound
    assert figures.losers == figures.rule_breaks == 0
