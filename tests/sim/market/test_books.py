"""What the books say of a market so small that it is worked out by hand."""

from __future__ import annotations

import pytest

from medusa.market.work import TradedTask
from medusa.sim.market.books import Hop, MarketBooks
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import Endowment
from medusa.sim.world.virtual_time import SimulationError

CURVE = CostCurve(1.0, 1_000.0)
PRICE = 20_000


def task(owner: str, number: int) -> TradedTask:
    """0.1 cores: 100 rows a second of 1 ms each."""
    return TradedTask(
        name=f"{owner}.{number}", owner=owner, rows_per_s_milli=100_000, cpu_ns_per_row=1_000_000
    )


def member(name: str, tasks: int) -> Endowment:
    return Endowment(name, CURVE, tuple(task(name, number) for number in range(tasks)))


def books(*tasks: int, reaction_us: int = 0) -> MarketBooks:
    members = [member("abc"[number], count) for number, count in enumerate(tasks)]
    return MarketBooks(members, reaction_us=reaction_us)


def hop(host: int, price: int = PRICE) -> Hop:
    return Hop(host, price, 1_000_000)


def test_a_move_pays_both() -> None:
    """0.9 and 0.2 cores cost 9,000 and 250 a second; 0.8 and 0.3 then 4,000 and 428.57. 2,000 are paid."""
    market = books(9, 2)
    market.hand_over(10_000_000, "a.8", 0, hop(1))
    market.close(15_000_000)
    first, second = market.seats
    assert first.profit_micro == pytest.approx(5 * (9_000 - 4_000 - 2_000))
    assert second.profit_micro == pytest.approx(5 * (2_000 - (1_000 * 0.3 / 0.7 - 250)))
    assert (first.paid_micro, second.earned_micro) == (pytest.approx(10_000), pytest.approx(10_000))
    assert first.cost_micro == pytest.approx(10 * 9_000 + 5 * 4_000)
    assert first.alone_micro == pytest.approx(15 * 9_000)
    assert (first.loss_micro, first.worst_micro) == (0, 0)


def test_a_bad_move_shows_as_a_loss() -> None:
    """Who has 0.9 of a core in use, and takes 0.1 more for 20,000 a unit, loses by it from then on."""
    market = books(2, 9)
    market.hand_over(0, "a.1", 0, hop(1))
    market.close(1_000_000)
    rise = 1_000 * 0.99 / 0.01 + 1_000 * 0.01 / 0.01**2 - 9_000
    assert market.seats[1].profit_micro == pytest.approx(2_000 - rise)
    assert market.seats[1].worst_micro == market.seats[1].profit_micro == -market.seats[1].loss_micro
    assert market.seats[1].late_loss_micro == market.seats[1].loss_micro


def test_a_chain_pays_each_hop_and_comes_back() -> None:
    market = books(9, 7, 0)
    market.hand_over(0, "a.0", 0, hop(1, 25_000))
    market.hand_over(0, "a.0", 1, hop(2, 20_000))
    loads = [round(seat.load, 9) for seat in market.seats]
    assert loads == [0.8, 0.7, 0.1]
    assert [seat.income - seat.spending for seat in market.seats] == [
        -2_500 * 10**12,
        500 * 10**12,
        2_000 * 10**12,
    ]
    assert market.hand_back(0, "a.0", 2) == 1
    assert market.hand_back(0, "a.0", 1) == 0
    assert all(seat.income == seat.spending == 0 for seat in market.seats)
    assert [seat.load_pico for seat in market.seats] == [seat.own_pico for seat in market.seats]
    assert (market.moves, market.returns) == (2, 2)


def test_bills_and_costs_follow_the_rows() -> None:
    market = books(9, 2)
    market.hand_over(0, "a.0", 0, hop(1))
    hosts = market.change(0, 0, lambda each: each.rows_per_s_milli // 2)
    assert hosts == {0, 1}
    first, second = market.seats
    assert first.load == pytest.approx(0.4)
    assert first.own_load == pytest.approx(0.45)
    assert second.load == pytest.approx(0.25)
    assert second.income == first.spending == 1_000 * 10**12


def test_what_is_not_paid_and_what_does_not_run() -> None:
    market = books(9, 2)
    market.hand_over(0, "a.0", 0, hop(1))
    market.stop_paying(0, "a.0", 1)
    assert market.seats[1].income == market.seats[0].spending == 0
    market.hand_over(0, "a.1", 0, hop(1), idle=True)
    assert market.seats[1].load == pytest.approx(0.3)
    assert market.seats[1].income == 0
    market.hand_back(0, "a.1", 1)
    market.hand_back(0, "a.0", 1)
    assert [seat.load_pico for seat in market.seats] == [seat.own_pico for seat in market.seats]
    assert all(seat.income == seat.spending == 0 for seat in market.seats)


def test_a_loss_in_the_reaction_time_is_not_late() -> None:
    """What a has handed over isn't worth 20,000 a unit any more once most of its own load is gone."""
    market = books(9, 2, reaction_us=3_000_000)
    market.hand_over(0, "a.0", 0, hop(1))
    market.change(10_000_000, 0, lambda each: each.rows_per_s_milli // 10)
    market.close(12_000_000)
    loss = market.seats[0].loss_micro
    assert loss > 0
    assert market.seats[0].late_loss_micro == 0
    market.close(14_000_000)
    assert market.seats[0].late_loss_micro == pytest.approx(loss / 2)
    assert market.seats[0].loss_micro == pytest.approx(2 * loss)


@pytest.mark.parametrize("recalled", [True, False])
def test_who_did_not_decide_a_return_has_time_to_react(recalled: bool) -> None:
    """b loses by a guest that isn't paid. Another goes: if its owner called it home, b has time to react;
    if b gave it back, it hasn't."""
    market = books(9, 9, 0, reaction_us=3_000_000)
    market.hand_over(0, "a.0", 0, hop(1))
    market.hand_over(0, "a.1", 0, hop(1))
    market.stop_paying(0, "a.1", 1)
    market.hand_back(10_000_000, "a.0", 1, recalled=recalled)
    before = market.seats[1].late_loss_micro
    market.close(12_000_000)
    assert market.seats[1].rate_micro < 0
    late = market.seats[1].late_loss_micro - before
    assert late == pytest.approx(0 if recalled else -2 * market.seats[1].rate_micro)


def test_peaks_count_from_when_they_are_asked_for() -> None:
    market = books(9, 2)
    market.hand_over(0, "a.0", 0, hop(1))
    market.seats[0].begin_peaks()
    assert market.seats[0].peak_pico == 8 * 10**11
    assert market.seats[0].own_peak_pico == 9 * 10**11


@pytest.mark.parametrize(
    ("name", "source", "target", "said"),
    [("a.0", 1, 2, "doesn't run"), ("x", 0, 1, "doesn't run"), ("b.0", 1, 1, "circle")],
)
def test_what_nobody_can_hand_over(name: str, source: int, target: int, said: str) -> None:
    market = books(1, 1, 1)
    with pytest.raises(SimulationError, match=said):
        market.hand_over(0, name, source, hop(target))
    with pytest.raises(SimulationError, match="no guest"):
        market.hand_back(0, "a.0", 0)
