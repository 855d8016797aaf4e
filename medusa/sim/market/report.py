"""Figures of runs as text, Markdown tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from medusa.errors import ConfigError
from medusa.sim.market.experiments import MarketExperiment, MarketRow
from medusa.sim.market.liars import LiarFigures
from medusa.sim.market.run import MarketFigures, MarketRun
from medusa.sim.market.setup import LIES
from medusa.units import duration_text

__all__ = [
    "COLUMNS",
    "experiment_json",
    "experiment_table",
    "liar_table",
    "run_text",
    "save_json",
]


def _percent(value: float) -> str:
    value = value if abs(value) > 5e-6 else 0.0  # no -0.00%
    return f"{value:.2%}" if abs(value) < 0.1 else f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _yes(value: float) -> str:
    return "yes" if value else "**no**"


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "participants": ("participants", _count),
    "contracts_each": ("partners each", lambda value: f"{value:.1f}"),
    "diameter": ("diameter", _count),
    "range_needed": ("range by the theorem", _percent),
    "overload_before": ("overload before", _percent),
    "overload": ("overload left", _percent),
    "overload_least": ("overload, optimum", _percent),
    "unused": ("unused", _percent),
    "unused_least": ("unused, optimum", _percent),
    "wasted": ("wasted", _percent),
    "acceptable": ("acceptable", _yes),
    "gain_share": ("of the possible saving", _percent),
    "moves": ("moves", _count),
    "returns": ("returns", _count),
    "moves_bound": ("bound on moves", _count),
    "rounds": ("rounds", _count),
    "settled": ("at rest", _yes),
    "near_s": ("within 1 % after, s", lambda value: f"{value:.0f}"),
    "settled_s": ("last move, s", lambda value: f"{value:.0f}"),
    "messages_each": ("messages each", lambda value: f"{value:,.1f}"),
    "price_mean": ("mean price", lambda value: f"{value:.3f}"),
    "price_low": ("lowest price", lambda value: f"{value:.3f}"),
    "price_high": ("highest price", lambda value: f"{value:.3f}"),
    "price_step": ("price step", lambda value: f"{value:.3f}"),
    "profit_low": ("least profit, micro/s", lambda value: f"{value:,.3f}"),
    "profit_median": ("median profit, micro/s", lambda value: f"{value:,.1f}"),
    "below": ("worse than alone", _count),
    "losers": ("by more than is stated", _count),
    "rule_breaks": ("messages against a rule", _count),
    "loss_low": ("least profit of all, micro", lambda value: f"{value:,.0f}"),
    "loss_share": ("lost while reacting", lambda value: f"{value:.3%}"),
    "peak_alone": ("cores to buy alone", lambda value: f"{value:,.1f}"),
    "peak": ("cores to buy", lambda value: f"{value:,.1f}"),
}
"""Field of ``MarketFigures`` -> its title in a table, and how it is written."""

SHOWN = (
    "contracts_each",
    "diameter",
    "overload_before",
    "overload",
    "overload_least",
    "unused",
    "unused_least",
    "wasted",
    "acceptable",
    "gain_share",
    "moves",
    "returns",
    "moves_bound",
    "near_s",
    "settled",
    "settled_s",
    "rounds",
    "messages_each",
    "price_mean",
    "price_low",
    "price_high",
    "price_step",
    "profit_low",
    "profit_median",
    "below",
    "losers",
    "rule_breaks",
    "peak_alone",
    "peak",
)


def run_text(run: MarketRun) -> str:
    """One run, to a person: a line for each figure."""
    figures = run.figures
    first = (
        f"{figures.participants:,} participants, {figures.load_share:.0%} load, {run.setup.pricing} price,"
        f" seed {run.setup.seed}"
    )
    if run.setup.pricing in ("bounded", "fixed"):
        delay_us, move_us = round(run.setup.delay_ms * 1e3), round(run.setup.move_s * 1e6)
        first += (
            f"; messages take {duration_text(delay_us)} to {duration_text(2 * delay_us)}, a move"
            f" {duration_text(move_us)}"
        )
    width = max(len(COLUMNS[name][0]) for name in SHOWN)
    lines = [f"{COLUMNS[name][0]:<{width}}  {_cell(figures, name).strip('*')}" for name in SHOWN]
    kinds = ", ".join(f"{name} {count:,}" for name, count in figures.messages.items())
    return "\n".join([first, *lines, *([f"{'messages':<{width}}  {kinds}"] if kinds else [])])


def experiment_table(experiment: MarketExperiment, found: Sequence[tuple[MarketRow, MarketRun]]) -> str:
    """Markdown: a row for each run."""
    labels = list(experiment.rows[0].labels)
    head = [*labels, *(COLUMNS[name][0] for name in experiment.columns)]
    lines = [f"## {experiment.title}", "", experiment.question, "", _line(head), _line(["---"] * len(head))]
    for row, run in found:
        cells = [_label(row.labels[each]) for each in labels]
        lines.append(_line([*cells, *(_cell(run.figures, name) for name in experiment.columns)]))
    if experiment.name == "contracts":
        lines += ["", *_enough(found)]
    return "\n".join([*lines, ""])


def _enough(found: Sequence[tuple[MarketRow, MarketRun]]) -> list[str]:
    """From how many contracts on so little is wasted, up to the most that were tried."""
    lines = []
    series: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row, run in found:
        key = row.labels["load"], row.labels["pricing"]
        series.setdefault(key, []).append((row.labels["contracts"], run.figures.wasted))
    for (load, pricing), points in series.items():
        words = []
        for share in (0.05, 0.01):
            enough = None
            for count, wasted in sorted(points, reverse=True):
                if wasted > share:
                    break
                enough = count
            words.append(
                f"{share:.0%} from {enough} contracts on" if enough else f"{share:.0%} with none of these"
            )
        lines.append(f"- {load}, {pricing} price: {', '.join(words)}")
    return lines


def liar_table(found: Sequence[LiarFigures]) -> str:
    """Markdown: a row for each lie."""
    head = [
        "lie",
        "who",
        "liars",
        "honest, micro/s",
        "lying, micro/s",
        "gain",
        "+-",
        "median gain",
        "gain from it",
        "others, honest",
        "others, lied to",
        "of them worse than alone",
        "messages against a rule",
    ]
    lines = ["## Liars", "", _line(head), _line(["---"] * len(head))]
    for each in found:
        cells = [
            each.lie,
            LIES[each.lie],
            _count(each.liars),
            f"{each.profit_honest:,.1f}",
            f"{each.profit_lying:,.1f}",
            f"{each.gain:+,.1f}",
            f"{each.gain_error:,.1f}",
            f"{each.gain_median:+,.1f}",
            f"{each.gained / each.liars:.0%}",
            f"{each.others_honest:,.1f}",
            f"{each.others_lying:,.1f}",
            _count(each.losers),
            _count(each.rule_breaks),
        ]
        lines.append(_line(cells))
    return "\n".join([*lines, ""])


def experiment_json(
    experiment: MarketExperiment, found: Sequence[tuple[MarketRow, MarketRun]]
) -> dict[str, Any]:
    """All figures, and of each run how it is run again."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "rows": [
            {
                "labels": row.labels,
                "setup": msgspec.to_builtins(run.setup),
                "figures": msgspec.to_builtins(run.figures),
            }
            for row, run in found
        ],
    }


def save_json(found: Any, path: Path) -> None:
    """Write it.

    Raises:
        ConfigError: the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}", code="config.file") from error


def _cell(figures: MarketFigures, name: str) -> str:
    return COLUMNS[name][1](getattr(figures, name))


def _label(value: Any) -> str:
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
