"""A source over micro-batches: rows in order of ``_seq``, which of them are late, and how far it has come.

As a source judges: a row is late if its time is below the largest time of the rows before it less the slack,
or below a boundary that came before it. Where ``_late`` says which are late, that holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.decoders import json_decoder
from medusa.elements import END_US, START_US, Train
from medusa.engine.core.rows import TIME, as_bools, as_times
from medusa.errors import DataError, StateError
from medusa.query.boxes import Field, Schema
from medusa.query.types import schema_to_arrow
from medusa.spark import column_types
from medusa.spark.column_types import TIME_MAX_US
from medusa.spark.streaming.packed import ROWS_MAX

__all__ = ["BOUNDARY", "FOREVER_US", "LATE", "META", "SEQ", "SHED", "Came", "Entered", "LatenessJudge"]

SEQ, LATE, SHED, BOUNDARY = "_seq", "_late", "_shed", "_boundary"
"""Columns of an input beside its own."""

META = {SEQ: "o0", LATE: "m_late", SHED: "m_shed", BOUNDARY: "m_bound"}
"""Under which names Spark brings them."""

FOREVER_US = 253_402_214_400_000_000
"""9999-12-31: a boundary from then on ends the stream."""

_TIME = "@time"
_TYPES = {SEQ: pa.int64(), LATE: pa.bool_(), SHED: pa.bool_(), BOUNDARY: pa.int64()}
_NONE = -(1 << 63)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """A source as a streaming DataFrame brings it.

    Attributes:
        time, unit: of the source, as ``Source`` has them.
        has: which of ``_seq``, ``_late``, ``_shed`` and ``_boundary`` it has.
    """

    source: str
    fields: tuple[tuple[str, str], ...]
    time: str | None
    unit: str | None
    slack_us: int | None
    has: tuple[str, ...]

    @property
    def timed(self) -> bool:
        return self.time is not None

    @property
    def schema(self) -> Schema:
        return tuple(Field(name, type) for name, type in self.fields)

    @property
    def carried(self) -> pa.Schema:
        """The columns of its rows before they are judged."""
        own = list(schema_to_arrow(self.schema))
        hidden = [pa.field(f"@{name}", _TYPES[name]) for name in self.has]
        return pa.schema([*own, pa.field(_TIME, pa.int64()), *hidden])

    def pack(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as Spark has them, by place, as ours.

        Raises:
            DataError: a value doesn't fit its column.
        """
        schema = self.carried
        names = [*column_types.values(self.schema), column_types.TIME, *(META[name] for name in self.has)]
        own = len(self.fields)
        made = [
            column_types.arrow_in(batch.column(name), type, f"column {field!r}")
            for name, (field, type) in zip(names[:own], self.fields, strict=True)
        ]
        made += [batch.column(name) for name in names[own:]]
        return pa.RecordBatch.from_arrays(made, schema=schema)


class Came(msgspec.Struct, frozen=True):
    """What of a source came in a micro-batch, judged.

    Attributes:
        bound_us: behind these rows; None where it hasn't moved.
    """

    trains: tuple[Train, ...]
    late: tuple[pa.RecordBatch, ...]
    bound_us: int | None


class _State(msgspec.Struct, forbid_unknown_fields=True):
    spec: Entered
    seq: int | None = None
    newest_us: int = _NONE
    promised_us: int = _NONE
    bound_us: int = int(START_US)


_STATES = json_decoder(_State)


