"""A window in several copies over disjoint keys, each run by a thread of its own.

The copies take the same trains; a native ``Split`` says whose rows are whose. What they give is merged
by (window_end, first position of the group), so the rows, their order and their bits are those of one
``Window``. So is the saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from medusa._native import Batch, Merge, Split, Window, snapshot_of
from medusa.engine.core.group_numbers import one_batch
from medusa.engine.core.rows import as_int64, as_times
from medusa.engine.state import background_copy
from medusa.engine.state.background_copy import OfParts, OfWindow
from medusa.ports import Workers

__all__ = ["PARALLEL_ROWS", "WindowParts", "merge_batches", "split_rows"]

PARALLEL_ROWS = 8192
"""Rows below which handing work to threads costs more than it saves."""


class WindowParts:
    """The methods of ``Window``, over ``workers.count`` of them.

    Args:
        keys: native types of the keys, at least one.
        options: what else ``Window`` takes.
    """

    def __init__(self, workers: Workers, *, keys: Sequence[str], size_us: int, **options: Any) -> None:
        self._workers = workers
        self._size_us = size_us
        self._places = range(workers.count)
        self._parts = [Window(keys=keys, size_us=size_us, positions=True, **options) for _ in self._places]
        self._split = Split(keys=keys, parts=workers.count)
        self._closed_rows = 0

    # Rows in

    def add(self, rows: pa.RecordBatch) -> None:
        """As ``Window.add``; but where memory runs out some copies may have taken rows."""
        split = self._split
        parallel = rows.num_rows >= PARALLEL_ROWS
        try:
            split_rows(split, rows, self._workers if parallel else None)
            self._each(lambda place: self._parts[place].add_part(split, place), parallel)
        finally:
            split.end()

    def _each(self, work: Callable[[int], None], parallel: bool) -> None:
        if parallel:
            self._workers.map(work, self._places)
        else:
            for place in self._places:
                work(place)

    # Rows out

    def close(self, boundary_us: int) -> list[pa.RecordBatch]:
        made: list[list[Batch]] = [[] for _ in self._places]

        def close(place: int) -> None:
            made[place] = self._parts[place].close(boundary_us)

        # How many rows will leave nobody knows before; windows are mostly like the last one.
        self._each(close, self._closed_rows >= PARALLEL_ROWS)
        if any(made):
            self._closed_rows = sum(len(batch) for batches in made for batch in batches)
        return self._merged(made, [(1, False)])

    def early(self) -> list[pa.RecordBatch]:
        made: list[list[Batch]] = [part.early() for part in self._parts]
        # Groups of windows of several panes come by the pane in which they appeared, whose start stands in
        # the place of window_start.
        merged = self._merged(made, [(1, False), (0, False)])
        return [self._with_start(batch) for batch in merged]

    def _with_start(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        start = as_times(as_int64(batch.column(1)) - self._size_us)
        return batch.set_column(0, batch.schema.field(0), start)

    def _merged(self, made: list[list[Batch]], keys: list[tuple[int, bool]]) -> list[pa.RecordBatch]:
        """Batches in order, without their last column, which is the first position of each group."""
        groups: Iterable[Sequence[Any]]
        if max(map(len, made)) < 2:
            found = [batch for batches in made for batch in batches]
            groups = [found] if found else []
        else:
            groups = _aligned([[pa.record_batch(batch) for batch in batches] for batches in made])
        merged: list[pa.RecordBatch] = []
        for group in groups:
            last = group[0].num_columns - 1
            merged += merge_batches(group, [*keys, (last, False)], last, self._workers)
        return merged

    def failed(self) -> pa.RecordBatch | None:
        found = [batch for batch in (part.failed() for part in self._parts) if batch is not None]
        if not found:
            return None
        last = found[0].num_columns - 1
        keys = [(1, False), (last - 1, False), (last, False)]  # by window, then aggregate
        return merge_batches(found, keys, last)[0]

    # What is asked about them

    def next_end_us(self) -> int:
        return self._parts[0].next_end_us()

    def oldest_open_us(self) -> int | None:
        starts = [start for start in (part.oldest_open_us() for part in self._parts) if start is not None]
        return min(starts, default=None)

    def groups_open(self) -> int:
        return sum(part.groups_open() for part in self._parts)

    def rows_open(self) -> int:
        return sum(part.rows_open() for part in self._parts)

    def nbytes(self) -> int:
        return sum(part.nbytes() for part in self._parts)

    def trim(self) -> None:
        for part in self._parts:
            part.trim()

    # State

    def state(self) -> pa.RecordBatch:
        return _in_order([pa.record_batch(part.state()) for part in self._parts])

    def later(self, made: Callable[[pa.RecordBatch], pa.Table]) -> OfParts | None:
        """The table of ``state`` as it is now, copied piece by piece; None: it is little, or can't be."""
        if self.groups_open() <= background_copy.AT_ONCE:
            return None
        copies = []
        for part in self._parts:
            snapshot = snapshot_of(part)
            if snapshot is None:
                return None
            copies.append(OfWindow(snapshot, lambda rows: pa.Table.from_batches([rows])))
        return OfParts(copies, lambda tables: (made(_in_order([one_batch(each) for each in tables])), None))

    def position(self) -> tuple[int, int]:
        return self._parts[0].position()

    def load(self, state: pa.RecordBatch, boundary_us: int, taken: int) -> None:
        split = self._split
        try:
            split_rows(split, state, None, first_key=4)
            for place, part in enumerate(self._parts):
                part.load(split.take(place)[0], boundary_us, taken)
        finally:
            split.end()


