"""What the run of the market shows: a live table of loads and balances, the report, and the plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.screens import DemoScreen, table_of
from medusa.apps.workloads.market.market_outcome import BESIDE_S, MarketCheck, MarketOutcome
from medusa.apps.workloads.plots import new_figure, quietly, save, why_not_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["MarketProgress", "OwnerNow", "draw", "show_checks", "show_outcome", "show_seen"]

COLOURS = ("#2b6cb0", "#1b7f4b", "#8a5a00", "#b7472a")


@dataclass(frozen=True, slots=True)
class OwnerNow:
    """What an owner's node says now; ``balance_micro``: earned less paid."""

    used: float
    away: Sequence[str]
    guests: Sequence[str]
    balance_micro: int
    why_still: str


@dataclass(slots=True)
class MarketProgress:
    """The run's threads replace whole values in it."""

    thresholds: Mapping[str, float]
    phase: str = ""
    published: int = 0
    moves: int = 0
    owners: dict[str, OwnerNow] = field(default_factory=dict)

    def begins(self, phase: str) -> None:
        self.phase = phase

    def sent(self, rows: int) -> None:
        """So many more rows were published."""
        self.published += rows

    def moved(self, moves: int) -> None:
        """So many moves there were."""
        self.moves = moves

    def look(self, owner: str, now: OwnerNow) -> None:
        """What an owner's node says."""
        self.owners = {**self.owners, owner: now}

    def line(self) -> str:
        """In one line, for logs and pipes."""
        said = [
            f"{name} {now.used:.3f}/{self.thresholds[name]:.3f} cores, {len(now.away)} away, "
            f"{len(now.guests)} guests, {now.balance_micro / 1e6:+.6f}"
            for name, now in self.owners.items()
        ]
        return " | ".join([self.phase, f"{self.published:,} rows", f"{self.moves} moves", *said])

    def drawn(self) -> RenderableType:
        """A table, for a terminal."""
        title = f"{self.phase}: {self.published:,} rows published, {self.moves} moves"
        table = table_of(
            "owner",
            "load",
            "threshold",
            "",
            "away",
            "guests",
            "EUR",
            title=title,
            left=("", "away", "guests"),
        )
        for name, now in self.owners.items():
            most = self.thresholds[name]
            bar = "█" * min(round(10 * now.used / most), 20)
            table.add_row(
                name,
                f"{now.used:.3f}",
                f"{most:.3f}",
                f"[red]{bar}[/red]" if now.used > most else f"[green]{bar}[/green]",
                ", ".join(now.away) or "-",
                ", ".join(now.guests) or "-",
                f"{now.balance_micro / 1e6:+.6f}",
            )
        return table


def show_outcome(screen: DemoScreen, outcome: MarketOutcome) -> None:
    """Moves, and how rows came before and after each; balances; checks."""
    show_seen(screen, outcome)
    show_checks(screen, outcome.checks())


def show_seen(screen: DemoScreen, outcome: MarketOutcome) -> None:
    """The same, without checks."""
    rows = f"rows/s {BESIDE_S:.0f} s before, after"
    moves = table_of("move", "at s", "latency ms before, after", rows)
    moves.columns[2].no_wrap = moves.columns[3].no_wrap = False
    for move, before, after in outcome.beside():
        latency = f"{_ms(before[0])}, {_ms(after[0])}"
        rates = f"{_whole(before[1])}, {_whole(after[1])}"
        moves.add_row(
            f"{move.task.partition('/')[2]} of {move.owner}: to {move.taker}",
            f"{move.at_s:.1f}",
            latency,
            rates,
        )
    screen.show(moves)
    owed = table_of("contract", "consumer", "provider", "by consumer EUR", "by provider EUR")
    for each in outcome.balances:
        amounts = (f"{micro / 1e6:.6f}" for micro in (each.by_consumer_micro, each.by_provider_micro))
        owed.add_row(each.contract, each.consumer, each.provider, *amounts)
    screen.show(owed)


def show_checks(screen: DemoScreen, checks: Iterable[MarketCheck]) -> None:
    """Each as held or not, and the figures that it is about."""
    for check in checks:
        must = " (may differ on a busy machine)" if check.built and not check.exact else ""
        screen.say(f"{'held    ' if check.held else 'not held'}  {check.what}{'' if check.held else must}")
        screen.say(f"          {check.shown}")


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def draw(outcome: MarketOutcome, path: Path) -> str:
    """Draw loads against thresholds, with moves, and how balances grew.

    Returns:
        What became of it, in words.

    Raises:
        QueryError: it can't be written.
    """
    if why := why_not_drawn():
        return why
    with quietly():
        figure = new_figure(path, (9, 6.5))
        owners = list(outcome.thresholds)
        colours = dict(zip(owners, COLOURS, strict=False))
        load, money = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _loads(load, outcome, colours)
        _moves(load, outcome, colours)
        for name in owners:
            mine = [each for each in outcome.samples if each.owner == name]
            times, earned = [each.at_s for each in mine], [each.balance_micro / 1e6 for each in mine]
            money.plot(times, earned, color=colours[name], label=name)
        money.set(xlabel="seconds", ylabel="EUR earned")
        for axis in (load, money):
            axis.spines[["top", "right"]].set_visible(False)
        load.legend(frameon=False, loc="upper left", ncols=4)
        save(figure, path)
    return f"drawn: {path}"


def _loads(axis: Any, outcome: MarketOutcome, colours: Mapping[str, str]) -> None:
    for name, most in outcome.thresholds.items():
        mine = [each for each in outcome.samples if each.owner == name]
        axis.plot([each.at_s for each in mine], [each.used for each in mine], color=colours[name], label=name)
        axis.axhline(most, color=colours[name], lw=0.8, ls="--")
    for phase in outcome.phases:
        axis.axvline(phase.begin_s, color="#bbb", lw=0.8)
        axis.annotate(phase.name, (phase.begin_s, 1), xycoords=("data", "axes fraction"), va="bottom")
    axis.set(ylabel="cores; dashed: threshold", ylim=(0, None))


def _moves(axis: Any, outcome: MarketOutcome, colours: Mapping[str, str]) -> None:
    """An arrow from what the giver used then to what the taker did."""
    for move in outcome.moves:
        then = {each.owner: each.used for each in outcome.samples if each.at_s <= move.at_s}
        if move.giver in then and move.taker in then:
            axis.annotate(
                "",
                (move.at_s, then[move.taker]),
                (move.at_s, then[move.giver]),
                arrowprops={"arrowstyle": "->", "color": colours[move.giver], "lw": 1.4},
            )
