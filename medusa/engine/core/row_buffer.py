"""Rows that a box holds: until the boundary has passed their time, or until it asks for them by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import END_US, START_US, Train
from medusa.engine.core.box import BoxState, expect_table
from medusa.engine.core.rows import TIME, as_int64, as_times, take

__all__ = ["Ints", "PositionedRows", "Timed", "TimedRowBuffer", "concat_timed", "load_timed", "save_timed"]

Ints = npt.NDArray[np.int64]

PART_ROWS_MAX = 1 << 18
"""Rows of a part of ``PositionedRows`` that was put together. More: others wait while it is made anew; fewer:
there are more parts to look through for each row that leaves."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows and their times."""

    batch: pa.RecordBatch
    times: Ints

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def of(cls, train: Train) -> Timed:
        return cls(train.batch, as_int64(train.times))

    @classmethod
    def none(cls, schema: pa.Schema) -> Timed:
        return cls(pa.RecordBatch.from_pylist([], schema), np.zeros(0, np.int64))

    def pick(self, index: Ints) -> Timed:
        return Timed(take(self.batch, pa.array(index)), self.times[index])

    def slice(self, start: int, stop: int) -> Timed:
        return Timed(self.batch.slice(start, stop - start), self.times[start:stop])

    def sorted(self) -> Timed:
        """By time; equal times keep their order."""
        if len(self) < 2 or (self.times[1:] >= self.times[:-1]).all():
            return self
        return self.pick(np.argsort(self.times, kind="stable"))

    def train(self) -> Train:
        return Train(batch=self.batch, times=as_times(np.ascontiguousarray(self.times)))


def concat_timed(parts: list[Timed]) -> Timed:
    if len(parts) == 1:
        return parts[0]
    return Timed(
        pa.concat_batches([part.batch for part in parts]), np.concatenate([part.times for part in parts])
    )


def save_timed(state: BoxState, name: str, parts: list[Timed], schema: pa.Schema) -> None:
    """Rows with their times beside them, as a table of a checkpoint. Nothing of them changes later."""
    full = schema.append(pa.field("@time", TIME))
    batches = [
        pa.RecordBatch.from_arrays(
            [*part.batch.columns, as_times(np.ascontiguousarray(part.times))], schema=full
        )
        for part in parts
    ]
    state.put(name, pa.Table.from_batches(batches, full))


def load_timed(state: BoxState, name: str, schema: pa.Schema) -> list[Timed]:
    """ValueError, KeyError: not what ``save_timed`` gave."""
    table = expect_table(state.tables, name, schema.append(pa.field("@time", TIME)))
    parts = []
    for batch in table.to_batches():
        *columns, times = batch.columns
        if times.null_count:
            raise ValueError(f"a null among the times of {name}")
        if batch.num_rows:
            part = Timed(pa.RecordBatch.from_arrays(columns, schema=schema), as_int64(times))
            if int(part.times.min()) <= START_US or int(part.times.max()) >= END_US:
                raise ValueError(f"a time of {name} is out of range")
            parts.append(part)
    return parts


