"""How far the run over two owners is: what its screens show while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.owned_nodes import Owner
from medusa.apps.workloads.screens import table_of
from medusa.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Progress"]

AWAY_S = 5.0
"""A node that has said nothing for so long is shown no more."""


@dataclass(slots=True)
class _Node:
    """What a node last said; ``at_s`` by a steady clock."""

    at_s: float
    rows: int
    rate: float
    kept_bytes: int
    fragments: list[str]


@dataclass
class Progress:
    """The run's threads replace whole values in it."""

    owners: Mapping[str, Owner]
    cars: int = 0
    rows: int = 0
    reads_from: str = ""
    nodes: dict[str, _Node] = field(default_factory=dict)

    def look(self, at_s: float, status: Mapping[str, Any]) -> None:
        """Take what a node says of itself."""
        before = self.nodes.get(status["node"])
        rows, rate = status["rows_in"], 0.0
        if before is not None and at_s > before.at_s:
            rate = (rows - before.rows) / (at_s - before.at_s)
        kept = status["queue_bytes"] + status["kept_bytes"]
        fragments = [each["fragment"].partition("/")[2] for each in status["fragments"]]
        there = {name: node for name, node in self.nodes.items() if at_s - node.at_s < AWAY_S}
        self.nodes = {**there, status["node"]: _Node(at_s, rows, max(rate, 0.0), kept, fragments)}

    def line(self) -> str:
        """In one line, for logs and pipes."""
        where = ", ".join(
            f"{name}: {' '.join(of.fragments) or '-'}" for name, of in sorted(self.nodes.items())
        )
        return f"{self.cars:,} cars | {self.rows:,} results, from {self.reads_from or '-'} | {where}"

    def drawn(self) -> RenderableType:
        """A table of the nodes."""
        from rich.console import Group
        from rich.text import Text

        table = table_of("node", "owner", "runs", "rows/s", "waiting")
        table.columns[1].justify = table.columns[2].justify = "left"
        for owner, of in self.owners.items():
            for name in (*of.nodes, *of.later):
                node = self.nodes.get(name)
                if node is not None:
                    runs = " ".join(node.fragments) or "-"
                    table.add_row(name, owner, runs, f"{node.rate:,.0f}", size_text(node.kept_bytes))
        said = f"{self.cars:,} cars; {self.rows:,} results at the subscriber, from {self.reads_from or '-'}"
        return Group(Text(said), table)
