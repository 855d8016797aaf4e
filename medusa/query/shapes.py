"""What comes out of a box, given what goes in: schema, time, windows. Every check of a box is here.

The builder asks box by box, ``medusa.query.graph`` for a whole graph: both refuse the same things
with the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes import (
    Aggregate,
    Box,
    Filter,
    Join,
    Select,
    Sink,
    Source,
    Union,
    WindowJoin,
    WithColumns,
)
from medusa.query.shape import Shape
from medusa.query.shape_rows import (
    filter_shape,
    select_shape,
    source_shape,
    union_shape,
    with_columns_shape,
)
from medusa.query.shape_windows import aggregate_shape, combine_shape, join_shape, window_join_shape
from medusa.query.types import COLUMNS_MAX

__all__ = ["shape_of"]


def shape_of(box: Box, inputs: Sequence[Shape], *, label: str, port: str = "") -> Shape:
    """Check a box against its inputs and say what comes out of ``port``.

    Raises:
        QueryError: names the box, what was expected and what came.
    """
    match box:
        case Source():
            _arity(inputs, 0, 0, label)
            return source_shape(box, label, port)
        case Union():
            _arity(inputs, 2, 1_000, label)
            made = union_shape(inputs, label)
        case Aggregate(stage="combine"):
            _arity(inputs, 1, 1_000, label)
            made = combine_shape(box, inputs, label)
        case Join():
            _arity(inputs, 2, 2, label)
            made = join_shape(box, inputs[0], inputs[1], label)
        case WindowJoin():
            _arity(inputs, 2, 2, label)
            made = window_join_shape(box, inputs[0], inputs[1], label)
        case Filter() | Select() | WithColumns() | Aggregate() | Sink():
            _arity(inputs, 1, 1, label)
            made = _one_input(box, inputs[0], label)
    if port:
        raise QueryError(
            f"{label}: has no port {port[:60]!r}", hint="only a source has .late", code="query.port"
        )
    if len(made.schema) > COLUMNS_MAX:
        raise QueryError(f"{label}: the output has more than {COLUMNS_MAX:,} columns", code="query.limit")
    return made


def _arity(inputs: Sequence[Shape], least: int, most: int, label: str) -> None:
    if not least <= len(inputs) <= most:
        expected = str(least) if least == most else f"at least {least}"
        raise QueryError(f"{label}: expected {expected} inputs, got {len(inputs)}", code="query.arity")


def _one_input(box: Filter | Select | WithColumns | Aggregate | Sink, row: Shape, label: str) -> Shape:
    match box:
        case Filter():
            return filter_shape(box, row, label)
        case Select():
            return select_shape(box, row, label)
        case WithColumns():
            return with_columns_shape(box, row, label)
        case Aggregate():
            return aggregate_shape(box, row, label)
    return replace(row, box=label)
