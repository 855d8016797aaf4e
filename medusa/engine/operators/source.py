"""Where rows enter: their time, how late they are, and the boundary that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa._native import Exported, Intake, Times
from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.core.box import BoxState, Operator, show_time
from medusa.engine.core.rows import LookedTrain, as_int64, filter_rows, on_time_rows
from medusa.engine.input.ingest import refuse_broken, refuse_invalid, times_of
from medusa.engine.operators.lateness import judge_of
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.types import schema_to_arrow
from medusa.units import duration_text

__all__ = ["RowChecks", "SourceBox", "checked_times", "newest_time_us", "rows_ahead"]

Bools = npt.NDArray[np.bool_]

TIME_MAX_US = 1 << 60
"""Times beyond it, either way, are refused: sums of a time and a length never overflow."""


class SourceBox(Operator):
    """A source. Rows are checked whole first (``times_of``), then taken (``accept``).

    Args:
        timed: whether anything reads the times of the rows.

    Attributes:
        accepted: rows taken so far, late ones and those ahead included: where to push from after a
            restore.
        ahead: rows too far ahead of their arrival, which went nowhere but to ``.ahead``.
        worst_late_us: how late the latest row was.
        waiting_rows, waiting_bytes: in the input queue, as the run knew them last.
        idle: nothing has come for ``idle_us``, as ``rest`` found it last.
        finished: the end boundary has come.
    """

    kind = "source"
    state_format = 2

    def __init__(self, spec: Source, *, timed: bool = True) -> None:
        super().__init__(spec.id, inputs=1)
        self.spec = spec
        self.schema = schema_to_arrow(spec.schema)
        self.accepted = 0
        self.worst_late_us = 0
        self.waiting_rows = self.waiting_bytes = 0
        self.idle = False
        self._promised_us = int(START_US)
        self.finished = False
        self._timed = timed
        self._judges = spec.time is not None and not spec.judged
        self._judge = judge_of(spec)
        self._checks = self._judges and spec.partition is not None
        self.wants_arrival = spec.ahead_us is not None and spec.arrival is None
        """It must be told when rows arrived."""
        self._intake = _intake(spec, self.schema) if self._judges else None
        self._arrival = None if spec.arrival is None else msgspec.structs.replace(spec, time=spec.arrival)

    # Checks that change nothing

    def exported(self, data: Any) -> Exported | None:
        """The capsules of rows that are a batch with exactly the columns of this source, at least one row,
        and whose times can be looked at there; None: others, which ``normalise`` takes.

        Raises:
            DataError: a broken batch.
        """
        if self._intake is None or type(data) is not pa.RecordBatch or not data.num_rows:
            return None
        try:
            rows = self._intake.rows(data)
            if rows is None:
                return None
            data.validate()  # after that, since it follows pointers
        except ValueError as error:
            refuse_broken(error, self.id)
        found = self._intake.invalid(rows)
        if found is not None:
            column, row, flaw = found
            field = self.schema.field(column)
            refuse_invalid(field.name, field.type, row, flaw, self.id)
        return rows

    def times_of(self, batch: pa.RecordBatch, rows: Exported | None = None) -> Times | None:
        """The times of rows that are about to enter, looked at once; None for a source without time.

        Args:
            rows: what ``exported`` gave for them.

        Raises:
            DataError: a time is null or out of range, or a partition isn't listed.
        """
        if not self._judges:
            return None
        if self._checks:
            self._judge.check(batch)
        if self._arrival is not None:
            checked_times(batch, self._arrival)
        if rows is not None and self._intake is not None:
            looked = self._intake.times(rows, batch)
            if looked is not None:
                return _in_range(looked, self.id)
        return checked_times(batch, self.spec)

    def check_arrival(self, arrival_us: int | None) -> None:
        """Check what was said of when rows arrived, where that isn't in a column.

        Raises:
            DataError: it is missing, or nobody asks for it.
        """
        if self.wants_arrival == (arrival_us is not None):
            return
        if self.wants_arrival:
            raise DataError(
                f"source {self.id!r} has ahead=, so it must be known when its rows arrived",
                hint="push(..., arrival=time), or source(..., arrival=column)",
                code="data.arrival",
            )
        why = "no ahead=" if self.spec.ahead_us is None else f"its arrival in column {self.spec.arrival!r}"
        raise DataError(f"source {self.id!r} has {why}: arrival= would be ignored", code="data.arrival")

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
        extent = _in_range(Times(on_time_rows(train).times), self.id).extent
        if extent is not None and extent[0] < self.boundary_us:
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

    def accept(self, batch: pa.RecordBatch, times: Times | None, arrival_us: int | None = None) -> None:
        """Take rows that ``times_of`` has passed: judge them and send them on."""
        rows = batch.num_rows
        self.rows_in += rows
        self.accepted += rows
        if times is None:
            self.emit_train(Train(batch=batch))
            return
        if self.spec.ahead_us is not None:
            batch, times = self._without_ahead(batch, times, arrival_us)
            if not batch.num_rows:
                return
        now = self.now
        came_us = now.us if now.entered_us is None else now.entered_us
        late_rows, worst_us, mask = self._judge.judge(batch, times, came_us)
        if late_rows:
            self._emit_late(batch, times, pa.array(mask))
            self.late += late_rows
            self.worst_late_us = max(self.worst_late_us, worst_us)
        elif self._timed:
            self.emit_train(LookedTrain(batch=batch, looked=times, extent=times.extent))
        else:
            self.emit_train(Train(batch=batch))
        self.advance(self._judge.boundary_us)

    def _emit_late(self, batch: pa.RecordBatch, times: Times, late: pa.Array) -> None:
        """Send on rows of which some are late."""
        train = Train(batch=batch, times=times.array if self._timed else None, late=late)
        self.emit_train(train)
        if self.has_readers("late"):
            self.emit(Train(batch=filter_rows(train, late).batch), "late")

    def _without_ahead(
        self, batch: pa.RecordBatch, times: Times, arrival_us: int | None
    ) -> tuple[pa.RecordBatch, Times]:
        """Send rows too far ahead of their arrival to ``.ahead``; the others, and their times."""
        ahead = rows_ahead(batch, times.array, self.spec, arrival_us)
        count = int(np.count_nonzero(ahead))
        if not count:
            return batch, times
        self.ahead += count
        rows = Train(batch=batch, times=times.array)
        if self.has_readers("ahead"):
            self.emit(Train(batch=filter_rows(rows, pa.array(ahead)).batch), "ahead")
        kept = filter_rows(rows, pa.array(~ahead))
        return kept.batch, Times(kept.times)

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
        self.finished = time_us >= END_US
        self.inputs_us[0] = max(self.inputs_us[0], time_us)
        if self._judges:
            self._judge.promise(time_us)
        for port in ("late", "ahead"):
            if time_us >= END_US and self.has_readers(port):
                self.emit(Boundary(time_us), port)
        self.advance(time_us)

    # Idleness

    def rest(self, now_us: int) -> bool:
        """See at ``now_us`` whether the source is idle; idle partitions let go of the others.

        Returns:
            Whether the boundary moved.
        """
        if self.spec.idle_us is None or self.finished:
            self.idle = False
            return False
        before = self.boundary_us
        self.idle = self._judge.rest(now_us, self.spec.idle_us)
        self.advance(self._judge.boundary_us)
        return self.boundary_us > before

    def resting(self, now_us: int) -> tuple[int, ...]:
        """The partitions that ``rest`` would find idle; without partitions none."""
        return () if self.spec.idle_us is None else self._judge.resting(now_us, self.spec.idle_us)

    def note_waiting(self, rows: int, nbytes: int) -> None:
        """So much of it is in the input queue."""
        self.waiting_rows, self.waiting_bytes = rows, nbytes

    def deem_silent(self, silent: bool) -> None:
        """Somebody else found whether anything comes."""
        self.idle = silent and not self.finished

    def let_go(self, parts: Sequence[int]) -> None:
        """Do what ``rest`` did when it found these partitions idle.

        Raises:
            ValueError: there are no such partitions.
        """
        self._judge.let_go(parts)
        self.advance(self._judge.boundary_us)

    def lift(self, time_us: int) -> None:
        """Take a boundary that a box asked for, while the source is idle; never the end."""
        assert time_us < END_US, "an idle source goes on"
        self._judge.lift(time_us)
        self.advance(self._judge.boundary_us)

    # What is asked about it

    @property
    def newest_us(self) -> int | None:
        """The largest time of a row; of rows judged elsewhere the boundary. None: none came, or no time."""
        if self._judges:
            return self._judge.newest_us
        return self.boundary_us if self.spec.timed and START_US < self.boundary_us < END_US else None

    def on_boundary(self, time_us: int) -> None:
        raise AssertionError("a source takes its boundaries by promise()")

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
        idle = "; it is idle" if self.idle else ""
        return f"holds its boundary at {show_time(self.boundary_us)}{how}{idle}"

    def holder(self) -> str:
        """The partition that holds the boundary, for people; empty without partitions."""
        return "" if self.finished else self._judge.holder()

    def state_bytes(self) -> int:
        return self._judge.state_bytes()

    def queue_bytes(self) -> int:
        return self.waiting_bytes

    def queue_rows(self) -> int:
        return self.waiting_rows

    def save_more(self, state: BoxState) -> None:
        state.meta["accepted"] = self.accepted
        state.meta["ahead"] = self.ahead
        state.meta["worst_late_us"] = self.worst_late_us
        state.meta["promised_us"] = self._promised_us
        self._judge.save(state)

    def upgrade(self, state: BoxState, format: int) -> None:
        """Format 1 knew no ``ahead`` and no idle sources."""
        state.note(ahead=0, lifted_us=int(START_US))

    def load_more(self, state: BoxState) -> None:
        for key in ("accepted", "ahead", "worst_late_us"):
            if type(state.meta[key]) is not int or state.meta[key] < 0:
                raise ValueError(f"{key} must be a count")
        promised = state.meta["promised_us"]
        if type(promised) is not int or not START_US <= promised <= END_US:
            raise ValueError(f"promised_us is {promised!r}")
        self.accepted, self.ahead = state.meta["accepted"], state.meta["ahead"]
        self.worst_late_us = state.meta["worst_late_us"]
        self._promised_us = promised
        self.finished = promised >= END_US
        self._judge.load(state, promised)


class RowChecks:
    """What a source refuses of rows, for whoever sends them to it: a node can't give them back."""

    def __init__(self, source: Source) -> None:
        self._source = source
        listed = source.time is not None and source.partition is not None and source.partitions is not None
        self._judge = judge_of(source) if listed else None
        self._arrival = (
            None if source.arrival is None else msgspec.structs.replace(source, time=source.arrival)
        )

    def check(self, batch: pa.RecordBatch) -> None:
        """Check rows of the columns of the source.

        Raises:
            DataError: a time, or arrival time, is null or out of range, or a partition isn't listed.
        """
        if self._judge is not None:
            self._judge.check(batch)
        for each in (self._arrival, self._source):
            if each is not None:
                checked_times(batch, each)


