"""The world with a trader of a hundred lines: what comes of it by hand, and that mistakes are noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from medusa.market.contract.terms import Contract
from medusa.market.cost import CostFunction
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.messages import LoadAgreed, LoadMessage
from medusa.market.work import ResourceUse, TradedTask
from medusa.sim.market.graphs import ContractGraph
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import Endowment, Population, load_contract, tasks_of
from medusa.sim.market.run import ProfitError, check_profits, run_market
from medusa.sim.market.setup import MarketSetup
from medusa.sim.market.world import MarketWorld
from medusa.sim.world.virtual_time import SimulationError
from tests.sim.market.simple_trader import SimpleTrader

HUNDRED = MarketSetup(participants=100, pricing="fixed")


def world(loads: Sequence[int], make: Any = SimpleTrader, **options: Any) -> MarketWorld:
    """So many tasks of 0.1 cores each at machines of one core, everyone with everyone for 25,000 a unit."""
    pairs = [(one, two) for one in range(len(loads)) for two in range(one + 1, len(loads))]
    return joined(loads, pairs, make, **options)


def joined(
    loads: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    make: Any = SimpleTrader,
    *,
    range_micro: int = 0,
    size: float = 0.1,
    **options: Any,
) -> MarketWorld:
    """So many tasks of this size each, and contracts between these."""
    setup = MarketSetup(participants=len(loads), task_cores=size, pricing="fixed", **options)
    names = ["abcdef"[number] for number in range(len(loads))]
    members = tuple(
        Endowment(name, CostCurve(1.0, 1_000.0), tuple(tasks_of(setup, name, count * size, dice())))
        for name, count in zip(names, loads, strict=True)
    )
    contracts = tuple(
        load_contract(names[provider], names[consumer], 25_000, range_micro)
        for pair in pairs
        for provider, consumer in (pair, pair[::-1])
    )
    return MarketWorld(Population(setup, ContractGraph(len(loads), tuple(pairs)), members, contracts), make)


def dice() -> Random:
    return Random(0)


def test_two_by_hand() -> None:
    """A task from 0.8 to 0.9 of a core costs 50,000 a unit, from 0.7 to 0.8 16,667, so that one of nine tasks
    goes for 25,000. It saves its owner 5,000 - 2,500 a second; it costs its host 428.57 - 250."""
    market = world([9, 2])
    market.run()
    first, second = market.books.seats
    assert (market.books.moves, len(first.tasks), len(second.tasks)) == (1, 8, 3)
    assert first.rate_micro == pytest.approx(2_500)
    assert second.rate_micro == pytest.approx(2_500 - (1_000 * 0.3 / 0.7 - 250))
    seconds = market.now_us / 1e6 - market.last_move_us / 1e6
    assert first.profit_micro == pytest.approx(2_500 * seconds)
    assert market.messages == {"LoadRequest": 1, "LoadAgreed": 1, "LoadMoved": 1, "LoadRuns": 1}
    assert market.settled


def test_nothing_moves_below_the_threshold() -> None:
    market = world([8, 2, 0])
    market.run()
    assert (market.books.moves, sum(market.messages.values())) == (0, 0)


def test_where_all_are_full_nothing_moves() -> None:
    market = world([12, 11])
    market.run()
    assert market.books.moves == 0
    assert market.messages["LoadEnded"] == market.messages["LoadRequest"] > 0


def test_the_same_seed_is_the_same_run() -> None:
    one, two = run_market(HUNDRED, make=SimpleTrader), run_market(HUNDRED, make=SimpleTrader)
    assert one.figures == two.figures
    assert one.profits == two.profits
    assert one.figures.moves > 100
    other = run_market(MarketSetup(participants=100, pricing="fixed", seed=2), make=SimpleTrader)
    assert other.figures.trace_hash != one.figures.trace_hash


def test_a_link_keeps_its_order_and_loses_what_it_is_told_to() -> None:
    market = world([30, 0, 0], loss=0.2)
    market.run(until_s=600)
    assert 0.05 < market.lost / sum(market.messages.values()) < 0.5


# --- mistakes --------------------------------------------------------------------------------------


class Greedy(SimpleTrader):
    """Takes whatever is offered."""

    def takes(self, task: TradedTask, load: float, price: int) -> bool:
        return True


class Bargainer(SimpleTrader):
    """Offers less than the contract allows."""

    def price(self, contract: Contract) -> int:
        return contract.least_micro - 1


class Forger(SimpleTrader):
    """Hands over what nobody has agreed to."""

    def receive(self, now_us: int, partner: str, message: LoadMessage) -> None:
        super().receive(now_us, partner, message)
        if isinstance(message, LoadAgreed):
            self.left.append(self.tasks[-1].name)


class Waster(SimpleTrader):
    """Wants to be woken again at once, for ever."""

    def tick(self, now_us: int) -> None:
        super().tick(now_us)
        self.wake = now_us


class Giver(SimpleTrader):
    """Sheds what costs it less than it pays."""

    def rise(self, before: float, size: float) -> float:
        return super().rise(before, size) * (5 if self.load > 0.5 else 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Bargainer, "outside 25000 to 25000"),
        (Forger, "hasn't agreed"),
    ],
)
def test_a_broken_rule_ends_the_run(make: Any, said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        world([9, 2], make).run()


@pytest.mark.parametrize(("make", "loads"), [(Greedy, (10, 7)), (Giver, (7, 3))])
def test_who_does_worse_than_alone_is_noticed(make: Any, loads: tuple[int, int]) -> None:
    market = world(loads, make)
    market.run()
    with pytest.raises(ProfitError, match="of 2 participants lose against staying alone"):
        check_profits(market.population, market.books)


def test_an_endless_loop_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.sim.market.world.EVENTS_MAX", 1_000)
    with pytest.raises(SimulationError, match="livelock"):
        world([9, 9], Waster).run()


def test_liars_change_what_they_say() -> None:
    """With half the cost a trader sheds less: its threshold is where the marginal cost is twice as high."""
    made: dict[str, CostFunction] = {}

    def make(
        name: str, cost: CostFunction, effects: TradeEffects, pick: Callable[[int], int]
    ) -> SimpleTrader:
        made[name] = cost
        return SimpleTrader(name, cost, effects, pick)

    market = world([9, 2], make, lie="low-cost", liars=0.5)
    (liar,) = market.liars
    costs = [made["ab"[each]].cost(ResourceUse(cpu_cores=0.5)) for each in (liar, 1 - liar)]
    assert costs == [pytest.approx(500), pytest.approx(1_000)]


def test_who_bills_too_much_is_not_paid_and_loses_the_contract() -> None:
    market = world([9, 0], lie="bill", liars=1.0)
    market.run(until_s=100)
    assert market.books.seats[1].earned_micro == 0
    assert market.books.seats[1].profit_micro < 0
    market.run(until_s=200)
    assert market.books.moves == 1


def test_who_only_refuses_gets_nothing() -> None:
    market = world([9, 9, 0], lie="refuse", liars=1.0)
    market.run(until_s=100)
    assert market.books.moves == 0
    assert market.messages["LoadEnded"] > 0
