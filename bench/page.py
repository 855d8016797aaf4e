"""Puts the measured tables into docs/benchmarks.md, between its markers: python -m bench.page"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench import report

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"


def fill(text: str, name: str, content: str) -> str:
    """The page with ``content`` between <!-- name --> and <!-- /name -->."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{PAGE.name} needs {begin} and {end}, once each")
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{content.strip()}\n{end}", text)


def engines(found: Mapping[str, Any], value: str, unit: str) -> str:
    """One table: a row per engine, a column per workload."""
    workloads = found["workloads"]
    names = list(dict.fromkeys(name for engines in workloads.values() for name in engines))
    lines = [f"| {unit} | {' | '.join(workloads)} |", "|---|" + "---|" * len(workloads)]
    for name in names:
        cells = []
        for engines in workloads.values():
            figures = engines.get(name, {})
            cells.append(f"{figures[value] / 1e6:,.1f}" if "exact" in figures else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(found: Mapping[str, Any]) -> str:
    """Medusa over the best batch engine, beside the goal."""
    cells = []
    for name, figures in found["workloads"].items():
        if ratio := report.best_ratio(figures):
            cells.append(f"{name} {ratio[0]:.2f} ({ratio[1]}; goal {report.GOALS[name]})")
    return "Medusa (`medusa`) over the best batch engine, per CPU second: " + ", ".join(cells) + "."


def newest(paths: Iterable[Path]) -> dict[str, Any]:
    """The figures measured last."""
    return max((json.loads(path.read_text()) for path in paths), key=lambda found: found["measured"])


def shown(path: Path) -> str:
    """A growth bench: its plot and its table."""
    title = path.stem.partition("-")[2]
    plot = f"![{title}](../bench/results/{path.stem}.svg)"
    return f"### {title.capitalize()}\n\n{plot}\n\n{path.read_text().strip()}"


def main() -> None:
    text = PAGE.read_text()
    one = newest(path for path in RESULTS.glob("engines*.json") if "threads" not in path.stem)
    parts = [
        f"{one['rows']:,} events, the median of {one['rounds']} alternating runs.",
        report.machine_line(one),
        ratios(one),
        engines(one, "events_per_cpu_s", "M events per CPU second, one thread"),
        engines(one, "peak_beyond_input_bytes", "MB beyond the input"),
    ]
    text = fill(text, "one thread", "\n\n".join(parts))
    path = RESULTS / "engines-2threads.json"
    if path.exists():
        found = json.loads(path.read_text())
        unit = "M events per second of wall clock"
        parts = [report.machine_line(found), engines(found, "events_per_s", unit)]
        text = fill(text, "two threads", "\n\n".join(parts))
    for name, stem in (
        ("streaming peers", "streaming"),
        ("cores", "cores"),
        ("latency", "latency"),
        ("footprint", "footprint"),
        ("metrics", "metrics"),
        ("links", "links"),
        ("lanes", "lanes"),
        ("spark", "spark"),
    ):
        path = RESULTS / f"{stem}.md"
        if path.exists():
            text = fill(text, name, path.read_text())
    if growth := sorted(RESULTS.glob("growth-*.md")):
        text = fill(text, "growth", "\n\n".join(shown(path) for path in growth))
    micro = RESULTS / "micro.json"
    if micro.exists():
        text = fill(text, "parts", report.micro_table(json.loads(micro.read_text())).partition("\n\n")[2])
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
