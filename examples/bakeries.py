"""Bakeries take each other's orders: the market of load, with ovens in place of processors.

An order is so many loaves a second; a unit of work is one oven for a second. Each of three bakeries knows its
own costs alone, and two pairs have a contract. Today the one at the corner has more orders than it likes.

Usage: python examples/bakeries.py
"""

from __future__ import annotations

import random

from medusa.market.contract.terms import Contract
from medusa.market.cost import PiecewiseCost
from medusa.market.money import MICRO, money_text
from medusa.market.negotiation.effects import HandBack, HandOver, Say, TradeEffects
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse, TradedTask

# So many ovens cost 1 a unit, half as many more 3, and what is beyond that 7.
OVENS = {"corner": 1.0, "mill": 2.0, "harbour": 3.0}
ORDERS = {"corner": 9, "mill": 6, "harbour": 1}
S = 1_000_000


def cost_of(ovens: float) -> PiecewiseCost:
    steps = [(0.0, 0.0), (ovens, ovens), (ovens * 1.5, ovens * 2.5), (ovens * 2, ovens * 6.0)]
    return PiecewiseCost(cpu=[(load, cost * MICRO) for load, cost in steps])


def order(bakery: str, number: int) -> TradedTask:
    """0.3 ovens: 10 loaves a second of 30 ms each."""
    return TradedTask(
        name=f"{bakery}/{number}", owner=bakery, rows_per_s_milli=10_000, cpu_ns_per_row=30_000_000
    )


def contract(consumer: str, provider: str) -> Contract:
    return Contract(
        id=f"{consumer}-{provider}",
        consumer=consumer,
        provider=provider,
        begins_us=0,
        ends_us=3_600 * S,
        price_micro=3 * MICRO,
        range_micro=2 * MICRO,
        units_per_s_max_milli=5_000,
    )


def main() -> None:
    chance = random.Random(4)
    effects = {name: TradeEffects() for name in OVENS}
    costs = {name: cost_of(ovens) for name, ovens in OVENS.items()}
    traders = {
        name: Trader(name, costs[name], effects=effects[name], pick=chance.randrange) for name in OVENS
    }
    baked_at = {order(name, n): name for name in OVENS for n in range(ORDERS[name])}
    for pair in (("corner", "mill"), ("mill", "harbour")):
        for name in pair:
            traders[name].sign(0, contract(*pair))

    for now_us in range(0, 300 * S, S // 10):
        for name, trader in traders.items():
            trader.measured(now_us, [task for task, at in baked_at.items() if at == name])
            trader.tick(now_us)
            for effect in effects[name].take():
                if isinstance(effect, Say):
                    traders[effect.partner].receive(now_us, name, effect.message)
                elif isinstance(effect, HandOver | HandBack):
                    moved = next(task for task in baked_at if task.name == effect.task)
                    baked_at[moved] = effect.partner
                    if isinstance(effect, HandOver):
                        trader.handed_over(now_us, effect.negotiation, effect.task)
                    else:
                        trader.handed_back(now_us, effect.task)

    for name, trader in traders.items():
        status = trader.status(300 * S)
        alone, now = (ORDERS[name], sum(at == name for at in baked_at.values()))
        before, after = (costs[name].cost(ResourceUse(cpu_cores=0.3 * n)) for n in (alone, now))
        paid = sum(each.price_micro * 0.3 for each in status.away)
        earned = sum(each.price_micro * 0.3 for each in status.guests)
        saved = round(before - after - paid + earned)
        print(f"{name:8} bakes {now} of {alone} orders, and is better off by {money_text(saved)} a second")
    print(next(traders["corner"].explain(300 * S)))


if __name__ == "__main__":
    main()
