"""``medusa demo federation``: two owners, one query over their nodes, changed while rows flow."""

from __future__ import annotations

import json
from dataclasses import dataclass

from medusa.apps.workloads.demos import federation_query
from medusa.apps.workloads.demos.federation_outcome import Outcome, compare
from medusa.apps.workloads.demos.federation_run import Run
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.owned_nodes import OwnedNodes
from medusa.apps.workloads.screens import Screen, screen_for, working_folder

__all__ = ["Options", "run_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was told; see its help."""

    rate: int = 2000
    rest: float = 1.5
    seed: int = 0
    keep: bool = False


def run_demo(options: Options, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether nothing differs: results from the embedded run, look-ups from the truth.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    from medusa.apps.workloads.demos.federation_screen import show_outcome

    console = Console()
    outcome = ran(options, screen_for(console, silent=as_json))
    if as_json:
        print(json.dumps(outcome.to_json()))
    else:
        show_outcome(console, outcome)
    return outcome.fine


def ran(options: Options, screen: Screen) -> Outcome:
    """Five nodes of two owners, the whole run, the comparison."""
    with (
        Interruption() as interruption,
        working_folder("medusa-federation-", options.keep, screen) as folder,
        OwnedNodes(federation_query.OWNERS, folder, interruption) as nodes,
    ):
        for owner, of in federation_query.OWNERS.items():
            for name in of.nodes:
                screen.say(f"node {name} of {owner} is process {nodes.pids[name]} at {nodes.addresses[name]}")
        run = Run(
            nodes,
            rate=options.rate,
            rest_s=options.rest,
            seed=options.seed,
            screen=screen,
            interruption=interruption,
        )
        with screen:
            run.run()
    wanted = federation_query.expected(options.seed, run.ticks, run.rows_per_tick)
    return Outcome(
        comparison=compare(run.rows(), wanted),
        steps=run.steps,
        lookups=run.lookups,
        lost_rows=run.lost_rows,
        cars=run.ticks * run.rows_per_tick,
        seconds=run.seconds,
        seed=options.seed,
        refused=run.refused,
    )
