"""Sorting and searching many numbers in pieces, between two of which others may have the engine's thread.

What comes out is that of numpy's stable sort and of its search, however many pieces it took.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Literal

import numpy as np

from medusa.engine.core import output_pieces
from medusa.engine.core.row_buffer import Ints

__all__ = ["order_in_pieces", "search_in_pieces"]


def order_in_pieces(keys: Sequence[Ints]) -> Generator[None, None, Ints]:
    """As ``numpy.lexsort``: rows in order of the last key, then of the one before it, then as they stand."""
    order = np.arange(len(keys[0]))
    for key in keys:
        order = yield from _ordered(key, order)
    return order


def search_in_pieces(
    ascending: Ints, values: Ints, side: Literal["left", "right"] = "left"
) -> Generator[None, None, Ints]:
    """As ``ascending.searchsorted(values, side)``."""
    found = np.empty(len(values), np.int64)
    for first, end in output_pieces.row_cuts(len(values)):
        if first:
            yield
        found[first:end] = ascending.searchsorted(values[first:end], side)
    return found


def _ordered(key: Ints, order: Ints) -> Generator[None, None, Ints]:
    """Put rows that stand in some order in that of a key: runs of them, then what lies between two bounds in
    each of the runs. Bounds are drawn from the sorted runs: about as many rows lie between any two."""
    runs: list[tuple[Ints, Ints]] = []
    for first, end in output_pieces.row_cuts(len(order)):
        if first:
            yield
        rows = order[first:end]
        values = key[rows]
        by_value = values.argsort(kind="stable")
        runs.append((values[by_value], rows[by_value]))
    if len(runs) < 2:
        return runs[0][1] if runs else order
    yield
    drawn = np.sort(np.concatenate([values[:: max(1, len(values) // len(runs))] for values, _ in runs]))
    bounds = np.unique(drawn[len(runs) :: len(runs)])
    edges = [_edges(values, bounds) for values, _ in runs]
    made, at = np.empty(len(order), np.int64), 0
    for number in range(2 * len(bounds) + 1):
        spans = [slice(each[number], each[number + 1]) for each in edges]
        rows = np.concatenate([rows[span] for (_, rows), span in zip(runs, spans, strict=True)])
        if not len(rows):
            continue
        if at:
            yield
        if number % 2 == 0:  # Else all of them are equal to a bound.
            values = np.concatenate([values[span] for (values, _), span in zip(runs, spans, strict=True)])
            rows = rows[values.argsort(kind="stable")]
        made[at : at + len(rows)] = rows
        at += len(rows)
    return made


def _edges(values: Ints, bounds: Ints) -> list[int]:
    """Where in ascending values spans begin, and the last ends: below the first bound, equal to it, ..."""
    begin, end = values.searchsorted(bounds, side="left"), values.searchsorted(bounds, side="right")
    return [0, *np.stack([begin, end], axis=1).ravel().tolist(), len(values)]
