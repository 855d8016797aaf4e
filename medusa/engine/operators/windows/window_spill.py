"""A window whose groups may lie on disk: a hybrid hash aggregation (Shapiro, TODS 1986; Graefe, 1993).

Its groups are in parts over disjoint keys. A part is hot, a native ``Window``, or cold: its state is a
file of rows, and rows that come for it are kept beside, in a buffer and a second file, with the
positions that they have among all rows. A cold part is loaded and fed when a boundary closes windows
of it or when the rows beside it have become many; then it is cold again, unless nothing is left.

What the parts give is merged by (window_end, first position of the group), so the rows, their order
and their bits are those of one ``Window``; so is the saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from medusa._native import Batch, Split, Window
from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.core.memory_bounds import Room
from medusa.engine.core.rows import empty_batch
from medusa.engine.core.sorted_runs import Run, cut_batch, merge_runs
from medusa.engine.core.spool import SpoolFile, Streamed
from medusa.engine.operators.windows.window_parts import merge_batches, split_rows
from medusa.engine.operators.windows.window_spill_part import WindowSpillPart
from medusa.errors import StateError

__all__ = ["PARTS_MAX", "SpillWindow"]

PARTS_MAX = 64
"""Into so many parts the groups are split, at most: one of them at a time must fit in memory."""

PART_BYTES_MIN = 1 << 18
"""Of the budget for each part: a window that is empty takes 80 KiB."""

GATHERED_ROWS = 4096
"""Rows that wait to be split together while a part is cold: each split looks at every part."""

CHUNK_BYTES_MIN = 1 << 15
CHUNK_BYTES_MAX = 1 << 18


class SpillWindow:
    """The methods of ``Window``, but for early results.

    Args:
        room: where to go, and how much of memory there is.
        input: columns of the rows: time, keys, inputs; names don't matter.
        keys: native types of the keys, at least one.
        options: what else ``Window`` takes.
    """

    def __init__(
        self,
        room: Room,
        *,
        input: pa.Schema,
        keys: Sequence[str],
        size_us: int,
        advance_us: int,
        **options: Any,
    ) -> None:
        make = partial(Window, keys=keys, size_us=size_us, advance_us=advance_us, positions=True, **options)
        spool, budget_bytes = room.spool, room.budget_bytes
        self._spool = spool
        self._failed_write = room.failed_write
        parts = min(max(budget_bytes // PART_BYTES_MIN, 4), PARTS_MAX)
        self._chunk_bytes = min(max(budget_bytes // (4 * parts), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        self._output_bytes_max = budget_bytes // 8
        self._load_bytes_max = budget_bytes // 2
        self._parts = [WindowSpillPart(spool, make, input, self._chunk_bytes) for _ in range(parts)]
        self._split = Split(keys=keys, parts=parts)
        self._watch = make()  # never takes a row: it knows which window closes next
        self._size_us, self._advance_us = size_us, advance_us
        self._taken = 0
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._failed: list[Batch] = []
        self._width = 0

    # Rows in

    def add(self, rows: pa.RecordBatch | Batch) -> None:
        """As ``Window.add``, of rows that are surely in time."""
        if not self.cold:
            self._add(rows)
            return
        self._gathered.append(pa.record_batch(rows))
        self._gathered_rows += rows.num_rows
        if self._gathered_rows >= GATHERED_ROWS:
            self._distribute()

    def _distribute(self) -> None:
        """Give the parts what was gathered."""
        if self._gathered:
            table = pa.Table.from_batches(self._gathered).combine_chunks()
            self._gathered, self._gathered_rows = [], 0
            for batch in table.to_batches():
                self._add(batch)

    def _add(self, rows: pa.RecordBatch | Batch) -> None:
        split = self._split
        try:
            split_rows(split, rows, None)
            for place, part in enumerate(self._parts):
                if part.cold:
                    batch, numbers = split.take(place, self._taken)
                    part.wait(pa.record_batch(batch), pa.array(numbers))
                else:
                    window = part.window or part.open(self._watch.position()[0], self._taken)
                    window.add_part(split, place)
        finally:
            split.end()
        self._taken += rows.num_rows
        for part in self._parts:
            if part.buffer_bytes > self._chunk_bytes:
                self._try(part.flush)
                if part.waits_too_much:
                    part.load(self._taken)
                    self._try(part.evict)

    def _try(self, write: Callable[[], object]) -> bool:
        """Write to disk; where it is full, things stay in memory and somebody is told."""
        try:
            write()
        except StateError as error:
            self._failed_write(error)
            return False
        return True

    # Memory

    @property
    def cold(self) -> int:
        """Parts on disk."""
        return sum(part.cold for part in self._parts)

    def nbytes(self) -> int:
        """In memory."""
        gathered = sum(int(batch.nbytes) for batch in self._gathered)
        return self._watch.nbytes() + gathered + sum(part.nbytes() for part in self._parts)

    def spill(self, nbytes: int) -> int:
        """Write parts to disk, the largest first, until so many bytes of memory are free.

        Returns:
            How many are.
        """
        before = self.nbytes()
        floor = before - nbytes
        self._distribute()
        hot = [part for part in self._parts if part.window is not None]
        for part in sorted(hot, key=WindowSpillPart.nbytes, reverse=True):
            if self.nbytes() <= floor or not self._try(part.evict):
                break
        if self.nbytes() > floor:
            for part in self._parts:
                self._try(part.flush)
        return before - self.nbytes()

    # Rows out

    def close(self, boundary_us: int) -> Iterator[pa.RecordBatch]:
        """As ``Window.close``, at once; the rows come one batch at a time."""
        self._distribute()
        runs: list[Run] = []
        in_memory = 0
        for part in self._parts:
            made = self._close_part(part, boundary_us)
            if made:
                self._width = made[0].num_columns - 1  # the last is the first position of each group
                in_memory += sum(int(batch.nbytes) for batch in made)
                runs.append((len(made), made))
            if in_memory > self._output_bytes_max:
                runs = [self._on_disk(run) for run in runs]
                in_memory = 0
        self._watch.close(boundary_us)
        return merge_runs(runs, (1, self._width), self._width)

    def _close_part(self, part: WindowSpillPart, boundary_us: int) -> list[pa.RecordBatch]:
        was_cold = part.cold
        if (part.window is None and not was_cold) or (was_cold and boundary_us < self._first_end_us(part)):
            return []
        window = part.load(self._taken)
        made = [piece for batch in window.close(boundary_us) for piece in cut_batch(batch, self._chunk_bytes)]
        failed = window.failed()
        if failed is not None:
            self._failed.append(failed)
        if not window.rows_open():
            part.clear()
        elif was_cold:
            self._try(part.evict)
        return made

    def _first_end_us(self, part: WindowSpillPart) -> int:
        """Of a cold part: no window that holds rows of it ends before."""
        ends = [] if part.oldest_us is None else [part.oldest_us + self._size_us]
        if part.least_us is not None:
            start = (part.least_us - self._size_us) // self._advance_us * self._advance_us + self._advance_us
            ends.append(start + self._size_us)
        if not ends:
            return 1 << 63
        return max(min(ends), self._watch.next_end_us())

    def _on_disk(self, run: Run) -> Run:
        count, batches = run
        if isinstance(batches, SpoolFile) or not isinstance(batches, list):
            return run
        file = self._spool.file(batches[0].schema)
        return (count, file) if self._try(lambda: file.append(batches)) else run

    def failed(self) -> pa.RecordBatch | None:
        """As ``Window.failed``."""
        found, self._failed = self._failed, []
        if not found:
            return None
        last = found[0].num_columns - 1
        return merge_batches(found, [(1, False), (last - 1, False), (last, False)], last)[0]

    # What is asked about it

    def next_end_us(self) -> int:
        return self._watch.next_end_us()

    def oldest_open_us(self) -> int | None:
        self._distribute()
        starts = []
        for part in self._parts:
            if part.window is not None:
                starts.append(part.window.oldest_open_us())
            elif part.cold:
                starts.append(self._first_end_us(part) - self._size_us)
        return min((start for start in starts if start is not None), default=None)

    def rows_open(self) -> int:
        return self._gathered_rows + sum(part.rows_open() for part in self._parts)

    # State

    def save(self, state: BoxState, readable: Callable[[str], str]) -> None:
        """Put what ``Window.state`` gives into a state that is written before anything else is called.

        Args:
            readable: names of columns for people.
        """
        batches = self._sorted_state()
        schema = _named(pa.record_batch(self._watch.state()).schema, readable)
        named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
        if self.cold:
            state.streams["groups"] = Streamed(self._spool, schema, named)
        else:
            state.tables["groups"] = pa.Table.from_batches(named, schema).combine_chunks()

    def _sorted_state(self) -> Iterator[pa.RecordBatch]:
        self._distribute()
        runs: list[Run] = []
        for part in self._parts:
            if part.window is not None:
                pieces = cut_batch(part.window.state(), self._chunk_bytes)
                run: Run = (len(pieces), pieces)
                # What is in memory is there twice now, but for this.
                runs.append(self._on_disk(run) if pieces and self.cold else run)
                continue
            if part.least_us is not None:
                part.load(self._taken)
                part.evict()
            if part.state is not None:
                runs.append((len(part.state), part.state))
        return merge_runs(runs, (0, 2), len(pa.record_batch(self._watch.state()).schema))

    def position(self) -> tuple[int, int]:
        self._distribute()
        return self._watch.position()[0], self._taken

    def restore(self, state: BoxState, readable: Callable[[str], str]) -> None:
        """Take back what ``save`` gave, or a ``Window`` with the same options; only on a fresh object.

        Raises:
            ValueError, KeyError, TypeError: it can't have come from them.
            StateError: it couldn't be written.
        """
        schema = pa.record_batch(self._watch.state()).schema
        table = expect_table(state.tables, "groups", _named(schema, readable))
        boundary_us, taken = state.meta["position"]
        rows = (
            pa.RecordBatch.from_arrays(piece.columns, schema=schema)
            for batch in table.to_batches()
            for piece in cut_batch(batch, CHUNK_BYTES_MAX)
        )
        self.load(rows, boundary_us, taken)

    def load(self, batches: Iterable[pa.RecordBatch], boundary_us: int, taken: int) -> None:
        """Take back the rows of a ``Window.state`` and what ``position`` gave; only on a fresh object.

        Raises:
            ValueError: it can't have come from them.
            StateError: it couldn't be written.
        """
        split = self._split
        schema = pa.record_batch(self._watch.state()).schema
        self._watch.load(empty_batch(schema), boundary_us, taken)
        self._taken = taken
        files = [self._spool.file(schema) for _ in self._parts]
        for batch in batches:
            try:
                split_rows(split, batch, None, first_key=4)
                for place, file in enumerate(files):
                    rows = pa.record_batch(split.take(place)[0])
                    if rows.num_rows:
                        file.append([rows])
            finally:
                split.end()
        held = 0
        for part, file in zip(self._parts, files, strict=True):
            part.put(file, boundary_us, taken)
            held += part.load(taken).nbytes()  # which looks at every number
            if held > self._load_bytes_max:
                held -= part.nbytes()
                part.evict()


def _named(schema: pa.Schema, readable: Callable[[str], str]) -> pa.Schema:
    return pa.schema([field.with_name(readable(field.name)) for field in schema])
