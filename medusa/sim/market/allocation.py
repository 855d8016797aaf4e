"""How good it is where load runs: capacity that is unused, overload that is left; is that acceptable?

The *threshold* of a participant is the load at which its marginal cost reaches the price in its contracts
(NSDI 2004, section 3). An allocation is *acceptable* if nobody is above it, or, where there is more load than
that, nobody below it. Under contracts with different prices a participant has two: above the one at its
highest price it is overloaded, below the one at its lowest it has room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from medusa.sim.market.optimum import CostCurve, least_cost
from medusa.sim.market.population import Population

__all__ = ["Allocation", "Thresholds", "acceptable", "allocation", "thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Of one participant, in cores, and the prices at which they are.

    Attributes:
        full: above this it is overloaded; ``high_micro``: the highest price in its contracts.
        room: below this it has room; ``low_micro``: the lowest price in its contracts.
    """

    full: float
    room: float
    high_micro: int
    low_micro: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Cores, of all participants together.

    Attributes:
        capacity: all that is below the thresholds.
        overload, unused: above and below them.
        overload_least, unused_least: what of those the optimum leaves.
        overload_least_connected, unused_least_connected: what it leaves if load stays among those who are
            connected by contracts.
        cost_micro: a second; ``cost_least_micro``: of the optimum; ``cost_least_connected_micro``.
    """

    capacity: float
    overload: float
    unused: float
    overload_least: float
    unused_least: float
    overload_least_connected: float
    unused_least_connected: float
    cost_micro: float
    cost_least_micro: float
    cost_least_connected_micro: float

    @property
    def wasted_share(self) -> float:
        """Overload that the optimum would not leave, as a share of the capacity. For each core of it another
        one is unused elsewhere."""
        return (self.overload - self.overload_least) / self.capacity if self.capacity else 0.0


def thresholds(population: Population) -> list[Thresholds]:
    """Of each participant. Who has no contract has the price of the market."""
    prices: dict[str, list[int]] = {member.name: [] for member in population.members}
    for contract in population.contracts:
        prices[contract.provider].append(contract.price_micro)
    found = []
    for member in population.members:
        own = prices[member.name] or [population.setup.price_micro]
        found.append(
            Thresholds(member.curve.load_at(max(own)), member.curve.load_at(min(own)), max(own), min(own))
        )
    return found


def allocation(
    curves: Sequence[CostCurve],
    loads: Sequence[float],
    limits: Sequence[Thresholds],
    groups: Sequence[Sequence[int]],
) -> Allocation:
    """Figures of one moment.

    Args:
        loads: cores in use at each.
        groups: those between whom load can travel.
    """
    total = math.fsum(loads)
    full, room = math.fsum(each.full for each in limits), math.fsum(each.room for each in limits)
    group_loads = [math.fsum(loads[each] for each in group) for group in groups]
    return Allocation(
        capacity=full,
        overload=math.fsum(max(load - each.full, 0.0) for load, each in zip(loads, limits, strict=True)),
        unused=math.fsum(max(each.room - load, 0.0) for load, each in zip(loads, limits, strict=True)),
        overload_least=max(total - full, 0.0),
        unused_least=max(room - total, 0.0),
        overload_least_connected=math.fsum(
            max(load - math.fsum(limits[each].full for each in group), 0.0)
            for load, group in zip(group_loads, groups, strict=True)
        ),
        unused_least_connected=math.fsum(
            max(math.fsum(limits[each].room for each in group) - load, 0.0)
            for load, group in zip(group_loads, groups, strict=True)
        ),
        cost_micro=math.fsum(curve.cost(load) for curve, load in zip(curves, loads, strict=True)),
        cost_least_micro=least_cost(curves, total),
        cost_least_connected_micro=math.fsum(
            least_cost([curves[each] for each in group], load)
            for load, group in zip(group_loads, groups, strict=True)
        ),
    )


def acceptable(
    curves: Sequence[CostCurve],
    sizes: Sequence[Sequence[float]],
    limits: Sequence[Thresholds],
    groups: Sequence[Sequence[int]],
    *,
    margin: float = 0.0,
) -> tuple[bool, list[int], list[int]]:
    """Whether an allocation of tasks that can't be divided is acceptable; who is overloaded, who has room.

    Overloaded is whose smallest task costs it more for each unit than any of its prices; room has whom the
    smallest task of somebody overloaded would cost less than all of them. Acceptable: no group has both.

    Args:
        sizes: cores of each task that runs at each participant.
        margin: so much of a price a difference must be to count: a trader moves nothing for less.
    """
    overloaded, roomy, fine = [], [], True
    loads = [math.fsum(each) for each in sizes]
    for group in groups:
        smallest = math.inf
        for each in group:
            size = min(sizes[each], default=0.0)
            if size > 0 and _unit_cost(curves[each], loads[each] - size, size) > limits[each].high_micro * (
                1 + margin
            ):
                overloaded.append(each)
                smallest = min(smallest, size)
        if smallest < math.inf:
            having = [
                each
                for each in group
                if _unit_cost(curves[each], loads[each], smallest) < limits[each].low_micro * (1 - margin)
            ]
            roomy += having
            fine = fine and not having
    return fine, sorted(overloaded), sorted(roomy)


def _unit_cost(curve: CostCurve, before: float, size: float) -> float:
    return (curve.cost(before + size) - curve.cost(before)) / size
