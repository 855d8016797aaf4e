"""What the run shows in which all replicas were cut off: how far it is, what was found, the plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.screens import DemoScreen, table_of
from medusa.apps.workloads.partition.tentative_outcome import TentativeOutcome

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["TentativeProgress", "draw_windows", "show_windows"]

STABLE_COLOUR, TENTATIVE_COLOUR = "#2b6cb0", "#c2410c"


@dataclass
class TentativeProgress:
    """The run's threads replace whole values in it."""

    published: int = 0
    stable: int = 0
    tentative: int = 0
    link: str = "whole"
    state: str = "stable"

    def sent(self, rows: int) -> None:
        """So many more were published."""
        self.published += rows

    def came(self, windows: int, *, tentative: bool) -> None:
        """So many more came on one of the lanes."""
        if tentative:
            self.tentative += windows
        else:
            self.stable += windows

    def link_is(self, state: str) -> None:
        """What became of the links of a and b, in a word."""
        self.link = state

    def stream_is(self, state: str) -> None:
        """What the reader was told of the stream."""
        self.state = state

    def line(self) -> str:
        """In one line, for logs and pipes."""
        windows = f"{self.published:,} rows published, {self.stable:,} stable windows at r"
        return f"{windows}, {self.tentative:,} tentative | a and b {self.link} | stream {self.state}"

    def drawn(self) -> RenderableType:
        """The same, for a terminal."""
        from rich.text import Text

        return Text(self.line())


def show_windows(screen: DemoScreen, outcome: TentativeOutcome) -> None:
    """Figures and checks."""
    stable, tentative = (sum(1 for _ in outcome.numbers(tentative=of)) for of in (False, True))
    calm, cut = outcome.added_s
    missed = f"; {outcome.missed_rows:,} had no room" if outcome.missed_rows else ""
    screen.say(f"{stable:,} stable windows at r, {tentative:,} tentative ones{missed}")
    screen.say(f"from a window's end to r at most {calm:.2f} s before the cut, {cut:.2f} s from then on")
    if outcome.corrected_s is not None:
        after_s = outcome.corrected_s - outcome.healed_s
        screen.say(f"all was corrected {after_s:.2f} s after the links were whole")
    checks = table_of("check", "", left=("",))
    for each in outcome.checks():
        checks.add_row(each.what, each.fault or "yes")
    screen.show(checks)


def draw_windows(axis: Any, outcome: TentativeOutcome) -> None:
    """The numbers of windows over the time at which they came, by lane: what was tentative comes again."""
    for tentative, colour, label in (
        (True, TENTATIVE_COLOUR, "tentative"),
        (False, STABLE_COLOUR, "stable"),
    ):
        points = list(outcome.numbers(tentative=tentative))
        xs, ys = [at for at, _ in points], [number for _, number in points]
        axis.plot(xs, ys, ".", ms=3, color=colour, label=label)
    lines = [(outcome.cut_s, "cut"), (outcome.healed_s, "healed")]
    if outcome.corrected_s is not None:
        lines.append((outcome.corrected_s, "corrected"))
    for at_s, what in lines:
        axis.axvline(at_s, color="#777", lw=0.8, ls="--")
        axis.annotate(what, (at_s, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
    axis.set(xlabel="seconds", ylabel="number of the window", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")
