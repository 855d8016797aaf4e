"""What the comparison of methods of recovery shows: a live table, the report, and the poster's four plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.ha_outcome import HaOutcome, HaResult
from medusa.apps.workloads.demos.ha_query import HaMethod
from medusa.apps.workloads.demos.screens import DemoScreen, table_of
from medusa.apps.workloads.plots import new_figure, quietly, save, why_not_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["HaLane", "HaProgress", "draw", "show_outcome"]

COLOURS = {"B": "#2b6cb0", "C": "#1b7f4b", "D": "#8a5a00", "E": "#6b46c1", "F": "#b7472a"}
NO_COLOUR = "#777"


@dataclass(slots=True)
class HaLane:
    """One query, as far as it is; threads replace whole values in it."""

    of: HaMethod
    windows: int = 0
    last: int = -1
    delay_s: float = 0.0
    primary: str = "runs"

    def came(self, windows: int, last: int, delay_s: float) -> None:
        """So many more windows came, up to a row of this number."""
        self.windows += windows
        self.last, self.delay_s = max(self.last, last), delay_s

    @property
    def newest(self) -> str:
        """The newest row, and how long after its publication it came."""
        return "no row" if self.last < 0 else f"row {self.last:,} after {self.delay_s * 1e3:,.0f} ms"

    def primary_is(self, state: str) -> None:
        """What became of its primary, in a word."""
        self.primary = state


@dataclass(slots=True)
class HaProgress:
    """All of them."""

    lanes: Sequence[HaLane]
    published: int = 0
    _titles: tuple[str, ...] = field(
        default=("query", "method", "primary", "windows", "newest row", "delay"), init=False
    )

    def sent(self, rows: int) -> None:
        """So many rows were published into each query, up to now."""
        self.published = rows

    def line(self) -> str:
        """In one line, for logs and pipes."""
        lanes = [f"{each.of.letter} {each.primary}, {each.newest}" for each in self.lanes]
        return " | ".join([f"{self.published:,} rows published", *lanes])

    def drawn(self) -> RenderableType:
        """A table, for a terminal."""
        table = table_of(*self._titles, title=f"{self.published:,} rows published", left=("method",))
        for each in self.lanes:
            last, _, delay = each.newest.removeprefix("row ").partition(" after ")
            table.add_row(each.of.letter, each.of.title, each.primary, f"{each.windows:,}", last, delay)
        return table


def show_outcome(screen: DemoScreen, outcome: HaOutcome) -> None:
    """Figures and checks. Bytes sent to the secondary, and CPU of primary and secondary, are for a row."""
    table = table_of("", "delay p50/p99 ms", "takeover ms", "lost", "doubled", "sent B", "CPU us")
    for each in outcome.results:
        delay = f"{_ms(each.delay_s(0.5))}/{_ms(each.delay_s(0.99))}"
        sent = "-" if each.sent_bytes is None else f"{each.sent_bytes:,.1f}"
        cpu = f"{each.primary_cpu_us:,.1f} + {each.secondary_cpu_us:,.1f}"
        rows = f"{each.account.missing:,}", f"{each.account.doubled:,}"
        table.add_row(each.of.letter, delay, _ms(each.takeover_s), *rows, sent, cpu)
    screen.show(table)
    checks = table_of("check", "held", "figures", left=("held", "figures"))
    for check in outcome.checks():
        checks.add_row(check.what, {True: "yes", False: "no", None: "-"}[check.held], check.shown)
    checks.columns[0].no_wrap = checks.columns[2].no_wrap = False
    screen.show(checks)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f}"


def draw(outcome: HaOutcome, path: Path) -> str:
    """Draw the four plots, each into a file beside this one: ``ha.svg`` gives ``ha-numbers.svg`` and so on.

    Returns:
        What became of it, in words.

    Raises:
        QueryError: one can't be written.
    """
    if why := why_not_drawn():
        return why
    made = []
    with quietly():
        for name, drawn in PLOTS.items():
            file = path.with_stem(f"{path.stem}-{name}")
            figure = new_figure(file, (8, 3.6))
            drawn(figure, outcome.results)
            save(figure, file)
            made.append(str(file))
    return f"drawn: {', '.join(made)}"


def _numbers(figure: Any, results: Sequence[HaResult]) -> None:
    axis = figure.subplots()
    for each in results:
        points = [window.last for window in each.windows]
        axis.plot([window.at_s for window in each.windows], points, ".", ms=3, **_look(each))
    _finish(axis, results, "number of the received row")


def _delay(figure: Any, results: Sequence[HaResult]) -> None:
    axis = figure.subplots()
    for each in results:
        delays = [(window.at_s - window.sent_s) * 1e3 for window in each.windows]
        axis.plot([window.at_s for window in each.windows], delays, ".", ms=3, **_look(each))
    _finish(axis, results, "delay, ms")


def _duplicates(figure: Any, results: Sequence[HaResult]) -> None:
    axis = figure.subplots()
    for each in results:
        begin = each.windows[0].at_s if each.windows else 0.0
        end = each.windows[-1].at_s if each.windows else 0.0
        times, counts = [begin], [0]
        for at_s, again in each.account.repeats:
            times += [at_s, at_s]
            counts += [counts[-1], counts[-1] + again]
        axis.plot([*times, end], [*counts, counts[-1]], **_look(each))
    _finish(axis, results, "rows that came again")


def _overhead(figure: Any, results: Sequence[HaResult]) -> None:
    sent, cpu = figure.subplots(1, 2)
    names = [f"{each.of.letter} {each.of.title}" for each in results]
    colours = [_look(each)["color"] for each in results]
    sent.bar(names, [each.sent_bytes or 0.0 for each in results], color=colours)
    sent.set(ylabel="bytes to the secondary, a row")
    below = [each.primary_cpu_us for each in results]
    cpu.bar(names, below, color=colours, label="primary")
    cpu.bar(
        names,
        [each.secondary_cpu_us for each in results],
        bottom=below,
        color=colours,
        alpha=0.5,
        label="secondary",
    )
    cpu.set(ylabel="CPU, us a row")
    cpu.legend(frameon=False)
    for axis in (sent, cpu):
        axis.spines[["top", "right"]].set_visible(False)


PLOTS: dict[str, Callable[[Any, Sequence[HaResult]], None]] = {
    "numbers": _numbers,
    "delay": _delay,
    "duplicates": _duplicates,
    "overhead": _overhead,
}
"""The poster's, by what a file's name says."""


def _look(of: HaResult) -> dict[str, Any]:
    colour = COLOURS.get(of.of.letter, NO_COLOUR)
    return {"color": colour, "label": f"{of.of.letter} {of.of.title}"}


def _finish(axis: Any, results: Sequence[HaResult], what: str) -> None:
    for each in results[:1]:
        if each.killed_s is not None:
            axis.axvline(each.killed_s, color="#777", lw=0.8, ls="--")
            axis.annotate(
                "all primaries killed",
                (each.killed_s, 1),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
            )
    axis.set(xlabel="seconds", ylabel=what, ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")
