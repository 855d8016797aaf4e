"""``medusa demo spark``: nodes, a gateway and Spark put together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from medusa.apps.workloads.demos.spark_run import CLUSTER, NODES, Run
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.netmon import CITATION
from medusa.apps.workloads.screens import screen_for, working_folder

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
) -> bool:
    """Run the demonstration and show it on standard output.

    Args:
        spark: a session.
        jobs: ``medusa.spark``.

    Returns:
        Whether every check was passed.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    console = Console()
    screen = screen_for(console, silent=as_json, repeats=False)
    screen.say(f"data: {CITATION}")
    with (
        Interruption() as interruption,
        working_folder("medusa-spark-", options.keep, screen) as folder,
        LocalNodes(NODES, folder, interruption, later=(CLUSTER,)) as nodes,
    ):
        for name, pid in nodes.pids.items():
            screen.say(f"node {name} is process {pid} at {nodes.addresses[name]}")
        run = Run(
            spark,
            jobs,
            nodes.addresses,
            folder,
            speed=options.speed,
            screen=screen,
            interruption=interruption,
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
