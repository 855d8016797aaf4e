"""Figures as tables for the reader and as plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

GOALS = {"W1": 2.0, "W2": 1.5, "W3": 0.3, "W5": 4.0}
"""Medusa over the best of polars, DuckDB and DataFusion, events per CPU second, one thread."""

BATCH = ("polars", "polars-streaming", "duckdb", "datafusion")


def engines_table(found: Mapping[str, Any]) -> str:
    """Markdown: one table per workload, and Medusa beside the best batch engine."""
    lines = [
        f"# {found['rows']:,} events, {found['threads']} thread{'s' if found['threads'] > 1 else ''}",
        "",
        f"{found['processor']}, {found['cores']} cores, Python {found['python']}, commit {found['commit']}"
        f"{' with changes' if found['changed'] else ''}, {found['measured']}, load before {found['load_before']:.1f}.",
        f"Medians of {found['rounds']} alternating runs; spread = (largest - smallest) / median of CPU time.",
        "",
    ]
    for name, engines in found["workloads"].items():
        lines += [f"## {name}", "", *_rows(engines), ""]
        if ratio := best_ratio(engines):
            lines += [
                f"Medusa / best batch engine ({ratio[1]}): **{ratio[0]:.2f}** (goal {GOALS[name]}).",
                "",
            ]
    return "\n".join(lines)


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
    """One row of bars per workload, a logarithmic scale for none of them: ratios are read from zero."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "medusa"
    from matplotlib import pyplot

    workloads = found["workloads"]
    figure, axes = pyplot.subplots(1, len(workloads), figsize=(3.4 * len(workloads), 3.2), squeeze=False)
    for axis, (name, engines) in zip(axes[0], workloads.items(), strict=True):
        exact = {engine: f["events_per_cpu_s"] / 1e6 for engine, f in engines.items() if "exact" in f}
        colours = ["#3b6ea5" if engine.startswith("medusa") else "#b0b0b0" for engine in exact]
        axis.barh(list(exact), list(exact.values()), color=colours)
        axis.invert_yaxis()
        axis.set_title(name)
        axis.set_xlabel("M events / CPU s")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
