"""Select and with_columns: rows of computed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.box import Stateless
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Schema, Select, WithColumns
from medusa.query.expressions.expression import Column, Named
from medusa.query.types import schema_to_arrow

if TYPE_CHECKING:
    from medusa.engine.operators.fused_rows import FusedRows

__all__ = ["ProjectBox"]


class ProjectBox(Stateless):
    """One row out for each row in, with its time; columns taken as they are aren't copied.

    Attributes:
        chain: takes the trains in place of this box, which is its first.
    """

    def __init__(
        self,
        spec: Select | WithColumns,
        *,
        input: Schema,
        output: Schema,
        letters: DeadLetters,
        timed: bool,
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self.kind = "select" if isinstance(spec, Select) else "with_columns"
        made = {named.name: named for named in spec.columns}
        columns = [made.get(field.name) or Named(field.name, Column(field.name)) for field in output]
        self._columns = Columns(self, letters, columns, input, timed=timed)
        self.types = [field.type for field in output]
        self.schema = schema_to_arrow(output)
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
        """The rows with their columns computed, without those that failed."""
        whole, arrays = self._columns.compute(train)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Train(batch=batch, times=whole.times, late=whole.late, kind=whole.kind)
