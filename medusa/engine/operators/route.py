"""Route: a row goes the way of the first predicate that is true for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from medusa.elements import Kind, Train
from medusa.engine.core.box import Stateless
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_bools, filter_rows, take, take_array
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import Route, Schema
from medusa.query.expressions.expression import Named

__all__ = ["RouteBox"]

_DEAD = -1


class RouteBox(Stateless):
    """All predicates are computed at once.

    A row is not asked about predicates behind the first that is true, so it can't fail on them.
    Where any fails, they are computed one after the other, each on the rows that are left.
    """

    kind = "route"

    def __init__(self, spec: Route, *, input: Schema, letters: DeadLetters, timed: bool) -> None:
        super().__init__(spec.id, inputs=1)
        self.boundary_ports = spec.ports
        named = [Named(f"predicate {place}", each) for place, each in enumerate(spec.predicates, 1)]
        self._all = Columns(self, letters, named, input, timed=timed)
        self._each = [Columns.single(self, letters, each, input, timed=timed) for each in spec.predicates]

    def on_train(self, input: int, train: Train) -> None:
        masks, failed, _ = self._all.evaluate(train.batch, train.times)
        if failed is None:
            ways = np.full(len(train), len(masks), np.int64)
            for place in range(len(masks) - 1, -1, -1):
                ways[as_bools(masks[place])] = place
        else:
            ways = self._one_by_one(train)
        for way, port in enumerate(self.boundary_ports):
            chosen = ways == way
            count = int(np.count_nonzero(chosen))
            self.rows_out += count
            if count and self.has_readers(port):
                self.emit(train if count == len(train) else filter_rows(train, pa.array(chosen)), port)

    def _one_by_one(self, train: Train) -> Ints:
        """The way of each row; rows that fail are buried, in their order."""
        ways = np.full(len(train), len(self._each), np.int64)
        errors: dict[int, tuple[Callable[[int], str], int]] = {}
        left = np.arange(len(train))
        for place, predicate in enumerate(self._each):
            at = pa.array(left)
            times = None if train.times is None else take_array(train.times, at)
            (mask,), failed, error = predicate.evaluate(take(train.batch, at), times)
            dead = np.zeros(len(left), np.bool_) if failed is None else as_bools(failed)
            true = as_bools(mask) & ~dead
            ways[left[true]] = place
            ways[left[dead]] = _DEAD
            errors.update((int(left[row]), (error, row)) for row in np.flatnonzero(dead).tolist())
            left = left[~true & ~dead]

        def text(row: int) -> str:
            error, place = errors[row]
            return error(place)

        if train.kind is Kind.STABLE:
            self._all.bury(train.batch, np.array(sorted(errors), np.int64), text)
        return ways
