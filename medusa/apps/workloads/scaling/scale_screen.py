"""What the run that scales shows: a live table, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from medusa.apps.workloads.demos.screens import DemoScreen, table_of
from medusa.apps.workloads.scaling.scale_outcome import ScaleOutcome

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["NodeNow", "ScaleProgress", "show_outcome"]


@dataclass(frozen=True, slots=True)
class NodeNow:
    """What a node says now: parts of the box that it has; ``used``: the share of it; None: it isn't known."""

    parts: int
    used: float | None


@dataclass(slots=True)
class ScaleProgress:
    """How far the run is; its threads replace whole values in it."""

    seconds: float
    at_s: float = 0.0
    rate: float = 0.0
    published: int = 0
    results: int = 0
    late_s: float = 0.0
    act: str = "nothing was changed yet"
    waits: str = ""
    nodes: Mapping[str, NodeNow] = field(default_factory=dict)

    def offers(self, at_s: float, rate: float, published: int) -> None:
        """So many rows a second are due now, and so many were published."""
        self.at_s, self.rate, self.published = at_s, rate, published

    def came(self, results: int, late_s: float) -> None:
        """So many more results came, so long after the end of their window."""
        self.results += results
        self.late_s = late_s

    def acted(self, what: str) -> None:
        """The last thing that was done, in words."""
        self.act = what

    def waits_for(self, why: str) -> None:
        """Why nothing is done that should be; empty: there is no reason, or nothing should."""
        self.waits = f"; waits: {why}" if why else ""

    def look(self, nodes: Mapping[str, NodeNow]) -> None:
        """What all nodes say."""
        self.nodes = dict(nodes)

    @property
    def used(self) -> int:
        """Nodes that have parts."""
        return sum(each.parts > 0 for each in self.nodes.values())

    def line(self) -> str:
        """In one line, for logs and pipes."""
        said = f"{self.at_s:5.1f} of {self.seconds:.0f} s | {self.rate:,.0f} cars/s"
        said += f" | {self.results:,} results, the newest {self.late_s * 1e3:,.0f} ms late"
        return f"{said} | {self.used} nodes | {self.act}{self.waits}"

    def drawn(self) -> RenderableType:
        """A table, for a terminal."""
        title = (
            f"{self.at_s:.1f} of {self.seconds:.0f} s: {self.rate:,.0f} cars/s, {self.published:,} so far; "
        )
        title += (
            f"{self.results:,} results, the newest {self.late_s * 1e3:,.0f} ms late\n{self.act}{self.waits}"
        )
        table = table_of("node", "parts", "used", "", title=title, left=("",))
        for name, now in self.nodes.items():
            used = 0.0 if now.used is None else now.used
            colour = "red" if used > 0.7 else "green"
            bar = f"[{colour}]{'█' * min(round(20 * used), 30)}[/{colour}]"
            table.add_row(name, str(now.parts or "-"), "-" if now.used is None else f"{used:.2f}", bar)
        return table


def show_outcome(screen: DemoScreen, outcome: ScaleOutcome) -> None:
    """What was done by itself and why, and each check as held or not."""
    acts = table_of("at s", "took s", "what", "why", "outcome", left=("what", "why", "outcome"))
    for place in (2, 3, 4):
        acts.columns[place].no_wrap = False
    why = ""
    for act in outcome.acts:
        took = "-" if act.ended_s is None else f"{act.ended_s - act.began_s:.1f}"
        acts.add_row(
            f"{act.began_s:.1f}",
            took,
            act.what,
            "" if act.why == why else act.why,
            act.outcome or "not known",
        )
        why = act.why
    screen.show(acts)
    if outcome.said > sum(each.done for each in outcome.acts):
        screen.say(f"the node says that it has carried out {outcome.said} orders: not all of them were seen")
    for check in outcome.checks():
        may = "" if check.held or check.exact else " (may differ on a busy machine)"
        screen.say(f"{'held    ' if check.held else 'not held'}  {check.what}{may}")
        screen.say(f"          {check.shown}")
