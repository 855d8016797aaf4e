"""A query under more load than it can bear, in virtual time.

Rows come by a trace and boxes take what was recorded. Nothing here reads a clock or sleeps: the input
queue, the shedder and the boxes are those of a run, and only the clock is moved. So a run gives the same
to the microsecond, on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusa.apps.workloads.virtual_boxes import DeliveredRows, InVirtualTime, TimedRows
from medusa.engine.fragment import Fragment
from medusa.engine.input.intake import IntakeEntry, IntakeQueue
from medusa.engine.overload.controller import OverloadController
from medusa.engine.overload.drop_operator import RandomDropOperator
from medusa.engine.overload.drop_sites import DropSite
from medusa.engine.overload.road_map import LoadModel
from medusa.query.boxes import Graph
from medusa.testing import ManualClock

__all__ = ["Overloaded", "at_random"]


def at_random(fragment: Fragment) -> OverloadController:
    """What ours is compared with: the same share of rows of every source, whatever they are worth."""

    def choose(model: LoadModel, places: Sequence[DropSite], kept: float) -> tuple[float, ...]:
        return tuple(1.0 - kept if place.reader is None else 0.0 for place in places)

    return OverloadController(fragment, make=RandomDropOperator, choose=choose)


@dataclass
class Overloaded(InVirtualTime):
    """A query, its input queue and its shedder.

    Args:
        costs_us: of each box, per row that it takes; others cost nothing.
        shedder: makes it; None: nothing is ever shed, rows wait.
    """

    graph: Graph
    costs_us: Mapping[str, float]
    shedder: Callable[[Fragment], OverloadController] | None = None
    queue_bytes: int = 1 << 40
    clock: ManualClock = field(default_factory=ManualClock)
    delivered: dict[str, list[DeliveredRows]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fragment = Fragment(self.graph, clock=self.clock)
        self.queue = IntakeQueue(self.queue_bytes, self.fragment.positions())
        self.sheds = None if self.shedder is None else self.shedder(self.fragment)
        self.charge()

    def run(self, arrivals: Sequence[TimedRows]) -> None:
        """Let rows come at their moments, work them off in that order until nothing waits, and finish."""
        coming = sorted(arrivals, key=lambda each: each.at_us)
        place = 0
        while place < len(coming) or self.queue.head is not None:
            now_us = self.clock.monotonic_us()
            while place < len(coming) and coming[place].at_us <= now_us:
                self._put(coming[place])
                place += 1
            if self.queue.head is not None:
                self._work(self.queue.head)
            else:
                self.clock.sleep_until(coming[place].at_us)
        self.fragment.at(self.clock.monotonic_us(), coming[-1].at_us if coming else None)  # when the end came
        self.fragment.finish()

    def _put(self, arrival: TimedRows) -> None:
        batch = arrival.batch
        times = self.fragment.check(self.fragment.source(arrival.source), [batch])
        entry = IntakeEntry(
            arrival.at_us, arrival.source, [batch], times, rows=batch.num_rows, nbytes=batch.nbytes
        )
        self.queue.put(entry)

    def _work(self, entry: IntakeEntry) -> None:
        now_us = self.clock.monotonic_us()
        if self.sheds is not None:
            self.sheds.control(now_us, self.queue)
        self.fragment.at(now_us, entry.came_us)
        self.fragment.push(self.fragment.source(entry.source), entry.batches, entry.times)
        self.queue.done()

    def stats(self) -> dict[str, dict[str, Any]]:
        """The figures of each box."""
        return {each["box"]: each for each in self.fragment.figures()}
