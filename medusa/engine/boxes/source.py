"""Where rows enter: their time, how late they are, and the boundary that follows from them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa._native import Lateness
from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.boxes.base import BoxState, Operator, show_time
from medusa.engine.ingest import times_of
from medusa.engine.rows import filter_rows, least_and_largest, on_time_rows
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.types import schema_to_arrow
from medusa.units import duration_text

__all__ = ["SourceBox", "checked_times"]

TIME_MAX_US = 1 << 60
"""Times beyond it, either way, are refused: sums of a time and a length never overflow."""


class SourceBox(Operator):
    """A source. Rows are checked whole first (``times_of``), then taken (``accept``).

    Args:
        timed: whether anything reads the times of the rows.

    Attributes:
        accepted: rows taken so far, late ones included: where to push from after a restore.
        worst_late_us: how late the latest row was.
    """

    kind = "source"

    def __init__(self, spec: Source, *, timed: bool = True) -> None:
        super().__init__(spec.id, inputs=1)
        self.spec = spec
        self.schema = schema_to_arrow(spec.schema)
        self.accepted = 0
        self.worst_late_us = 0
        self._promised_us = int(START_US)
        self._timed = timed
        self._judges = spec.time is not None and not spec.judged
        self._lateness = self._judge()

    def _judge(self, max_us: int | None = None) -> Any:
        promised = self._promised_us if self._promised_us > START_US else None
        return Lateness(self.spec.slack_us or 0, max_us=max_us, boundary_us=promised)

    # Checks that change nothing

    def times_of(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The times of rows that are about to enter; None for a source without time.

        Raises:
            DataError: a time is null or out of range.
        """
        if not self._judges:
            return None
        return checked_times(batch, self.spec)

    def check_train(self, train: Train) -> None:
        """Check rows that were judged elsewhere.

        Raises:
            DataError: not the columns of this source, no times, or a row below the boundary.
        """
        if not train.batch.schema.equals(self.schema):
            raise DataError(
                f"source {self.id!r}: expected columns {self.schema.names}, got {train.batch.schema.names}",
                code="data.schema",
            )
        if not self.spec.judged or not self.spec.timed:
            return
        if train.times is None or train.times.null_count or len(train.times) != len(train):
            raise DataError(f"source {self.id!r}: rows without their times", code="data.time")
        times = _in_range(on_time_rows(train).times, self.id)
        if len(times) and least_and_largest(times)[0] < self.boundary_us:
            raise DataError(
                f"source {self.id!r}: a row has a time below its boundary {show_time(self.boundary_us)}",
                code="data.boundary",
            )

    def check_promise(self, time_us: int) -> None:
        """Check an explicit boundary.

        Raises:
            DataError: it decreases, or the source has no time.
        """
        if not self.spec.timed and time_us < END_US:
            raise DataError(
                f"source {self.id!r} has no time, so it has no boundaries",
                hint="give the source time=",
                code="data.boundary",
            )
        if time_us < self._promised_us:
            raise DataError(
                f"source {self.id!r}: boundary {show_time(time_us)} is below the earlier one,"
                f" {show_time(self._promised_us)}",
                hint="a boundary is a promise: it may not decrease",
                code="data.boundary",
            )

    # Taking

    def accept(self, batch: pa.RecordBatch, times: pa.Array | None) -> None:
        """Take rows that ``times_of`` has passed: judge them and send them on."""
        rows = batch.num_rows
        self.rows_in += rows
        self.accepted += rows
        if times is None:
            self.emit_train(Train(batch=batch))
            return
        late_rows, worst_us, mask = self._lateness.judge(times)
        late = None
        if late_rows:
            late = pa.array(mask)
            self.late += late_rows
            self.worst_late_us = max(self.worst_late_us, worst_us)
        train = Train(batch=batch, times=times if self._timed else None, late=late)
        self.emit_train(train)
        if late is not None and self.has_readers("late"):
            self.emit(Train(batch=filter_rows(train, late).batch), "late")
        self.advance(self._lateness.boundary_us)

    def on_train(self, input: int, train: Train) -> None:
        """Rows judged elsewhere keep their times and marks; ``receive`` has counted them."""
        self.accepted += len(train)
        if train.late is not None:
            self.late += train.late.true_count
        self.emit_train(train)

    def receive(self, input: int, element: Element) -> None:
        """Take what comes from another fragment, or an explicit boundary."""
        if isinstance(element, Boundary):
            self.promise(element.time_us)
        else:
            super().receive(input, element)

    def promise(self, time_us: int) -> None:
        """Take a boundary that ``check_promise`` has passed."""
        self._promised_us = time_us
        self.inputs_us[0] = max(self.inputs_us[0], time_us)
        if self._judges:
            self._lateness.promise(time_us)
        if time_us >= END_US and self.has_readers("late"):
            self.emit(Boundary(time_us), "late")
        self.advance(time_us)

    # What is asked about it

    def on_boundary(self, time_us: int) -> None:
        raise AssertionError("a source takes its boundaries by promise()")

    @property
    def finished(self) -> bool:
        return self._promised_us >= END_US

    def slack_that_keeps_us(self) -> int:
        """The slack with which no row so far would have been late (explicit boundaries aside)."""
        return (self.spec.slack_us or 0) + self.worst_late_us

    def waits_for(self, names: object) -> str:
        if self.finished:
            return "finished"
        if not self.spec.timed:
            return "waits for rows; has no time"
        if self.boundary_us <= START_US:
            return "waits for its first row or boundary"
        slack = duration_text(self.spec.slack_us or 0)
        how = "" if self.spec.judged else f" (largest time less the slack of {slack}, or as promised)"
        return f"holds its boundary at {show_time(self.boundary_us)}{how}"

    def save_more(self, state: BoxState) -> None:
        state.meta["accepted"] = self.accepted
        state.meta["worst_late_us"] = self.worst_late_us
        state.meta["promised_us"] = self._promised_us
        state.meta["max_us"] = self._lateness.max_us

    def load_more(self, state: BoxState) -> None:
        for key in ("accepted", "worst_late_us", "promised_us"):
            if type(state.meta[key]) is not int:
                raise ValueError(f"{key} must be an integer")
        self.accepted = state.meta["accepted"]
        self.worst_late_us = state.meta["worst_late_us"]
        self._promised_us = state.meta["promised_us"]
        self._lateness = self._judge(state.meta["max_us"])


def checked_times(batch: pa.RecordBatch, source: Source) -> pa.Array | None:
    """The times of rows for a source, with all that a source asks of them; None for one without time.

    A publisher runs it too, so that what a node would refuse is refused before it is sent.

    Raises:
        DataError: a time is null or out of range.
    """
    times = times_of(batch, source)
    return None if times is None else _in_range(times, source.id)


def _in_range(times: pa.Array, source: str) -> pa.Array:
    """Times as such, or a DataError where arithmetic on windows could overflow."""
    if len(times):
        least, largest = least_and_largest(times)
        if least < -TIME_MAX_US or largest > TIME_MAX_US:
            raise DataError(
                f"source {source!r}: a time is out of range (about 36,500 years either way)",
                code="data.time",
            )
    return times
