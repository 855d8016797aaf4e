"""The least that the same load could cost if one mind placed all of it: what the market is measured against.

Costs are convex and load is taken as divisible, so the optimum has one marginal cost for all who bear load
(water-filling). With tasks that can't be divided the least is at least this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from medusa.market.cost import BUSY_MAX, QueueingCost
from medusa.market.work import ResourceUse

__all__ = ["CostCurve", "least_cost", "water_fill"]

HALVINGS = 200
"""Of the interval in which the common marginal cost lies: beyond the precision of a float."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """``QueueingCost`` of a processor alone, with its derivative and the inverse of that.

    Attributes:
        cores: of the machine.
        scale_micro: as in ``QueueingCost``.
    """

    cores: float
    scale_micro: float

    def function(self) -> QueueingCost:
        """What a trader is given."""
        return QueueingCost(ResourceUse(cpu_cores=self.cores), self.scale_micro)

    def cost(self, load: float) -> float:
        """Micro-units a second, of so many cores in use."""
        share = load / self.cores
        if share <= BUSY_MAX:
            return self.scale_micro * share / (1 - share)
        return self.scale_micro * (BUSY_MAX / (1 - BUSY_MAX) + (share - BUSY_MAX) / (1 - BUSY_MAX) ** 2)

    def marginal(self, load: float) -> float:
        """Micro-units of one core-second more."""
        idle = 1 - min(load / self.cores, BUSY_MAX)
        return self.scale_micro / (self.cores * idle * idle)

    @property
    def marginal_max(self) -> float:
        """From 0.99 on it is this."""
        return self.scale_micro / (self.cores * (1 - BUSY_MAX) ** 2)

    def load_at(self, marginal: float) -> float:
        """The load whose marginal cost this is: the threshold at this price. 0: even the first bit costs
        more; 0.99 of the machine: what comes from there on costs no more."""
        if marginal <= 0:
            return 0.0
        share = 1 - math.sqrt(self.scale_micro / (self.cores * marginal))
        return self.cores * min(max(share, 0.0), BUSY_MAX)


def water_fill(curves: Sequence[CostCurve], total: float) -> list[float]:
    """How much each one bears where all together costs least.

    Args:
        total: cores; not below 0.
    """
    # From here on the one with the flattest end would take whatever comes.
    flattest = min(range(len(curves)), key=lambda each: curves[each].marginal_max)
    high = curves[flattest].marginal_max
    loads = [curve.load_at(high) for curve in curves]
    if (beyond := total - math.fsum(loads)) >= 0:
        loads[flattest] += beyond
        return loads
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if math.fsum(curve.load_at(middle) for curve in curves) < total:
            low = middle
        else:
            high = middle
    return [curve.load_at(high) for curve in curves]


def least_cost(curves: Sequence[CostCurve], total: float) -> float:
    """Micro-units a second."""
    loads = water_fill(curves, total)
    return math.fsum(curve.cost(load) for curve, load in zip(curves, loads, strict=True))
