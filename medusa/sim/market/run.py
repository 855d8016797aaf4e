"""One market from its setup to its figures."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.sim.market.allocation import acceptable, allocation, thresholds
from medusa.sim.market.auction import ROUND_S, run_auction
from medusa.sim.market.books import PICO, MarketBooks
from medusa.sim.market.population import Population, draw_population
from medusa.sim.market.setup import MarketSetup
from medusa.sim.market.world import REACTION_US, MakeMind, MarketWorld
from medusa.sim.world.virtual_time import SimulationError

__all__ = [
    "MarketFigures",
    "MarketRun",
    "ProfitError",
    "RuleError",
    "broken_rules",
    "check_profits",
    "failed_chain_micro",
    "moves_bound",
    "range_needed",
    "run_market",
    "settings_of",
    "trader",
]

SETTINGS = TradeSettings()

MARGIN = SETTINGS.epsilon_ppm / 1e6
"""A trader moves nothing that is worth less than this share of the price."""

ROUNDING_MICRO = 1e-3
"""A profit is a float: so much a second below 0 is none."""

EXPOSING = ("load", "bill", "receipts", "idle")
"""Lies that leave honest partners out of pocket, until they are found out. Lies about one's own costs, and
refusals, must not."""

ANSWER_DELAYS = 6
"""So many delays of a message an answer may take: each way is up to two, and requests are gathered."""

NEAR = 0.01
"""Of the capacity: so near to its end overload counts as there."""


class ProfitError(SimulationError):
    """A participant did worse than alone, beyond what is stated."""


class RuleError(SimulationError):
    """A message broke a rule of the protocol, or more tasks moved than the bound allows."""


class MarketFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured of one run. Loads are in cores, shares are of the capacity below the thresholds.

    Attributes:
        contracts_each: partners of each on average.
        diameter: of the contracts' graph.
        range_needed: as in the function.
        groups: of participants between whom load can't travel, how many.
        overload_before, overload, overload_least, overload_least_connected: a share: at the beginning, in
            the end, and what the optimum leaves, without and with the graph's bounds.
        unused_before, unused, unused_least, unused_least_connected: the same of capacity.
        wasted: overload that the optimum would not leave, a share: so much is unused elsewhere.
        acceptable: as the function says (``allocation``).
        overloaded, roomy: how many such there are.
        cost_alone, cost, cost_least, cost_least_connected: micro-units a second.
        gain_share: of what the optimum would save, so much is saved.
        moves: tasks handed over; ``returns``: handed back; ``moves_bound``: as the function says.
        settled: whether it came to rest before the limit; ``settled_s``: when the last task moved.
        near_s: from then on the overload is within 1 % of the capacity of what is left in the end.
        rounds: the same in rounds of 7 s.
        messages: by kind; ``messages_each``: of each participant; ``message_bytes``: of all.
        price_mean, price_low, price_high: at which tasks were handed over, as a share of the highest price in
            their contract.
        price_step: by how much two handovers after each other differ on average, the same.
        profit_low, profit_median, profit_high: of a participant against staying alone, micro-units a second.
        losers: participants who did worse than alone, beyond what is stated.
        below: participants who did worse than alone at all; ``loss_low``: the least profit of anybody, of the
            whole run, micro-units.
        loss_share: what was lost in moments in which somebody did worse than alone, as a share of all costs.
        late_loss: what of that came later than the reaction time after a change, micro-units.
        peak_alone, peak: cores beyond the thresholds that would have to be bought so that nobody is ever
            overloaded.
        events: of the simulation; ``rule_breaks``: messages that broke a rule of the protocol.
    """

    participants: int
    contracts_each: float
    diameter: int
    range_needed: float
    groups: int
    capacity: float
    load_share: float
    overload_before: float
    overload: float
    overload_least: float
    overload_least_connected: float
    unused_before: float
    unused: float
    unused_least: float
    unused_least_connected: float
    wasted: float
    acceptable: bool
    overloaded: int
    roomy: int
    cost_alone: float
    cost: float
    cost_least: float
    cost_least_connected: float
    gain_share: float
    moves: int
    returns: int
    moves_bound: int
    settled: bool
    settled_s: float
    near_s: float
    rounds: int
    messages: dict[str, int]
    messages_each: float
    message_bytes: int
    price_mean: float
    price_low: float
    price_high: float
    price_step: float
    profit_low: float
    profit_median: float
    profit_high: float
    losers: int
    below: int
    loss_low: float
    loss_share: float
    late_loss: float
    peak_alone: float
    peak: float
    events: int = 0
    rule_breaks: int = 0
    trace_hash: str = ""


