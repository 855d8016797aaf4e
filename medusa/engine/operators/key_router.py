"""Key router: the rows of a box that was split go to its parts by ranges of the hash of their key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from medusa._native import hash_partition
from medusa.elements import END_US, START_US, Kind, Train
from medusa.engine.core.box import BoxState, Stateless
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_bools, as_int64, as_times, take, take_array
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import KeyRouter, Schema
from medusa.query.types import schema_to_arrow

__all__ = ["LAST_TIME", "KeyRouterBox", "part_of", "ways_of"]

NUMBER_MAX = 1 << 62
LAST_TIME = -1
"""The number of a row that is none, and says by its time when the last row of the input came."""


def part_of(keys: list[pa.Array], cuts: tuple[int, ...]) -> Ints:
    """The part of each row: that whose range of the hash has its key; ``cuts[i]`` begins part i + 1."""
    names = [str(place) for place in range(len(keys))]
    hashes = pa.array(hash_partition(pa.RecordBatch.from_arrays(keys, names))).to_numpy()
    return np.asarray(np.array(cuts, np.uint64).searchsorted(hashes, side="right"), np.int64)


def ways_of(parts: int, ways: Ints) -> list[Ints]:
    """The rows of each part, in their order."""
    return [np.flatnonzero(ways == part) for part in range(parts)]


class KeyRouterBox(Stateless):
    """Late rows are numbered and go where others of their key go, with their mark.

    Early rows have no number of their own, and all go to the first part.
    """

    kind = "key_router"

    def __init__(self, spec: KeyRouter, *, input: Schema, letters: DeadLetters, timed: bool) -> None:
        super().__init__(spec.id, inputs=1)
        self.boundary_ports = spec.ports
        self._spec = spec
        self._input = schema_to_arrow(input)
        self._columns = Columns(self, letters, spec.keys, input, timed=timed) if spec.keys else None
        self._seen = 0
        self._last_us = int(START_US)
        """The largest time of a row that was not late."""

    def on_boundary(self, time_us: int) -> None:
        if time_us >= END_US and self._spec.last_time:
            self._tell_last_time(max(self._last_us, self.boundary_us))
        self.advance(time_us)

    def _tell_last_time(self, time_us: int) -> None:
        """A row, since of boundaries that follow each other a link brings the last one only."""
        if time_us == START_US:
            return
        nulls = [pa.nulls(1, field.type) for field in self._input]
        times = as_times(np.array([time_us]))
        nothing = Train(batch=pa.RecordBatch.from_arrays(nulls, schema=self._input), times=times)
        train = self._numbered(nothing, np.array([LAST_TIME]))
        for port in self.boundary_ports:
            self.emit(train, port)

    def on_train(self, input: int, train: Train) -> None:
        if train.kind is not Kind.STABLE:
            self.emit(self._numbered(train, np.zeros(len(train), np.int64)))
            return
        numbers = np.arange(self._seen, self._seen + len(train))
        self._seen += len(train)
        self.rows_out += len(train)
        ways = self._ways(train, numbers)
        train = self._numbered(train, numbers)
        for port, rows in zip(self.boundary_ports, ways_of(self._spec.parts, ways), strict=True):
            if len(rows):
                self.emit(train if len(rows) == len(train) else _picked(train, rows), port)

    def _ways(self, train: Train, numbers: Ints) -> Ints:
        if self._columns is None:
            assert self._spec.block is not None
            return numbers // self._spec.block % self._spec.parts
        keys, failed, _ = self._columns.evaluate(train.batch, train.times)
        ways = part_of(keys, self._spec.cuts)
        left_out = np.zeros(len(train), np.bool_)
        if failed is not None:  # the part finds that out too, and says so
            left_out |= as_bools(failed)
            ways[left_out] = 0
        if self._spec.last_time:
            if train.late is not None:
                left_out |= as_bools(train.late)
            times = as_int64(train.times)[~left_out]
            self._last_us = max(self._last_us, int(times.max(initial=self._last_us)))
        return ways

    def _numbered(self, train: Train, numbers: Ints) -> Train:
        if self._spec.number is None:
            return train
        batch = train.batch.append_column(
            pa.field(self._spec.number, pa.int64()), pa.array(numbers, pa.int64())
        )
        return Train(batch=batch, times=train.times, late=train.late, kind=train.kind)

    def save_more(self, state: BoxState) -> None:
        state.meta["seen"] = self._seen
        if self._spec.last_time:
            state.meta["last_us"] = self._last_us

    def load_more(self, state: BoxState) -> None:
        seen, last_us = state.meta["seen"], state.meta.get("last_us", int(START_US))
        if type(last_us) is not int or not START_US <= last_us < END_US:
            raise ValueError(f"last_us is no time: {last_us!r}")
        if type(seen) is not int or not 0 <= seen < NUMBER_MAX:
            raise ValueError(f"seen is no number of rows: {seen!r}")
        self._seen, self._last_us = seen, last_us


def _picked(train: Train, rows: Ints) -> Train:
    at = pa.array(rows)
    return Train(
        batch=take(train.batch, at),
        times=None if train.times is None else take_array(train.times, at),
        late=None if train.late is None else take_array(train.late, at),
    )
