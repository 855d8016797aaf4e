"""Expressions of a box on its trains: their values, and the rows on which one failed left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import Kind, Train
from medusa.engine.core.dead_letters import DeadLetters, DeadRow, plain_value
from medusa.engine.core.rows import as_bools, take, take_array
from medusa.engine.expressions.evaluate import compile_expression, compile_projection
from medusa.query.boxes import Schema
from medusa.query.checker import infer
from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.shape import types_of

if TYPE_CHECKING:
    from medusa.engine.core.box import Operator

__all__ = ["Columns"]

Index = npt.NDArray[np.int64]


class Columns:
    """Some expressions over the rows of one input.

    Attributes:
        types: of the expressions.
    """

    def __init__(
        self,
        box: Operator,
        letters: DeadLetters,
        columns: Sequence[Named],
        schema: Schema,
        *,
        timed: bool = True,
    ) -> None:
        self._box = box
        self._letters = letters
        types = types_of(schema)
        label = f"{box.kind} {box.id!r}"
        self.types = [infer(each.expression, types, box=label, timed=timed) for each in columns]
        self._plain: list[int] | None = None
        if all(isinstance(each.expression, Column) for each in columns):
            names = list(types)
            self._plain = [names.index(each.expression.name) for each in columns]  # type: ignore[union-attr]
        else:
            self._project = compile_projection(columns, types, box=label, timed=timed)

    @classmethod
    def single(
        cls,
        box: Operator,
        letters: DeadLetters,
        expression: Expression,
        schema: Schema,
        *,
        timed: bool = True,
    ) -> Columns:
        """One expression without a name, such as a predicate: errors don't name a column."""
        made = cls(box, letters, [Named("", expression)], schema, timed=timed)
        if made._plain is None:
            label = f"{box.kind} {box.id!r}"
            made._single = compile_expression(expression, types_of(schema), box=label, timed=timed)
        return made

    _single: Callable[..., object] | None = None

    def positions(self) -> list[int] | None:
        """Where the columns stand in the input, if all of them are taken as they are."""
        return self._plain

    def compute(self, train: Train) -> tuple[Train, list[pa.Array]]:
        """The train without rows that failed, and one array per expression for the others."""
        whole, arrays, _ = self.compute_indexed(train)
        return whole, arrays

    def compute_indexed(self, train: Train) -> tuple[Train, list[pa.Array], Index | None]:
        """As ``compute``, with the positions of the rows that are left; None where all are."""
        batch = train.batch
        arrays, failed, error = self.evaluate(batch, train.times)
        if failed is None:
            return train, arrays, None
        mask = as_bools(failed)
        if train.kind is Kind.STABLE:  # an early row that fails comes again when it is final
            self.bury(batch, np.flatnonzero(mask), error)
        index = np.flatnonzero(~mask)
        at = pa.array(index)
        whole = Train(
            batch=take(batch, at),
            times=None if train.times is None else take_array(train.times, at),
            late=None if train.late is None else take_array(train.late, at),
            kind=train.kind,
        )
        return whole, [take_array(array, at) for array in arrays], index

    def evaluate(
        self, batch: pa.RecordBatch, times: pa.Array | None
    ) -> tuple[list[pa.Array], pa.Array | None, Callable[[int], str]]:
        """One array per expression; which rows failed, None where none did; and why one did."""
        if self._plain is not None:
            return [batch.column(index) for index in self._plain], None, str
        if self._single is not None:
            one = self._single(batch, times)
            return [one.values], one.failed, one.error  # type: ignore[attr-defined]
        made = self._project(batch, times)
        return made.columns, made.failed, made.error

    def bury(self, batch: pa.RecordBatch, rows: Index, error: Callable[[int], str]) -> None:
        """Count failed rows, and keep and send on those that are wanted."""
        self._box.count(dead=len(rows))
        names = batch.schema.names
        wanted = rows[: max(1, self._letters.room(self._box.id))].tolist()
        made = (
            DeadRow(
                self._box.id,
                error(row),
                {name: plain_value(batch.column(i)[row]) for i, name in enumerate(names)},
            )
            for row in wanted
        )
        self._letters.add(*made)
