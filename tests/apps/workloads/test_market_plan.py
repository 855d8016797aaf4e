"""The plan of the market's demonstration, in virtual time: real traders, and tasks that take what they would.

Nothing here depends on how busy a machine is: what a demonstration can't promise holds on one that is idle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest

from medusa.apps.workloads.market import market_demo
from medusa.apps.workloads.market.market_outcome import MOVES_MAX, SLACK
from medusa.apps.workloads.market.market_owners import DEALS, LATE, TRADERS
from medusa.apps.workloads.market.market_run import PACE_MAX, PACE_MIN, PACED_S, MarketNow, PlannedPhase
from medusa.market.cost import PiecewiseCost
from medusa.market.money import micro_of
from medusa.market.negotiation.policies import OwnersPolicy
from medusa.market.negotiation.settings import PPM
from medusa.market.work import ResourceUse, TradedTask
from tests.market.negotiation.network import Network, S, contract

BESIDE = 0.04
"""Cores that a process takes beside its tasks."""

ROWS_PER_S = 26
"""Of a task, for each second of the trace."""


class OwnersCost:
    """As its node has it, of all that its process takes."""

    def __init__(self, points: str) -> None:
        self._private = PiecewiseCost(
            cpu=[(cores, micro_of(amount, what="cost")) for cores, amount in json.loads(points)]
        )

    def cost(self, use: ResourceUse) -> float:
        return self._private.cost(use.plus(ResourceUse(cpu_cores=BESIDE)))


class PlannedDay:
    """The demonstration, without nodes.

    Args:
        speed: how fast a machine is: what a task takes is divided by it.
    """

    def __init__(self, seed: int, speed: float) -> None:
        self.net, self._speed = Network(seed), speed
        self.net.counts_away = True
        self.paces: dict[str, float] = {}
        self.ends: dict[str, tuple[int, dict[str, float]]] = {}
        self._names = {f"{owner}/{n}": owner for owner, of in TRADERS.items() for n in range(of.tasks)}
        settings = {
            "hold_us": int(market_demo.HOLD.removesuffix("s")) * S,
            "tolerance_ppm": round(market_demo.TOLERANCE * PPM),
        }
        for owner, of in TRADERS.items():
            self.paces[owner] = 1.0
            tasks = [self._task(name) for name, whose in self._names.items() if whose == owner]
            self.net.join(
                owner,
                OwnersCost(of.points),
                tasks,
                policy=OwnersPolicy(prefer=tuple(of.prefer)),
                capacity=ResourceUse(cpu_cores=of.capacity),
                **settings,
            )
        self.net.part("carol", LATE)
        for deal in DEALS:
            self.net.sign(contract(deal.consumer, deal.provider, micro_of(f"{deal.price:.6f}", what="price")))

    def _task(self, name: str) -> TradedTask:
        owner = self._names[name]
        pace = self.paces[owner]
        took = (0.028 + 0.0025 * pace) / self._speed
        rows_milli = round(ROWS_PER_S * pace * 1_000)
        return TradedTask(
            name=name,
            owner=owner,
            rows_per_s_milli=rows_milli,
            cpu_ns_per_row=round(took * 1e12 / rows_milli),
        )

    def goes_at(self, paces: Mapping[str, float]) -> None:
        self.paces |= paces
        for name, owner in self._names.items():
            if owner in paces:
                self.net.tasks[name] = self._task(name)

    def used(self) -> dict[str, float]:
        up = [name for name in TRADERS if name != LATE or not self.net.cut("carol", LATE)]
        return {name: self.net.cores(name) + BESIDE for name in up}

    def now(self) -> MarketNow:
        thresholds = {name: of.threshold for name, of in TRADERS.items()}
        return MarketNow(dict(self.net.runs_at), self.used(), thresholds)

    def runs(self, phase: PlannedPhase) -> None:
        self.goes_at(phase.paces)
        if phase.starts:
            self.net.heal("carol", LATE)
        self.net.run(self.net.now_us + round(phase.seconds * S))
        until_us, paced_us = self.net.now_us + round(phase.more_s * S), self.net.now_us
        while self.net.now_us < until_us and not phase.until(now := self.now()):
            if self.net.now_us >= paced_us:
                paced_us += round(PACED_S * S)
                paced = phase.paced(now).items()
                self.goes_at({name: _bounded(self.paces[name] * factor) for name, factor in paced})
            self.net.run(self.net.now_us + S // 10)
        self.ends[phase.name] = self.net.now_us, self.used()

    def above(self, phase: str) -> list[str]:
        return [name for name, used in self.ends[phase][1].items() if used > TRADERS[name].threshold + SLACK]

    def moves(self, begin_us: int, end_us: int) -> list[tuple[str, str, str]]:
        return [
            (task, giver, taker) for at, task, giver, taker, _ in self.net.moves if begin_us <= at < end_us
        ]


PLAN = [
    market_demo.EVEN,
    market_demo.MORE,
    market_demo.UNEVEN,
    market_demo.EVER_MORE,
    market_demo.OVERLOAD,
    market_demo.FOURTH,
]


@pytest.mark.parametrize("speed", [0.8, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_load_goes_to_bob_and_carol_stands_still_and_flows_on_to_the_fourth(seed: int, speed: float) -> None:
    day = PlannedDay(seed, speed)
    for phase in PLAN:
        day.runs(phase)
    at = {phase: end for phase, (end, _) in day.ends.items()}
    assert day.moves(0, at[market_demo.EVEN.name]) == []
    first = day.moves(0, at[market_demo.UNEVEN.name])
    takers = list(dict.fromkeys(taker for _, giver, taker in first if giver == "alice"))
    assert takers == ["bob", "carol"]
    assert day.above(market_demo.UNEVEN.name) == []
    # All have too much, and nothing goes to and fro.
    assert {"alice", "bob", "carol"} <= set(day.above(market_demo.OVERLOAD.name))
    begin_us = at[market_demo.EVER_MORE.name]
    still = (begin_us + at[market_demo.OVERLOAD.name]) // 2, at[market_demo.OVERLOAD.name]
    assert day.moves(*still) == []
    # Carol sheds to the fourth, and takes of others what she has room for then.
    last = day.moves(at[market_demo.OVERLOAD.name], at[market_demo.FOURTH.name])
    assert any((giver, taker) == ("carol", LATE) for _, giver, taker in last)
    assert any(taker == "carol" and task.partition("/")[0] == giver for task, giver, taker in last)
    assert day.above(market_demo.FOURTH.name) == []
    count = {task: sum(each[1] == task for each in day.net.moves + _home(day)) for task in day.net.runs_at}
    assert max(count.values()) <= MOVES_MAX
    assert all(one <= other for one, other in pairwise(at.values()))


def _bounded(pace: float) -> float:
    return max(min(pace, PACE_MAX), PACE_MIN)


def _home(day: PlannedDay) -> list[tuple[int, str, str, str, str]]:
    return day.net.handed
