"""What two or three traders do, step by step."""

from __future__ import annotations

from medusa.market.negotiation.messages import LoadRequest
from tests.market.negotiation.network import Network, S, Square, contract, task


def test_load_goes_until_a_unit_costs_both_the_price():
    """By hand: a bears 0.8 cores at 5 r^2, so that its last 0.1 costs 5 * 1.5 = 7.5 for a unit, the one
    before 6.5; b's first costs 0.5, then 1.5, then 2.5. At a price of 2 two go, and then b is full."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    net.run(200 * S)
    assert [name for name, at in net.runs_at.items() if at == "b"] == ["a0", "a1"]
    assert (len(net.moves), net.broken, net.trades_left()) == (2, [], [])
    assert len(net.messages(LoadRequest)) < 12


def test_without_a_contract_nothing_moves():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("b", "a", 2_000_000))
    net.run(60 * S)
    assert net.moves == []
    assert "no contract" in net.members["a"].trader.status(net.now_us).why_still


def test_a_participant_at_its_threshold_takes_load_and_passes_a_task_of_its_own_on():
    """In a row, big tasks: the one in the middle bears 0.4 cores at 2.5 r^2, so that another 0.4 cost 3 for
    a unit, its own one saves 1. At prices from 1.2 to 2 neither is worth it; both together are."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a", 0.4) for n in range(2)])
    net.join("b", Square(2.5e6), [task("b0", "b", 0.4)])
    net.join("c", Square(2.5e6))
    net.sign(contract("a", "b", 2_000_000, range_micro=800_000))
    net.sign(contract("b", "c", 2_000_000, range_micro=800_000))
    net.run(120 * S)
    assert not net.broken
    assert (net.runs_at["b0"], sorted(net.runs_at.values())) == ("c", ["a", "b", "c"])
    (_, _, _, _, paid), (_, _, _, _, earned) = net.moves
    assert 1_200_000 <= paid < earned <= 2_000_000
    assert net.books_agree() == []
