"""A join in several copies over disjoint keys, each run by a thread of its own.

Each copy joins its part of both sides by the numbers of their rows. Its results are in order of (release,
left position, right position), a missing one last; merged by these they are those of one ``Join``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa._native import Batch, Join, Split
from medusa.elements import Train
from medusa.engine.boxes import window_parts
from medusa.engine.boxes.window_parts import merge_batches, split_rows
from medusa.engine.rows import as_int64
from medusa.ports import Workers

__all__ = ["JoinParts"]

ALL_PAIRS = 1 << 40
"""A step that ends with the boundary, however many pairs come."""

RESULT_KEYS = [(0, False), (2, True), (3, True)]
RESULT_COLUMNS = 4


class JoinParts:
    """Some methods of ``Join``, over ``workers.count`` of them; not for conditions on pairs.

    Args:
        keys: native types of the keys.
        options: what else ``Join`` takes.
    """

    def __init__(self, workers: Workers, *, keys: Sequence[str], **options: Any) -> None:
        self._workers = workers
        self._places = range(workers.count)
        self._parts = [Join(keys=keys, **options) for _ in self._places]
        self._split = Split(keys=keys, parts=workers.count)

    def _each(self, work: Callable[[int], None], rows: int) -> None:
        if rows >= window_parts.PARALLEL_ROWS:
            self._workers.map(work, self._places)
        else:
            for place in self._places:
                work(place)

    def add(self, side: int, rows: pa.RecordBatch, first: int) -> None:
        split = self._split

        def add(place: int) -> None:
            ours, numbers = split.take(place, first)
            self._parts[place].add(side, ours, 0, numbers=numbers)

        count = rows.num_rows
        try:
            split_rows(split, rows, self._workers if count >= window_parts.PARALLEL_ROWS else None)
            self._each(add, count)
        finally:
            split.end()

    def run(self, boundary_us: int, train_of: Callable[[pa.RecordBatch], Train]) -> list[Train]:
        """Advance and give all results, in order.

        Args:
            train_of: gathers the columns of results; called in the threads.
        """
        found: list[Batch | None] = [None] * len(self._parts)

        def step(place: int) -> None:
            part = self._parts[place]
            part.advance(boundary_us)
            part.step(ALL_PAIRS)
            found[place] = part.results()

        self._each(step, self.waiting(0) + self.waiting(1))
        results = [batch for batch in found if batch is not None]
        if not results:
            return []
        return merge_batches(results, RESULT_KEYS, RESULT_COLUMNS, self._workers, train_of)

    def rows(self, side: int) -> pa.RecordBatch:
        held = [pa.record_batch(part.rows(side)) for part in self._parts]
        full = [batch for batch in held if batch.num_rows] or held[:1]
        return merge_batches(full, [(0, False)], held[0].num_columns)[0]

    def renumber(self, side: int) -> None:
        held = [as_int64(pa.record_batch(part.rows(side)).column(0)) for part in self._parts]
        numbers = np.sort(np.concatenate(held))
        for part, ours in zip(self._parts, held, strict=True):
            part.renumber(side, pa.array(numbers.searchsorted(ours)))

    def resume(self, boundary_us: int) -> None:
        for part in self._parts:
            part.resume(boundary_us)

    def held(self, side: int) -> int:
        return sum(part.held(side) for part in self._parts)

    def waiting(self, side: int) -> int:
        return sum(part.waiting(side) for part in self._parts)

    def nbytes(self) -> int:
        return sum(part.nbytes() for part in self._parts)
