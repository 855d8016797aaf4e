"""Figures as tables for the reader and as plots."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

GOALS = {"W1": 3.0, "W2": 2.5, "W3": 1.0, "W4": 1.0, "W5": 4.0}
"""Medusa over the best of polars, DuckDB and DataFusion, events per CPU second, one thread."""

BATCH = ("polars", "polars-streaming", "duckdb", "datafusion")


def engines_table(found: Mapping[str, Any]) -> str:
    """Markdown: one table per workload, and Medusa beside the best batch engine."""
    lines = [
        f"# {found['rows']:,} events, {found['threads']} thread{'s' if found['threads'] > 1 else ''}",
        "",
        machine_line(found),
        f"Medians of {found['rounds']} alternating runs; spread = (largest - smallest) / median of CPU time.",
        "",
    ]
    for name, engines in found["workloads"].items():
        lines += [f"## {name}", "", *_rows(engines), ""]
        if found["threads"] == 1 and (ratio := best_ratio(engines)):
            lines += [
                f"Medusa / best batch engine ({ratio[1]}): **{ratio[0]:.2f}** (goal {GOALS[name]}).",
                "",
            ]
    return "\n".join(lines)


def save(name: str, found: Mapping[str, Any], text: str, folder: Path) -> str:
    """Put figures and their table into a folder; the table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
    return text


def rounds_asked(doc: str | None, folder: Path) -> tuple[int, Path]:
    """(rounds, folder for results) by the command line of a benchmark that has no other options."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=folder)
    options = parser.parse_args()
    return options.rounds, options.out


def machine_line(found: Mapping[str, Any]) -> str:
    """On what, when and at which commit."""
    changed = " with changes" if found["changed"] else ""
    return (
        f"{found['processor']}, {found['cores']} cores, Python {found['python']}, "
        f"commit {found['commit']}{changed}, {found['measured']}, load before {found['load_before']:.1f}."
    )


def _rows(engines: Mapping[str, Any]) -> list[str]:
    lines = [
        "| engine | version | M events / CPU s | M events / s | spread | MB beyond input |",
        "|---|---|---|---|---|---|",
    ]
    for engine, figures in engines.items():
        if "trouble" in figures:
            lines.append(f"| {engine} | {figures['version']} | {figures['trouble']} | | | |")
            continue
        cpu = figures["cpu_s"]
        lines.append(
            f"| {engine} | {figures['version']} | {figures['events_per_cpu_s'] / 1e6:.2f} "
            f"| {figures['events_per_s'] / 1e6:.2f} | {(max(cpu) - min(cpu)) / median(cpu):.0%} "
            f"| {figures['peak_beyond_input_bytes'] / 1e6:.0f} |"
        )
    return lines


def best_ratio(engines: Mapping[str, Any]) -> tuple[float, str] | None:
    """(Medusa over the best batch engine, which one); None where one of them has no figure."""
    speeds = {name: engines[name]["events_per_cpu_s"] for name in BATCH if "exact" in engines.get(name, {})}
    mine = engines.get("medusa", {}).get("events_per_cpu_s")
    if not speeds or not mine:
        return None
    best = max(speeds, key=lambda name: speeds[name])
    return mine / speeds[best], best


def engines_plot(found: Mapping[str, Any], path: Path) -> None:
    """One panel per workload; scales start at 0, so lengths are ratios."""
    plots = pyplot()
    workloads = found["workloads"]
    figure, axes = plots.subplots(1, len(workloads), figsize=(3.4 * len(workloads), 3.2), squeeze=False)
    for axis, (name, engines) in zip(axes[0], workloads.items(), strict=True):
        exact = {engine: f["events_per_cpu_s"] / 1e6 for engine, f in engines.items() if "exact" in f}
        _bars(axis, list(exact), list(exact.values()), [engine.startswith("medusa") for engine in exact])
        axis.set_title(name)
        axis.set_xlabel("M events / CPU s")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def micro_table(found: Mapping[str, Any]) -> str:
    """Markdown: one table per question, fastest first."""
    lines = ["# Parts, one at a time", "", machine_line(found), ""]
    for group, benches in _by_group(found).items():
        lines += [f"## {group}", "", "| what | us a call | ns a row | spread (IQR) |", "|---|---|---|---|"]
        for bench in benches:
            stats, rows = bench["stats"], bench["extra_info"].get("rows", 1)
            per_row = f"{stats['median'] * 1e9 / rows:,.2f}" if rows > 1 else "-"
            lines.append(
                f"| {_label(bench)} | {stats['median'] * 1e6:,.1f} | {per_row} "
                f"| {stats['iqr'] / stats['median']:.0%} |"
            )
        lines.append("")
    return "\n".join(lines)


def micro_plot(found: Mapping[str, Any], path: Path) -> None:
    """One panel per question: ns per row, shorter is better."""
    plots = pyplot()
    groups = _by_group(found)
    across = min(3, len(groups))
    down = -(-len(groups) // across)
    figure, axes = plots.subplots(down, across, figsize=(5 * across, 2.8 * down), squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (group, benches) in zip(axes.flat, groups.items(), strict=False):
        labels = [_label(bench) for bench in benches]
        cost = [bench["stats"]["median"] * 1e9 / bench["extra_info"].get("rows", 1) for bench in benches]
        _bars(axis, labels, cost, [label.startswith("medusa") for label in labels])
        axis.set_title(group)
        axis.set_xlabel("ns a row")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def _by_group(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for bench in found["benchmarks"]:
        groups.setdefault(bench["group"] or "other", []).append(bench)
    return {name: sorted(groups[name], key=lambda bench: bench["stats"]["median"]) for name in sorted(groups)}


def _label(bench: Mapping[str, Any]) -> str:
    return str(bench["name"]).removeprefix("test_")


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "medusa"
    from matplotlib import pyplot

    return pyplot


def _bars(axis: Any, labels: list[str], values: list[float], ours: list[bool]) -> None:
    axis.barh(labels, values, color=["#3b6ea5" if mine else "#b0b0b0" for mine in ours])
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
