"""What a user's function gives back, checked against what was declared; and rows on which it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.box import Operator
from medusa.engine.core.dead_letters import DeadLetters, DeadRow, plain_value
from medusa.engine.core.rows import Ints, as_int64
from medusa.engine.input.ingest import normalise, refuse_malformed, table_of
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema
from medusa.query.boxes.user import ROW, TIME
from medusa.query.types import TIMESTAMP, schema_to_arrow

__all__ = ["CallOutput", "bury", "error_text", "read_output", "row_of"]

_ROW = Field(ROW, "int64")
_TIME = Field(TIME, TIMESTAMP)
_HIDDEN = {ROW: pa.int64(), TIME: pa.timestamp("us", tz="UTC")}


@dataclass(frozen=True, slots=True)
class CallOutput:
    """Rows that a call gave.

    Attributes:
        rows: of each output row, the row of the call's batch that caused it; None: not said.
        times: of each output row, in microseconds; None: not said.
    """

    batch: pa.RecordBatch
    rows: Ints | None = None
    times: Ints | None = None


def read_output(made: Any, schema: Schema, *, rows: int, timed: bool = False) -> CallOutput:
    """What a call returned, as a batch of exactly the declared columns.

    Args:
        made: a record batch, a table or frame, or a dict of columns.
        rows: of the batch that the call was given.
        timed: a column ``_time`` may say the times.

    Raises:
        DataError: anything else, other columns or types, or ``_row`` or ``_time`` that can't be.
    """
    target = schema_to_arrow(schema)
    if isinstance(made, pa.RecordBatch) and made.schema.equals(target):
        refuse_malformed(made, "")
        return CallOutput(made)
    if not isinstance(made, Mapping | pa.RecordBatch | pa.Table):
        try:
            made = table_of(made)
        except DataError as error:
            if error.code != "data.table":
                raise
            raise DataError(
                f"returned {type(made).__name__}, expected a record batch, a table or a dict of columns",
                code="data.function",
            ) from None
    names = list(made) if isinstance(made, Mapping) else made.schema.names
    hidden = [field for field in (_ROW, _TIME) if field.name in names and (timed or field is _ROW)]
    columns = _as_they_are(made, target, hidden) or _converted(made, (*schema, *hidden))
    batch = pa.RecordBatch.from_arrays(columns[: len(schema)], schema=target)
    found = {field.name: _numbers(columns[len(schema) + i], field.name) for i, field in enumerate(hidden)}
    index = found.get(ROW)
    if index is not None and len(index):
        if index.min() < 0 or index.max() >= rows:
            raise DataError(f"{ROW} names rows from 0 to {rows - 1}, found others", code="data.function")
        if (np.diff(index) < 0).any():
            raise DataError(f"{ROW} must not decrease", code="data.function")
    return CallOutput(batch, index, found.get(TIME))


def _as_they_are(made: Any, target: pa.Schema, hidden: list[Field]) -> list[pa.Array] | None:
    """The columns of a batch that has exactly the types that are wanted; else None."""
    if not isinstance(made, pa.RecordBatch) or made.num_columns != len(target) + len(hidden):
        return None
    found = made.schema
    columns = []
    for field in (*target, *(pa.field(each.name, _HIDDEN[each.name]) for each in hidden)):
        place = found.get_field_index(field.name)
        if place < 0 or found.field(place).type != field.type:
            return None
        columns.append(made.column(place))
    refuse_malformed(made, "")
    return columns


def _converted(made: Any, schema: Schema) -> list[pa.Array]:
    """The columns of anything else, without loss."""
    whole = pa.Table.from_batches(normalise(made, schema), schema_to_arrow(schema)).combine_chunks()
    return [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in whole.columns]


def _numbers(array: pa.Array, name: str) -> Ints:
    if array.null_count:
        raise DataError(f"{name} has nulls", code="data.function")
    return as_int64(array)


def error_text(error: Exception) -> str:
    """An error of a user's function in one line."""
    if isinstance(error, DataError):
        return str(error)
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def row_of(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """One row as Python values."""
    return {name: plain_value(batch.column(i)[row]) for i, name in enumerate(batch.schema.names)}


def bury(box: Operator, letters: DeadLetters, row: Mapping[str, Any], error: str) -> None:
    """Count a row as dead and keep it.

    Raises:
        DataError: failed rows are to stop the run.
    """
    box.count(dead=1)
    letters.add(DeadRow(box.id, error, row))
