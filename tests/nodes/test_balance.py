"""The largest load of a node, beside the best of all placements; and what a query is cut into."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.balance import SLACK, Arc, NodeCapacity, PlacedPiece, host_loads, place
from medusa.nodes.placement.estimating import MeasuredBox, estimate

COSTS = {
    "even": lambda dice, number: dice.uniform(0.5, 1.5),
    "zipf": lambda dice, number: 1 / (number + 1) ** 1.2,
    "two": lambda dice, number: dice.choice([0.05, 1.0]),
    "chain": lambda dice, number: dice.expovariate(1),
    "pins": lambda dice, number: dice.uniform(0, 1),
}


def case(seed):
    """8 pieces and 3 nodes; of some kinds a few pieces take most, or nodes are unlike."""
    dice = Random(seed)
    kind = dice.choice(list(COSTS))
    scale = dice.choice([0.05, 0.2, 0.5])
    pieces = [
        PlacedPiece(
            name=f"p{number}",
            cost=scale * COSTS[kind](dice, number),
            at=f"n{dice.randrange(3)}"
            if (kind == "pins" and number < 3) or (number == 0 and dice.random() < 0.5)
            else "",
        )
        for number in range(8)
    ]
    arcs = [
        Arc(
            source=f"p{number - 1 if kind == 'chain' else dice.randrange(number)}",
            target=f"p{number}",
            bytes_per_s=dice.choice([0, 1e5, 1e7, 1e8]) * dice.random(),
        )
        for number in range(1, 8)
    ]
    capacity = dice.choice([[1, 1, 1], [1, 1, 4], [1, 2, 1]])
    hosts = [
        NodeCapacity(
            name=f"n{number}",
            load=dice.choice([0, 0, 0.3]),
            capacity=capacity[number],
            bandwidth=dice.choice([None, 125e6, 12e6]),
        )
        for number in range(3)
    ]
    return pieces, arcs, hosts


def best_of_all(pieces, arcs, hosts):
    """The least largest load, of all placements: 6,561 where nothing is pinned."""
    homes = [[piece.at] if piece.at else [host.name for host in hosts] for piece in pieces]
    names = [piece.name for piece in pieces]
    return min(
        max(host_loads(pieces, arcs, hosts, dict(zip(names, at, strict=True))).values())
        for at in product(*homes)
    )


def ratio(seed):
    pieces, arcs, hosts = case(seed)
    at = place(pieces, arcs, hosts)
    assert all(at[piece.name] == piece.at for piece in pieces if piece.at)
    return max(host_loads(pieces, arcs, hosts, at).values()) / best_of_all(pieces, arcs, hosts)


def test_the_largest_load_is_at_most_1_2_of_the_best_of_all_placements():
    assert max(ratio(seed) for seed in range(10)) <= 1.2


def test_the_search_finds_what_the_first_placements_miss():
    """Seeds in which moves, exchanges or the other first placements matter: 1.08 to 1.68 without."""
    assert max(ratio(seed) for seed in (0, 24, 32, 47, 50, 54, 57)) <= 1.05


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("block", range(20))
def test_more_cases(block):
    assert max(ratio(seed) for seed in range(1000 + 100 * block, 1100 + 100 * block)) <= 1.2


def test_loads_of_a_placement_by_hand():
    pieces = [PlacedPiece(name="a", cost=0.2), PlacedPiece(name="b", cost=0.3)]
    arcs = [Arc(source="a", target="b", bytes_per_s=2e6)]
    hosts = [NodeCapacity(name="x", load=0.1), NodeCapacity(name="y", capacity=2.0, bandwidth=4e6)]
    together = host_loads(pieces, arcs, hosts, {"a": "x", "b": "x"})
    assert together == pytest.approx({"x": 0.6, "y": 0.0})
    apart = host_loads(pieces, arcs, hosts, {"a": "x", "b": "y"})
    assert apart == pytest.approx({"x": 0.3 + 0.003, "y": 0.5}), "half of its link"


def test_what_costs_nothing_to_keep_together_is_kept_together():
    pieces = [
        PlacedPiece(name="a", cost=0.5),
        PlacedPiece(name="b", cost=0.5),
        PlacedPiece(name="tiny", cost=0.001),
    ]
    arcs = [Arc(source="b", target="tiny", bytes_per_s=1e6)]
    at = place(pieces, arcs, [NodeCapacity(name="x"), NodeCapacity(name="y")])
    assert at["a"] != at["b"] == at["tiny"]
    assert SLACK * 0.5 > 0.001


def test_more_pieces_and_nodes_than_can_be_tried_in_all_ways():
    dice = Random(1)
    pieces = [PlacedPiece(name=f"p{number}", cost=dice.expovariate(10)) for number in range(70)]
    arcs = [Arc(source=f"p{n}", target=f"p{n + 1}", bytes_per_s=1e6 * dice.random()) for n in range(69)]
    hosts = [NodeCapacity(name=f"n{number}") for number in range(5)]
    at = place(pieces, arcs, hosts)
    assert at == place(pieces, arcs, hosts)
    fair = sum(piece.cost for piece in pieces) / len(hosts)
    assert max(host_loads(pieces, arcs, hosts, at).values()) < 1.1 * fair


# --- queries --------------------------------------------------------------------------------------


def query():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "utf8", "v": "int64"}, time="ts", unit="s")
    kept = rows.filter("v > 0", name="kept")
    q.sink("out", kept.window("1s").group_by("k").aggregate(n=md.count(), name="counted"))
    return q.graph


def test_pieces_of_a_query_and_what_crosses_between_them():
    found = estimate(query(), {}, here="x", rates={"rows": 1000.0})
    assert found.boxes == {"rows": ("rows",), "kept": ("kept",), "counted": ("counted", "out")}
    assert {piece.name: piece.at for piece in found.pieces} == {"rows": "x", "kept": "", "counted": ""}
    assert [(arc.source, arc.target, arc.bytes_per_s) for arc in found.arcs] == [
        ("rows", "kept", 36_000.0),
        ("kept", "counted", 36_000.0),
    ]
    assert found.measured == 0


def test_what_was_measured_counts_and_is_scaled_to_the_rows_that_come():
    ran = {"kept": MeasuredBox(share=0.2, rows_in_per_s=500.0, rows_out_per_s=50.0)}
    found = estimate(query(), {"y": ["rows"]}, here="x", rates={"rows": 1000.0}, measured=ran)
    pieces = {piece.name: piece for piece in found.pieces}
    assert pieces["kept"].cost == pytest.approx(0.4)
    assert pieces["rows"].at == "y"
    assert [arc.bytes_per_s for arc in found.arcs] == pytest.approx([36_000.0, 3_600.0])
    assert found.measured == 1


@pytest.mark.parametrize(
    ("pins", "rates", "code"),
    [
        ({"x": ["rowz"]}, {}, "query.placement.box"),
        ({}, {"rowz": 1.0}, "query.placement.box"),
        ({"x": ["rows"], "y": ["rows"]}, {}, "query.placement"),
    ],
)
def test_pins_that_do_not_fit(pins, rates, code):
    with pytest.raises(QueryError) as caught:
        estimate(query(), pins, here="x", rates=rates)
    assert caught.value.code == code


def test_a_source_that_may_be_silent_stands_with_what_waits_for_it():
    q = md.Query("q")
    one = q.source("one", {"ts": "int64", "v": "int64"}, time="ts", unit="s", idle="1s")
    two = q.source("two", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    q.sink("out", one.union(two, name="both"))
    found = estimate(q.graph, {}, here="x")
    assert found.boxes["one"] == ("one", "both", "out")
