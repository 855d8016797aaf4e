"""``medusa demo spark``: nodes, a gateway and Spark put together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from medusa.workloads.interruption import Interruption
from medusa.workloads.local_nodes import LocalNodes
from medusa.workloads.netmon import CITATION
from medusa.workloads.screens import screen_for, working_folder
from medusa.workloads.spark_outcome import Check
from medusa.workloads.spark_run import NODES, Run

__all__ = ["Options", "run_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was told; see its help."""

    speed: float = 60.0
    keep: bool = False


def run_demo(
    options: Options,
    spark: Any,
    jobs: Any,
    *,
    as_json: bool = False,
    visit: Callable[[Any], Check] | None = None,
) -> bool:
    """Run the demonstration and show it on standard output.

    Args:
        spark: a session.
        jobs: ``medusa.spark``.
        visit: called half way, while rows flow, with a client of the node ``core``; gives a check.

    Returns:
        Whether every check was passed.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    console = Console()
    screen = screen_for(console, silent=as_json)
    screen.say(f"data: {CITATION}")
    with (
        Interruption() as interruption,
        working_folder("medusa-spark-", options.keep, screen) as folder,
        LocalNodes(NODES, folder, interruption) as nodes,
    ):
        for name, address in nodes.addresses.items():
            screen.say(f"node {name} is process {nodes.pids[name]} at {address}")
        run = Run(
            spark,
            jobs,
            nodes.addresses,
            folder,
            speed=options.speed,
            screen=screen,
            interruption=interruption,
            visit=visit,
        )
        with screen:
            run.run()
    fine = all(step.fine for step in run.steps)
    if as_json:
        print(json.dumps({"fine": fine, "steps": [step.to_json() for step in run.steps]}))
    else:
        checks = [check for step in run.steps for check in step.checks]
        passed = sum(check.fine for check in checks)
        seconds = sum(step.seconds for step in run.steps)
        screen.say(f"{passed} of {len(checks)} checks passed, in {seconds:.0f} s")
    return fine
