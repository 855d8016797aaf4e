"""Runs a query in virtual time: rows arrive by a recorded trace, boxes cost what was recorded per row.

Nothing here reads a clock or sleeps, so a run gives the same to the microsecond. What orders or drops
work is the code under test; this only moves the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from medusa.apps.workloads.virtual_boxes import DeliveredRows, InVirtualTime, TimedRows
from medusa.engine.core.box import Now, Operator
from medusa.engine.fragment import Fragment
from medusa.engine.overload.qos_scheduler import OutputScheduler
from medusa.engine.qos.delay_utility import latency_graphs
from medusa.query.boxes import Graph
from medusa.testing import ManualClock

__all__ = ["TimedRows", "DeliveredRows", "VirtualRun"]


@dataclass
class VirtualRun(InVirtualTime):
    """A fragment whose boxes take virtual time.

    Args:
        costs_us: of each box, per row that it takes; others cost nothing.
        scheduler: orders work between outputs; None: everything that has entered, before more enters.
    """

    graph: Graph
    costs_us: Mapping[str, float]
    scheduler: type[OutputScheduler] | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    delivered: dict[str, list[DeliveredRows]] = field(default_factory=dict)
    steps: list[dict[str, int]] = field(default_factory=list)
    """What waited before each box after each step."""

    def __post_init__(self) -> None:
        self.order: OutputScheduler | None = None
        make = None if self.scheduler is None else self._make
        self.fragment = Fragment(self.graph, clock=self.clock, scheduler=make)
        self.charge()

    def _make(self, graph: Graph, boxes: Sequence[Operator], now: Now) -> OutputScheduler:
        assert self.scheduler is not None
        self.order = self.scheduler(boxes, self.clock, now, latency_graphs(graph))
        return self.order

    def run(self, arrivals: Sequence[TimedRows], *, finish: bool = True) -> None:
        """Let rows come at their moments, work in between, and end when nothing waits any more.

        Args:
            finish: end all sources after the last rows.
        """
        coming = sorted(arrivals, key=lambda each: each.at_us)
        place = 0
        while True:
            while place < len(coming) and coming[place].at_us <= self.clock.monotonic_us():
                self._enter(coming[place])
                place += 1
            if self.fragment.step():
                if self.order is not None:
                    self.steps.append(self.order.waiting())
                continue
            if place == len(coming):
                break
            self.clock.sleep_until(coming[place].at_us)
        if finish:
            self.fragment.at(self.clock.monotonic_us())
            self.fragment.finish()

    def _enter(self, arrival: TimedRows) -> None:
        fragment = self.fragment
        box = fragment.source(arrival.source)
        (times,) = fragment.check(box, [arrival.batch])
        fragment.at(self.clock.monotonic_us(), arrival.at_us)
        box.accept(arrival.batch, times)

    def utility(self, sink: str) -> float:
        """Mean utility by delay, over the rows that reached a sink."""
        graph = latency_graphs(self.graph)[sink]
        worth = [(float(graph.at(each.delay_us)), each.batch.num_rows) for each in self.delivered[sink]]
        return sum(value * rows for value, rows in worth) / sum(rows for _, rows in worth)


def load(arrivals: Iterable[TimedRows], us_per_row: float, over_us: int) -> float:
    """Work that comes, as a share of what one processor can do."""
    return sum(each.batch.num_rows for each in arrivals) * us_per_row / over_us