@dataclass(frozen=True, slots=True)
class MarketRun:
    """A run with what plots need besides.

    Attributes:
        profits: micro-units a second of each participant, against staying alone.
        course: (seconds, overload as a share, moves so far) at each sample.
        prices: (seconds, price as a share) of each handover.
    """

    setup: MarketSetup
    figures: MarketFigures
    profits: tuple[float, ...]
    course: tuple[tuple[float, float, int], ...]
    prices: tuple[tuple[float, float], ...]
    liars: frozenset[int] = frozenset()


def trader(settings: TradeSettings = SETTINGS) -> MakeMind:
    """How a participant's mind is made: the same class as on a node."""
    return lambda name, cost, effects, pick: Trader(name, cost, settings=settings, effects=effects, pick=pick)


def settings_of(setup: MarketSetup) -> TradeSettings:
    """Those of a node, but for what the setup says. Where messages or moves are slow patience is longer: an
    answer takes up to four delays, and room is kept until a task is there. Nobody asks for explanations here,
    so that no decisions are remembered."""
    delay_us, move_us = round(setup.delay_ms * 1e3), round(setup.move_s * 1e6)
    answer_us = max(SETTINGS.answer_us, ANSWER_DELAYS * delay_us)
    return dataclasses.replace(
        SETTINGS,
        heartbeat_us=round(setup.heartbeat_s * 1e6),
        answer_us=answer_us,
        again_us=max(SETTINGS.again_us, (ANSWER_DELAYS - 1) * delay_us),
        room_us=max(SETTINGS.room_us, answer_us + 2 * move_us),
        chain_us=max(SETTINGS.chain_us, 2 * answer_us + 2 * move_us),
        decisions=1,
    )


def run_market(
    setup: MarketSetup,
    *,
    make: MakeMind | None = None,
    strict: bool = True,
    watch: Callable[[float], None] = lambda seconds: None,
) -> MarketRun:
    """Draw a market, let it run, measure it.

    Args:
        make: other minds than ``Trader``; for tests.
        strict: see that nobody does worse than alone, and that no rule is broken; else the figures say how
            many do, and ``broken_rules`` which.
        watch: told each 10 s of virtual time how many have passed.

    Raises:
        ConfigError: the setup can't be.
        ProfitError: somebody honest did worse than alone, beyond what is stated: a bug. Not raised where a
            lie leaves partners out of pocket (``EXPOSING``): there ``losers`` says how many.
        RuleError: as ``broken_rules``.
        SimulationError: a contract was broken, or it never comes to rest.
    """
    population = draw_population(setup)
    if setup.pricing in ("auction", "alone"):
        return _without_contracts(population)
    world = MarketWorld(population, make or trader(settings_of(setup)), watch=watch)
    world.run()
    run = _measured(
        population,
        world.books,
        seconds=world.now_us / 1e6,
        last_s=world.last_move_us / 1e6,
        settled=world.settled,
        messages=dict(sorted(world.messages.items())),
        nbytes=world.message_bytes,
        prices=world.prices,
        moments=[(each.at_s, each.loads, each.moves) for each in world.samples],
        liars=world.liars,
        events=world.events,
        rule_breaks=world.rule_breaks,
        trace_hash=world.trace_hash,
    )
    if not strict:
        return run
    if broken := broken_rules(run):
        raise RuleError("; ".join(broken))
    if setup.lie not in EXPOSING:
        check_profits(population, world.books, world.liars)
    return run


def broken_rules(run: MarketRun) -> list[str]:
    """What of a run breaks a rule, in words: messages that a receiver refused as against the protocol, and
    moves beyond the bound.

    Both are asked of honest markets only. Where some lie, ``rule_breaks`` counts messages that those who are
    lied to refused, and the bound says nothing: it follows from true costs. Nor is there one for changing
    load, which moves tasks again and again, and for an auction, which knows no lowest price.
    """
    setup, figures = run.setup, run.figures
    broken: list[str] = []
    if setup.lie:
        return broken
    if figures.rule_breaks:
        broken.append(f"{figures.rule_breaks} messages broke a rule of the protocol")
    moves = figures.moves + figures.returns
    bounded = setup.pricing in ("bounded", "fixed") and not setup.change_s
    if bounded and moves > figures.moves_bound:
        broken.append(f"{moves:,} moves and returns: at most {figures.moves_bound:,} suffice")
    return broken


