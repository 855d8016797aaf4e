"""Private costs: closed forms, and what is no cost at all is refused, with where and why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.cost import ClusterCost, PiecewiseCost, QueueingCost, check_convex, unit_marginal_cost
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse

MACHINE = ResourceUse(cpu_cores=4.0, bytes_per_s=1e6)


class Stated:
    """A cost of the processor alone, as a function says."""

    def __init__(self, cost) -> None:
        self._cost = cost

    def cost(self, use: ResourceUse) -> float:
        return self._cost(use.cpu_cores)


@pytest.mark.parametrize(("cores", "bytes_per_s"), [(0, 0), (1, 0), (2, 5e5), (3.96, 9e5)])
def test_the_queueing_cost_is_the_papers(cores, bytes_per_s):
    c, b = cores / 4, bytes_per_s / 1e6
    found = QueueingCost(MACHINE, 100).cost(ResourceUse(cpu_cores=cores, bytes_per_s=bytes_per_s))
    assert found == pytest.approx(100 * (c / (1 - c) + b / (1 - b)))


@given(st.floats(0, 12), st.floats(0.001, 4))
def test_more_load_always_costs_more_also_beyond_the_whole_machine(cores, more):
    """The prototype took what would have overloaded it for free."""
    cost, task = QueueingCost(MACHINE, 100), ResourceUse(cpu_cores=more)
    here = unit_marginal_cost(cost, ResourceUse(cpu_cores=cores), task, more)
    later = unit_marginal_cost(cost, ResourceUse(cpu_cores=cores + 1), task, more)
    assert 0 < here <= later * (1 + 1e-9)


@given(st.floats(0, 10))
def test_a_piecewise_cost_is_the_line_between_its_points(cores):
    cost = PiecewiseCost(cpu=[(0, 0), (1, 10), (2, 40)])
    wanted = 10 * cores if cores <= 1 else 10 + 30 * (cores - 1)
    assert cost.cost(ResourceUse(cpu_cores=cores)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([(0, 0), (1, 10), (2, 15)], "point 2 of the cost of cpu isn't convex"),
        ([(0, 0), (1, -1)], "point 1 of the cost of cpu isn't convex"),
        ([(0, 0), (1, 10), (1, 20)], "point 2 of the cost of cpu is at 1, not beyond 1"),
        ([(0, 1), (1, 10)], "it begins at (0, 0)"),
        ([(0, 0)], "two points at least"),
        ([(0, 0), (1, math.inf)], "finite numbers only"),
    ],
)
def test_points_that_are_no_cost_are_refused(points, says):
    with pytest.raises(ContractError) as caught:
        PiecewiseCost(cpu=points)
    assert says in str(caught.value)
    assert caught.value.code == "contract.cost"


def test_a_cost_of_nothing_is_refused():
    with pytest.raises(ContractError):
        PiecewiseCost()


@pytest.mark.parametrize(
    ("capacity", "scale"),
    [(ResourceUse(), 1), (MACHINE, 0), (MACHINE, math.nan), (ResourceUse(cpu_cores=-1), 1)],
)
def test_a_queueing_cost_of_no_machine_or_no_price_is_refused(capacity, scale):
    with pytest.raises(ContractError):
        QueueingCost(capacity, scale)


@pytest.mark.parametrize("cost", [QueueingCost(MACHINE, 100), PiecewiseCost(cpu=[(0, 0), (1, 10), (2, 40)])])
def test_ours_are_convex(cost):
    check_convex(cost, MACHINE)


@pytest.mark.parametrize(
    "cost",
    [math.sqrt, lambda cores: -cores, lambda cores: min(cores, 1.0), lambda cores: math.inf],
    ids=["concave", "falling", "flat in the end", "infinite"],
)
def test_a_trader_refuses_a_cost_that_is_not_convex(cost):
    effects = TradeEffects()
    for settings in (None, TradeSettings(capacity=MACHINE)):
        with pytest.raises(ContractError) as caught:
            Trader("a", Stated(cost), settings=settings, effects=effects, pick=lambda n: 0)
        assert "the cost isn't convex in cpu_cores: from " in str(caught.value)
    assert not list(effects.take())
    Trader("a", Stated(lambda cores: cores**2), effects=effects, pick=lambda n: 0)


def latency_of(overhead_s: float, cores: float, used: float) -> float:
    """Triggers one after the other: each has to do what came during the one before."""
    took_s = overhead_s
    for _ in range(3_000):
        took_s = overhead_s + used * took_s / cores
    return took_s


@given(st.floats(0.01, 30), st.floats(1, 64), st.floats(0, 0.98))
def test_a_cluster_costs_its_cores_and_by_how_much_later_results_come(overhead_s, cores, share):
    cost = ClusterCost(cores, 11_000, 2_000, lambda: round(overhead_s * 1e6))
    used = share * cores
    later_s = latency_of(overhead_s, cores, used) - overhead_s
    found = cost.cost(ResourceUse(cpu_cores=used))
    assert found == pytest.approx(11_000 * used + 2_000 * later_s, rel=1e-3, abs=0.01)


def test_a_cluster_costs_what_its_triggers_take_now():
    overhead_us = [500_000]
    cost = ClusterCost(2.0, 11_000, 2_000, lambda: overhead_us[0])
    unit = ResourceUse(cpu_cores=1e-4)

    def first() -> float:
        return unit_marginal_cost(cost, ResourceUse(), unit, 1e-4)

    assert first() == pytest.approx(11_000 + 2_000 * 0.5 / 2, rel=1e-3)
    overhead_us[0] = 4_000_000
    assert first() == pytest.approx(11_000 + 2_000 * 4 / 2, rel=1e-3)
    check_convex(cost, ResourceUse(cpu_cores=2.0))
    assert cost.cost(ResourceUse()) == 0


@pytest.mark.parametrize("numbers", [(0, 1, 1), (2, 0, 1), (2, 1, -1), (2, math.inf, 1)])
def test_what_is_no_cost_of_a_cluster(numbers):
    with pytest.raises(ContractError, match="cores at"):
        ClusterCost(*numbers, lambda: 0)
