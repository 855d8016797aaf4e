"""The ``where`` of a join: a condition on pairs, or on the rows of one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.elements import Train
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.rows import as_bools
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Field, Schema
from medusa.query.expressions.expression import Expression
from medusa.query.expressions.tree import columns_of
from medusa.query.types import schema_to_arrow

if TYPE_CHECKING:
    from medusa.engine.core.box import Operator

__all__ = ["PairCondition", "SideCondition"]

_SIDES = ("left", "right")
_IF_ELSE = pc.get_function("if_else")


class PairCondition:
    """A condition on both rows of a pair.

    Attributes:
        columns: of each side, the columns that it reads, by index.
    """

    def __init__(
        self, box: Operator, letters: DeadLetters, where: Expression, sides: tuple[Schema, Schema]
    ) -> None:
        used = columns_of(where)
        self.columns: list[list[int]] = [
            [index for index, field in enumerate(schema) if f"{prefix}.{field.name}" in used]
            for prefix, schema in zip(_SIDES, sides, strict=True)
        ]
        both = tuple(
            Field(f"{prefix}.{schema[index].name}", schema[index].type)
            for prefix, schema, indexes in zip(_SIDES, sides, self.columns, strict=True)
            for index in indexes
        )
        self._condition = Columns.single(box, letters, where, both, timed=False)
        self._schema = schema_to_arrow(both)

    def keep(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """One bool per pair, given what it reads of them; false where it is null or fails."""
        if columns:
            batch = pa.RecordBatch.from_arrays(list(columns), schema=self._schema)
        else:  # a condition on nothing still has rows
            batch = pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
        return _satisfied(self._condition, Train(batch=batch))


class SideCondition:
    """A condition on the rows of one side."""

    def __init__(
        self, box: Operator, letters: DeadLetters, where: Expression, side: int, schema: Schema
    ) -> None:
        named = tuple(Field(f"{_SIDES[side]}.{field.name}", field.type) for field in schema)
        self._condition = Columns.single(box, letters, where, named, timed=False)
        self._schema = schema_to_arrow(named)

    def nulled(self, train: Train, key: pa.Array) -> pa.Array:
        """A key column, null where the row doesn't satisfy the condition."""
        batch = pa.RecordBatch.from_arrays(train.batch.columns, schema=self._schema)
        keep = _satisfied(self._condition, Train(batch=batch))
        return _IF_ELSE.call([keep, key, pa.scalar(None, key.type)])


def _satisfied(condition: Columns, train: Train) -> pa.Array:
    _, (values,), index = condition.compute_indexed(train)
    if index is None:
        return values if not values.null_count else values.fill_null(False)
    keep = np.zeros(len(train), np.bool_)
    keep[index] = as_bools(values)
    return pa.array(keep)
