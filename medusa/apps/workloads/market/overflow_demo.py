"""``medusa demo overflow``: a cluster of Spark, with an owner of its own, takes what another has too much."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from medusa.apps.workloads.demos.crew import started
from medusa.apps.workloads.demos.plotted_run import run_plotted
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.market.market_outcome import MarketOutcome
from medusa.apps.workloads.market.market_owners import Deal, MarketNodes, TradingOwner
from medusa.apps.workloads.market.market_run import DemoMarketRun, MarketNow, PlannedPhase
from medusa.apps.workloads.market.market_screen import draw, show_checks, show_seen
from medusa.apps.workloads.market.overflow_outcome import ROOM_AGAIN, OverflowOutcome
from medusa.apps.workloads.market.overflow_query import PAIRS

__all__ = ["OverflowOptions", "run_demo"]

ALICE, CLUSTER = "alice", "cluster"
OWNERS = {
    ALICE: TradingOwner(node="a", tasks=2, threshold=0.15, below=0.008, above=0.06),
    CLUSTER: TradingOwner(node="s", tasks=0, threshold=2.0, capacity=2.0, cluster=0.011, delay=0.002),
}
DEAL = Deal(provider=CLUSTER, consumer=ALICE, price=0.02, width=0.01, interval_s=20)
"""A quarter of an interval, after which a guest takes a checkpoint at the latest, is some triggers long."""

HOLD = "15s"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowOptions:
    """What the command was told; see its help."""

    plot: Path
    keep: bool


def _some_away(now: MarketNow) -> bool:
    return bool(now.away())


def _all_home(now: MarketNow) -> bool:
    return not _some_away(now)


PHASES = (
    PlannedPhase("room for all", 8.0, {ALICE: 1.5}),
    # Each of the tasks alone is too much, so none comes home while that lasts.
    PlannedPhase("too much", 10.0, {ALICE: 60.0}, until=_some_away, more_s=240.0),
    PlannedPhase("on Spark", 45.0, {}),
    PlannedPhase(ROOM_AGAIN, 10.0, {ALICE: 1.5}, until=_all_home, more_s=240.0),
    # What a task catches up with at home may look like too much once more.
    PlannedPhase("at home", 5.0, {}, until=_all_home, more_s=240.0),
)


def run_demo(options: OverflowOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether all is held.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    run = partial(ran, options)
    return run_plotted(run, show=_show, draw=_draw, plot=options.plot, as_json=as_json)


def ran(options: OverflowOptions, screen: DemoScreen) -> OverflowOutcome:
    """Nodes, the whole run, the comparison."""

    def nodes_in(folder: Path, interruption: Interruption) -> MarketNodes:
        return MarketNodes(OWNERS, [DEAL], folder, interruption, hold=HOLD)

    screen.say(f"{CLUSTER} starts Spark, and runs some triggers to know how long one takes")
    with (
        started(nodes_in, screen, prefix="medusa-overflow-", keep=options.keep) as (nodes, _, interruption),
        screen,
    ):
        run = DemoMarketRun(nodes, PAIRS, screen, interruption)
        run.run(list(PHASES))
    return OverflowOutcome(market=run.outcome(), deal=DEAL, cost=OWNERS[CLUSTER].cluster)


def _show(screen: DemoScreen, outcome: OverflowOutcome) -> None:
    show_seen(screen, outcome.market)
    show_checks(screen, outcome.checks())


def _draw(outcome: OverflowOutcome, path: Path) -> str:
    market: MarketOutcome = outcome.market
    return draw(market, path)
