"""What the run over two owners shows: how far it is, and at its end what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.federation_outcome import FederationOutcome, LookUps
from medusa.apps.workloads.demos.screens import DemoScreen, NodeSamples, table_of
from medusa.apps.workloads.owned_nodes import Owner
from medusa.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["FederationProgress", "show_outcome"]

AWAY_S = 5.0
"""A node that has said nothing for so long is shown no more."""


@dataclass
class FederationProgress:
    """The run's threads replace whole values in it."""

    owners: Mapping[str, Owner]
    cars: int = 0
    rows: int = 0
    reads_from: str = ""
    nodes: NodeSamples = field(default_factory=lambda: NodeSamples(AWAY_S))

    def look(self, at_s: float, status: Mapping[str, Any]) -> None:
        """Take what a node says of itself."""
        self.nodes.take(at_s, status)

    def line(self) -> str:
        """In one line, for logs and pipes."""
        where = ", ".join(
            f"{each.node}: {' '.join(each.fragments) or '-'}"
            for each in sorted(self.nodes, key=lambda each: each.node)
        )
        return f"{self.cars:,} cars | {self.rows:,} results, from {self.reads_from or '-'} | {where}"

    def drawn(self) -> RenderableType:
        """A table of the nodes."""
        from rich.console import Group
        from rich.text import Text

        table = table_of("node", "owner", "runs", "rows/s", "waiting", left=("owner", "runs"))
        nodes = {each.node: each for each in self.nodes}
        for owner, of in self.owners.items():
            for name in (*of.nodes, *of.later):
                node = nodes.get(name)
                if node is not None:
                    runs = " ".join(node.fragments) or "-"
                    table.add_row(name, owner, runs, f"{node.rate:,.0f}", size_text(node.queue_bytes))
        said = f"{self.cars:,} cars; {self.rows:,} results at the subscriber, from {self.reads_from or '-'}"
        return Group(Text(said), table)


def show_outcome(screen: DemoScreen, outcome: FederationOutcome) -> None:
    """What was done, what the subscriber noticed, and whether all is as it should be."""

    say = screen.say
    columns = ("while rows flow", "took", "gap p50", "longest", "stopped", "sent")
    steps = table_of(*columns, title="what the subscriber noticed")
    for step in outcome.steps:
        stopped = "-" if step.stopped_us is None else _ms(step.stopped_us)
        sent = "-" if step.sent_bytes is None else size_text(step.sent_bytes)
        steps.add_row(
            step.what, f"{step.seconds:.2f} s", _ms(step.p50_us), _ms(step.longest_us), stopped, sent
        )
    screen.show(steps)
    say("gap: between the results of two windows, at the subscriber; stopped: by the clock of the node")
    names = ("after", "asked at", "truth", "right", "none", "older", "wrong", "in")
    title = "nodes of bob are asked where alice's result is"
    lookups = table_of(*names, title=title, left=("asked at",))
    for each in outcome.lookups:
        counts = (str(count) for count in (each.right, each.nothing, each.older, each.wrong))
        lookups.add_row(each.after, ", ".join(each.asked), each.truth, *counts, _when(each))
    screen.show(lookups)
    compared = outcome.comparison
    rows = f"{compared.rows:,} results, {outcome.lost_rows} lost"
    say(f"{outcome.cars:,} cars in {outcome.seconds:.1f} s: {rows}")
    say(f"a box that bob doesn't offer: {outcome.refused or 'NOT REFUSED'}")
    verdict = "equal, row by row and bit for bit" if compared.equal else f"not equal: {compared.example}"
    say(f"beside the query in one process, {compared.expected:,} rows: {verdict}")


def _when(each: LookUps) -> str:
    return "never" if each.seconds is None else f"{each.seconds:.2f} s"


def _ms(us: int) -> str:
    return f"{us / 1e3:,.0f} ms"
