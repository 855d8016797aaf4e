"""Spark that sells load: what is shown follows from what was seen; pairs of flows by another engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pytest

from medusa.apps.workloads.market.market_outcome import (
    AgreedPrice,
    ContractBalance,
    MarketMove,
    MarketOutcome,
    MarketPhase,
    TaskResult,
)
from medusa.apps.workloads.market.market_owners import Deal, TradingOwner
from medusa.apps.workloads.market.market_query import RepeatedTrace
from medusa.apps.workloads.market.overflow_demo import DEAL, OWNERS, PHASES
from medusa.apps.workloads.market.overflow_outcome import ROOM_AGAIN, OverflowOutcome
from medusa.apps.workloads.market.overflow_query import PAIRS
from medusa.market.cost import PiecewiseCost
from medusa.market.money import micro_of
from medusa.market.work import ResourceUse

TASK = "alice/pairs-0"
GOES, COMES = MarketMove(20.0, TASK, "alice", "cluster"), MarketMove(60.0, TASK, "cluster", "alice")


def outcome(moves: Sequence[MarketMove] = (GOES, COMES), price: int = 12_000) -> OverflowOutcome:
    """Of a run in which all went well."""
    market = MarketOutcome(
        thresholds={"alice": 0.1, "cluster": 2.0},
        late="",
        phases=[MarketPhase("too much", 10, 40), MarketPhase(ROOM_AGAIN, 40, 70)],
        samples=[],
        moves=moves,
        results=[TaskResult(TASK, 3, True, [(13.0, 3, 0.05)])],
        balances=[ContractBalance("alice-at-cluster", "alice", "cluster", 70, 70)],
        published=10,
        seconds=70.0,
        prices=[AgreedPrice(TASK, "cluster", price)],
    )
    return OverflowOutcome(market=market, deal=DEAL, cost=0.011)


def failed(of: OverflowOutcome) -> list[str]:
    return [each.what for each in of.checks() if not each.held]


def test_a_good_run_is_held() -> None:
    good = outcome()
    assert failed(good) == []
    assert good.fine
    assert json.loads(json.dumps(good.to_json()))["prices"][0]["price_micro"] == 12_000


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (outcome([]), "sheds to Spark"),
        (outcome([replace(GOES, taker="dave"), COMES]), "sheds to Spark"),
        (outcome([GOES]), "at home again"),
        (outcome([GOES, COMES, replace(GOES, at_s=65.0)]), "at home again"),
        (outcome([GOES, replace(COMES, at_s=35.0)]), "at home again"),  # There was no room yet.
        (outcome(price=10_999), "more than it costs"),
        (outcome(price=20_001), "more than it costs"),
    ],
)
def test_what_is_not_held_fails_it(bad: OverflowOutcome, what: str) -> None:
    assert not bad.fine
    assert any(what in each for each in failed(bad)), failed(bad)


def test_unequal_results_and_ledgers_fail_it() -> None:
    good = outcome()
    unequal = replace(good.market, results=[replace(good.market.results[0], equal=False)])
    disagree = replace(good.market, balances=[replace(good.market.balances[0], by_provider_micro=71)])
    assert "results are those of a run in which nothing moves" in failed(replace(good, market=unequal))
    assert "both ends of each contract say the same" in failed(replace(good, market=disagree))


def test_spark_is_cheaper_than_what_is_too_much_and_dearer_than_what_there_is_room_for() -> None:
    """Else it would take nothing, or keep it."""
    alice: TradingOwner = OWNERS["alice"]
    points = json.loads(alice.points)
    cost = PiecewiseCost(cpu=[(cores, micro_of(amount, what="cost")) for cores, amount in points])

    def a_core_second(at: float) -> float:
        rise = cost.cost(ResourceUse(cpu_cores=at + 0.01)) - cost.cost(ResourceUse(cpu_cores=at))
        return rise / 0.01 / 1e6

    deal: Deal = DEAL
    assert a_core_second(alice.threshold - 0.02) < OWNERS["cluster"].cluster < deal.price
    assert deal.price < a_core_second(alice.threshold + 0.01)
    assert [phase.paces for phase in PHASES if phase.name == ROOM_AGAIN] == [PHASES[0].paces]


def test_pairs_are_those_of_an_independent_engine() -> None:
    flows = RepeatedTrace(2, PAIRS.parts).until(0, 40_000_000)
    assert flows.num_rows > 5_000
    found = PAIRS.unmoved("alice", 2, flows)
    total = 0
    for number in range(2):
        with duckdb.connect() as database:
            database.register("flows", flows)
            want = database.execute(
                f"""
                SELECT l.n, r.n FROM flows l JOIN flows r
                ON l.bytes = r.bytes AND l.dport = r.dport AND l.src < r.src
                   AND abs(l.ts_us - r.ts_us) <= 20000000
                WHERE l.n % 2 = {number} AND r.n % 2 = {number}
                """
            ).fetchall()
        got = found[f"out-{number}"]
        assert sorted(zip(got["n"].to_pylist(), got["n_right"].to_pylist(), strict=True)) == sorted(want)
        total += len(want)
    assert total > 1_000


def test_a_pair_is_due_once_its_later_flow_is_there() -> None:
    flows = RepeatedTrace(2, PAIRS.parts).until(0, 30_000_000)
    (batch, *_) = PAIRS.unmoved("alice", 2, flows)["out-0"].to_batches()
    last = batch.slice(batch.num_rows - 1).to_pylist()[0]
    assert PAIRS.due_us(batch) == max(last["ts_us"], last["ts_us_right"])
