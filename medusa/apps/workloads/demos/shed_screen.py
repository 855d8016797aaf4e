"""What ``medusa demo shed`` shows: tables and curves in the terminal, a plot, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from medusa.apps.workloads.demos.shed_demo import COSTS_US, LOADS, RULES, ShedOutcome, ran
from medusa.apps.workloads.plots import new_figure, quietly, save

__all__ = ["run_demo"]

LABELS = {"ours": "our shedder", "random": "random drops", "none": "nothing shed"}
STYLES = {"ours": "bold green", "random": "yellow", "none": "red"}
COLOURS = {"ours": "#1b7f4b", "random": "#c98a00", "none": "#b03030"}
BARS = "▁▂▃▄▅▆▇█"


def run_demo(*, plot: Path | None = None, seed: int = 0, as_json: bool = False) -> bool:
    """Run all loads by all rules and show what came of it.

    Args:
        plot: draw it into this file, PNG or SVG.

    Returns:
        Whether every account of rows adds up.

    Raises:
        QueryError: it can't be drawn.
    """
    with quietly():
        figure = None if plot is None else new_figure(plot, (9, 3.6))
    found = []
    for load in LOADS:
        outcomes = [ran(load, rule, seed=seed) for rule in RULES]
        if not as_json:
            _show(load, outcomes)
        found += outcomes
    if as_json:
        click.echo(json.dumps([_plain(each) for each in found]))
    if plot is not None and figure is not None:
        with quietly():
            _draw(figure, found, plot)
        click.echo(f"drawn: {plot}", err=as_json)
    return all(each.adds_up for each in found)


def _show(load: float, outcomes: Sequence[ShedOutcome]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    rate, pushed = round(1e6 / sum(COSTS_US.values()) * load), outcomes[0].pushed
    console.print(f"\n[bold]{load:g} times capacity[/bold]: {pushed:,} rows come, {rate:,} a second")
    table = Table(box=None, pad_edge=False)
    for name in ("", "utility", "each second", "output", "delivered", "shed", "delay"):
        left = name in ("", "each second", "output")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for outcome in outcomes:
        style = STYLES[outcome.rule]
        for place, (sink, (went, shed)) in enumerate(outcome.accounts.items()):
            table.add_row(
                Text("" if place else LABELS[outcome.rule], style),
                "" if place else f"{outcome.mean:.2f}",
                Text(_curve(outcome.utility[sink].tolist()), style),
                sink,
                f"{went:,}",
                f"{shed:,}",
                f"{outcome.delay_us[sink] / 1e6:.2f} s",
            )
    console.print(table)
    if all(each.adds_up for each in outcomes):
        console.print(f"delivered + shed = {pushed:,}, for each output by each rule")
    else:
        console.print(f"[red]delivered + shed is not {pushed:,} for each output by each rule[/red]")


def _curve(values: Sequence[float]) -> str:
    return "".join(BARS[min(int(value * len(BARS)), len(BARS) - 1)] for value in values)


def _plain(outcome: ShedOutcome) -> dict[str, Any]:
    return {
        "load": outcome.load,
        "rule": outcome.rule,
        "utility": round(outcome.mean, 4),
        "pushed": outcome.pushed,
        "adds_up": outcome.adds_up,
        "outputs": {
            sink: {
                "delivered": went,
                "shed": shed,
                "delay_s": round(outcome.delay_us[sink] / 1e6, 4),
                "utility": [round(float(value), 4) for value in outcome.utility[sink]],
            }
            for sink, (went, shed) in outcome.accounts.items()
        },
        "places": outcome.places,
    }


def _draw(figure: Any, found: Sequence[ShedOutcome], path: Path) -> None:
    axes = figure.subplots(1, len(LOADS), sharey=True)
    for axis, load in zip(axes, LOADS, strict=True):
        for outcome in found:
            if outcome.load == load:
                values = np.mean(list(outcome.utility.values()), axis=0)
                axis.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    color=COLOURS[outcome.rule],
                    label=LABELS[outcome.rule],
                )
        axis.set(title=f"{load:g} times capacity", xlabel="second", ylim=(0, 1.03))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("utility")
    axes[0].legend(frameon=False, loc="lower left")
    save(figure, path)
