"""Filter: keeps the rows for which the predicate is true."""

from __future__ import annotations

from medusa.elements import Train
from medusa.engine.boxes.base import Stateless
from medusa.engine.columns import Columns
from medusa.engine.dead import DeadLetters
from medusa.engine.rows import filter_rows
from medusa.query.boxes import Filter, Schema

__all__ = ["FilterBox"]


class FilterBox(Stateless):
    """Late rows pass like others; their marks stay with them."""

    kind = "filter"

    def __init__(self, spec: Filter, *, input: Schema, letters: DeadLetters, timed: bool) -> None:
        super().__init__(spec.id, inputs=1)
        self._predicate = Columns.single(self, letters, spec.predicate, input, timed=timed)

    def on_train(self, input: int, train: Train) -> None:
        whole, (keep,) = self._predicate.compute(train)
        if len(whole):
            self.emit_train(filter_rows(whole, keep))
