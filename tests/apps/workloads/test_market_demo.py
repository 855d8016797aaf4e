"""Owners who trade load: what is shown follows from what was seen; real nodes shed, pay and stay exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from medusa.apps.workloads.market import market_query
from medusa.apps.workloads.market.market_outcome import (
    MOVES_MAX,
    ContractBalance,
    MarketMove,
    MarketOutcome,
    MarketPhase,
    Sample,
    TaskResult,
)
from medusa.apps.workloads.market.market_owners import TRADERS, TradingOwner
from medusa.market.cost import PiecewiseCost
from medusa.market.money import micro_of
from medusa.market.work import ResourceUse

DEADLINE_S = 180
TASK, OTHER = "alice/talkers-0", "alice/talkers-1"
SHED = [MarketMove(12.0, TASK, "alice", "bob"), MarketMove(14.0, OTHER, "alice", "carol")]


def sample(at_s: float, owner: str, used: float, cpu: float = 0.1) -> Sample:
    return Sample(at_s, owner, used, cpu, 0, {})


def outcome(moves: Sequence[MarketMove] = SHED) -> MarketOutcome:
    """Of a run in which all went well."""
    return MarketOutcome(
        thresholds={"alice": 0.1, "bob": 0.1, "carol": 0.1},
        late="",
        phases=[MarketPhase("even load", 0, 10), MarketPhase("uneven load", 10, 30)],
        samples=[
            sample(11, "alice", 0.2),
            *(sample(29, name, 0.09, 0.05) for name in ("alice", "bob", "carol")),
        ],
        moves=moves,
        results=[TaskResult(name, 3, True, [(13.0, 3, 0.05)]) for name in (TASK, OTHER)],
        balances=[
            ContractBalance("alice-at-bob", "alice", "bob", 70, 70),
            ContractBalance("alice-at-carol", "alice", "carol", 5, 5),
        ],
        published=10,
        seconds=30.0,
    )


def failed(of: MarketOutcome) -> list[str]:
    return [each.what for each in of.checks() if not each.held]


def test_a_good_run_is_held_and_what_each_has_earned_is_nothing_in_sum() -> None:
    good = outcome()
    assert good.fine
    assert failed(good) == []
    assert good.earned_micro() == {"alice": -75, "bob": 70, "carol": 5}
    assert json.loads(json.dumps(good.to_json()))["moves"][0]["after"] == [0.05, 1.0]


def test_each_thing_that_must_be_exact_fails_the_demonstration() -> None:
    good = outcome()
    to_and_fro = outcome([replace(SHED[0], at_s=11.0 + each) for each in range(MOVES_MAX + 1)])
    [result, *more] = good.results
    unequal = replace(good, results=[replace(result, equal=False), *more])
    disagree = replace(good, balances=[replace(good.balances[0], by_provider_micro=71)])
    unpaid = replace(good, balances=[replace(good.balances[0], by_consumer_micro=0, by_provider_micro=0)])
    for bad, what in (
        (outcome([]), "alice, who has too much, sheds"),
        (to_and_fro, "nobody thrashes"),
        (unequal, "results are those"),
        (disagree, "both ends"),
        (unpaid, "what was taken is paid for"),
    ):
        assert not bad.fine, what
        assert any(what in each for each in failed(bad)), (what, failed(bad))


def test_loads_above_the_threshold_are_told_and_dont_fail_it() -> None:
    good = outcome()
    first_to_carol = outcome([replace(SHED[0], taker="carol")])
    assert first_to_carol.fine
    assert failed(first_to_carol) == ["to bob first", "and then to carol"]
    over = replace(good, samples=[*good.samples, sample(29.5, "bob", 0.12)])
    assert over.fine
    assert failed(over) == ["nobody is above the threshold at the end of: uneven load"]


@pytest.mark.parametrize("name", TRADERS)
def test_a_core_second_costs_more_than_any_price_beyond_the_threshold(name: str) -> None:
    of: TradingOwner = TRADERS[name]
    points = json.loads(of.points)
    cost = PiecewiseCost(cpu=[(cores, micro_of(amount, what="cost")) for cores, amount in points])
    step = 0.01

    def a_core_second(at: float) -> float:
        rise = cost.cost(ResourceUse(cpu_cores=at + step)) - cost.cost(ResourceUse(cpu_cores=at))
        return rise / step / 1e6

    assert a_core_second(of.threshold - 2 * step) == pytest.approx(of.below, rel=0.01)
    assert a_core_second(of.threshold + step) == pytest.approx(of.above, rel=0.01)


def test_the_trace_goes_on_behind_its_end_and_a_task_has_its_part_alone() -> None:
    trace = market_query.RepeatedTrace(2)
    minute_us = 60_000_000
    whole = trace.until(0, 40 * minute_us)
    pieces = [trace.until(each * minute_us, (each + 1) * minute_us) for each in range(40)]
    assert sum(each.num_rows for each in pieces) == whole.num_rows > 2 * 107_251 * 2 // market_query.PARTS
    times, numbers = whole["ts_us"].to_pylist(), whole["n"].to_pylist()
    assert times == sorted(times)
    assert numbers == sorted(set(numbers))
    assert {each % market_query.PARTS for each in numbers} == {0, 1}


@pytest.mark.system
def test_real_nodes_shed_to_bob_first_and_pay_and_results_are_those_of_an_unmoved_run(tmp_path: Path) -> None:
    plot = tmp_path / "market.svg"
    command = [
        sys.executable,
        "-m",
        "medusa.cli.main",
        "demo",
        "market",
        "--quick",
        "--json",
        "--plot",
        str(plot),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    must = {each["what"]: each["held"] for each in told["checks"] if each["exact"]}
    assert len(must) == 6
    assert all(must.values())
    assert (told["moves"][0]["giver"], told["moves"][0]["taker"]) == ("alice", "bob")
    assert len(told["results"]) == 9
    assert all(each["equal"] and each["rows"] for each in told["results"])
    assert sum(told["earned_micro"].values()) == 0
    assert "<svg" in plot.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["market.svg"]