def check_profits(population: Population, books: MarketBooks, liars: Collection[int] = frozenset()) -> None:
    """See that nobody honest did worse than alone, beyond what is stated.

    Under constant load no profit is below 0 in the end. Under changing load a participant may lose something
    within the reaction time after its load, or that of a guest, has changed, and nothing later. Both but for
    ``failed_chain_micro``, once for each task that it handed over.

    Raises:
        ProfitError: who did, and by how much.
    """
    losers = _losers(population, books, liars)
    if losers:
        changing = bool(population.setup.change_s)
        seat = books.seats[losers[0]]
        lost = seat.late_loss_micro if changing else -seat.profit_micro
        stated = failed_chain_micro(population) * books.handed[losers[0]]
        what = f"more than {REACTION_US / 1e6:g} s after a change" if changing else "against staying alone"
        raise ProfitError(
            f"{len(losers)} of {len(books.seats)} participants lose {what}: participant {losers[0]}"
            f" {lost:,.3f} micro-units, {stated:,.3f} are stated"
        )


def failed_chain_micro(population: Population) -> float:
    """What a chain that comes to nothing may cost: who is full hands a task on so that another can come; if
    that doesn't come, or goes again, it pays for the first one for nothing until that is called home, which
    it may be after ``chain_us``, and has moved. Nothing where prices are fixed: there are no chains."""
    if not any(contract.range_micro for contract in population.contracts):
        return 0.0
    largest = max(task.use.cpu_cores for member in population.members for task in member.tasks)
    price = max(contract.price_micro for contract in population.contracts)
    chain_us = settings_of(population.setup).chain_us
    return price * largest * (chain_us / 1e6 + population.setup.move_s)


def moves_bound(population: Population) -> int:
    """So many moves, there and back, suffice: each task that its owner would pay for at the lowest price in
    its contracts goes at most once along the longest way, one task more makes room at its end, and each of
    these moves is taken back at most once. No theorem: ``run_market`` raises where it doesn't hold."""
    least = {member.name: 1 << 62 for member in population.members}
    for contract in population.contracts:
        least[contract.consumer] = min(least[contract.consumer], contract.least_micro)
    count = 0
    for member in population.members:
        load = member.load
        for task in reversed(member.tasks):
            size = task.use.cpu_cores
            below = max(load - size, 0.0)
            if member.curve.cost(load) - member.curve.cost(below) <= least[member.name] * size:
                break
            load, count = below, count + 1
    return 2 * count * (population.graph.diameter + 1)


def range_needed(population: Population) -> float:
    """The price range that the paper's theorem asks for, as a share of the price: by so much the marginal
    cost of a unit falls below the threshold when as many tasks are taken away as the diameter is long. Of the
    first participant's costs and of tasks of the smallest size: it is a theorem about equals."""
    setup, curve = population.setup, population.members[0].curve
    full, size = curve.load_at(setup.price_micro), setup.task_cores

    def unit_cost(removed: int) -> float:
        load = max(full - removed * size, size)
        return (curve.cost(load) - curve.cost(load - size)) / size

    return (unit_cost(0) - unit_cost(population.graph.diameter)) / setup.price_micro


def _losers(population: Population, books: MarketBooks, liars: Collection[int]) -> list[int]:
    chain_micro, changing = failed_chain_micro(population), bool(population.setup.change_s)
    return [
        number
        for number, (seat, handed) in enumerate(zip(books.seats, books.handed, strict=True))
        if number not in liars
        and (seat.late_loss_micro if changing else -seat.profit_micro) > chain_micro * handed + ROUNDING_MICRO
    ]


def _without_contracts(population: Population) -> MarketRun:
    setup = population.setup
    if setup.pricing == "alone":
        books = MarketBooks(population.members)
        books.close(round(setup.quiet_s * 1e6))
        return _measured(population, books, seconds=setup.quiet_s, last_s=0.0, settled=True)
    found = run_auction(population)
    for seat in found.books.seats:
        seat.begin_peaks()
    last_s = found.rounds * ROUND_S
    run = _measured(
        population,
        found.books,
        seconds=last_s + ROUND_S,
        last_s=last_s,
        settled=found.settled,
        messages=dict(sorted(found.messages.items())),
        prices=found.prices,
    )
    check_profits(population, found.books)
    return run


