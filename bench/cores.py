"""Question: how much faster is ``threads=2`` than one thread, on W1, W4 and W5?

    python -m bench.cores [--full] [--workloads W1,W2,W3,W4,W5]

Data: as ``bench.engines`` (4,000,000 events; 10,000,000 with ``--full``). Two processes a workload, one with
each number of threads, run in turns, both exact first. Wall clock, since that is what a second core is for;
the best of the rounds stands beside the median, as others on the machine take a core away now and then.
Not shown: more cores than two; threads of the peers (``bench.engines --threads 2``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import data, machine, report
from bench.engines import Contestant
from bench.workloads import WORKLOADS, reference

GOALS = {"W1": 1.4, "W4": 1.7, "W5": 1.7}
RESULTS = Path(__file__).parent / "results"


def contest(name: str, rows: int, rounds: int, engine: str = "medusa") -> dict[str, Any]:
    workload = WORKLOADS[name]
    table = workload.table(rows)
    wanted = reference(name, table)
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as place:
        folder = Path(place)
        data.save(table, folder / "events.arrow")
        pair = {threads: Contestant(engine, name, folder / "events.arrow", threads) for threads in (1, 2)}
        try:
            for contestant in pair.values():
                contestant.check(workload, wanted, folder)
            for number in range(rounds):
                for threads in (1, 2) if number % 2 else (2, 1):
                    pair[threads].run()
        finally:
            for contestant in pair.values():
                contestant.close()
    if trouble := pair[1].trouble or pair[2].trouble:
        return {"trouble": trouble}
    wall = {threads: [run["wall"] for run in each.runs] for threads, each in pair.items()}
    cpu = {threads: [run["cpu"] for run in each.runs] for threads, each in pair.items()}
    return {
        "rows": len(table),
        "median": statistics.median(wall[1]) / statistics.median(wall[2]),
        "best": min(wall[1]) / min(wall[2]),
        "more_cpu": statistics.median(cpu[2]) / statistics.median(cpu[1]),
        "wall_s": wall,
    }


def measure(names: list[str], rows: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"rounds": rounds, **machine.describe()}
    return {**found, "workloads": {name: contest(name, rows, rounds) for name in names}}


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{report.machine_line(found)} {found['rounds']} rounds.",
        "",
        "| two threads over one | rows | median | best of each | CPU time | goal |",
        "|---|---|---|---|---|---|",
    ]
    for name, figures in found["workloads"].items():
        goal = f"{GOALS[name]}" if name in GOALS else "-"
        if "trouble" in figures:
            lines.append(f"| {name} | | {figures['trouble']} | | | {goal} |")
            continue
        ratios = f"{figures['median']:.2f} | {figures['best']:.2f} | {figures['more_cpu']:.2f}"
        lines.append(f"| {name} | {figures['rows']:,} | {ratios} | {goal} |")
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("cores", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="10,000,000 events, 9 rounds")
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W5")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows, rounds = (10_000_000, 9) if options.full else (4_000_000, 5)
    sys.stdout.write(write(measure(options.workloads.split(","), rows, rounds), options.out))


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    main()
