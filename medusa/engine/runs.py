"""Sorted runs as one sequence in order, of which little is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.engine.rows import as_int64, take

__all__ = ["Run", "cut_batch", "merge_runs"]

Numbers = npt.NDArray[np.int64]
Run = tuple[int, Iterable[pa.RecordBatch]]
"""How many batches, and they; rows in order of two columns."""


@dataclass(slots=True)
class _Head:
    """Where a run stands: rows of its first batch that haven't left, and how many batches follow."""

    rest: Iterator[pa.RecordBatch]
    more: int
    batch: pa.RecordBatch
    first: Numbers
    second: Numbers

    def rows_up_to(self, bound: tuple[int, int]) -> int:
        low = int(self.first.searchsorted(bound[0], side="left"))
        high = int(self.first.searchsorted(bound[0], side="right"))
        return low + int(self.second[low:high].searchsorted(bound[1], side="right"))


def merge_runs(runs: Sequence[Run], keys: tuple[int, int], width: int) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in order of two columns, cut as they come.

    In memory are one batch of each run and what leaves of them. No two rows have the same keys.

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
        ends = [(int(head.first[-1]), int(head.second[-1])) for head in heads if head.more]
        bound = min(ends, default=None)
        pieces, kept = [], []
        for head in heads:
            rows = len(head.first) if bound is None else head.rows_up_to(bound)
            if rows:
                pieces.append(head.batch.slice(0, rows))
            if rows == len(head.first):
                following = _next(head.rest, head.more, keys)
                if following is not None:
                    kept.append(following)
                continue
            head.batch = head.batch.slice(rows)
            head.first, head.second = head.first[rows:], head.second[rows:]
            kept.append(head)
        heads = kept
        yield _in_order(pieces, keys, width)


def _in_order(pieces: list[pa.RecordBatch], keys: tuple[int, int], width: int) -> pa.RecordBatch:
    """The rows of sorted pieces. The cost of a stable sort hardly grows with their number."""
    whole = pieces[0]
    if len(pieces) > 1:
        whole = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
        first, second = as_int64(whole.column(keys[0])), as_int64(whole.column(keys[1]))
        same = first[0] == first[-1] and bool((first == first[0]).all())
        order = np.argsort(second, kind="stable") if same else np.lexsort((second, first))
        whole = take(whole, pa.array(order))
    return whole.select(range(width))


def _next(rest: Iterator[pa.RecordBatch], more: int, keys: tuple[int, int]) -> _Head | None:
    """The run at its next batch that has rows."""
    while more:
        batch, more = next(rest), more - 1
        if batch.num_rows:
            return _Head(rest, more, batch, as_int64(batch.column(keys[0])), as_int64(batch.column(keys[1])))
    return None


def cut_batch(batch: Any, nbytes: int) -> list[pa.RecordBatch]:
    """The rows of a batch, of native code or of pyarrow, in pieces of about so many bytes."""
    whole = pa.record_batch(batch)
    rows = whole.num_rows
    step = max(1, rows * nbytes // max(1, whole.nbytes))
    return [whole.slice(start, step) for start in range(0, rows, step)]
