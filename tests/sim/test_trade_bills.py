"""``TradeChecks.check_bills``: how much of a stay may be unpaid."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from medusa.sim.lending.trade_checks import TradeChecks, TradedContract
from medusa.sim.world.virtual_time import SimulationError
from tests.sim.trade_terms import with_bob

BEGIN_US = 1_000_000
STEP_US = 100_000


def bills(
    stay_us: int,
    *,
    receipted_micro: int = 0,
    asks_us: int | None = None,
    rows: Callable[[int], int] = lambda at_us: 2 * at_us // STEP_US,
) -> TradeChecks:
    """A guest was at ``b1`` for so long.

    Args:
        receipted_micro: so much is receipted of what it did.
        asks_us: from then on its host asks for it to be taken home.
        rows: so many have come in by then.
    """
    terms = with_bob(lasts_s=60)
    booked = SimpleNamespace(id=terms.id, receipts=0, owed_micro=receipted_micro, settled_micro=0)
    market = SimpleNamespace(status=lambda _: SimpleNamespace(contracts=[booked]))
    hosted = SimpleNamespace(frozen=False, inputs={"in": SimpleNamespace(fed_seq=0)})
    over: dict[str, int] = {}
    brain = SimpleNamespace(
        abroad=SimpleNamespace(giving_back=lambda: over),
        fragments={"q/per0": hosted},
        permits=SimpleNamespace(into=lambda name: name),
        catalog=SimpleNamespace(
            ownership=SimpleNamespace(epoch=lambda _: 2),
            market=SimpleNamespace(trades=SimpleNamespace(deals=())),
        ),
        loads=SimpleNamespace(
            fragment=lambda _: None, followed_cores=lambda: 0.0, cpu_share=None, usage=None
        ),
        incarnation=1,
        refusals={},
        market=market,
    )
    clock = SimpleNamespace(monotonic_us=lambda: 0)
    nodes: dict[str, Any] = {
        name: SimpleNamespace(name=name, alive=True, brain=brain, clock=clock, reports=[])
        for name in ("a2", "b1")
    }
    world: Any = SimpleNamespace(now_us=BEGIN_US)
    about = TradedContract(terms=terms, fragments=frozenset({"q/per0"}), ends_us=terms.ends_us)
    traders = {"alice": "a2", "bob": "b1"}
    checks = TradeChecks(world, nodes, [about], {"b1": ((0.0, 0), (1.0, 0))}, traders, 40_000_000)
    for at_us in range(0, stay_us + 1, STEP_US):
        world.now_us = BEGIN_US + at_us
        hosted.inputs["in"].fed_seq = rows(at_us)
        if asks_us is not None and at_us >= asks_us:
            over["q/per0"] = asks_us
        checks.look(nodes["b1"])
    return checks


def test_two_intervals_may_be_unpaid() -> None:
    """A host whose guest nobody pays for asks for it to be taken home after one interval, and it looks once a
    second (seeds 171, 200, 243, 266, 275, 292)."""
    bills(1_200_000).check_bills(set())
    bills(2_000_000).check_bills(set())


def test_three_intervals_may_not() -> None:
    with pytest.raises(SimulationError, match="bill: 0 for 60 rows, at least"):
        bills(3_000_000).check_bills(set())


def test_what_comes_in_once_its_host_wants_it_home_may_be_unpaid() -> None:
    """Its owner was thirty times slower (seed 177)."""
    bills(3_000_000, asks_us=1_100_000).check_bills(set())
    with pytest.raises(SimulationError, match="bill: 0 for 60 rows, at least"):
        bills(3_000_000, asks_us=2_500_000).check_bills(set())


def test_rows_that_come_at_once_after_a_pause_are_of_one_interval() -> None:
    bills(3_000_000, rows=lambda at_us: 60 * (at_us >= 2_500_000)).check_bills(set())


def test_more_than_came_may_not_be_billed() -> None:
    with pytest.raises(SimulationError, match="bill: 5000000 for 60 rows, at most"):
        bills(3_000_000, receipted_micro=5_000_000).check_bills(set())
