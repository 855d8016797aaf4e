"""Filter: keeps the rows for which the predicate is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.elements import Train
from medusa.engine.core.box import Stateless
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.rows import filter_rows
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Filter, Schema
from medusa.query.types import schema_to_arrow

if TYPE_CHECKING:
    from medusa.engine.operators.fused_rows import FusedRows

__all__ = ["FilterBox"]


class FilterBox(Stateless):
    """Late rows pass like others; their marks stay with them.

    Attributes:
        chain: takes the trains in place of this box, which is its first.
    """

    kind = "filter"

    def __init__(self, spec: Filter, *, input: Schema, letters: DeadLetters, timed: bool) -> None:
        super().__init__(spec.id, inputs=1)
        self._predicate = Columns.single(self, letters, spec.predicate, input, timed=timed)
        self.types = [field.type for field in input]
        self.schema = schema_to_arrow(input)
        self.chain: FusedRows | None = None

    def lead(self, chain: FusedRows | None) -> None:
        """Give the trains to a chain from now on, or to none."""
        self.chain = chain

    def on_train(self, input: int, train: Train) -> None:
        if self.chain is not None:
            self.chain.take(train)
        else:
            self.emit_train(self.apply(train))

    def apply(self, train: Train) -> Train:
        """The rows that stay; none is an empty train."""
        whole, (keep,) = self._predicate.compute(train)
        return filter_rows(whole, keep) if len(whole) else whole
