"""The authors' experiments: what fails when, under which policies, and what has to come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.delay import account, logged
from bench.delay.account import Check, Figures
from bench.delay.logged import Logged
from bench.delay.policies import POLICIES, PROCESS, Policy
from bench.delay.rig import Failure, Outage, made
from bench.delay.streams import Shape, setup_of, source_of
from medusa.units import duration_us

__all__ = ["EXPERIMENTS", "Case", "Experiment", "checks_of", "run"]

BEGIN_S = 0.5
"""Corrections begin within this from healing."""

SPEED, SLACK = 5, 1.2
"""They end within SLACK times the backlog, at SPEED times the rate of the input."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of an experiment.

    Attributes:
        failures: since the first of them.
        failed: the streams that they take away.
        logged: what the authors have of it.
        none: it lasts so short a time that no row may be tentative.
        calm_s: rows flow for so long before the first failure (the authors': 15 s), and half of it once all
            is stable.
    """

    name: str
    shape: Shape
    policy: Policy
    failures: Sequence[Failure]
    failed: Sequence[int]
    logged: Logged = logged.NOTHING
    none: bool = False
    calm_s: float = 4.0

    @property
    def setting(self) -> dict[str, Any]:
        """For the sheet of runs."""
        return {"case": self.name, "policy": self.policy.key}

    @property
    def within_s(self) -> float:
        return duration_us(self.shape.within) / 1e6


@dataclass(frozen=True, slots=True)
class Experiment:
    """What one command does.

    Attributes:
        cases: in the order in which they tell most.
        quick: few of them, and short ones, so that a test can run them.
        swept: many lengths of failure, which the plot has on its axis.
    """

    name: str
    text: str
    cases: Sequence[Case]
    quick: Sequence[Case]
    swept: bool = False


def _one(node: str, seconds: float) -> list[Failure]:
    return [Failure(node, 0.0, seconds)]


QUICK_S, QUICK_CALM_S = 2.0, 1.5
QUICK = Shape(within="1s", rate=60, tick_ms=50)
QUICK_TWO = replace(QUICK, at=("e", "g", "f"))

_PAIR = Shape(within="2s", bucket_ms=500, tick_ms=200, rate=100)
_CHAIN = Shape(within="2s", pairs=2, rate=150)
_TWO = Shape(within="2s", bucket_ms=500, tick_ms=10, rate=100, at=("e", "g", "f"))
_OVER_TWO = replace(_TWO, pairs=2, last=(2,))
_SWEEP = Shape(within="3s", rate=1_500)
_FOUR = Shape(within="8s", pairs=4)

SWEPT_S = (2, 3, 4, 6, 8, 10, 12, 14, 15, 30, 45, 60)
FEWER_S = (2, 6, 15)
FOUR_S = (5, 6.5, 10, 15, 30, 60)


def _overlapping(shape: Shape, unit_s: float) -> Case:
    """A from 6 to 12 s, B from 8 to 16 s."""
    failures = [Failure("g", 0.0, 6 * unit_s), Failure("f", 2 * unit_s, 10 * unit_s)]
    return Case("A 6 to 12 s, B 8 to 16 s", shape, PROCESS, failures, (1, 2))


def _in_recovery(name: str, shape: Shape, unit_s: float) -> Case:
    """A from 6 to 12 s, B from 12 to 16 s: it begins when the correction of A does."""
    failures = [Failure("g", 0.0, 6 * unit_s), Failure("f", 6 * unit_s, 10 * unit_s)]
    return Case(name, shape, PROCESS, failures, (1, 2))


def _sweep(seconds: Sequence[float], shape: Shape, policies: Sequence[Policy]) -> list[Case]:
    return [
        Case(
            f"{each:g} s",
            shape,
            policy,
            _one("f", each),
            (2,),
            logged.SWEEP if policy.promises else logged.NOTHING,
            none=each < 0.9 * duration_us(shape.within) / 1e6,
        )
        for each in seconds
        for policy in policies
    ]


def _four(seconds: Sequence[float], shape: Shape) -> list[Case]:
    """As the authors', each node of whom waits for 6.5 s of the 8 s."""
    return [
        Case(f"{each:g} s", shape, PROCESS, _one("f", each), (2,), logged.CHAIN_OF_FOUR, none=each <= 6.5)
        for each in seconds
    ]


EXPERIMENTS = {
    each.name: replace(each, quick=[replace(case, calm_s=QUICK_CALM_S) for case in each.quick])
    for each in (
        Experiment(
            "pair",
            "a pair, X = 2 s, bucket 500 ms, trains of 200 ms, a failure of 6 s",
            [Case("6 s", _PAIR, PROCESS, _one("f", 6), (2,), logged.PAIR)],
            [Case("2 s", QUICK, PROCESS, _one("f", QUICK_S), (2,), logged.PAIR)],
        ),
        Experiment(
            "chain",
            "two pairs in a row, 3 x 150 rows/s, trains of 20 ms, X = 2 s, a failure of 10 s",
            [
                Case("10 s", _CHAIN, POLICIES[key], _one("f", 10), (2,), of)
                for key, of in logged.CHAIN.items()
            ],
            [Case("2 s", replace(QUICK, pairs=2), PROCESS, _one("f", QUICK_S), (2,))],
        ),
        Experiment(
            "overlapping",
            "two inputs fail, the second before the first is back; rows each 10 ms, X = 2 s, bucket 500 ms",
            [_overlapping(_TWO, 1.0)],
            [_overlapping(QUICK_TWO, 0.3)],
        ),
        Experiment(
            "recovery",
            "a second input fails just as the first one is corrected: at the same pair, and at the next one",
            [
                _in_recovery("A 6 to 12 s, B 12 to 16 s", _TWO, 1.0),
                _in_recovery("the same, B at the second of two pairs", _OVER_TWO, 1.0),
            ],
            [
                _in_recovery("B at the second pair", replace(QUICK_TWO, pairs=2, last=(2,)), 0.3),
            ],
        ),
        Experiment(
            "sweep",
            "failures of 2 to 60 s, 3 x 1,500 rows/s, X = 3 s, six policies",
            _sweep(SWEPT_S, _SWEEP, list(POLICIES.values())),
            _sweep((0.5, QUICK_S), replace(QUICK, rate=500), [PROCESS]),
            swept=True,
        ),
        Experiment(
            "chain_of_four",
            "four pairs in a row, 3 x 175 rows/s, X = 8 s for all: failures of up to 6.5 s show nothing",
            _four(FOUR_S, _FOUR),
            _four((1.0,), replace(QUICK, within="2s", pairs=4)),
            swept=True,
        ),
    )
}


def run(case: Case, cut: str) -> dict[str, Any]:
    """Make it; figures, checks, and the points of the plot.

    Raises:
        AssertionError: it couldn't be made.
    """
    with made(setup_of(case.shape, case.policy, cut)) as trial:
        trial.rest_until(max(case.calm_s, trial.now_s()))
        outages = trial.fail(case.failures)
        trial.until_stable(outages[-1].end_s)
        trial.rest(case.calm_s / 2)
        trial.end()
        published = {number: trial.publishers[source_of(number)].published for number in range(3)}
        states, state = list(trial.states), trial.reader.state
        came = account.came_of(trial.arrivals, _rows, lambda sent_s: _bucket_end_s(sent_s, case.shape))
    found = account.figures(came, outages, states, case.failed)
    checks = [
        Check("the stable rows are those without failures, each once", account.wrong(came, published)),
        Check("nothing is tentative in the end", "" if state == "stable" else f"the stream is {state}"),
        *checks_of(case, found),
    ]
    return {
        **{name: getattr(found, name) for name in Figures.__dataclass_fields__},
        "cut": cut,
        "published": sum(published.values()),
        "again_rows": again(came, outages),
        "outages": [[each.node, each.begin_s, each.end_s] for each in outages],
        "states": states,
        "checks": [each.plain() for each in checks],
        "curves": {str(number): account.curve(came, number) for number in range(3)},
    }


def again(came: account.Came, outages: Sequence[Outage]) -> int:
    """Tentative rows that had come before, on either lane: of those a part has done its work again."""
    begin_s = min(each.begin_s for each in outages)
    return int((came.tentative & ~came.first & (came.at_s >= begin_s)).sum())


def checks_of(case: Case, found: Figures) -> list[Check]:
    """What is promised of new rows and of corrections."""
    checks = []
    within_s = case.within_s
    if case.policy.promises:
        checks.append(
            Check(
                f"no new row is later than {within_s:g} s more than without a failure",
                "" if found.added_s <= within_s else f"one was {found.added_s:.2f} s later",
            )
        )
    if case.none:
        some = found.tentative_rows
        checks.append(Check("no row is tentative", f"{some:,} were" if some else ""))
        return checks
    if found.begun_s is None:
        return [*checks, Check("corrections come", "none did")]
    checks.append(
        Check(
            f"corrections begin within {BEGIN_S:g} s of healing",
            "" if found.begun_s <= BEGIN_S else f"they began {found.begun_s:.2f} s after it",
        )
    )
    bound_s = SLACK * found.backlog_s / SPEED
    took_s = found.corrected_s or 0.0
    checks.append(
        Check(
            f"they end within {SLACK:g} times the backlog at {SPEED} times the rate",
            "" if took_s <= bound_s else f"they took {took_s:.2f} s, {bound_s:.2f} s would be in time",
        )
    )
    return checks


def _rows(batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        batch.column("s").to_numpy(),
        batch.column("n").to_numpy(),
        batch.column("ts").cast("int64").to_numpy(),
    )


def _bucket_end_s(sent_s: np.ndarray, shape: Shape) -> np.ndarray:
    size_s = shape.bucket_ms / 1e3
    return (np.floor(sent_s / size_s + 1e-9) + 1) * size_s