def rows_ahead(batch: pa.RecordBatch, times: pa.Array, source: Source, arrival_us: int | None) -> Bools:
    """Of each row: whether its time is more than ``ahead`` beyond its arrival."""
    arrived: Any = arrival_us
    if source.arrival is not None:
        column = checked_times(batch, msgspec.structs.replace(source, time=source.arrival))
        assert column is not None, "its time is the arrival"
        arrived = as_int64(column.array)
    assert arrived is not None, "check_arrival has passed"
    ahead: Bools = as_int64(times) > arrived + (source.ahead_us or 0)
    return ahead


def checked_times(batch: pa.RecordBatch, source: Source) -> Times | None:
    """The times of rows for a source, with all that a source asks of them; None for one without time.

    They are read once: what is asked of them later, the answer remembers.

    Raises:
        DataError: a time is null or out of range.
    """
    times = times_of(batch, source)
    return None if times is None else _in_range(Times(times), source.id)


def newest_time_us(train: Train, source: Source) -> int | None:
    """The largest time of rows for a source; None: they have none, or the source doesn't take them."""
    if source.judged:
        if train.times is None:
            return None
        extent = train.extent or Times(train.times).extent
    else:
        try:
            times = checked_times(train.batch, source)
        except DataError:
            return None
        extent = None if times is None else times.extent
    return None if extent is None else extent[1]


def _intake(spec: Source, schema: pa.Schema) -> Intake | None:
    """What looks at times in batches as they come; None where they have to be computed."""
    assert spec.time is not None, "a source that judges has times"
    column = schema.field(spec.time)
    if spec.unit is not None and (spec.unit != "us" or column.type != pa.int64()):
        return None
    return Intake(schema, schema.get_field_index(spec.time), partial(times_of, source=spec))


def _in_range(looked: Times, source: str) -> Times:
    """Times that were looked at, or a DataError where arithmetic on windows could overflow."""
    extent = looked.extent
    if extent is not None and (extent[0] < -TIME_MAX_US or extent[1] > TIME_MAX_US):
        raise DataError(
            f"source {source!r}: a time is out of range (about 36,500 years either way)",
            code="data.time",
        )
    return looked
