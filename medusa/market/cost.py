"""What load costs the participant who bears it: private functions, convex and growing (NSDI 2004, section 3).

    cost(use) ──> micro-units of money a second
    marginal cost = (cost(after) - cost(before)) / units a second

A task goes from A to B at a price p for a unit where the marginal cost of it at A is above p, and at B below.
The cost never leaves its owner: what others see of it are the offers that it makes and takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from medusa.errors import ContractError
from medusa.market.work import ResourceUse

__all__ = [
    "ClusterCost",
    "CostFunction",
    "PiecewiseCost",
    "QueueingCost",
    "check_convex",
    "unit_marginal_cost",
]

BUSY_MAX = 0.99
"""From this share of a resource on the queueing cost goes on as a straight line: at 1 it would be
infinite. The prototype held the *level* there, so that a task beyond it cost nothing more, or less than
nothing."""

SAMPLES = 64
"""Steps at which a function of a user's own is looked at. Too few: a dent goes unseen; too many: time."""

SLACK = 1e-9
"""Relative: so far rounding may be from convex."""


class CostFunction(Protocol):
    """Convex, and never less for more."""

    def cost(self, use: ResourceUse) -> float:
        """Micro-units of money a second."""
        ...


def unit_marginal_cost(
    function: CostFunction, before: ResourceUse, task: ResourceUse, units_per_s: float
) -> float:
    """By how much a unit of this task raises the cost, in micro-units.

    Args:
        before: what is borne without the task.
        units_per_s: of the task; not 0.
    """
    return (function.cost(before.plus(task)) - function.cost(before)) / units_per_s


class QueueingCost:
    """The prototype's: the length of the queues at processor and network, times a price for waiting.

    ``scale * (c / (1 - c) + b / (1 - b))`` for the shares c and b in use (``ContractBasedOptimizer``),
    beyond 0.99 as a straight line.

    Args:
        capacity: the whole machine; a resource that is 0 isn't counted.
        scale_micro: micro-units a second for each row that waits.

    Raises:
        ContractError: nothing to count, or a number that is none.
    """

    def __init__(self, capacity: ResourceUse, scale_micro: float) -> None:
        numbers = capacity.cpu_cores, capacity.bytes_per_s, scale_micro
        if (
            not all(math.isfinite(each) and each >= 0 for each in numbers)
            or not any(numbers[:2])
            or not scale_micro
        ):
            raise ContractError(
                f"a capacity of {capacity.cpu_cores:g} cores and {capacity.bytes_per_s:g} B/s at a scale of"
                f" {scale_micro:g}: all are 0 or more, the scale and one of the others more",
                code="contract.cost",
            )
        self._capacity, self._scale = capacity, scale_micro

    def cost(self, use: ResourceUse) -> float:
        # Traders ask this more often than anything else.
        waiting, whole = 0.0, self._capacity
        if whole.cpu_cores:
            waiting = _queue(use.cpu_cores / whole.cpu_cores)
        if whole.bytes_per_s:
            waiting += _queue(use.bytes_per_s / whole.bytes_per_s)
        return self._scale * waiting


def _queue(share: float) -> float:
    """What waits where so much of a resource is in use."""
    if share <= BUSY_MAX:
        return share / (1 - share)
    return BUSY_MAX / (1 - BUSY_MAX) + (share - BUSY_MAX) / (1 - BUSY_MAX) ** 2


class PiecewiseCost:
    """Straight lines between points that an owner writes down, for each resource; the last one goes on.

    Args:
        cpu, network: (cores or bytes a second, micro-units a second), from (0, 0) on, ascending.

    Raises:
        ContractError: which point isn't convex, or goes back.
    """

    def __init__(
        self, cpu: Sequence[tuple[float, float]] = (), network: Sequence[tuple[float, float]] = ()
    ) -> None:
        self._cpu, self._network = _checked("cpu", cpu), _checked("network", network)
        if not self._cpu and not self._network:
            raise ContractError("a cost of neither cpu nor network", code="contract.cost")

    def cost(self, use: ResourceUse) -> float:
        return _at(self._cpu, use.cpu_cores) + _at(self._network, use.bytes_per_s)


