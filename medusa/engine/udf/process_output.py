"""What the calls of one step of a process box gave, gathered and put in order.

Most calls give few rows. Lists of plain Python values are gathered as they are and become Arrow
columns once for the whole step; anything else goes through ``read_output``, which takes longer than
such a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import START_US, Train
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_times, take
from medusa.engine.input.ingest import refuse_malformed
from medusa.engine.operators.source import TIME_MAX_US
from medusa.engine.udf.calls import read_output
from medusa.errors import DataError
from medusa.query.boxes import Schema
from medusa.query.boxes.user import ROW
from medusa.query.expressions.text_casts import INTEGER_RANGES
from medusa.query.types import is_integer, schema_to_arrow, to_arrow

__all__ = ["ROWS", "TIMER", "Outputs"]

TIMER, ROWS = 0, 1
"""Kinds of calls: at equal times those of timers come first."""

_FLOAT_EXACT = 1 << 53


def _plain(type: str) -> Callable[[Any], bool] | None:
    """Whether a Python value surely fits a column; None: for this type that isn't told so simply."""
    if is_integer(type):
        low, high = INTEGER_RANGES[type]
        return lambda value: value.__class__ is int and low <= value <= high
    if type == "float64":
        return lambda value: (
            value.__class__ is float or (value.__class__ is int and -_FLOAT_EXACT <= value <= _FLOAT_EXACT)
        )
    if type == "utf8":
        return lambda value: value.__class__ is str and value.isascii()
    if type == "bool":
        return lambda value: value.__class__ is bool
    return None


_NOTE_BYTES, _VALUE_BYTES = 4 * 40, 60
"""Of what is noted of a row, and of a value that isn't in a batch yet, as Python holds them."""


class Outputs:
    """Rows of a step, each with the time of its call, the kind of that, and the position that caused it.

    Args:
        positions: of a part of a split: the names of columns that tell the order, as of ``Process``.
    """

    def __init__(self, schema: Schema, positions: Sequence[str] = ()) -> None:
        self._schema = schema
        self._arrow = schema_to_arrow(schema)
        self._more = [pa.field(name, pa.int64()) for name in positions]
        checks = [(field.name, _plain(field.type)) for field in schema]
        self._checks = [(name, check) for name, check in checks if check is not None]
        self._simple = len(self._checks) == len(schema)
        self._types = [to_arrow(field.type) for field in schema]
        self._clear()

    def _clear(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._lists: list[list[Any]] = [[] for _ in self._types]
        self._times: list[int] = []
        self._called: list[int] = []
        self._kinds: list[int] = []
        self._positions: list[Any] = []

    def nbytes(self) -> int:
        """What the rows take that were made and haven't left, about."""
        batches = sum(int(batch.nbytes) for batch in self._batches)
        return batches + len(self._times) * _NOTE_BYTES + sum(map(len, self._lists)) * _VALUE_BYTES

    def add(self, made: Any, times: Sequence[int], positions: Sequence[Any], kind: int) -> None:
        """Take what a call returned; None is no rows.

        Args:
            times: of the rows of the call, or of its timer.
            positions: of the rows, or the first appearance of the key: numbers, or tuples of them.

        Raises:
            DataError: not rows of the schema, or a time below that of the call; nothing was taken.
        """
        if made is None:
            return
        if self._simple and made.__class__ is dict and self._add_plain(made, times, positions, kind):
            return
        if made.__class__ is pa.RecordBatch and made.schema.equals(self._arrow):
            refuse_malformed(made, "")
            count = made.num_rows
            if count:
                self._flush()
                self._batches.append(made)
                called_at = [times[-1]] * count
                self._note(called_at, called_at, [positions[-1]] * count, kind)
            return
        rows = len(times) if kind == ROWS else 0
        output = read_output(made, self._schema, rows=rows, timed=True)
        count = output.batch.num_rows
        if not count:
            return
        cause = np.full(count, len(times) - 1) if output.rows is None else output.rows
        called = np.asarray(times)[cause]
        causes = [positions[row] for row in cause.tolist()]
        own = called if output.times is None else output.times
        if (own < called).any() or own.max() > TIME_MAX_US:
            raise DataError("_time is below the time of its call", code="data.function")
        self._flush()
        self._batches.append(output.batch)
        self._note(own.tolist(), called.tolist(), causes, kind)

    def _add_plain(
        self, made: dict[str, Any], times: Sequence[int], positions: Sequence[Any], kind: int
    ) -> bool:
        """Take lists of plain values; False, and nothing taken, where it is anything else."""
        cause = made.get(ROW)
        if len(made) != len(self._checks) + (cause is not None):
            return False
        columns = []
        for name, fits in self._checks:
            column = made.get(name)
            if column.__class__ is not list:
                return False
            assert isinstance(column, list)
            for value in column:
                if value is not None and not fits(value):
                    return False
            columns.append(column)
        count = len(columns[0])
        if any(len(column) != count for column in columns):
            return False
        if cause is None:
            called, causes = [times[-1]] * count, [positions[-1]] * count
        else:
            if kind != ROWS or cause.__class__ is not list or len(cause) != count:
                return False
            last = 0
            for row in cause:
                if row.__class__ is not int or not last <= row < len(times):
                    return False
                last = row
            called, causes = [times[row] for row in cause], [positions[row] for row in cause]
        for kept, column in zip(self._lists, columns, strict=True):
            kept += column
        self._note(called, called, causes, kind)
        return True

    def _note(self, times: list[int], called: list[int], positions: list[Any], kind: int) -> None:
        self._times += times
        self._called += called
        self._positions += positions
        self._kinds += [kind] * len(times)

    def _flush(self) -> None:
        """Make a batch of the lists."""
        if self._lists[0]:
            columns = [pa.array(kept, type) for kept, type in zip(self._lists, self._types, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self._arrow))
            self._lists = [[] for _ in self._types]

    def train(self) -> Train | None:
        """All rows, by (time of the call, timers first, position); then there are none."""
        self._flush()
        if not self._batches:
            return None
        batch = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
        positions = np.atleast_2d(np.array(self._positions, np.int64).T)
        kinds, called = np.array(self._kinds), np.array(self._called)
        order = np.lexsort((*positions[::-1], kinds, called))
        times = np.array(self._times)[order]
        self._clear()
        made = take(batch, pa.array(order))
        if self._more:
            hidden = _release_order(called[order], kinds[order], positions[:, order])
            fields = pa.schema([*made.schema, *self._more])
            made = pa.RecordBatch.from_arrays([*made.columns, *map(pa.array, hidden)], schema=fields)
        return Train(batch=made, times=as_times(times))


def _release_order(called: Ints, kinds: Ints, positions: Ints) -> list[Ints]:
    """What orders rows of all parts: the release, of timers the time of the first row, and the place.

    A timer comes after all rows of the microsecond before it, so what it gave is released with that.
    """
    timers = kinds == TIMER
    return [called - timers, np.where(timers, positions[0], START_US), positions[1]]
