"""Question: what did a change do to the figures?

    python -m bench.compare OLD.json NEW.json

Takes two files of ``bench.engines`` or two of pytest-benchmark and prints new over old; above 1
is faster. It compares what was measured: two runs on a shared machine differ by some per cent
without any change, so look at the spread beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any


def speeds(found: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Name -> (runs per second, spread of the measured times over their median)."""
    if "benchmarks" in found:
        return {
            bench["fullname"]: (
                1 / bench["stats"]["median"],
                bench["stats"]["iqr"] / bench["stats"]["median"],
            )
            for bench in found["benchmarks"]
        }
    return {
        f"{workload} {engine}": (figures["events_per_cpu_s"], _spread(figures["cpu_s"]))
        for workload, engines in found["workloads"].items()
        for engine, figures in engines.items()
        if "exact" in figures
    }


def _spread(times: list[float]) -> float:
    return (max(times) - min(times)) / median(times)


def table(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Markdown, largest loss first; what only one file has is listed below."""
    before, after = speeds(old), speeds(new)
    both = sorted(before.keys() & after.keys(), key=lambda name: after[name][0] / before[name][0])
    lines = ["| what | new / old | spread old | spread new |", "|---|---|---|---|"]
    for name in both:
        ratio = after[name][0] / before[name][0]
        lines.append(f"| {name} | {ratio:.2f} | {before[name][1]:.0%} | {after[name][1]:.0%} |")
    lines += [f"only in the old file: {name}" for name in sorted(before.keys() - after.keys())]
    lines += [f"only in the new file: {name}" for name in sorted(after.keys() - before.keys())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    print(table(json.loads(options.old.read_text()), json.loads(options.new.read_text())))


if __name__ == "__main__":
    main()