class LatenessJudge:
    """Of one source; what it remembers is ``saved`` and given back at the next micro-batch.

    Raises:
        StateError: what was saved is of a source that was judged in another way; says what differs.
    """

    def __init__(self, spec: Entered, saved: bytes | None = None) -> None:
        self._spec = spec
        self._state = _State(spec) if saved is None else _known(saved, spec)

    def saved(self) -> bytes:
        return msgspec.json.encode(self._state)

    def judge(self, batches: Sequence[pa.RecordBatch]) -> Came:
        """The rows of a micro-batch, in any order.

        Raises:
            DataError: a position, mark or time is null or impossible; a row that comes after one with a
                higher ``_seq``; one on time that is below a boundary. Nothing has changed.
        """
        spec = self._spec
        rows = pa.Table.from_batches(batches, spec.carried)
        rows = rows.combine_chunks()
        times, alone = self._times(rows)
        seq = self._positions(rows)
        order = np.arange(rows.num_rows) if seq is None else np.lexsort((alone, seq))
        state = msgspec.structs.replace(self._state)
        times, alone = times[order], alone[order]
        if seq is not None:
            self._in_sequence(seq[order], alone, state)
        rows = rows.take(pa.array(order))
        late = self._late(rows, times, alone, state)
        kept = ~alone
        if SHED in spec.has:
            kept &= ~as_bools(self._marks(rows, SHED, alone))
        own = rows.select(range(len(spec.fields))).filter(pa.array(kept))
        came = self._came(own, times[kept], late[kept], state)
        self._state = state
        return came

    def _came(self, rows: pa.Table, times: Ints, late: Bools, state: _State) -> Came:
        made, lates = [], []
        for start in range(0, rows.num_rows, ROWS_MAX):
            part = rows.slice(start, ROWS_MAX).combine_chunks()
            batch = part.to_batches()[0]
            marks = pa.array(late[start : start + ROWS_MAX])
            own = as_times(times[start : start + ROWS_MAX]).view(TIME) if self._spec.timed else None
            made.append(Train(batch=batch, times=own, late=marks if marks.true_count else None))
            if marks.true_count:
                lates.append(batch.filter(marks))
        bound_us = None
        if self._spec.timed and (now := self._bound(state)) > state.bound_us:
            state.bound_us = bound_us = now
        return Came(tuple(made), tuple(lates), bound_us)

    def _bound(self, state: _State) -> int:
        bound = state.promised_us
        if self._judges and state.newest_us > _NONE:
            bound = max(bound, state.newest_us - (self._spec.slack_us or 0))
        return int(END_US) if bound >= FOREVER_US else bound

    @property
    def _judges(self) -> bool:
        """The slack says how far the source is; else the boundaries that came do."""
        return LATE not in self._spec.has or BOUNDARY not in self._spec.has

    # Checks

    def _times(self, rows: pa.Table) -> tuple[Ints, Bools]:
        """The times, and which rows are boundaries alone."""
        count, column = rows.num_rows, rows.column(_TIME)
        alone = np.zeros(count, np.bool_)
        if not self._spec.timed:
            if {LATE, BOUNDARY} <= set(self._spec.has):  # As a gateway brings them: null, as in no row.
                alone = _bools(rows.column(f"@{LATE}").is_null())
                alone &= _bools(rows.column(f"@{BOUNDARY}").is_valid())
            return np.zeros(count, np.int64), alone
        if column.null_count:
            if BOUNDARY in self._spec.has:
                alone = _bools(column.is_null()) & _bools(rows.column(f"@{BOUNDARY}").is_valid())
            if column.null_count > np.count_nonzero(alone):
                self._refuse("its time: a row holds null")
        times = _ints(column.fill_null(0))
        if ((times > TIME_MAX_US) | (times < -TIME_MAX_US)).any():
            self._refuse("its time: a row is out of range")
        return times, alone

    def _positions(self, rows: pa.Table) -> Ints | None:
        if SEQ not in self._spec.has:
            return None
        column = rows.column(f"@{SEQ}")
        if column.null_count:
            self._refuse(f"column {SEQ!r} holds null")
        return _ints(column)

    def _in_sequence(self, seq: Ints, alone: Bools, state: _State) -> None:
        own = seq[~alone]
        if len(own) and (np.diff(own) == 0).any():
            self._refuse(f"column {SEQ!r} numbers two rows alike")
        last = state.seq
        if last is not None and ((len(own) and own[0] <= last) or (len(seq) and seq[0] < last)):
            first = min(seq[0], own[0]) if len(own) else seq[0]
            self._refuse(
                f"column {SEQ!r}: a row with {first} comes after one with {last} of a micro-batch before",
                hint="rows of a micro-batch have higher positions than those before: read them in order",
            )
        if len(seq):
            state.seq = int(seq[-1])

    def _marks(self, rows: pa.Table, name: str, alone: Bools) -> pa.Array:
        column = rows.column(f"@{name}").combine_chunks()
        if column.null_count > np.count_nonzero(alone & _bools(column.is_null())):
            self._refuse(f"column {name!r} holds null")
        return column.fill_null(False)

    def _refuse(self, what: str, hint: str = "") -> None:
        raise DataError(f"source {self._spec.source!r}: {what}", hint=hint, code="data.seq")

    # Lateness

    def _late(self, rows: pa.Table, times: Ints, alone: Bools, state: _State) -> Bools:
        spec = self._spec
        if not spec.timed:
            return np.zeros(len(times), np.bool_)
        peaks = _before(np.where(alone, _NONE, times), state.newest_us)
        promised = np.full(len(times), _NONE, np.int64)
        if BOUNDARY in spec.has:
            promised = _ints(rows.column(f"@{BOUNDARY}").fill_null(_NONE))
        promises = _before(promised, state.promised_us)
        slack_us = spec.slack_us or 0
        below = promises[:-1].copy()
        if self._judges:
            known = peaks[:-1] > _NONE
            below[known] = np.maximum(below[known], peaks[:-1][known] - slack_us)
        state.newest_us, state.promised_us = int(peaks[-1]), int(promises[-1])
        if LATE not in spec.has:
            late: Bools = ~alone & (times < below)
            return late
        late = as_bools(self._marks(rows, LATE, alone))
        if (~late & ~alone & (times < below)).any():
            said = f"column {BOUNDARY!r}" if not self._judges else "its slack"
            self._refuse(
                f"column {LATE!r} says on time of a row that is below the boundary which {said} gives",
                hint=f"keep the column {BOUNDARY!r}, which says how far the source was",
            )
        return late


def _known(saved: bytes, spec: Entered) -> _State:
    """What was saved, of the same source."""
    try:
        state = _STATES.decode(saved)
    except msgspec.DecodeError as error:
        text = f"source {spec.source!r}: not the state of its judge: {error}"
        raise StateError(text, code="state.corrupt") from None
    for name, shown in _SHOWN.items():
        was, now = getattr(state.spec, name), getattr(spec, name)
        if was != now:
            raise StateError(
                f"source {spec.source!r}: this checkpoint was begun with {shown} {was!r}, and now it is"
                f" {now!r}",
                hint="it decides which rows are late: leave it as it was, or begin a new checkpoint",
                code="state.graph",
            )
    return state


_SHOWN = {
    "source": "the source",
    "fields": "columns",
    "time": "time",
    "unit": "unit",
    "slack_us": "a slack in microseconds of",
    "has": "the columns besides its own",
}


def _before(values: Ints, first: int) -> Ints:
    """Of each row the largest value of those before it; and of all."""
    made: Ints = np.maximum.accumulate(np.concatenate([np.array([first], np.int64), values]))
    return made


def _ints(column: pa.ChunkedArray) -> Ints:
    made: Ints = column.to_numpy()
    return made


def _bools(column: Any) -> Bools:
    made: Bools = np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)
    return made
