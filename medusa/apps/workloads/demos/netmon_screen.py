"""The demonstration on a terminal: live progress, then the tables. Plain lines where there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.netmon_outcome import NetmonOutcome
from medusa.apps.workloads.demos.screens import DemoScreen, NodeSample, NodeSamples, table_of
from medusa.apps.workloads.netmon_check import COLUMNS, Row
from medusa.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["NetmonProgress", "clock", "show_outcome"]

SHOWN = ("both", "clusters")
"""Results that appear as they come; the others are too many or contained in them."""

TOP_ROWS = 5


@dataclass
class NetmonProgress:
    """What the screen shows; the run's threads replace whole values in it."""

    flows: int
    published: int = 0
    time_us: int = 0
    nodes: NodeSamples = field(default_factory=NodeSamples)
    counts: dict[str, int] = field(default_factory=dict)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=8))

    def look(self, at_s: float, status: Mapping[str, Any]) -> NodeSample:
        """Take what a node says of itself."""
        return self.nodes.take(at_s, status)

    def take(self, sink: str, rows: Sequence[Row]) -> None:
        """Take results that came."""
        self.counts[sink] = self.counts.get(sink, 0) + len(rows)
        if sink in SHOWN:
            self.recent.extend(_line(sink, row) for row in rows)

    def line(self) -> str:
        """In one line, for logs and pipes."""
        nodes = ", ".join(
            f"{sample.node} {sample.rate:,.0f} rows/s {size_text(sample.queue_bytes)} queued"
            for sample in self.nodes
        )
        results = " ".join(f"{sink}={count:,}" for sink, count in self.counts.items())
        return f"{self.published:,} of {self.flows:,} flows | {nodes} | {results}"

    def drawn(self) -> RenderableType:
        """A table of the nodes and the newest results."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        nodes = table_of("node", "rows in", "rows/s", "queued", "behind")
        for sample in self.nodes:
            behind = "-"
            if sample.boundary_us is not None:
                behind = f"{(self.time_us - sample.boundary_us) / 1e6:.1f} s"
            queued = size_text(sample.queue_bytes)
            nodes.add_row(sample.node, f"{sample.rows:,}", f"{sample.rate:,.0f}", queued, behind)
        at = clock(self.time_us) if self.time_us else "-"
        counts = "  ".join(f"{sink} {count:,}" for sink, count in self.counts.items())
        return Group(
            Text(f"{self.published:,} of {self.flows:,} flows; the trace is at {at}"),
            ProgressBar(total=max(1, self.flows), completed=self.published, width=60),
            nodes,
            Panel(Text("\n".join(self.recent) or "no window has closed yet"), title="results", width=70),
            Text(counts),
        )


def _line(sink: str, row: Row) -> str:
    names = COLUMNS[sink][2:]
    values = " ".join(f"{name}={value:,}" for name, value in zip(names, row[2:], strict=True))
    return f"{clock(row[0])} {sink:8} {_plain(row[1]):<16} {values}"


def _plain(value: object) -> str:
    """What came from data, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def clock(time_us: int) -> str:
    """Time of day of a point of stream time."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%H:%M:%S")


def show_outcome(screen: DemoScreen, outcome: NetmonOutcome) -> None:
    """The end of the demonstration: what was found, whether it is right, how fast it was."""
    for name in ("both", "heavy", "wide", "clusters"):
        screen.show(_top(name, outcome))
    figures = outcome.figures()
    say = screen.say
    say("n: flows of a source in a minute (heavy: over 100); p: distinct destination ports (wide: over 10)")
    say(
        f"{figures['windows']} windows, {figures['groups']:,} groups, {figures['heavy']} heavy, "
        f"{figures['wide']} wide, {figures['both']} both with {figures['both_sources']} sources, "
        f"{figures['clusters']} clusters with {figures['cluster_prefixes']} prefixes"
    )
    if outcome.bots:
        found = sorted({row[1] for row in outcome.rows["both"]} & outcome.bots)
        say(
            f"bots, by the labels of the data set's authors: {len(outcome.bots)}; "
            f"{len(found)} of them among the sources of both: {', '.join(found) or 'none'}"
        )
    screen.show(_check(outcome))
    say(f"check by {outcome.checked_by}: {'equal' if outcome.equal else 'not equal'}")
    say(
        f"{outcome.flows:,} flows ({outcome.span_us / 60e6:.1f} minutes of traffic) in "
        f"{outcome.seconds:.2f} s: {outcome.flows_per_s:,.0f} flows/s, {outcome.late} late"
    )
    p50, p99 = outcome.latency_us(0.5) / 1e3, outcome.latency_us(0.99) / 1e3
    say(
        f"latency from the row that lets a window close to its results: p50 {p50:.1f} ms, p99 {p99:.1f} ms "
        f"({len(outcome.latencies)} results of windows)"
    )


def _top(name: str, outcome: NetmonOutcome) -> Table:
    """The first rows of a result, largest count first."""
    rows = sorted(outcome.rows[name], key=lambda row: (-row[2], row[0], row[1]))
    table = table_of(
        *COLUMNS[name], title=f"{name}: {len(rows)} rows, the largest {min(TOP_ROWS, len(rows))}"
    )
    for row in rows[:TOP_ROWS]:
        table.add_row(clock(row[0]), _cell(row[1]), *(f"{value:,}" for value in row[2:]))
    return table


def _cell(value: object) -> Text:
    """What came from data, as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(_plain(value))


def _check(outcome: NetmonOutcome) -> Table:
    table = table_of(
        "result", "rows", "expected", "missing", "too many", "verdict", title="check, row by row"
    )
    for each in outcome.comparisons:
        verdict = _cell("equal" if each.equal else f"not equal, e.g. {each.example}")
        table.add_row(
            each.name, f"{each.rows:,}", f"{each.expected:,}", str(each.missing), str(each.extra), verdict
        )
    return table
