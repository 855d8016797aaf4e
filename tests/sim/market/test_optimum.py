"""The optimum against all allocations that there are; thresholds, waste and what is acceptable by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.market.work import ResourceUse
from medusa.sim.market.allocation import Thresholds, acceptable, allocation
from medusa.sim.market.optimum import CostCurve, least_cost, water_fill

CURVES = st.builds(CostCurve, st.floats(0.2, 8), st.floats(10, 5_000))


@given(CURVES, st.floats(0, 2))
def test_a_curve_is_the_cost_that_traders_are_given(curve: CostCurve, share: float) -> None:
    load = share * curve.cores
    assert curve.cost(load) == pytest.approx(curve.function().cost(ResourceUse(cpu_cores=load)))


@given(CURVES, st.floats(0.01, 0.985))
def test_the_marginal_cost_is_the_slope(curve: CostCurve, share: float) -> None:
    load, step = share * curve.cores, 1e-6 * curve.cores
    slope = (curve.cost(load + step) - curve.cost(load - step)) / (2 * step)
    assert curve.marginal(load) == pytest.approx(slope, rel=1e-3)
    assert curve.load_at(curve.marginal(load)) == pytest.approx(load, rel=1e-6)


@given(st.lists(CURVES, min_size=1, max_size=6), st.floats(0, 2))
def test_nobody_could_bear_less_for_less(curves: list[CostCurve], share: float) -> None:
    """All load is there, and moving a little of it between any two costs more."""
    total = share * sum(curve.cores for curve in curves)
    loads = water_fill(curves, total)
    assert math.fsum(loads) == pytest.approx(total, rel=1e-9, abs=1e-9)
    least = math.fsum(curve.cost(load) for curve, load in zip(curves, loads, strict=True))
    for source, target in itertools.permutations(range(len(curves)), 2):
        little = min(1e-4, loads[source])
        moved = list(loads)
        moved[source] -= little
        moved[target] += little
        cost = math.fsum(curve.cost(load) for curve, load in zip(curves, moved, strict=True))
        assert cost >= least * (1 - 1e-9) - 1e-9


@pytest.mark.parametrize("count", [1, 7, 20, 31])
def test_it_is_the_least_of_all_allocations_of_tasks(count: int) -> None:
    """By enumeration: never above the best one of tasks, and as near as a task is small."""
    curves = (CostCurve(1.0, 1_000.0), CostCurve(0.5, 300.0), CostCurve(2.0, 4_000.0))
    size = 0.1
    best = min(
        sum(
            curve.cost(size * tasks)
            for curve, tasks in zip(curves, (first, second, count - first - second), strict=True)
        )
        for first in range(count + 1)
        for second in range(count + 1 - first)
    )
    least = least_cost(curves, size * count)
    assert least <= best * (1 + 1e-12)
    dearest = max(
        curve.marginal(load) for curve, load in zip(curves, water_fill(curves, size * count), strict=True)
    )
    assert best - least <= 3 * size * dearest


def test_waste_by_hand() -> None:
    """Two of 1 core and threshold 0.8, one in a group of its own: 1.2, 0.5 and 1.0 cores are in use."""
    curves = [CostCurve(1.0, 1_000.0)] * 3
    limits = [Thresholds(0.8, 0.8, 25_000, 25_000)] * 3
    found = allocation(curves, [1.2, 0.5, 1.0], limits, [(0, 1), (2,)])
    assert found.capacity == pytest.approx(2.4)
    assert found.overload == pytest.approx(0.4 + 0.2)
    assert found.unused == pytest.approx(0.3)
    assert found.overload_least == pytest.approx(0.3)
    assert found.overload_least_connected == pytest.approx(0.1 + 0.2)
    assert found.unused_least == 0
    assert found.wasted_share == pytest.approx(0.3 / 2.4)
    assert found.cost_least_micro == pytest.approx(3 * curves[0].cost(0.9))
    assert found.cost_least_connected_micro == pytest.approx(2 * curves[0].cost(0.85) + curves[2].cost(1.0))


EQUAL = [CostCurve(1.0, 1_000.0)] * 2
AT_80 = [Thresholds(0.8, 0.8, 25_000, 25_000)] * 2
TOGETHER = [(0, 1)]


@pytest.mark.parametrize(
    ("loads", "fine"),
    [
        ((8, 8), True),  # at the threshold
        ((8, 3), True),  # below
        ((10, 9), True),  # above, both
        ((10, 3), False),  # one is overloaded, the other has room
        ((10, 8), True),  # the other has none: a ninth task would cost it more than the price
    ],
)
def test_acceptable_by_hand(loads: tuple[int, int], fine: bool) -> None:
    sizes = [[0.1] * count for count in loads]
    assert acceptable(EQUAL, sizes, AT_80, TOGETHER)[0] is fine
    assert acceptable(EQUAL, sizes, AT_80, [(0,), (1,)])[0]  # nobody can hand anything over


def test_who_is_overloaded_and_who_has_room() -> None:
    assert acceptable(EQUAL, [[0.1] * 10, [0.1] * 3], AT_80, TOGETHER) == (False, [0], [1])


def test_a_margin_is_left_alone() -> None:
    """A task from 0.7 to 0.8 of a core costs 16,667 a unit: below a price of 16,500 by 1 %."""
    limits = [Thresholds(0.8, 0.8, 16_500, 16_500)] * 2
    sizes = [[0.1] * 8, []]
    assert not acceptable(EQUAL, sizes, limits, TOGETHER)[0]
    assert acceptable(EQUAL, sizes, limits, TOGETHER, margin=0.02)[0]
