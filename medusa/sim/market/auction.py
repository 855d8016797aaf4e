"""What the market is compared with: an auction for each move, as in Mariposa (VLDB Journal 5, 1996).

No price is agreed beforehand. Who has a task asks all partners what they would take for it, hands it to the
one with the lowest bid if that is below what the task costs itself, and pays the bid. Bids are honest: what
the task would cost the bidder. In Mariposa a bid comes from the bidder's own rules and from its load, and
the broker looks at a delay besides; both are left out.

Rounds are as long as those of a trader. In each one every participant, in a random order, auctions its
tasks one after the other until one of them finds no taker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from medusa.sim.market.books import PICO, Hop, MarketBooks, Seat
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import Population

__all__ = ["ROUND_S", "Auction", "run_auction"]

ROUND_S = 7.0
"""The prototype offered load so often (borealis: seven rounds of statistics)."""

ROUNDS_MAX = 200

MARGIN = 0.05
"""A bid must be so much below the own cost: without it tasks go round among equals."""


@dataclass
class Auction:
    """What came of it.

    Attributes:
        rounds: until the last one in which something moved.
        prices: (seconds, price as a share of the market's) of each move.
        settled: whether a round came in which nothing moved.
    """

    books: MarketBooks
    rounds: int = 0
    settled: bool = False
    messages: Counter[str] = field(default_factory=Counter)
    prices: list[tuple[float, float]] = field(default_factory=list)


def run_auction(population: Population) -> Auction:
    """Until a round in which nothing moves, 200 at most."""
    found = Auction(MarketBooks(population.members))
    dice = Random(f"market {population.setup.seed} auction")
    order = list(range(len(population.members)))
    messages: Counter[str] = Counter()
    for number in range(1, ROUNDS_MAX + 1):
        now_us = round(number * ROUND_S * 1e6)
        dice.shuffle(order)
        before = found.books.moves
        for seller in order:
            while _sell(population, found, seller, now_us, messages):
                pass
        if found.books.moves == before:
            found.settled = True
            break
        found.rounds, found.messages = number, Counter(messages)
    found.books.close(now_us)
    return found


def _sell(population: Population, found: Auction, seller: int, now_us: int, messages: Counter[str]) -> bool:
    """Auction one task; whether somebody took it."""
    seats, curve = found.books.seats, population.members[seller].curve
    seat = seats[seller]
    best: tuple[float, int, str] | None = None
    for name, placed in reversed(seat.tasks.items()):
        gone = {placed.owner, *(hop.host for hop in placed.hops)}
        partners = [each for each in population.graph.partners[seller] if each not in gone]
        if not partners or not placed.load_pico:
            continue
        messages["request for bids"] += len(partners)
        messages["bid"] += len(partners)
        bids = [
            (_unit_cost(population.members[each].curve, seats[each], placed.load_pico), each)
            for each in partners
        ]
        price, winner = min(bids)
        own = _unit_cost(curve, seat, -placed.load_pico)
        if price < own * (1 - MARGIN):
            best = price, winner, name
        break
    if best is None:
        return False
    price, winner, name = best
    messages["award"] += 1
    messages["award accepted"] += 1
    messages["moved"] += 1
    messages["runs"] += 1
    paid = -int(-price // 1)  # whole micro-units, never below what it costs the winner
    per_row = seat.tasks[name].task.cpu_ns_per_row
    found.books.hand_over(now_us, name, seller, Hop(winner, paid, per_row))
    found.prices.append((now_us / 1e6, price / population.setup.price_micro))
    return True


def _unit_cost(curve: CostCurve, seat: Seat, pico: int) -> float:
    """Micro-units for each core-second by which the cost changes with so much more load."""
    return (curve.cost((seat.load_pico + pico) / PICO) - curve.cost(seat.load)) / (pico / PICO)
