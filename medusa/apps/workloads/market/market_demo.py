"""``medusa demo market``: owners who shed to each other by contract, and one node that starts late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from medusa.apps.workloads.demos.crew import started
from medusa.apps.workloads.demos.plotted_run import run_plotted
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.market.market_outcome import MarketOutcome
from medusa.apps.workloads.market.market_owners import DEALS, TRADERS, MarketNodes
from medusa.apps.workloads.market.market_query import TALKERS
from medusa.apps.workloads.market.market_run import DemoMarketRun, PlannedPhase
from medusa.apps.workloads.market.market_screen import draw, show_outcome

__all__ = ["MarketOptions", "run_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOptions:
    """What the command was told; see its help."""

    quick: bool
    plot: Path
    keep: bool


EVEN = PlannedPhase("even load", 8.0, {"alice": 4.0, "bob": 3.0, "carol": 3.0})
UNEVEN = PlannedPhase("uneven load", 24.0, {"alice": 8.0})
OVERLOAD = PlannedPhase("too much for all", 14.0, {"alice": 10.0, "bob": 13.0, "carol": 12.0})
FOURTH = PlannedPhase("the fourth", 32.0, {}, starts=True)


def run_demo(options: MarketOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether all that must be exact is held.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    run = partial(ran, options)
    return run_plotted(run, show=show_outcome, draw=draw, plot=options.plot, as_json=as_json)


def ran(options: MarketOptions, screen: DemoScreen) -> MarketOutcome:
    """Nodes, the whole run, the comparison."""
    if options.quick:
        phases = [replace(EVEN, seconds=6.0), replace(UNEVEN, seconds=18.0)]
    else:
        phases = [EVEN, UNEVEN, OVERLOAD, FOURTH]
    traders = {name: trader for name, trader in TRADERS.items() if not (options.quick and trader.late)}
    deals = [each for each in DEALS if {each.provider, each.consumer} <= set(traders)]

    def nodes_in(folder: Path, interruption: Interruption) -> MarketNodes:
        return MarketNodes(traders, deals, folder, interruption)

    with (
        started(nodes_in, screen, prefix="medusa-market-", keep=options.keep) as (nodes, _, interruption),
        screen,
    ):
        run = DemoMarketRun(nodes, TALKERS, screen, interruption)
        run.run(phases)
    return run.outcome()
