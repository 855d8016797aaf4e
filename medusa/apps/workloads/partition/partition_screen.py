"""What the run over a cut network shows: how far it is, what was found, and the plot of received numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.screens import DemoScreen, table_of
from medusa.apps.workloads.partition.partition_outcome import PartitionOutcome, Sighting
from medusa.apps.workloads.partition.tentative_screen import draw_windows, show_windows
from medusa.apps.workloads.plots import new_figure, quietly, save, why_not_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["PartitionProgress", "draw", "show_outcome"]

COLOURS = ("#2b6cb0", "#1b7f4b")


@dataclass
class PartitionProgress:
    """The run's threads replace whole values in it."""

    published: int = 0
    received: int = 0
    link: str = "whole"
    sighting: Sighting | None = None

    def sent(self, rows: int) -> None:
        """So many were published, up to now."""
        self.published = rows

    def came(self, rows: int) -> None:
        """So many more were received."""
        self.received += rows

    def saw(self, sighting: Sighting) -> None:
        """What c said last."""
        self.sighting = sighting

    def link_is(self, state: str) -> None:
        """What became of the link of a, in a word."""
        self.link = state

    def line(self) -> str:
        """In one line, for logs and pipes."""
        seen = self.sighting
        reads = "-" if seen is None else f"{seen.origin or '-'}, configuration {seen.configuration}"
        rows = f"{self.published:,} rows published, {self.received:,} at r"
        return f"{rows} | link of a {self.link} | c reads from {reads}"

    def drawn(self) -> RenderableType:
        """The same, for a terminal."""
        from rich.text import Text

        return Text(self.line())


def show_outcome(screen: DemoScreen, outcome: PartitionOutcome) -> None:
    """Figures and checks."""
    calm, cut = outcome.silence_s
    through = ", ".join(f"{count:,} through {node}" for node, count in outcome.through.items())
    received = sum(len(each.numbers) for each in outcome.arrivals)
    screen.say(f"{outcome.published:,} rows published, {received:,} at r: {through}")
    screen.say(f"longest time without a row at r: {calm:.2f} s before the cut, {cut:.2f} s from then on")
    first, last = outcome.reader_versions
    screen.say(f"version of c's output, as r is told: {first} before the cut, {last} at the end")
    checks = table_of("check", "", left=("",))
    for each in outcome.checks():
        checks.add_row(each.what, each.fault or "yes")
    screen.show(checks)
    if outcome.tentative is not None:
        show_windows(screen, outcome.tentative)


def draw(outcome: PartitionOutcome, path: Path) -> str:
    """Draw the numbers of the received rows over time, by the node that they came through; below them those
    of the windows, by the lane.

    Returns:
        What became of it, in words.

    Raises:
        QueryError: it can't be written.
    """
    if why := why_not_drawn():
        return why
    with quietly():
        if outcome.tentative is None:
            figure = new_figure(path, (8, 3.6))
            _draw(figure.subplots(), outcome)
        else:
            figure = new_figure(path, (8, 7.2))
            rows, windows = figure.subplots(2)
            _draw(rows, outcome)
            draw_windows(windows, outcome.tentative)
        save(figure, path)
    return f"drawn: {path}"


def _draw(axis: Any, outcome: PartitionOutcome) -> None:
    row = outcome.switched_row
    ranges = {outcome.guarded: (0, row), outcome.secondary: (row, None)}
    for (node, (begin, end)), colour in zip(ranges.items(), COLOURS, strict=True):
        points = [
            (each.at_s, number)
            for each in outcome.arrivals
            for number in (each.numbers[-1:] if len(each.numbers) else ())
            if begin is not None and number >= begin and (end is None or number < end)
        ]
        xs, ys = [at for at, _ in points], [number for _, number in points]
        axis.plot(xs, ys, ".", ms=3, color=colour, label=f"through {node}")
    for at_s, what in ((outcome.cut_s, "cut"), (outcome.healed_s, "healed")):
        axis.axvline(at_s, color="#777", lw=0.8, ls="--")
        axis.annotate(what, (at_s, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
    axis.set(xlabel="seconds", ylabel="number of the row", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")
