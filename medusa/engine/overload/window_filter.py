"""Leaves out windows of which rows were dropped, so that those which leave are exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import Boundary, Element, Train
from medusa.engine.core.box import Operator, Queue
from medusa.engine.core.rows import as_int64, filter_rows

__all__ = ["WindowFilter"]


class WindowFilter(list[tuple[int, Element]]):
    """Behind a box of windows, in place of the queues that its results would go to.

    It is told which rows are missing before a boundary passes them, so before any window with them closes.

    Args:
        size_us, advance_us: of the windows.

    Attributes:
        spans_us: both.
    """

    def __init__(self, size_us: int, advance_us: int) -> None:
        super().__init__()
        self.spans_us = size_us, advance_us
        self._gaps: set[tuple[int, int]] = set()
        self._targets: list[tuple[Queue, int]] = []
        self._box: Operator | None = None

    def stand_behind(self, box: Operator, targets: Sequence[tuple[Queue, int]]) -> None:
        """From now on what a box gives goes to these inputs."""
        self._box, self._targets = box, list(targets)

    def miss(self, begin_us: int, end_us: int) -> None:
        """Rows of these times, from and up to, didn't come: no window with one of them leaves."""
        self._gaps.add((begin_us, end_us))

    def reach_us(self, end_us: int) -> int:
        """Where rows are missing up to ``end_us``: up to where results are missing."""
        size_us, advance_us = self.spans_us
        return (end_us - 1) // advance_us * advance_us + size_us

    def append(self, pair: tuple[int, Element], /) -> None:
        element: Element | None = pair[1]
        if self._gaps:
            if isinstance(element, Train):
                element = self._whole(element)
            elif isinstance(element, Boundary):
                self._gaps = {gap for gap in self._gaps if self.reach_us(gap[1]) > element.time_us}
        if element is not None:
            for queue, input in self._targets:
                queue.append((input, element))

    def _whole(self, train: Train) -> Train | None:
        starts, ends = (as_int64(train.batch.column(place)) for place in (0, 1))
        left = np.ones(len(train), np.bool_)
        for begin_us, end_us in self._gaps:
            left &= (ends <= begin_us) | (starts >= end_us)
        gone = len(train) - int(np.count_nonzero(left))
        if not gone:
            return train
        if self._box is not None:  # it has counted them as sent
            self._box.drop_sent(gone)
        return filter_rows(train, pa.array(left)) if gone < len(train) else None

    def save(self) -> list[list[int]]:
        """What is missing, as JSON values."""
        return [list(gap) for gap in sorted(self._gaps)]

    def load(self, state: Any) -> None:
        """Take back what ``save`` gave.

        Raises:
            ValueError, TypeError: it can't have come from there.
        """
        gaps = set()
        for begin_us, end_us in state:
            if type(begin_us) is not int or type(end_us) is not int or not begin_us < end_us:
                raise ValueError(f"not a part of time: {begin_us!r:.80} to {end_us!r:.80}")
            gaps.add((begin_us, end_us))
        self._gaps = gaps
