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
from medusa.apps.workloads.market.market_run import DemoMarketRun, MarketNow, PlannedPhase
from medusa.apps.workloads.market.market_screen import draw, show_outcome

__all__ = ["MarketOptions", "run_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOptions:
    """What the command was told; see its help."""

    quick: bool
    plot: Path
    keep: bool


HOLD = "10s"
TOLERANCE = 2.0
"""Nodes share processors, and their caches: a row takes more while the others have more to do, or fewer rows
come."""

FASTER = 1.1
FULL, AIM, TOO_FULL = 1.05, 1.12, 1.2
"""Who has too much uses more than the first and at most the last of the threshold: what is measured is never
twice the same, and what is too much has to be less than the fourth can take."""

GAIN = 0.4
"""The pace follows the load that it is to reach by so much of what is missing: loads are told late."""


def _sheds_to_both(now: MarketNow) -> bool:
    return {at for owner, at in now.away() if owner == "alice"} >= {"bob", "carol"}


def _more_for_alice(now: MarketNow) -> dict[str, float]:
    """Until she has too much. If she isn't rid of that soon the others have no room, as on a machine that is
    busy: then it goes by more slowly there."""
    share = now.used.get("alice", 0.0) / now.thresholds["alice"]
    if share <= FULL:
        return {"alice": FASTER}
    slower = dict.fromkeys(("bob", "carol"), 1 / FASTER)
    return slower | ({"alice": 1 / FASTER} if share > TOO_FULL else {})


def _to_fill_all(now: MarketNow) -> dict[str, float]:
    """By what the pace changes of those who haven't as much of their own as they are to have: alice's last,
    since she would shed what she gets to the others."""
    hosts = {at for _, at in now.away()}
    found: dict[str, float] = {}
    for name in ("bob", "carol", "alice"):
        share = now.used.get(name, 0.0) / now.thresholds[name]
        if name in hosts and share <= TOO_FULL:
            found[name] = FASTER
        elif not FULL < share <= TOO_FULL:
            found[name] = min((AIM / max(share, 0.1)) ** GAIN, FASTER)
    if found.get("alice", 0.0) > 1 and len(found) > 1:
        del found["alice"]
    return found


def _all_full(now: MarketNow) -> bool:
    """What is at others' doesn't count: each has too much of its own."""
    return not now.away() and not _to_fill_all(now)


def _acceptable(now: MarketNow) -> bool:
    return not any(now.above(name) for name in now.used)


EVEN = PlannedPhase("even load", 14.0, {"alice": 3.0, "bob": 2.0, "carol": 2.0})
MORE = PlannedPhase("ever more at alice's", 0.0, {}, until=_sheds_to_both, more_s=80.0, paced=_more_for_alice)
UNEVEN = PlannedPhase("uneven load", 16.0, {})
EVER_MORE = PlannedPhase("ever more for all", 0.0, {}, until=_all_full, more_s=120.0, paced=_to_fill_all)
OVERLOAD = PlannedPhase("too much for all", 16.0, {})
FOURTH = PlannedPhase("the fourth", 30.0, {}, starts=True, until=_acceptable, more_s=40.0)


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
        phases = [replace(EVEN, seconds=8.0), MORE, replace(UNEVEN, seconds=10.0)]
    else:
        phases = [EVEN, MORE, UNEVEN, EVER_MORE, OVERLOAD, FOURTH]
    traders = {name: trader for name, trader in TRADERS.items() if not (options.quick and trader.late)}
    deals = [each for each in DEALS if {each.provider, each.consumer} <= set(traders)]

    def nodes_in(folder: Path, interruption: Interruption) -> MarketNodes:
        return MarketNodes(traders, deals, folder, interruption, hold=HOLD, tolerance=TOLERANCE)

    with (
        started(nodes_in, screen, prefix="medusa-market-", keep=options.keep) as (nodes, _, interruption),
        screen,
    ):
        run = DemoMarketRun(nodes, TALKERS, screen, interruption)
        run.run(phases)
    return run.outcome()
