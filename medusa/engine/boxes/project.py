"""Select and with_columns: rows of computed columns."""

from __future__ import annotations

import pyarrow as pa

from medusa.elements import Train
from medusa.engine.boxes.base import Stateless
from medusa.engine.columns import Columns
from medusa.engine.dead import DeadLetters
from medusa.query.boxes import Schema, Select, WithColumns
from medusa.query.expression import Column, Named
from medusa.query.types import schema_to_arrow

__all__ = ["ProjectBox"]


class ProjectBox(Stateless):
    """One row out for each row in, with its time; columns taken as they are aren't copied."""

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
        self._schema = schema_to_arrow(output)

    def on_train(self, input: int, train: Train) -> None:
        whole, arrays = self._columns.compute(train)
        if len(whole):
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            self.emit_train(Train(batch=batch, times=whole.times, late=whole.late, kind=whole.kind))
