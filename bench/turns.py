"""Question: what did a change cost on W1 to W5 and on trains of 64 rows?

    python -m bench.turns ../before [--rounds 9] [--rows 10000000] [--trains 10000] [--workloads W1,W5]

``../before`` is a checkout of the earlier version, in which ``make test`` has made ``.venv``.

Data: that of ``bench.engines`` and of ``bench.latency``. The peer is the earlier version: both answers are
compared with numpy's first, then the two take turns, and every run is divided by its neighbour's. So a
change of the machine's speed meets both; what is left of it shows as the spread of the ratios. W1 to W5 are
CPU time of live pushes (``medusa-push``) and of ``md.collect`` (``medusa``); a train is the p50 of ``push``
and ``take``.

It takes some seven minutes on two cores that do nothing else. What it does not show: links, nodes, disks; a
ratio whose middle half of rounds spans 1 is no difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import data, machine, report
from bench.engines import Contestant
from bench.workloads import WORKLOADS, reference

HERE = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
ENGINES = ("medusa", "medusa-push")
SHAPES = ("filter", "window", "join", "all")
SLOWER_MAX = 1.02
"""A larger ratio of medians is marked."""

TRAINS = """
import json, signal, sys
from bench import latency
# As in a terminal: a shell starts what runs in its background with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
batches = latency.trains(int(sys.argv[2]))
steps = latency.Steps(sys.argv[1], batches)
print(json.dumps(latency.figures(latency.without_collector(latency.pushed, steps, len(batches)))))
"""


def workload_ratios(name: str, before: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Per engine, CPU time of this version over that of the earlier one, a ratio per round."""
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as folder:
        path = Path(folder) / "events.arrow"
        events = WORKLOADS[name].table(rows)
        data.save(events, path)
        wanted = reference(name, events)
        del events
        found: dict[str, list[float]] = {}
        for engine in ENGINES:
            pair = [Contestant(engine, name, path, 1, checkout=each) for each in (HERE, before)]
            try:
                for each in pair:
                    each.check(WORKLOADS[name], wanted, Path(folder))
                for number in range(rounds):
                    for each in pair if number % 2 else reversed(pair):
                        each.run()
                if trouble := pair[0].trouble or pair[1].trouble:
                    raise SystemExit(f"{name} {engine}: {trouble}")
                found[engine] = [a["cpu"] / b["cpu"] for a, b in zip(pair[0].runs, pair[1].runs, strict=True)]
            finally:
                for each in pair:
                    each.close()
        return found


def train_us(checkout: Path, shape: str, trains: int) -> float:
    """The p50 of a train, in a process of its own."""
    command = [str(checkout / ".venv/bin/python"), "-c", TRAINS, shape, str(trains)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1])["p50"])


def train_ratios(shape: str, before: Path, rounds: int, trains: int) -> list[float]:
    ratios = []
    for number in range(rounds):
        pair = (HERE, before) if number % 2 else (before, HERE)
        took = {each: train_us(each, shape, trains) for each in pair}
        ratios.append(took[HERE] / took[before])
    return ratios


def middle_half(ratios: list[float]) -> tuple[float, float]:
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, high


def table(found: dict[str, Any]) -> str:
    size = f"{found['rows']:,} events, trains of 64 rows; {found['rounds']} rounds in turns."
    lines = [
        f"{size} {report.machine_line(found)}",
        "",
        "| time of this version over that of the earlier one | median | middle half of rounds | all |",
        "|---|---|---|---|",
    ]
    for what, ratios in found["ratios"].items():
        middle = statistics.median(ratios)
        mark = " (slower)" if middle > SLOWER_MAX else ""
        low, high = middle_half(ratios)
        half, whole = f"{low:.3f} to {high:.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"
        lines.append(f"| {what} | {middle:.3f}{mark} | {half} | {whole} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", type=Path, help="a checkout of the earlier version, with its .venv")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--trains", type=int, default=10_000)
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W5")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    before = options.before.resolve()
    if not (before / ".venv/bin/python").exists():
        parser.error(f"{before} has no .venv/bin/python: run `make demo` there first")
    ratios: dict[str, list[float]] = {}
    for name in filter(None, options.workloads.split(",")):
        print(f"{name}: {WORKLOADS[name].title}", file=sys.stderr, flush=True)
        for engine, each in workload_ratios(name, before, options.rows, options.rounds).items():
            ratios[f"{name} {engine}"] = each
    for shape in SHAPES:
        print(f"trains: {shape}", file=sys.stderr, flush=True)
        ratios[f"64 rows, {shape}"] = train_ratios(shape, before, options.rounds, options.trains)
    found = {"rows": options.rows, "rounds": options.rounds, **machine.describe(), "ratios": ratios}
    sys.stdout.write(report.save("turns", found, table(found), options.out))


if __name__ == "__main__":
    main()
