"""Plots of runs, as SVG; the same figures give the same file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medusa.errors import ConfigError
from medusa.sim.market.experiments import MarketExperiment, MarketRow
from medusa.sim.market.run import MarketRun

__all__ = ["plot_course", "plot_experiment"]

COLOURS = ("#3b6ea5", "#c2571a", "#4d8f4d", "#8a5a9e", "#777777", "#b8860b", "#2a9d8f")

Found = Sequence[tuple[MarketRow, MarketRun]]


def plot_experiment(experiment: MarketExperiment, found: Found, path: Path) -> bool:
    """Draw what an experiment shows; whether there is a plot of it.

    Raises:
        ConfigError: no matplotlib, or the file can't be written.
    """
    drawing = _DRAWINGS.get(experiment.name)
    if drawing is None:
        return False
    with _figure(path) as axes:
        drawing(axes, found)
    return True


def plot_course(run: MarketRun, path: Path) -> None:
    """Overload over time, and the price of each move.

    Raises:
        ConfigError: no matplotlib, or the file can't be written.
    """
    with _figure(path) as (left, right):
        left.plot(
            [at for at, _, _ in run.course], [over * 100 for _, over, _ in run.course], color=COLOURS[0]
        )
        left.set(xlabel="seconds", ylabel="overload left, % of the capacity")
        left.set_ylim(bottom=0)
        right.plot([at for at, _ in run.prices], [price for _, price in run.prices], ".", markersize=3)
        right.set(xlabel="seconds", ylabel="price of a move, of the highest")


@contextmanager
def _figure(path: Path) -> Iterator[Any]:
    """Two axes beside each other; what is drawn into them is written to the file."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "plots are drawn by matplotlib, which isn't installed",
            hint="pip install 'medusa-streams[plot]', or --no-plots",
            code="config.plot",
        ) from None
    with rc_context({"svg.hashsalt": "medusa", "font.size": 9}):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, 2)
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        yield axes
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format="svg", metadata={"Date": None})
        except OSError as error:
            raise ConfigError(f"{path} can't be written: {error.strerror}", code="config.file") from error


def _sizes(axes: Any, found: Found) -> None:
    """Overload over time for each size, where the load is heavy; and profits."""
    for colour, (row, run) in zip(
        COLOURS, [each for each in found if each[0].labels["load"] == "heavy"], strict=False
    ):
        label = f"{row.labels['participants']:,}"
        times, over = [at for at, _, _ in run.course], [share * 100 for _, share, _ in run.course]
        axes[0].plot(times, over, color=colour, label=label)
        ranked = sorted(run.profits)
        axes[1].plot([each / len(ranked) for each in range(len(ranked))], ranked, color=colour, label=label)
    axes[0].set(xlabel="seconds", ylabel="overload left, % of the capacity", title="heavy load")
    axes[0].set_ylim(bottom=0)
    axes[1].set(xlabel="share of participants", ylabel="profit against alone, micro/s", title="heavy load")
    axes[1].set_yscale("symlog", linthresh=1)
    axes[0].legend(title="participants", frameon=False)


def _contracts(axes: Any, found: Found) -> None:
    for axis, load in zip(axes, ("heavy", "overload"), strict=True):
        for colour, pricing in zip(COLOURS, ("bounded", "fixed"), strict=False):
            points = [
                (row.labels["contracts"], run.figures.wasted * 100)
                for row, run in found
                if row.labels["load"] == load and row.labels["pricing"] == pricing
            ]
            axis.plot(*zip(*points, strict=True), "o-", markersize=3, color=colour, label=pricing)
        for share in (1, 5):
            axis.axhline(share, color="#bbbbbb", linewidth=0.8)
        axis.set(xlabel="contracts each, at least", ylabel="wasted, % of the capacity", title=load)
        axis.set_ylim(bottom=0)
    axes[0].legend(title="price", frameon=False)


def _ranges(axes: Any, found: Found) -> None:
    tasks = sorted({row.labels["task"] for row, _ in found})
    for axis, task in zip(axes, tasks, strict=True):
        graphs = list(dict.fromkeys(row.labels["graph"] for row, _ in found))
        for colour, graph in zip(COLOURS, graphs, strict=False):
            points = [
                (row.labels["range"], run.figures.wasted * 100)
                for row, run in found
                if row.labels["graph"] == graph and row.labels["task"] == task
            ]
            axis.plot(*zip(*points, strict=True), "o-", markersize=3, color=colour, label=graph)
        axis.set(
            xlabel="range, of the price", ylabel="wasted, % of the capacity", title=f"tasks of {task:g} cores"
        )
        axis.set_ylim(bottom=0)
    axes[1].legend(frameon=False)


def _auction(axes: Any, found: Found) -> None:
    kinds = list(dict.fromkeys(row.labels["pricing"] for row, _ in found))
    loads = list(dict.fromkeys(row.labels["load"] for row, _ in found))
    for number, kind in enumerate(kinds):
        runs = [run for row, run in found if row.labels["pricing"] == kind]
        places = [place + (number - len(kinds) / 2) * 0.2 for place in range(len(runs))]
        colour = COLOURS[number]
        axes[0].bar(places, [run.figures.wasted * 100 for run in runs], 0.18, color=colour, label=kind)
        if kind != "alone":
            axes[1].bar(places, [run.figures.messages_each for run in runs], 0.18, color=colour)
    for axis in axes:
        axis.set_xticks(range(len(loads)), loads)
    axes[0].set(ylabel="wasted, % of the capacity")
    axes[1].set(ylabel="messages of each participant")
    axes[0].legend(frameon=False)


_DRAWINGS: dict[str, Callable[[Any, Found], None]] = {
    "sizes": _sizes,
    "contracts": _contracts,
    "ranges": _ranges,
    "auction": _auction,
}
