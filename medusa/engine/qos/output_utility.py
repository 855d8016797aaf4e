"""What outputs are worth as they leave: delay, share delivered and importance over the last seconds.

The rule that makes one number of the three graphs stands in docs/qos.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.core.box import Now
from medusa.engine.qos.delay_utility import Utility
from medusa.ports import Clock
from medusa.query.qos import QoS

__all__ = ["OVER_US", "QOS_SCHEMA", "SinkMeter", "qos_table"]

Floats = npt.NDArray[np.float64]

OVER_US = 10_000_000
"""The interval that ``run.qos()`` looks back: long enough for a p99, short enough to see an overload."""

SLOT_US = 500_000
"""The interval moves in steps of this."""

SAMPLES = 256
"""Rows of a train, evenly spread, by which its importance is known."""

TRAINS_MAX = 64
"""Trains whose importance is looked up at once: numpy takes longer to wake than to do so."""

_GROWTH = math.log(1.02)
"""Delays are counted in classes that grow by 2 %, so a quantile is within 1 % of a delay that was."""

QOS_SCHEMA = pa.schema(
    [
        ("sink", pa.string()),
        ("utility", pa.float64()),
        ("delay_utility", pa.float64()),
        ("loss_utility", pa.float64()),
        ("delivered_percent", pa.float64()),
        ("importance", pa.float64()),
        ("rows", pa.int64()),
        ("shed", pa.float64()),
        ("delay_p50_us", pa.int64()),
        ("delay_p99_us", pa.int64()),
        ("over_us", pa.int64()),
    ]
)


@dataclass(slots=True)
class _Slot:
    """What left in one step of time."""

    begin_us: int
    rows: int = 0
    weight: float = 0.0
    worth: float = 0.0
    shed: float = 0.0
    shed_weight: float = 0.0
    delays: dict[int, int] = field(default_factory=dict)
    trains: list[_Train] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Train:
    """Values of some of the rows that left together; what they mean is looked up for many trains at once."""

    rows: int
    worth: float
    values: Floats


class SinkMeter:
    """Of one sink with quality of service.

    Args:
        column: the place of its value column.
        clock: tells when rows leave.
        now: tells when what caused them entered.
    """

    def __init__(self, qos: QoS, column: int, clock: Clock, now: Now) -> None:
        self.qos = qos
        self._delay = None if qos.latency is None else Utility(qos.latency)
        self._loss = Utility(qos.loss or ((0.0, 0.0), (100.0, 1.0)))
        self._value = None if qos.value is None else Utility(qos.value[1])
        self._column = column
        self._moment = clock.monotonic_us
        self._now = now
        self._began_us = self._moment()
        self._slots: deque[_Slot] = deque([_Slot(self._began_us)])

    def left(self, batch: pa.RecordBatch) -> None:
        """Rows leave now."""
        now_us, rows = self._moment(), batch.num_rows
        slot = self._slots[-1]
        if now_us - slot.begin_us >= SLOT_US:
            slot = self._turn(now_us)
        entered_us = self._now.us if self._now.entered_us is None else self._now.entered_us
        delay_us = 0 if entered_us is None else max(0, now_us - entered_us)
        worth = 1.0 if self._delay is None else self._delay.of(delay_us)
        slot.rows += rows
        if self._value is None:
            slot.weight += rows
            slot.worth += rows * worth
        else:
            slot.trains.append(_Train(rows, worth, self._sample(batch)))
            if len(slot.trains) >= TRAINS_MAX:
                self._weigh(slot)
        kind = math.ceil(math.log(delay_us) / _GROWTH) if delay_us else -1
        slot.delays[kind] = slot.delays.get(kind, 0) + rows

    def shed(self, rows: float, importance: float = 1.0) -> None:
        """So many rows of this output were left out above it, on average of this importance.

        Args:
            rows: as many as would have come out, as far as that is known.
        """
        now_us = self._moment()
        slot = self._slots[-1]
        if now_us - slot.begin_us >= SLOT_US:
            slot = self._turn(now_us)
        slot.shed += rows
        slot.shed_weight += rows * importance

    def importance(self, batch: pa.RecordBatch) -> float:
        """Mean importance of rows, by ``SAMPLES`` of them; of a null or NaN it is the least that there is."""
        return 1.0 if self._value is None else float(self._importances([self._sample(batch)])[0])

    def _sample(self, batch: pa.RecordBatch) -> Floats:
        column = batch.column(self._column)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        values = column.to_numpy(zero_copy_only=False)  # nulls become NaN
        return np.array(values[:: max(1, -(-len(values) // SAMPLES))], np.float64)

    def _importances(self, values: list[Floats]) -> Floats:
        """Of each train, the mean."""
        assert self._value is not None
        found = self._value.at(np.concatenate(values))
        found[np.isnan(found)] = self._value.bounds[0]
        lengths = [len(each) for each in values]
        starts = np.cumsum([0, *lengths[:-1]])
        return np.asarray(np.add.reduceat(found, starts) / lengths)

    def _weigh(self, slot: _Slot) -> None:
        """Add up what the trains of a slot are worth."""
        trains, slot.trains = slot.trains, []
        weights = self._importances([each.values for each in trains]) * [each.rows for each in trains]
        slot.weight += float(weights.sum())
        slot.worth += float((weights * [each.worth for each in trains]).sum())

    def _turn(self, now_us: int) -> _Slot:
        """A new slot, on the grid of slots since the beginning; those that are too old go."""
        begin_us = now_us - (now_us - self._began_us) % SLOT_US
        self._slots.append(_Slot(begin_us))
        while self._slots[0].begin_us + SLOT_US <= now_us - OVER_US:
            self._slots.popleft()
        return self._slots[-1]

    def figures(self, now_us: int) -> dict[str, Any]:
        """A row of ``QOS_SCHEMA``, but for the name."""
        slots = [each for each in self._slots if each.begin_us + SLOT_US > now_us - OVER_US]
        for each in slots:
            if each.trains:
                self._weigh(each)
        rows = sum(each.rows for each in slots)
        weight = sum(each.weight for each in slots)
        lost = sum(each.shed_weight for each in slots)
        made: dict[str, Any] = dict.fromkeys(QOS_SCHEMA.names)
        made["rows"], made["shed"] = rows, sum(each.shed for each in slots)
        made["over_us"] = min(OVER_US, now_us - self._began_us)
        if weight + lost > 0:
            made["delivered_percent"] = percent = 100 * weight / (weight + lost)
            made["loss_utility"] = float(self._loss.at(percent))
        if rows:
            made["importance"] = weight / rows
            made["delay_p50_us"], made["delay_p99_us"] = _quantiles(slots, rows, (0.5, 0.99))
        if weight > 0:
            made["delay_utility"] = sum(each.worth for each in slots) / weight
        if made["loss_utility"] is not None:
            made["utility"] = (made["delay_utility"] or 0.0) * made["loss_utility"]
        return made


def _quantiles(slots: Iterable[_Slot], rows: int, wanted: tuple[float, ...]) -> list[int]:
    """The delay of the row of each rank, within 1 %."""
    counts: dict[int, int] = {}
    for slot in slots:
        for kind, count in slot.delays.items():
            counts[kind] = counts.get(kind, 0) + count
    made = []
    for quantile in wanted:
        rank, found = math.ceil(quantile * rows), -1
        for kind in sorted(counts):
            found = kind
            rank -= counts[kind]
            if rank <= 0:
                break
        made.append(0 if found < 0 else round(math.exp((found - 0.5) * _GROWTH)))
    return made


def qos_table(meters: Iterable[tuple[str, SinkMeter | None]], now_us: int) -> pa.Table:
    """One row for each sink that has quality of service, in order."""
    rows = [{**each.figures(now_us), "sink": id} for id, each in meters if each is not None]
    return pa.Table.from_pylist(rows, schema=QOS_SCHEMA)
