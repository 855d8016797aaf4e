"""A window whose panes several threads fill, each pane by one of them at a time.

A train with rows of several panes is work for several threads without anything to split or to merge: groups
and sums of a pane are made in the order of its rows, as one thread makes them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa._native import Batch, Exported, Window
from medusa.engine.operators.windows import window_parts
from medusa.engine.operators.windows.window_parts import WindowParts
from medusa.ports import Workers

__all__ = ["CROWDED_TRAINS", "WindowPanes", "by_key", "threaded_window"]

CROWDED_TRAINS = 4
"""Trains in a row most of whose rows lie in one pane, after which copies by key are better."""


class WindowPanes(Window):
    """A ``Window`` that threads fill. What it holds, gives and saves is that of one."""

    workers: Workers
    _alone = 0

    @property
    def crowded(self) -> bool:
        """The last trains left most of the work to one thread."""
        return self._alone >= CROWDED_TRAINS

    def add(self, rows: pa.RecordBatch | Batch | Exported, times: pa.Array | None = None) -> None:
        """As ``Window.add``."""
        if rows.num_rows < window_parts.PARALLEL_ROWS:
            super().add(rows, times)
            return
        count = self.workers.count
        try:
            largest = self.spread(rows, times, count)
            # The fullest pane is one thread's, and takes it more than twice as long as a fair share would.
            self._alone = self._alone + 1 if 2 * rows.num_rows < largest * count else 0
            if largest == rows.num_rows:
                self.spread_map(0)
                self.spread_fill(0)
            else:
                self.workers.map(self.spread_map, range(count))
                self.workers.map(self.spread_fill, range(count))
        finally:
            if self.spreading:  # an interrupt may come between any two of these calls
                self.spread_end()


def threaded_window(
    workers: Workers, *, keys: list[str], early: bool, **options: Any
) -> WindowPanes | WindowParts:
    """A window for several threads.

    Args:
        keys: native types of the keys.
        early: early results are asked for; what was told of them stays with the copies that told it.
        options: what else ``Window`` takes.
    """
    if early and keys and workers.count > 2:
        return WindowParts(workers, keys=keys, **options)
    window = WindowPanes(keys=keys, **options)
    window.workers = workers
    return window


def by_key(window: WindowPanes, *, keys: list[str], **options: Any) -> WindowParts:
    """The same window, with all that it holds, in copies over disjoint keys."""
    parts = WindowParts(window.workers, keys=keys, **options)
    parts.load(pa.record_batch(window.state()), *window.position())
    return parts
