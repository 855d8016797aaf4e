"""What the growth benches share: turns of measuring, and their results as JSON, table and plot."""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import machine, report

RESULTS = Path(__file__).resolve().parent.parent / "results"
ROUNDS = 3


def turns(cases: Mapping[Any, Callable[[], Any]], rounds: int | None = None) -> dict[Any, list[float]]:
    """CPU seconds of each case, all cases once a round, so that a change of the machine meets them all."""
    spent: dict[Any, list[float]] = {name: [] for name in cases}
    next(iter(cases.values()))()  # loads what is loaded on first use
    for _ in range(rounds or ROUNDS):
        for name, run in cases.items():
            gc.collect()
            begin = time.process_time()
            run()
            spent[name].append(time.process_time() - begin)
    return spent


def least(times: Sequence[float]) -> float:
    """What the work itself costs: others on the machine only add to it."""
    return min(times)


def spread(times: Sequence[float]) -> float:
    return (max(times) - min(times)) / statistics.median(times)


def result(
    name: str, question: str, sample: str, x: str, unit: str, series: Mapping[str, Any]
) -> dict[str, Any]:
    """``series``: label -> list of (x, y in ``unit``, spread)."""
    return {
        "name": name,
        "question": question,
        "sample": sample,
        "x": x,
        "unit": unit,
        "series": series,
        **machine.describe(),
    }


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row per x, a column per series; the spread of the rounds in brackets."""
    series = found["series"]
    places = sorted({point[0] for points in series.values() for point in points})
    by_place = {label: {point[0]: point for point in points} for label, points in series.items()}
    lines = [
        found["question"],
        "",
        f"{found['sample']} {report.machine_line(found)}",
        "",
        f"| {found['x']} | {' | '.join(f'{label}' for label in series)} |",
        "|---|" + "---|" * len(series),
    ]
    for place in places:
        cells = []
        for label in series:
            point = by_place[label].get(place)
            cells.append("-" if point is None else _cell(point))
        lines.append(f"| {place:,g} | {' | '.join(cells)} |")
    lines += ["", f"In {found['unit']}; in brackets (largest - smallest) / median of the rounds."]
    lines += ["", found["says"]] if found.get("says") else []
    return "\n".join(lines) + "\n"


def _cell(point: Sequence[float]) -> str:
    value = f"{point[1]:,.0f}" if point[1] >= 100 else f"{point[1]:,.3g}"
    return f"{value} ({point[2]:.0%})" if len(point) > 2 else value


def plot(found: Mapping[str, Any], path: Path) -> None:
    plots = report.pyplot()
    figure, axis = plots.subplots(figsize=(6, 3.4))
    for label, points in found["series"].items():
        axis.plot([point[0] for point in points], [point[1] for point in points], marker="o", label=label)
    axis.set_xscale(
        "symlog" if any(point[0] == 0 for p in found["series"].values() for point in p) else "log"
    )
    axis.set_yscale("log")
    axis.set_xlabel(found["x"])
    axis.set_ylabel(found["unit"])
    axis.legend()
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def write(found: Mapping[str, Any], folder: Path) -> str:
    stem = f"growth-{found['name']}"
    text = report.save(stem, found, table(found), folder)
    plot(found, folder / f"{stem}.svg")
    return text


def main(doc: str, measure: Callable[[bool], dict[str, Any]]) -> None:
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="the real sizes; minutes instead of seconds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.chdir(RESULTS.parent.parent)
    sys.stdout.write(write(measure(options.full), options.out))
