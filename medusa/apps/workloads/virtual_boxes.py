"""Boxes that take virtual time: what was recorded per row, by a clock that only they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.elements import Kind, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.sink import SinkBox
from medusa.testing import ManualClock

__all__ = ["TimedRows", "DeliveredRows", "InVirtualTime"]


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Rows that come at a moment of the trace."""

    at_us: int
    source: str
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class DeliveredRows:
    """Rows that reached a sink: when, and when what caused them entered."""

    at_us: int
    entered_us: int
    batch: pa.RecordBatch

    @property
    def delay_us(self) -> int:
        """How long they took."""
        return self.at_us - self.entered_us


class InVirtualTime:
    """A fragment whose boxes cost what was recorded, and what reached its sinks."""

    fragment: Fragment
    costs_us: Mapping[str, float]
    clock: ManualClock
    delivered: dict[str, list[DeliveredRows]]
    _owed_us = 0.0

    def charge(self) -> None:
        """From now on boxes take time, and rows at sinks are noted.

        Raises:
            KeyError: no such box has a cost.
        """
        boxes = self.fragment.boxes
        self._taken = {id: boxes[id].rows_in for id in self.costs_us}
        for box in boxes.values():
            box.tell_work(self._pay)
        for id, sink in self.fragment.sinks.items():
            self.delivered[id] = []
            self._listen(id, sink)

    def _pay(self) -> None:
        """Let the time pass that boxes took for rows; a chain runs several at once, so all are looked at."""
        for id, each_us in self.costs_us.items():
            rows = self.fragment.boxes[id].rows_in
            self._owed_us += each_us * (rows - self._taken[id])
            self._taken[id] = rows
        whole = int(self._owed_us)
        self._owed_us -= whole
        self.clock.advance(whole)

    def _listen(self, id: str, sink: SinkBox) -> None:
        now = sink.now

        def heard(input: int, train: Train) -> None:
            if train.kind is Kind.STABLE:
                entered_us = now.us if now.entered_us is None else now.entered_us
                assert entered_us is not None, "at() was told when it entered"
                self.delivered[id].append(DeliveredRows(self.clock.monotonic_us(), entered_us, train.batch))
                sink.take()

        sink.watch_trains(after=heard)

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """What reached a sink, in order."""
        return [row for each in self.delivered[sink] for row in each.batch.to_pylist()]