def _in_order(states: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The state of one window that holds what these hold."""
    held = [state for state in states if state.num_rows] or states[:1]
    merged = merge_batches(held, [(0, False), (2, False)], held[0].num_columns)[0]
    return pa.RecordBatch.from_arrays(merged.columns, schema=states[0].schema)


def split_rows(split: Split, rows: pa.RecordBatch, workers: Workers | None, *, first_key: int = 1) -> None:
    """Say of every row to which part it goes; with workers, each looks at a range of the rows."""
    chunks = split.begin(rows, first_key)
    if workers is None:
        split.run(0, chunks)
        return
    count = workers.count
    edges = [chunks * place // count for place in range(count + 1)]
    workers.map(lambda place: split.run(edges[place], edges[place + 1]), range(count))


def merge_batches(
    batches: Sequence[Any],
    keys: Sequence[tuple[int, bool]],
    width: int,
    workers: Workers | None = None,
    made_of: Callable[[pa.RecordBatch], Any] = lambda batch: batch,
) -> list[Any]:
    """Batches in order of some columns as one sequence; at most one batch for each worker.

    Args:
        batches: at least one, of native code or of pyarrow.
        keys: (column, whether -1 is the last) of each key.
        width: so many columns, from the first on, has the result.
        made_of: what to give in place of a batch; called where it was merged.
    """
    columns = range(width)
    total = sum(batch.num_rows for batch in batches)
    parallel = workers if workers is not None and total >= PARALLEL_ROWS else None
    if len(batches) == 1:
        only = pa.record_batch(batches[0]).select(columns)
        edges = _edges(total, parallel)
        pieces = [only.slice(start, stop - start) for start, stop in pairwise(edges)]
        merged: Callable[[int], pa.RecordBatch] = pieces.__getitem__
    else:
        merge = Merge(batches, keys)
        largest = max(range(len(batches)), key=lambda place: batches[place].num_rows)
        edges = _edges(batches[largest].num_rows, parallel)
        cuts = [[0] * len(batches), [batch.num_rows for batch in batches]]
        cuts[1:1] = [merge.cut(largest, row) for row in edges[1:-1]]

        def merged(place: int) -> pa.RecordBatch:
            return pa.record_batch(merge.rows(cuts[place], cuts[place + 1], columns))

    made: list[Any] = [None] * (len(edges) - 1)

    def run(place: int) -> None:
        made[place] = made_of(merged(place))

    if parallel is not None:
        parallel.map(run, range(len(made)))
    else:
        run(0)
    return made


def _edges(rows: int, workers: Workers | None) -> list[int]:
    """Of pieces that all have rows, unless there are none."""
    count = 1 if workers is None else max(1, min(workers.count, rows))
    return [rows * place // count for place in range(count + 1)]


def _aligned(parts: list[list[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Groups of at most one batch of each part, such that windows of a later group end later."""
    if all(len(batches) <= 1 for batches in parts):
        group = [batch for batches in parts for batch in batches]
        if group:
            yield group
        return
    last = sorted({int(as_int64(batch.column(1))[-1]) for batches in parts for batch in batches})
    before = None
    for end in last:
        group = []
        for batches in parts:
            for batch in batches:
                ends = as_int64(batch.column(1))
                start = 0 if before is None else int(ends.searchsorted(before, side="right"))
                stop = int(ends.searchsorted(end, side="right"))
                if stop > start:
                    group.append(batch.slice(start, stop - start))
        before = end
        yield group
