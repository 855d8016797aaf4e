"""Sorted runs as one sequence in order, of which little is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.core.rows import as_int64, take

__all__ = ["Run", "cut_batch", "merge_runs"]

Numbers = npt.NDArray[np.int64]
Run = tuple[int, Iterable[pa.RecordBatch]]
"""How many batches, and they; rows in order of some columns."""


@dataclass(slots=True)
class _Head:
    """Where a run stands: rows of its first batch that haven't left, and how many batches follow."""

    rest: Iterator[pa.RecordBatch]
    more: int
    batch: pa.RecordBatch
    keys: list[Numbers]

    def __len__(self) -> int:
        return len(self.keys[0])

    def last(self) -> tuple[int, ...]:
        return tuple(int(key[-1]) for key in self.keys)

    def rows_up_to(self, bound: tuple[int, ...]) -> int:
        low, high = 0, len(self)
        for key, value in zip(self.keys, bound, strict=True):
            same = key[low:high]
            before, through = same.searchsorted(value, side="left"), same.searchsorted(value, side="right")
            low, high = low + int(before), low + int(through)
        return high


def merge_runs(runs: Sequence[Run], keys: Sequence[int], width: int) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in order of some columns, cut as they come.

    In memory are one batch of each run and what leaves of them. No two runs have rows of the same keys.

    Args:
        runs: at most 64.
        keys: columns of int64 or time without nulls.
        width: so many columns, from the first on, have the batches that leave.
    """
    heads = []
    for count, batches in runs:
        head = _next(iter(batches), count, keys)
        if head is not None:
            heads.append(head)
    while heads:
        ends = [head.last() for head in heads if head.more]
        bound = min(ends, default=None)
        pieces, kept = [], []
        for head in heads:
            rows = len(head) if bound is None else head.rows_up_to(bound)
            if rows:
                pieces.append(head.batch.slice(0, rows))
            if rows == len(head):
                following = _next(head.rest, head.more, keys)
                if following is not None:
                    kept.append(following)
                continue
            head.batch = head.batch.slice(rows)
            head.keys = [key[rows:] for key in head.keys]
            kept.append(head)
        heads = kept
        yield _in_order(pieces, keys, width)


def _in_order(pieces: list[pa.RecordBatch], keys: Sequence[int], width: int) -> pa.RecordBatch:
    """The rows of sorted pieces. The cost of a stable sort hardly grows with their number."""
    whole = pieces[0]
    if len(pieces) > 1:
        whole = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
        values = [as_int64(whole.column(key)) for key in keys]
        while len(values) > 1 and values[0][0] == values[0][-1] and bool((values[0] == values[0][0]).all()):
            del values[0]  # so that windows of one end are sorted by one column
        order = np.argsort(values[0], kind="stable") if len(values) == 1 else np.lexsort(values[::-1])
        whole = take(whole, pa.array(order))
    return whole.select(range(width))


def _next(rest: Iterator[pa.RecordBatch], more: int, keys: Sequence[int]) -> _Head | None:
    """The run at its next batch that has rows."""
    while more:
        batch, more = next(rest), more - 1
        if batch.num_rows:
            return _Head(rest, more, batch, [as_int64(batch.column(key)) for key in keys])
    return None


def cut_batch(batch: Any, nbytes: int) -> list[pa.RecordBatch]:
    """The rows of a batch, of native code or of pyarrow, in pieces of about so many bytes."""
    whole = pa.record_batch(batch)
    rows = whole.num_rows
    step = max(1, rows * nbytes // max(1, whole.nbytes))
    return [whole.slice(start, step) for start in range(0, rows, step)]