class TimedRowBuffer:
    """Rows until a boundary passes them; then by (time, order of coming).

    They stand in parts sorted by time, each at least twice as long as the next: a row is moved a
    logarithmic number of times, and what is ready are the first rows of few parts.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[Timed] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, rows: Timed) -> None:
        if not len(rows):
            return
        self._parts.append(rows.sorted())
        while len(self._parts) >= 2 and len(self._parts[-2]) <= 2 * len(self._parts[-1]):
            # Stable, and the earlier part stands first: equal times stay in order.
            self._parts[-2:] = [concat_timed(self._parts[-2:]).sorted()]

    def ready(self, boundary_us: int) -> Timed | None:
        """Take the rows with a time below the boundary."""
        taken, left = [], []
        for part in self._parts:
            split = int(part.times.searchsorted(boundary_us))
            if split:
                taken.append(part.slice(0, split))
            if split < len(part):
                rest = part.slice(split, len(part))
                # A short rest of a long part is copied, or it would keep all of it in memory.
                left.append(rest.pick(np.arange(len(rest))) if 4 * len(rest) < split else rest)
        self._parts = left
        return concat_timed(taken).sorted() if taken else None

    def least_us(self) -> int:
        """The earliest time that waits; the end where none does."""
        return min((int(part.times[0]) for part in self._parts), default=int(END_US))

    def nbytes(self) -> int:
        return sum(int(part.batch.nbytes) + 8 * len(part) for part in self._parts)

    def save(self, state: BoxState, name: str) -> None:
        save_timed(state, name, self._parts, self._schema)

    def load(self, state: BoxState, name: str) -> None:
        """ValueError, KeyError: not what ``save`` gave."""
        for part in load_timed(state, name, self._schema):
            self.add(part)


@dataclass(slots=True)
class _Part:
    """Rows at consecutive, ascending positions; ``gone`` marks those that have left."""

    positions: Ints
    rows: Timed
    gone: npt.NDArray[np.bool_]
    least_us: int
    left: int

    @classmethod
    def of(cls, positions: Ints, rows: Timed) -> _Part:
        return cls(positions, rows, np.zeros(len(rows), np.bool_), int(rows.times.min()), len(rows))

    def take(self, index: Ints) -> Timed:
        self.gone[index] = True
        self.left -= len(index)
        if self.left and int(self.rows.times[index].min()) <= self.least_us:
            self.least_us = int(self.rows.times[~self.gone].min())
        return self.rows.pick(index)

    def here(self) -> tuple[Ints, Timed]:
        if self.left == len(self.rows):
            return self.positions, self.rows
        index = np.flatnonzero(~self.gone)
        return self.positions[index], self.rows.pick(index)


def _merges(before: int, last: int) -> bool:
    return before <= 2 * last and before + last <= PART_ROWS_MAX


class PositionedRows:
    """Rows by the position at which they came, until they are asked for by it.

    In parts as ``TimedRowBuffer``, up to a size; one is made anew when most of its rows have left.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(part.left for part in self._parts)

    def add(self, position: int, rows: Timed) -> None:
        """Rows at positions from ``position`` on, all above those held."""
        if len(rows):
            self._parts.append(_Part.of(np.arange(position, position + len(rows)), rows))

    def take(self, positions: Ints) -> Timed:
        """Rows that are held, in the order of ``positions``; they leave."""
        firsts = np.array([part.positions[0] for part in self._parts])
        which = firsts.searchsorted(positions, side="right") - 1
        taken, places = [], []
        for number, part in enumerate(self._parts):
            at = np.flatnonzero(which == number)
            if len(at):
                taken.append(part.take(part.positions.searchsorted(positions[at])))
                places.append(at)
        found = concat_timed(taken)
        if len(taken) > 1:
            order = np.empty(len(positions), np.int64)
            order[np.concatenate(places)] = np.arange(len(positions))
            found = found.pick(order)
        self._tidy()
        return found

    def _tidy(self) -> None:
        """Put parts together, and forget rows that have left: of some rows, and of others the next time."""
        parts: list[_Part] = []
        moved = 0
        for part in self._parts:
            if 0 < part.left <= len(part.rows) // 2 and moved < PART_ROWS_MAX:
                moved += part.left
                part = _Part.of(*part.here())
            if part.left:
                parts.append(part)
            while len(parts) >= 2 and moved < PART_ROWS_MAX and _merges(parts[-2].left, parts[-1].left):
                moved += parts[-2].left + parts[-1].left
                (ours, rows), (theirs, more) = parts[-2].here(), parts[-1].here()
                parts[-2:] = [_Part.of(np.concatenate([ours, theirs]), concat_timed([rows, more]))]
        self._parts = parts

    def least_us(self) -> int | None:
        """The earliest time held."""
        return min((part.least_us for part in self._parts), default=None)

    def nbytes(self) -> int:
        return sum(int(part.rows.batch.nbytes) + 17 * len(part.rows) for part in self._parts)

    def save(self, state: BoxState, name: str) -> None:
        """Rows in order of their positions, which aren't kept."""
        save_timed(state, name, [part.here()[1] for part in self._parts], self._schema)

    def load(self, state: BoxState, name: str) -> list[Timed]:
        """The rows, in order; not yet added. ValueError, KeyError: not what ``save`` gave."""
        return load_timed(state, name, self._schema)