def _checked(name: str, points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    found = tuple((float(load), float(cost)) for load, cost in points)
    if not found:
        return ()
    if (
        len(found) < 2
        or found[0] != (0.0, 0.0)
        or not all(math.isfinite(value) for pair in found for value in pair)
    ):
        raise ContractError(
            f"the cost of {name} begins at {found[0]} and has {len(found)} points: it begins at (0, 0),"
            " has two points at least, and finite numbers only",
            code="contract.cost",
        )
    slope = 0.0
    for number, (before, after) in enumerate(itertools.pairwise(found), 1):
        if after[0] <= before[0]:
            raise ContractError(
                f"point {number} of the cost of {name} is at {after[0]:g}, not beyond {before[0]:g}",
                code="contract.cost",
            )
        was, slope = slope, (after[1] - before[1]) / (after[0] - before[0])
        if slope < was - SLACK * max(abs(was), 1.0):
            raise ContractError(
                f"point {number} of the cost of {name} isn't convex: from {before[0]:g} to {after[0]:g}"
                f" a unit costs {slope:g}, and {was:g} before that",
                code="contract.cost",
                hint="each unit more costs at least what the one before did",
            )
    return found


def _at(points: Sequence[tuple[float, float]], load: float) -> float:
    if not points:
        return 0.0
    for before, after in itertools.pairwise(points):
        if load <= after[0] or after == points[-1]:
            return before[1] + (load - before[0]) * (after[1] - before[1]) / (after[0] - before[0])
    raise AssertionError("two points at least")


class ClusterCost:
    """Of a cluster that takes work in triggers, one after the other: what its cores cost, and the waiting.

    A trigger of ``overhead`` seconds beside the work, at ``u`` of ``C`` cores in use, takes

        latency(u) = overhead / (1 - u / C)

    since it has all to do that came in the one before. The cost a second is

        core * u + delay * (latency(u) - latency(0)),  its slope  core + delay * overhead * C / (C - u)^2

    and beyond 99 % of the cores a straight line. Who hosts nothing bears no cost.

    Args:
        cores: of the cluster.
        core_micro: of one of them a second, in micro-units.
        delay_micro: of each second by which all results come later, a second.
        overhead_us: of a trigger, as it is now: it is asked anew for each cost.

    Raises:
        ContractError: no cores, or a price that is none.
    """

    def __init__(
        self, cores: float, core_micro: float, delay_micro: float, overhead_us: Callable[[], int]
    ) -> None:
        numbers = cores, core_micro, delay_micro
        if not all(math.isfinite(each) and each >= 0 for each in numbers) or not cores or not core_micro:
            raise ContractError(
                f"{cores:g} cores at {core_micro:g} a second and {delay_micro:g} for a second of delay: all"
                " are 0 or more, the cores and their price more",
                code="contract.cost",
            )
        self._cores, self._core, self._delay = cores, core_micro, delay_micro
        self._overhead_us = overhead_us

    def cost(self, use: ResourceUse) -> float:
        waiting = self._overhead_us() / 1e6 * _queue(use.cpu_cores / self._cores)
        return self._core * use.cpu_cores + self._delay * waiting


def check_convex(function: CostFunction, capacity: ResourceUse) -> None:
    """Look whether a function of a user's own is one, on the way from nothing to twice the capacity.

    Raises:
        ContractError: from where to where it isn't.
    """
    for name, whole in (("cpu_cores", capacity.cpu_cores), ("bytes_per_s", capacity.bytes_per_s)):
        steps = [2 * whole * step / SAMPLES for step in range(SAMPLES + 1)] if whole else []
        costs = [function.cost(ResourceUse(**{name: step})) for step in steps]
        rises = [after - before for before, after in itertools.pairwise(costs)]
        for number, rise in enumerate(rises):
            least = max(rises[number - 1], 0.0) if number else 0.0
            if not math.isfinite(rise) or rise < least - SLACK * max(abs(least), abs(costs[number]), 1.0):
                raise ContractError(
                    f"the cost isn't convex in {name}: from {steps[number]:g} to {steps[number + 1]:g}"
                    f" it rises by {rise:g}, by {least:g} before",
                    code="contract.cost",
                    hint="each unit more costs at least what the one before did",
                )
