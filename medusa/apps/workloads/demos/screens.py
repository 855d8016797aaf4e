"""What a demonstration shows: progress redrawn in place on a terminal, lines elsewhere, or nothing at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

__all__ = ["DemoProgress", "DemoScreen", "NodeSample", "NodeSamples", "table_of"]


class DemoProgress(Protocol):
    """How far a demonstration is."""

    def line(self) -> str:
        """In one line, for logs and pipes."""

    def drawn(self) -> RenderableType:
        """For a terminal."""


class DemoScreen:
    """What a demonstration shows; inside the context, progress too.

    Args:
        console: a terminal has progress redrawn in place, others get a line a second; None: nothing is shown.
        repeats: print the line of progress also where it hasn't changed.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        repeats: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._live: Live | None = None
        self._repeats = repeats
        self._clock = clock
        self._due = clock()
        self._last_line = ""

    def __enter__(self) -> DemoScreen:
        if self._console is not None and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line as it is."""
        if self._console is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, drawn: RenderableType) -> None:
        """Print a table."""
        if self._console is not None:
            self._console.print(drawn)

    def update(self, progress: DemoProgress) -> None:
        """Called some times a second."""
        if self._live is not None:
            self._live.update(progress.drawn())
        elif self._console is not None and (now := self._clock()) >= self._due:
            line = progress.line()
            if line != self._last_line or self._repeats:
                self._due, self._last_line = now + 1.0, line
                self.say(line)


def table_of(*columns: str, title: str | None = None, left: tuple[str, ...] = ()) -> Table:
    """A table whose first column and those named by ``left`` are aligned left, the others right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        is_left = column in (columns[0], *left)
        table.add_column(column, justify="left" if is_left else "right", no_wrap=True)
    return table


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What a node said of itself at one moment.

    Attributes:
        at_s: seconds since the run began.
        rows: rows that its sources accepted, or that came from other nodes, so far.
        queue_bytes: bytes that wait in it, in or out.
        boundary_us: how far its input is complete; None before the first boundary.
        rate: rows a second since the sample before.
        fragments: that it runs, without the name of their query.
    """

    at_s: float
    node: str
    rows: int
    queue_bytes: int
    boundary_us: int | None
    rate: float = 0.0
    fragments: tuple[str, ...] = ()


@dataclass(slots=True)
class NodeSamples:
    """The last sample of each node. One thread may take samples while others read.

    Args:
        expires_s: a node that has said nothing for so long is forgotten.
    """

    expires_s: float = float("inf")
    _by_node: dict[str, NodeSample] = field(default_factory=dict)

    def __iter__(self) -> Iterator[NodeSample]:
        return iter(self._by_node.values())

    def take(self, at_s: float, status: Mapping[str, Any]) -> NodeSample:
        """Take the status of a node."""
        before = self._by_node.get(status["node"])
        rows, rate = status["rows_in"], 0.0
        if before is not None and at_s > before.at_s:
            rate = max((rows - before.rows) / (at_s - before.at_s), 0.0)
        made = NodeSample(
            at_s,
            status["node"],
            rows,
            status["queue_bytes"] + status["kept_bytes"],
            status["boundary_us"],
            rate,
            tuple(each["fragment"].partition("/")[2] for each in status["fragments"]),
        )
        # Replaced as a whole: another thread may go through the one before.
        there = {name: each for name, each in self._by_node.items() if at_s - each.at_s < self.expires_s}
        self._by_node = {**there, made.node: made}
        return made
