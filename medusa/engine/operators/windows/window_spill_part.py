"""One part of a window that may lie on disk."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from medusa._native import Window
from medusa.engine.core.rows import as_int64, empty_batch
from medusa.engine.core.sorted_runs import cut_batch
from medusa.engine.core.spool import Spool, SpoolFile

__all__ = ["WindowSpillPart"]

WAITING_BYTES_MIN = 1 << 20
"""Rows beside a cold part up to which it is left alone."""

WAITING_TIMES = 2
"""Rows beside a cold part are aggregated when they have so many times the bytes of its state."""


class WindowSpillPart:
    """Groups of some keys: hot (``window``), cold, or empty, which is how it begins.

    Attributes:
        window: None: cold or empty.
        state: the rows of a cold part's state; None: it has none.
        oldest_us: of a cold part's state, the start of its oldest open window with rows; None: no rows.
        least_us: the least time of the rows beside it; None: there are none.
    """

    def __init__(self, spool: Spool, make: Callable[[], Window], input: pa.Schema, chunk_bytes: int) -> None:
        self._spool = spool
        self._make = make
        self._input = input
        self._chunk_bytes = chunk_bytes
        self.window: Window | None = None
        self.state: SpoolFile | None = None
        self.oldest_us: int | None = None
        self.least_us: int | None = None
        self._position = (0, 0)
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self.buffer_bytes = 0
        self._waiting: SpoolFile | None = None

    def nbytes(self) -> int:
        """In memory."""
        return self.buffer_bytes + (0 if self.window is None else self.window.nbytes())

    def rows_open(self) -> int:
        return self._rows if self.window is None else self.window.rows_open()

    @property
    def cold(self) -> bool:
        """It holds rows, and not in memory."""
        return self.window is None and (self.state is not None or self.least_us is not None)

    # Cold

    def evict(self) -> None:
        """Write the state to disk; the part is cold.

        Raises:
            StateError: it couldn't be written; the part is hot as before.
        """
        window = self.window
        if window is None:
            return
        if not window.rows_open():
            self.clear()
            return
        rows = pa.record_batch(window.state())
        self.state = None
        if rows.num_rows:
            file = self._spool.file(rows.schema)
            file.append(cut_batch(rows, self._chunk_bytes))
            self.state = file
        self._position = window.position()
        self.oldest_us, self._rows = window.oldest_open_us(), window.rows_open()
        self.window = None

    def wait(self, rows: pa.RecordBatch, positions: pa.Array) -> None:
        """Rows that come for a cold part."""
        if not rows.num_rows:
            return
        least = int(as_int64(rows.column(0)).min())
        self.least_us = least if self.least_us is None else min(least, self.least_us)
        batch = rows.append_column("position", positions)
        self._buffer.append(batch)
        self.buffer_bytes += int(batch.nbytes)
        self._rows += rows.num_rows

    def flush(self) -> None:
        """Write the buffer to disk.

        Raises:
            StateError: it couldn't be written; the buffer is as before.
        """
        if not self._buffer:
            return
        whole = pa.Table.from_batches(self._buffer).combine_chunks().to_batches()
        if self._waiting is None:
            self._waiting = self._spool.file(whole[0].schema)
        self._waiting.append(whole)
        self._buffer, self.buffer_bytes = [], 0

    @property
    def waits_too_much(self) -> bool:
        """The rows beside it should be aggregated: they would grow without end."""
        waiting = 0 if self._waiting is None else self._waiting.nbytes
        state = 0 if self.state is None else self.state.nbytes
        return waiting > max(WAITING_BYTES_MIN, self._chunk_bytes, WAITING_TIMES * state)

    def put(self, state: SpoolFile, boundary_us: int, taken: int) -> None:
        """Be cold, with this state."""
        self.window, self.state, self._position = None, state, (boundary_us, taken)

    # Hot

    def load(self, taken: int) -> Window:
        """Be hot: everything in memory, as if the rows beside it had been added when they came.

        Args:
            taken: rows that all parts have been given.

        Raises:
            ValueError: the state can't have come from a window.
        """
        if self.window is not None:
            return self.window
        window = self._make()
        schema = pa.record_batch(window.state()).schema
        batches = list(self.state) if self.state is not None else []
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
        window.load(batches[0] if batches else empty_batch(schema), *self._position)
        del batches
        for source in (self._waiting, self._buffer):
            for batch in source or ():
                positions = batch.column(batch.num_columns - 1)
                rows = batch.select(range(batch.num_columns - 1))
                window.add_at(rows, positions, int(as_int64(positions)[-1]) + 1)
        window.add_at(empty_batch(self._input), pa.array([], pa.int64()), taken)
        self.window = window
        self._forget()
        return window

    def _forget(self) -> None:
        self.state = self._waiting = None
        self._buffer, self.buffer_bytes = [], 0
        self.oldest_us = self.least_us = None
        self._rows = 0

    def open(self, boundary_us: int, taken: int) -> Window:
        """Of an empty part: be hot."""
        self.window = self._make()
        schema = pa.record_batch(self.window.state()).schema
        self.window.load(empty_batch(schema), boundary_us, taken)
        return self.window

    def clear(self) -> None:
        """Of a hot part that holds no rows: be empty."""
        self.window = None
