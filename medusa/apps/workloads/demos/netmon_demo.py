"""``medusa demo netmon``: nodes, replay, check, screen and report put together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.demos.netmon_outcome import Outcome
from medusa.apps.workloads.demos.netmon_run import Replay
from medusa.apps.workloads.demos.netmon_screen import show_outcome
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.screens import Screen, screen_for, working_folder
from medusa.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Options", "run_demo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was told; see its help."""

    speed: float = 60.0
    seed: int = 0
    report: Path = Path("netmon-report.html")
    trace: Path | None = None
    check: Path | None = None
    keep: bool = False


def run_demo(options: Options, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether the results equal those of the independent computation.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    from medusa.apps.workloads.demos.netmon_report import html_report

    console = Console()
    screen = screen_for(console, silent=as_json)
    screen.say(f"data: {netmon.CITATION}")
    _writable(options.report)
    trace = netmon.load_trace(options.trace)
    outcome = replay(trace, options, screen)
    options.report.write_text(html_report(outcome, netmon.query()))
    if as_json:
        print(json.dumps({**outcome.to_json(), "report": str(options.report)}))
    else:
        show_outcome(console, outcome)
        console.print(f"report: {options.report}", markup=False, highlight=False, soft_wrap=True)
    return outcome.equal


def _writable(report: Path) -> None:
    """Whether the report can be written is known before the minute, not after it."""
    try:
        with report.open("a"):
            pass
    except OSError as error:
        raise DataError(
            f"the report {str(report)!r} can't be written: {error.strerror}",
            hint="give another place: --report PATH",
            code="data.report",
        ) from error


def replay(trace: pa.Table, options: Options, screen: Screen) -> Outcome:
    """Three nodes, the whole trace, the check."""
    deliveries = netmon.deliveries(trace, options.seed)
    names = (*netmon.EDGES, netmon.CORE)
    with (
        Interruption() as interruption,
        working_folder("medusa-netmon-", options.keep, screen) as folder,
        LocalNodes(names, folder, interruption) as nodes,
    ):
        for name, address in nodes.addresses.items():
            screen.say(f"node {name} is process {nodes.pids[name]} at {address}")
        with screen:
            run = Replay(nodes.addresses, deliveries, options.speed, screen, interruption)
            run.run()
    rows = run.rows()
    checked = trace if options.check is None else netmon.load_trace(options.check)
    checked_by, expected = netmon_check.expected(checked)
    times = trace["ts_us"].to_numpy()
    return Outcome(
        results=run.results,
        rows=rows,
        comparisons=netmon_check.compare(rows, expected),
        checked_by=checked_by,
        flows=len(trace),
        late=run.late,
        span_us=int(times.max() - times.min()),
        seconds=run.seconds,
        speed=options.speed,
        seed=options.seed,
        latencies=run.latencies,
        samples=run.samples,
        bots=netmon.labelled_bots(options.trace),
    )
