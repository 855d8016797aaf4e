"""Load that is told in CPU time costs who has few processors as much as it occupies the engine."""

from __future__ import annotations

from itertools import pairwise

import pytest

from medusa.market.cost import PiecewiseCost, QueueingCost, check_convex
from medusa.market.work import ResourceUse
from medusa.nodes.market.contended_cost import ContendedCost

PRIVATE = PiecewiseCost(cpu=[(0, 0), (0.3, 3_000), (2, 105_000)])


def contended(beside: float, on_processor: float) -> ContendedCost:
    return ContendedCost(PRIVATE, lambda: beside, lambda: on_processor)


@pytest.mark.parametrize("cores", [0.0, 0.1, 0.3, 1.5])
def test_who_has_the_processors_to_himself_bears_the_private_cost(cores: float) -> None:
    assert contended(0.05, 1.0).cost(ResourceUse(cpu_cores=cores)) == PRIVATE.cost(
        ResourceUse(cpu_cores=cores)
    )


def test_with_a_quarter_of_a_processor_work_occupies_four_times_as_long_and_what_is_beside_it_doesnt() -> (
    None
):
    cost = contended(0.1, 0.25)
    assert cost.occupied(ResourceUse(cpu_cores=0.2, bytes_per_s=7)) == ResourceUse(
        cpu_cores=0.5, bytes_per_s=7
    )

    def more(at: float) -> float:
        """What a core-second more costs."""
        return (cost.cost(ResourceUse(cpu_cores=at + 0.001)) - cost.cost(ResourceUse(cpu_cores=at))) / 0.001

    # Of 0.3 cores, of which 0.1 are beside, 0.05 are had of a processor; what is beyond is too much.
    assert more(0.11) == more(0.14) == pytest.approx(10_000)
    assert more(0.16) == more(0.3) == pytest.approx(60_000)
    assert cost.occupied(ResourceUse(cpu_cores=0.06)).cpu_cores == pytest.approx(0.06)


def test_it_never_costs_less_for_more_and_is_convex_beyond_what_is_beside() -> None:
    whole = ResourceUse(cpu_cores=1.0)
    cost = ContendedCost(QueueingCost(whole, 1_000), lambda: 0.1, lambda: 0.3)
    check_convex(cost, whole)
    costs = [cost.cost(ResourceUse(cpu_cores=step / 50)) for step in range(100)]
    assert all(after > before for before, after in pairwise(costs))
