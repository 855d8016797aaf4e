"""Who takes part: machines, costs and tasks, drawn from a seed; and the contracts between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from medusa.market.contract.checks import ENDS_US_MAX
from medusa.market.contract.terms import ANY, Contract
from medusa.market.work import NANO, TradedTask
from medusa.sim.market.graphs import ContractGraph, contract_graph
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.setup import MarketSetup, load_share

__all__ = ["Endowment", "Population", "draw_population", "load_contract", "redrawn_factor", "tasks_of"]

SCALE_MICRO = 1_000.0
"""Micro-units a second of a machine of one core for each row that waits. With the default price of 25,000 the
threshold is at 0.8 of the machine."""

LOAD_MAX = 10.0
"""Times the mean: nobody's load is drawn higher."""

TASK_MAX = 8.0
"""Times the smallest: no task is drawn larger."""

ROWS_PER_S_MILLI = 100_000
"""Of each task: 100 rows a second."""

UNITS_MAX_MILLI = 1_000_000_000
"""No contract is limited by its load here: cost functions do that."""

SETTLEMENT_S = 10
"""Nothing is settled here: short, so that any price times ``UNITS_MAX_MILLI`` is an amount."""

REDRAWN = (0.25, 1.75)
"""Between these, evenly, times what the participant began with."""


@dataclass(frozen=True, slots=True)
class Endowment:
    """What a participant has before any trade.

    Attributes:
        curve: what load really costs it.
        tasks: its own.
    """

    name: str
    curve: CostCurve
    tasks: tuple[TradedTask, ...]

    @property
    def load(self) -> float:
        """Cores that its own tasks take."""
        return math.fsum(task.use.cpu_cores for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Population:
    """A whole market before the first message.

    Attributes:
        contracts: two for each edge of the graph, one each way, at the same price.
    """

    setup: MarketSetup
    graph: ContractGraph
    members: tuple[Endowment, ...]
    contracts: tuple[Contract, ...]


def draw_population(setup: MarketSetup) -> Population:
    """Everything random in it comes from the seed.

    Raises:
        ConfigError: of ``MarketSetup.check``, and of the graph.
    """
    setup.check()
    graph = contract_graph(setup.graph, setup.participants, setup.contracts, _dice(setup, "graph"))
    curves = _curves(setup)
    capacity = math.fsum(curve.load_at(setup.price_micro) for curve in curves)
    loads = _loads(setup, load_share(setup.load) * capacity)
    sizes = _dice(setup, "task sizes")
    width = len(str(setup.participants - 1))
    members = []
    for number, (curve, load) in enumerate(zip(curves, loads, strict=True)):
        name = f"p{number:0{width}}"
        members.append(Endowment(name, curve, tuple(tasks_of(setup, name, load, sizes))))
    return Population(setup, graph, tuple(members), tuple(_contracts(setup, graph, members)))


def redrawn_factor(dice: Random) -> float:
    """What a participant's load becomes, times what it began with."""
    return dice.uniform(*REDRAWN)


def _dice(setup: MarketSetup, purpose: str) -> Random:
    """Of their own for each purpose: another graph leaves the loads as they are."""
    return Random(f"market {setup.seed} {purpose}")


def _curves(setup: MarketSetup) -> list[CostCurve]:
    dice = _dice(setup, "machines")
    found = []
    for _ in range(setup.participants):
        cores = 2.0 ** dice.uniform(-setup.core_spread, setup.core_spread)
        dear = 2.0 ** dice.uniform(-setup.cost_spread, setup.cost_spread)
        # A machine of twice the cores with twice the load bears twice the cost.
        found.append(CostCurve(cores, SCALE_MICRO * cores * dear))
    return found


def _loads(setup: MarketSetup, total: float) -> list[float]:
    """Cores of each, all together ``total``."""
    dice = _dice(setup, "loads")
    drawn = []
    for number in range(setup.participants):
        shape = setup.loads
        if shape == "mix":
            shape = "pareto" if number % 2 else "exponential"
        if shape == "pareto":
            mean = setup.pareto / (setup.pareto - 1)
            drawn.append(min(dice.paretovariate(setup.pareto) / mean, LOAD_MAX))
        else:
            drawn.append(min(dice.expovariate(1.0), LOAD_MAX) if shape == "exponential" else 1.0)
    return [each * total / math.fsum(drawn) for each in drawn]


def tasks_of(setup: MarketSetup, owner: str, load: float, dice: Random) -> Iterator[TradedTask]:
    """One at least, of so many cores together as near as their sizes allow."""
    left = load
    for number in itertools.count():
        cores = setup.task_cores
        if setup.task_sizes == "pareto":
            cores *= min(dice.paretovariate(setup.pareto), TASK_MAX)
        if left < cores / 2 and number:
            return
        left -= cores
        per_row = round(cores * NANO * 1_000 / ROWS_PER_S_MILLI)
        yield TradedTask(
            name=f"{owner}.{number}", owner=owner, rows_per_s_milli=ROWS_PER_S_MILLI, cpu_ns_per_row=per_row
        )


def _contracts(setup: MarketSetup, graph: ContractGraph, members: list[Endowment]) -> Iterator[Contract]:
    dice = _dice(setup, "prices")
    share = setup.range_share if setup.pricing == "bounded" else 0.0
    for first, second in graph.edges:
        price = round(setup.price_micro * (1 + dice.uniform(-setup.price_spread, setup.price_spread)))
        for provider, consumer in ((first, second), (second, first)):
            less = min(round(price * share), price - 1)
            yield load_contract(members[provider].name, members[consumer].name, price, less)


def load_contract(provider: str, consumer: str, price_micro: int, range_micro: int) -> Contract:
    """One that never ends, and allows everything."""
    return Contract(
        id=f"{provider}-{consumer}",
        provider=provider,
        consumer=consumer,
        begins_us=0,
        ends_us=ENDS_US_MAX,
        price_micro=price_micro,
        range_micro=range_micro,
        units_per_s_max_milli=UNITS_MAX_MILLI,
        settlement_s=SETTLEMENT_S,
        resale=(ANY,),
    )
