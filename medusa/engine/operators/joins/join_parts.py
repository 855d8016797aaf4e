"""A join in several copies over disjoint keys, each run by a thread of its own.

Each copy joins its part of both sides by the numbers of their rows, step by step. Its results are in order of
(release, left position, right position), a missing one last; merged by these they are those of one ``Join``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from medusa._native import Join, Merge, Split
from medusa.engine.core.group_numbers import one_batch
from medusa.engine.core.rows import as_int64
from medusa.engine.operators.windows import window_parts
from medusa.engine.operators.windows.window_parts import merge_batches, split_rows
from medusa.engine.state.background_copy import OfItems, OfParts
from medusa.engine.state.row_changes import TableChange
from medusa.ports import Workers

__all__ = ["JoinParts"]

RESULT_KEYS = [(0, False), (2, True), (3, True)]
RESULT_COLUMNS = 4
_RESULT_BYTES = 8 * RESULT_COLUMNS
_NONE_LAST = (1 << 64) - 1

T = TypeVar("T")


class JoinParts:
    """Some methods of ``Join``, over ``workers.count`` of them; not for conditions on pairs.

    Args:
        keys: native types of the keys.
        options: what else ``Join`` takes.

    Attributes:
        ahead: of each copy, results that wait for those of other copies, at most three times ``pairs_max`` of
            ``run`` and the rows without a partner that were settled in one step.
    """

    def __init__(self, workers: Workers, *, keys: Sequence[str], **options: Any) -> None:
        self._workers = workers
        self._places = range(workers.count)
        self._parts = [Join(keys=keys, **options) for _ in self._places]
        self._split = Split(keys=keys, parts=workers.count)
        self.ahead = [0] * workers.count

    def _each(self, work: Callable[[int], None], places: Sequence[int], parallel: bool) -> None:
        if parallel:
            self._workers.map(work, places)
        else:
            for place in places:
                work(place)

    def add(self, side: int, rows: pa.RecordBatch, first: int) -> None:
        split = self._split

        def add(place: int) -> None:
            ours, numbers = split.take(place, first)
            self._parts[place].add(side, ours, 0, numbers=numbers)

        count = rows.num_rows
        try:
            split_rows(split, rows, self._workers if count >= window_parts.PARALLEL_ROWS else None)
            self._each(add, self._places, count >= window_parts.PARALLEL_ROWS)
        finally:
            split.end()

    def run(self, boundary_us: int, pairs_max: int) -> Iterator[list[pa.RecordBatch]]:
        """Advance, and give the results in order, as many at once as steps of all copies make.

        A result leaves when no copy can give an earlier one any more. A copy that is ahead of the others
        makes no step while ``pairs_max`` of its results wait.

        Args:
            pairs_max: what ``Join.step`` is told in each copy.

        Yields:
            After each round of steps: results (release, time, left, right) in order, in at most one batch for
            each worker; none, where a copy that is behind gave nothing yet.
        """
        found: list[pa.RecordBatch | None] = [None] * len(self._parts)
        more = [True] * len(self._parts)

        def step(place: int) -> None:
            part = self._parts[place]
            more[place] = part.step(pairs_max)
            results = part.results()
            if results is not None:
                came, waits = pa.record_batch(results), found[place]
                found[place] = came if waits is None else pa.concat_batches([waits, came])

        def begin(place: int) -> None:
            self._parts[place].advance(boundary_us)
            step(place)

        # Few rows may have many pairs: that there is a second round shows it.
        parallel = self.waiting(0) + self.waiting(1) >= window_parts.PARALLEL_ROWS
        self._each(begin, self._places, parallel)
        while True:
            ready = _ready(found, more)
            self.ahead = [0 if batch is None else batch.num_rows for batch in found]
            if ready:
                yield merge_batches(ready, RESULT_KEYS, RESULT_COLUMNS, self._workers)
            else:
                yield []
            if not any(more):
                return
            behind = [place for place in self._places if more[place] and self.ahead[place] < pairs_max]
            self._each(step, behind, True)

    def made(self, pieces: Sequence[pa.RecordBatch], made_of: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """What is made of each piece, in order: of one for each worker at a time, in their threads."""
        for first in range(0, len(pieces), len(self._places)):
            some = pieces[first : first + len(self._places)]
            made: list[Any] = [None] * len(some)

            def make(place: int, some: Sequence[pa.RecordBatch] = some, made: list[Any] = made) -> None:
                made[place] = made_of(some[place])

            parallel = sum(piece.num_rows for piece in some) >= window_parts.PARALLEL_ROWS
            self._each(make, range(len(some)), parallel)
            yield from made

    def rows(self, side: int) -> pa.RecordBatch:
        held = [pa.record_batch(part.rows(side)) for part in self._parts]
        full = [batch for batch in held if batch.num_rows] or held[:1]
        return merge_batches(full, [(0, False)], held[0].num_columns)[0]

    def later(
        self,
        side: int,
        make: Callable[[pa.RecordBatch], tuple[pa.Table, TableChange | None]],
        *,
        captured: bool,
    ) -> OfParts:
        """The rows of a side as they are now, copied piece by piece.

        Args:
            make: the table, of numbers, times and marks (int64) by number, and how it is made of an earlier
                one.
        """
        names = ("row", "time", "matched")
        made = partial(pa.Table.from_arrays, names=names)
        copies = [OfItems(part.copy(side), attrgetter("columns"), made) for part in self._parts]

        def together(tables: list[pa.Table]) -> tuple[pa.Table, TableChange | None]:
            rows = [one_batch(table) for table in tables]
            held = [batch for batch in rows if batch.num_rows] or rows[:1]
            return make(merge_batches(held, [(0, False)], len(names))[0])

        return OfParts(copies, together, captured=captured)

    def renumber(self, side: int) -> None:
        held = [as_int64(pa.record_batch(part.rows(side)).column(0)) for part in self._parts]
        numbers = np.sort(np.concatenate(held))
        for part, ours in zip(self._parts, held, strict=True):
            part.renumber(side, pa.array(numbers.searchsorted(ours)))

    def span(self, side: int) -> int:
        return max(part.span(side) for part in self._parts)

    def track(self, side: int) -> None:
        for part in self._parts:
            part.track(side)

    def resume(self, boundary_us: int) -> None:
        for part in self._parts:
            part.resume(boundary_us)

    def held(self, side: int) -> int:
        return sum(part.held(side) for part in self._parts)

    def waiting(self, side: int) -> int:
        return sum(part.waiting(side) for part in self._parts)

    def nbytes(self) -> int:
        return sum(part.nbytes() for part in self._parts) + sum(self.ahead) * _RESULT_BYTES


def _ready(found: list[pa.RecordBatch | None], more: Sequence[bool]) -> list[pa.RecordBatch]:
    """Take out of ``found`` the results that come before all that copies with ``more`` haven't given yet."""
    places = [place for place, batch in enumerate(found) if batch is not None]
    batches = [batch for batch in found if batch is not None]
    if any(more[place] and batch is None for place, batch in enumerate(found)) or not batches:
        return []
    open_ones = [number for number, place in enumerate(places) if more[place]]
    if not open_ones:
        found[:] = [None] * len(found)
        return batches
    least = min(open_ones, key=lambda number: _last_key(batches[number]))
    cuts = Merge(batches, RESULT_KEYS).cut(least, batches[least].num_rows - 1)
    cuts[least] += 1
    for place, batch, cut in zip(places, batches, cuts, strict=True):
        found[place] = batch.slice(cut) if cut < batch.num_rows else None
    return [batch.slice(0, cut) for batch, cut in zip(batches, cuts, strict=True) if cut]


def _last_key(batch: pa.RecordBatch) -> tuple[int, int, int]:
    """Where the last result stands in the order of all."""
    release, left, right = (int(as_int64(batch.column(column))[-1]) for column, _ in RESULT_KEYS)
    return release, left & _NONE_LAST, right & _NONE_LAST