def _measured(
    population: Population,
    books: MarketBooks,
    *,
    seconds: float,
    last_s: float,
    settled: bool,
    messages: dict[str, int] | None = None,
    nbytes: int = 0,
    prices: Sequence[tuple[float, float]] = (),
    moments: Sequence[tuple[float, tuple[float, ...], int]] = (),
    liars: frozenset[int] = frozenset(),
    events: int = 0,
    rule_breaks: int = 0,
    trace_hash: str = "",
) -> MarketRun:
    setup, graph = population.setup, population.graph
    curves = [member.curve for member in population.members]
    limits = thresholds(population)
    before = allocation(curves, [member.load for member in population.members], limits, graph.components)
    after = allocation(curves, [seat.load for seat in books.seats], limits, graph.components)
    sizes = [[each.load_pico / PICO for each in seat.tasks.values()] for seat in books.seats]
    fine, overloaded, roomy = acceptable(curves, sizes, limits, graph.components, margin=MARGIN)
    share = after.capacity or 1.0
    profits = [seat.profit_micro / seconds for seat in books.seats]
    alone = math.fsum(curve.cost(seat.own_load) for curve, seat in zip(curves, books.seats, strict=True))
    possible = alone - after.cost_least_micro
    course = []
    for at_s, loads, moves in moments:
        over = math.fsum(max(load - each.full, 0.0) for load, each in zip(loads, limits, strict=True))
        course.append((at_s, over / share, moves))
    near_s = last_s
    for at_s, over, _ in reversed(course):
        if abs(over - after.overload / share) > NEAR:
            break
        near_s = min(near_s, at_s)
    shares = [price for _, price in prices]
    steps = [abs(after - before) for before, after in itertools.pairwise(shares)]
    said = messages or {}
    members = len(population.members)
    figures = MarketFigures(
        participants=members,
        contracts_each=2 * len(graph.edges) / members,
        diameter=graph.diameter,
        range_needed=range_needed(population),
        groups=len(graph.components),
        capacity=after.capacity,
        load_share=math.fsum(seat.own_load for seat in books.seats) / share,
        overload_before=before.overload / share,
        overload=after.overload / share,
        overload_least=after.overload_least / share,
        overload_least_connected=after.overload_least_connected / share,
        unused_before=before.unused / share,
        unused=after.unused / share,
        unused_least=after.unused_least / share,
        unused_least_connected=after.unused_least_connected / share,
        wasted=after.wasted_share,
        acceptable=fine,
        overloaded=len(overloaded),
        roomy=len(roomy),
        cost_alone=alone,
        cost=after.cost_micro,
        cost_least=after.cost_least_micro,
        cost_least_connected=after.cost_least_connected_micro,
        gain_share=(alone - after.cost_micro) / possible if possible > 0 else 1.0,
        moves=books.moves,
        returns=books.returns,
        moves_bound=moves_bound(population),
        settled=settled,
        settled_s=last_s,
        near_s=near_s,
        rounds=math.ceil(last_s / ROUND_S),
        messages=said,
        messages_each=sum(said.values()) / members,
        message_bytes=nbytes,
        price_mean=statistics.fmean(shares) if shares else 0.0,
        price_low=min(shares, default=0.0),
        price_high=max(shares, default=0.0),
        price_step=statistics.fmean(steps) if steps else 0.0,
        profit_low=min(profits),
        profit_median=statistics.median(profits),
        profit_high=max(profits),
        losers=len(_losers(population, books, liars)),
        below=sum(seat.profit_micro < -ROUNDING_MICRO for seat in books.seats),
        loss_low=min(seat.profit_micro for seat in books.seats),
        loss_share=math.fsum(seat.loss_micro for seat in books.seats) / (alone * seconds),
        late_loss=math.fsum(seat.late_loss_micro for seat in books.seats),
        peak_alone=math.fsum(
            max(seat.own_peak_pico / PICO - each.full, 0.0)
            for seat, each in zip(books.seats, limits, strict=True)
        ),
        peak=math.fsum(
            max(seat.peak_pico / PICO - each.full, 0.0)
            for seat, each in zip(books.seats, limits, strict=True)
        ),
        events=events,
        rule_breaks=rule_breaks,
        trace_hash=trace_hash,
    )
    return MarketRun(setup, figures, tuple(profits), tuple(course), tuple(prices), liars)
