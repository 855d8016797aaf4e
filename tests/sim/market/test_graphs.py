"""Graphs of contracts: their shape, and distances against another way to find them."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from medusa.errors import ConfigError
from medusa.sim.market.graphs import GRAPHS, ContractGraph, contract_graph


def drawn(kind: str, size: int, contracts: int = 3, seed: int = 1) -> ContractGraph:
    return contract_graph(kind, size, contracts, Random(seed))


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("size", [2, 3, 10, 23])
def test_edges_are_pairs_of_two_each_once(kind: str, size: int) -> None:
    graph = drawn(kind, size, min(3, size - 1))
    assert list(graph.edges) == sorted(set(graph.edges))
    assert all(0 <= first < second < size for first, second in graph.edges)


@pytest.mark.parametrize(
    ("kind", "edges", "diameter"), [("mesh", 45, 1), ("star", 9, 2), ("chain", 9, 9), ("ring", 10, 5)]
)
def test_shapes_of_ten(kind: str, edges: int, diameter: int) -> None:
    graph = drawn(kind, 10)
    assert (len(graph.edges), graph.diameter, len(graph.components)) == (edges, diameter, 1)


def test_a_grid_has_four_partners_inside() -> None:
    graph = drawn("grid", 25)
    assert [len(each) for each in graph.partners].count(4) == 9
    assert graph.diameter == 8


@pytest.mark.parametrize(
    ("kind", "size", "diameter"), [("chain", 1_000, 999), ("ring", 1_001, 500), ("star", 1_000, 2)]
)
def test_long_ways_are_found_in_large_graphs(kind: str, size: int, diameter: int) -> None:
    assert drawn(kind, size).diameter == diameter


@pytest.mark.parametrize("contracts", [1, 5, 20])
def test_each_has_as_many_partners_as_asked(contracts: int) -> None:
    graph = drawn("random", 200, contracts)
    assert min(len(each) for each in graph.partners) >= contracts
    assert sum(len(each) for each in graph.partners) == 2 * len(graph.edges)


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_floyd_and_warshall(seed: int) -> None:
    graph = drawn("random", 24, 1, seed)
    far = 10**6
    steps = dict.fromkeys(itertools.product(range(24), repeat=2), far)
    for first, second in graph.edges:
        steps[first, second] = steps[second, first] = 1
    for each in range(24):
        steps[each, each] = 0
    for middle, first, last in itertools.product(range(24), repeat=3):
        steps[first, last] = min(steps[first, last], steps[first, middle] + steps[middle, last])
    assert graph.diameter == max(step for step in steps.values() if step < far)
    groups = {tuple(other for other in range(24) if steps[each, other] < far) for each in range(24)}
    assert set(graph.components) == groups


@pytest.mark.parametrize(
    ("kind", "size", "contracts", "said"),
    [
        ("tree", 10, 3, "graph is 'tree'"),
        ("random", 10, 10, "from 1 to 9 partners"),
        ("random", 10, 0, "from 1 to 9 partners"),
        ("ring", 1, 1, "takes two at least"),
        ("mesh", 1_000, 3, "999,000 contracts"),
    ],
)
def test_what_can_not_be(kind: str, size: int, contracts: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        contract_graph(kind, size, contracts, Random(1))
