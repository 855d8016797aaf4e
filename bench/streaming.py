"""Question: how many events per CPU second does each streaming engine take on W1 to W5, beside Medusa?

    python -m bench.streaming [--peers laminardb,csp] [--workloads W1,W4] [--rounds 3] [--full]

As ``bench.engines``, with every streaming engine that installs; each gets as many rows as it can take in
some seconds (``ROWS``; ten times as many with ``--full``) and Medusa the same rows in the same turns, so
its fixed costs count against it. An engine whose answer is wrong is shown as inexact, with the share of
the rows that it gave. ``python -m bench.peers.install`` installs them; absent ones are named.
Not shown:
brokers and networks, their checkpoints, which are off.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import engines, machine, report
from bench.workloads import WORKLOADS

GOALS = {"W1": 5.0, "W2": 5.0, "W3": 2.0, "W4": 5.0, "W5": 5.0}
ROWS = {
    "laminardb": 1_000_000,
    "streamz": 1_000_000,
    "pyclink": 200_000,
    "ubik-sql": 200_000,
    "csp": 200_000,
    "bytewax": 50_000,
    "pathway": 50_000,
    "flink": 200_000,
    "spark": 200_000,
}
MEDUSA = ("medusa", "medusa-push")
LIMIT_S = 60.0


def measure(
    peers: list[str],
    workloads: list[str],
    rounds: int,
    scale: float = 1.0,
    limit_s: float = LIMIT_S,
    folder: Path | None = None,
) -> dict[str, Any]:
    """One contest per workload and number of rows; ``folder`` gets what there is after each workload."""
    found: dict[str, Any] = {"rounds": rounds, **machine.describe(), "workloads": {}}
    for name in workloads:
        results: dict[str, Any] = {}
        for rows in sorted({int(ROWS[peer] * scale) for peer in peers}, reverse=True):
            group = [peer for peer in peers if int(ROWS[peer] * scale) == rows]
            print(f"{name}: {rows:,} events", file=sys.stderr, flush=True)
            answers = engines.contest(WORKLOADS[name], [*MEDUSA, *group], rows, rounds, 1, limit_s)
            ours = [answers[engine] for engine in MEDUSA]
            for peer in group:
                results[peer] = {"rows": rows, **answers[peer], **ratios(answers[peer], ours)}
        found["workloads"][name] = results
        if folder:
            write(found, folder)
    return found


def ratios(peer: dict[str, Any], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """Medusa's events per CPU second over the peer's, by the slower of collecting and pushing."""
    if trouble := next((each["trouble"] for each in ours if "trouble" in each), ""):
        return {"trouble": f"medusa: {trouble}"}
    speed = min(each["events_per_cpu_s"] for each in ours)
    if "trouble" in peer:
        return {"medusa_events_per_cpu_s": speed}
    return {"medusa_events_per_cpu_s": speed, "ratio": speed / peer["events_per_cpu_s"]}


def table(found: dict[str, Any]) -> str:
    workloads = found["workloads"]
    peers = list(dict.fromkeys(peer for results in workloads.values() for peer in results))
    lines = [
        f"{report.machine_line(found)} Medians of {found['rounds']} alternating runs.",
        "",
        f"| peer | rows | {' | '.join(workloads)} |",
        "|---|---|" + "---|" * len(workloads),
    ]
    for peer in peers:
        given = [results[peer] for results in workloads.values() if peer in results]
        version = next((each["version"] for each in given if each["version"] != "?"), "")
        cells = [_cell(results.get(peer)) for results in workloads.values()]
        lines.append(f"| {peer} {version} | {given[0]['rows']:,} | {' | '.join(cells)} |")
    goals = ", ".join(f"{name} {goal:g}" for name, goal in GOALS.items() if name in workloads)
    lines += [
        "",
        "Each cell: thousands of events per CPU second, and in bold how many times as many Medusa did on the",
        "same rows (the slower of `md.collect` and pushing) with the spread of the peer's runs. "
        f"Goals: {goals}.",
    ]
    return "\n".join(lines) + "\n"


def _cell(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "-"
    if "trouble" in figures:
        return str(figures["trouble"]).replace("|", "/")[:90]
    cpu = figures["cpu_s"]
    spread = (max(cpu) - min(cpu)) / statistics.median(cpu)
    return f"{figures['events_per_cpu_s'] / 1e3:,.0f} **{figures['ratio']:,.1f}** ({spread:.0%})"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("streaming", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", default=",".join(ROWS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="ten times as many rows")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    peers = options.peers.split(",")
    if unknown := [peer for peer in peers if peer not in ROWS]:
        parser.error(f"unknown peer {', '.join(unknown)}; there are {', '.join(ROWS)}")
    scale, limit_s = (10.0, 600.0) if options.full else (1.0, LIMIT_S)
    found = measure(peers, options.workloads.split(","), options.rounds, scale, limit_s, options.out)
    sys.stdout.write(write(found, options.out))


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    main()
