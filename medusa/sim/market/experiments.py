"""The questions that are asked of the market, each as a list of setups and the figures to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from medusa.sim.market.run import MarketRun, run_market
from medusa.sim.market.setup import LOADS, MarketSetup

__all__ = ["EXPERIMENTS", "MarketExperiment", "MarketRow", "run_experiment"]


@dataclass(frozen=True, slots=True)
class MarketRow:
    """One run of an experiment.

    Attributes:
        labels: what makes it another one than the rest; the same keys in all rows of an experiment.
    """

    labels: dict[str, Any]
    setup: MarketSetup


@dataclass(frozen=True, slots=True)
class MarketExperiment:
    """Runs that answer a question.

    Attributes:
        columns: of ``report.COLUMNS``.
    """

    name: str
    title: str
    question: str
    rows: tuple[MarketRow, ...]
    columns: tuple[str, ...]


def run_experiment(
    experiment: MarketExperiment, *, watch: Callable[[int, float], None] = lambda row, seconds: None
) -> Iterator[tuple[MarketRow, MarketRun]]:
    """Row after row.

    Args:
        watch: told which row runs, and how many seconds of virtual time have passed in it.

    Raises:
        ConfigError, SimulationError: as ``run_market``.
    """
    for number, row in enumerate(experiment.rows):
        yield row, run_market(row.setup, strict=False, watch=partial(watch, number))


GRAPH_SIZE = 50
"""Participants of each graph that is compared with others: a mesh has 2,450 contracts then."""

QUALITY = ("overload_before", "overload", "unused", "wasted", "acceptable", "gain_share")
EFFORT = ("moves", "moves_bound", "near_s", "settled_s", "messages_each")
PRICES = ("price_mean", "price_low", "price_step")


def _sizes(base: MarketSetup, sizes: Sequence[int]) -> MarketExperiment:
    rows = [
        MarketRow({"participants": size, "load": load}, _with(base, participants=size, load=load))
        for size in sizes
        for load in LOADS
    ]
    return MarketExperiment(
        "sizes",
        "From light load to overload",
        "How much capacity is unused and how much overload left, and what does it take to get there?",
        tuple(rows),
        (*QUALITY, *EFFORT, "price_mean", "profit_low"),
    )


def _contracts(base: MarketSetup) -> MarketExperiment:
    counts = [each for each in (1, 2, 3, 4, 5, 6, 8, 10, 15, 20) if each < base.participants]
    rows = [
        MarketRow(
            {"load": load, "pricing": pricing, "contracts": count},
            _with(base, load=load, pricing=pricing, contracts=count),
        )
        for load in ("heavy", "overload")
        for pricing in ("bounded", "fixed")
        for count in counts
    ]
    return MarketExperiment(
        "contracts",
        "How many contracts each",
        "From how many contracts on is at most 5 % and 1 % of the capacity wasted?",
        tuple(rows),
        ("diameter", "wasted", "acceptable", "gain_share", "moves", "rounds", "messages_each"),
    )


def _graphs(base: MarketSetup) -> MarketExperiment:
    size = min(base.participants, GRAPH_SIZE)
    rows = [
        MarketRow(
            {"graph": graph, "pricing": pricing}, _with(base, graph=graph, participants=size, pricing=pricing)
        )
        for graph in ("mesh", "random", "grid", "star", "ring", "chain")
        for pricing in ("bounded", "fixed")
    ]
    return MarketExperiment(
        "graphs",
        "The shape of the graph",
        "Does load reach those who have room?",
        tuple(rows),
        ("diameter", "wasted", "acceptable", "gain_share", *EFFORT, *PRICES),
    )


def _ranges(base: MarketSetup) -> MarketExperiment:
    rows = [
        MarketRow(
            {"graph": f"{graph} of {size}", "task": task, "range": share},
            _with(
                base,
                graph=graph,
                participants=size,
                load="medium",
                loads="pareto",
                task_cores=task,
                range_share=share,
                pricing="bounded" if share else "fixed",
            ),
        )
        for graph, size in (("chain", 10), ("chain", 20), ("chain", 40), ("ring", 40), ("grid", 25))
        for task in (0.02, 0.05)
        for share in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
    ]
    return MarketExperiment(
        "ranges",
        "How wide the range has to be",
        "The paper: as wide as the drop of the marginal cost over as many tasks as the graph's diameter.",
        tuple(rows),
        ("diameter", "range_needed", "wasted", "acceptable", "moves", "price_low"),
    )


def _auction(base: MarketSetup) -> MarketExperiment:
    rows = [
        MarketRow({"load": load, "pricing": pricing}, _with(base, load=load, pricing=pricing))
        for load in ("medium", "heavy", "overload")
        for pricing in ("bounded", "fixed", "auction", "alone")
    ]
    return MarketExperiment(
        "auction",
        "Beside an auction for each move, and beside staying alone",
        "What does it gain to agree beforehand?",
        tuple(rows),
        (*QUALITY, "moves", "rounds", "messages_each", *PRICES, "profit_low", "profit_median"),
    )


def _unequal(base: MarketSetup) -> MarketExperiment:
    changes: dict[str, dict[str, Any]] = {
        "all alike": {},
        "prices differ by 20 %": {"price_spread": 0.2},
        "costs differ by up to 4": {"cost_spread": 1.0},
        "machines differ by up to 4": {"core_spread": 1.0},
        "tasks differ by up to 8": {"task_sizes": "pareto"},
        "exponential loads": {"loads": "exponential"},
        "mixed loads": {"loads": "mix"},
        "all of it": {
            "price_spread": 0.2,
            "cost_spread": 1.0,
            "core_spread": 1.0,
            "task_sizes": "pareto",
            "loads": "mix",
        },
        "1 % of messages lost": {"loss": 0.01},
        "10 % of messages lost": {"loss": 0.1},
    }
    rows = [MarketRow({"what": what}, _with(base, **change)) for what, change in changes.items()]
    return MarketExperiment(
        "unequal",
        "Unequal participants, lost messages",
        "Does it hold where participants aren't alike?",
        tuple(rows),
        (*QUALITY, *EFFORT, *PRICES, "profit_low"),
    )


def _changing(base: MarketSetup) -> MarketExperiment:
    rows = [
        MarketRow(
            {"load": load, "a change each": f"{change:g} s"},
            _with(base, load=load, change_s=change, limit_s=min(base.limit_s, 1_800.0)),
        )
        for load in ("medium", "heavy")
        for change in (1_200.0, 600.0, 300.0)
    ]
    return MarketExperiment(
        "changing",
        "Changing load",
        "What does it cost to react, and how much capacity for peaks need nobody buy?",
        tuple(rows),
        (
            "wasted",
            "gain_share",
            "moves",
            "returns",
            "messages_each",
            "peak_alone",
            "peak",
            "below",
            "loss_share",
        ),
    )


def _with(base: MarketSetup, **changes: Any) -> MarketSetup:
    return msgspec.structs.replace(base, **changes)


EXPERIMENTS: dict[str, Callable[[MarketSetup], MarketExperiment]] = {
    "sizes": lambda base: _sizes(
        base, [each for each in (10, 100, 1_000, 10_000) if each <= base.participants]
    ),
    "contracts": _contracts,
    "graphs": _graphs,
    "ranges": _ranges,
    "auction": _auction,
    "unequal": _unequal,
    "changing": _changing,
}
"""Name -> the experiment on a base of which it changes what it asks about."""
