"""What a call of a user's function made of a train, as parts; and as answers that a log can keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from medusa.engine.recovery.decisions import CallAnswer
from medusa.engine.udf.calls import CallOutput
from medusa.errors import StateError
from medusa.query.boxes import Schema
from medusa.query.types import schema_to_arrow

__all__ = ["AnsweredRows", "answer_of", "read_answers"]


@dataclass(frozen=True, slots=True)
class AnsweredRows:
    """What became of some rows of a train, counted from ``first``: output, or a dead row's error."""

    first: int
    rows: int
    output: CallOutput | None = None
    error: str = ""


def answer_of(part: AnsweredRows) -> CallAnswer:
    """A part for the log."""
    if part.output is None:
        return CallAnswer(part.first, part.rows, part.error)
    index = part.output.rows
    return CallAnswer(
        part.first,
        part.rows,
        output=part.output.batch.serialize().to_pybytes(),
        index=None if index is None else index.astype("<i8").tobytes(),
    )


def read_answers(answers: Sequence[CallAnswer], schema: Schema, rows: int) -> list[AnsweredRows]:
    """The parts of a train again.

    Raises:
        StateError: they can't be what a call gave for a train of so many rows.
    """
    try:
        parts = [_read(answer, schema_to_arrow(schema)) for answer in answers]
        at = 0
        for part in parts:
            if part.first != at or part.rows < 1:
                raise ValueError
            at += part.rows
        if at != rows:
            raise ValueError
    except (ValueError, pa.ArrowException, OSError):
        raise StateError(
            "the decision log: an answer of an async function doesn't fit its rows",
            hint="restore with another checkpoint=",
            code="state.corrupt",
        ) from None
    return parts


def _read(answer: CallAnswer, schema: pa.Schema) -> AnsweredRows:
    if answer.output is None:
        if answer.rows != 1:
            raise ValueError
        return AnsweredRows(answer.first, 1, error=answer.error)
    batch = pa.ipc.read_record_batch(pa.py_buffer(answer.output), schema)
    batch.validate(full=True)
    index = None if answer.index is None else np.frombuffer(answer.index, "<i8").astype(np.int64)
    if index is None:
        if batch.num_rows != answer.rows:
            raise ValueError
    elif len(index) != batch.num_rows or (
        len(index) and (index.min() < 0 or index.max() >= answer.rows or (np.diff(index) < 0).any())
    ):
        raise ValueError
    return AnsweredRows(answer.first, answer.rows, CallOutput(batch, index))
