"""One part of a box that may lie on disk: its state, and the rows that came for it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, Element, Train
from medusa.engine.boxes.base import BoxState, Operator
from medusa.engine.boxes.spill_kind import Kind, PartLetters
from medusa.engine.rows import TIME, as_int64
from medusa.engine.runs import Run, cut_batch
from medusa.engine.spool import Spool, SpoolFile
from medusa.errors import StateError

__all__ = ["Form", "Given", "Saved", "SpillPart"]

WAITING_BYTES_MIN = 1 << 20
"""Rows beside a cold part up to which it is left alone, where they are folded into less."""

Form = tuple[pa.Schema, bool, bool]
"""What leaves: its columns, and whether times and marks of late rows stand behind them."""


class Given:
    """What a part gives by one port, as batches: columns, times, marks, and what they are in order of."""

    def __init__(self, kind: Kind, port: str, spool: Spool, bytes_max: int) -> None:
        self._kind = kind
        self._port = port
        self._spool = spool
        self._bytes_max = bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._nbytes = 0
        self._file: SpoolFile | None = None
        self.form: Form | None = None

    def append(self, item: tuple[int, Element]) -> None:
        """As a queue of a box."""
        train = item[1]
        if not isinstance(train, Train) or not len(train):
            return
        batch, order = self._kind.unpack(train, self._port)
        self.form = (batch.schema, train.times is not None, train.late is not None)
        columns = [*batch.columns, *(c for c in (train.times, train.late) if c is not None), *order]
        packed = pa.RecordBatch.from_arrays(columns, names=list(map(str, range(len(columns)))))
        self._batches += cut_batch(packed, self._bytes_max)
        self._nbytes += int(packed.nbytes)
        if self._nbytes > 2 * self._bytes_max:
            self._write()

    def _write(self) -> None:
        file = self._file or self._spool.file(self._batches[0].schema)
        try:
            file.append(self._batches)
        except StateError:  # it stays in memory
            return
        self._file = file
        self._batches, self._nbytes = [], 0

    def run(self) -> Run | None:
        """All of it, once."""
        if self.form is None:
            return None
        count = len(self._batches) + (0 if self._file is None else len(self._file))

        def each() -> Iterable[pa.RecordBatch]:
            yield from self._file or ()
            yield from self._batches

        return count, each()


class Saved:
    """State of a part, on disk or, where the disk takes nothing, in memory."""

    def __init__(self, meta: Mapping[str, Any], tables: Mapping[str, SpoolFile | pa.Table]) -> None:
        self.meta = dict(meta)
        self._tables = tables

    @classmethod
    def write(cls, spool: Spool, state: BoxState, chunk_bytes: int) -> Saved:
        """StateError: it couldn't be written."""
        tables = {}
        for name, table in state.tables.items():
            file = tables[name] = spool.file(table.schema)
            for batch in table.to_batches():
                if batch.num_rows:
                    file.append(cut_batch(batch, chunk_bytes))
        return cls(state.meta, tables)

    @property
    def table_rows(self) -> dict[str, int]:
        """Of each table."""
        return {
            name: table.rows if isinstance(table, SpoolFile) else table.num_rows
            for name, table in self._tables.items()
        }

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(self.table_rows.values())

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables.values())

    def read(self) -> BoxState:
        """StateError: it can't be read."""
        tables = {
            name: table if isinstance(table, pa.Table) else pa.Table.from_batches(list(table), table.schema)
            for name, table in self._tables.items()
        }
        return BoxState(meta=dict(self.meta), tables=tables)


class SpillPart:
    """Some keys of a box: hot (``box``) or cold.

    Attributes:
        saved: of a cold part; None: it holds nothing but the rows beside it.
        wake_us: of a cold part: no boundary below brings anything.
        nbytes: in memory.
        used: when it was needed last.
        late, dead: rows that its boxes counted, until somebody takes these numbers.
    """

    def __init__(self, kind: Kind, spool: Spool, letters: PartLetters, chunk_bytes: int) -> None:
        self._kind = kind
        self._spool = spool
        self._letters = letters
        self._chunk_bytes = chunk_bytes
        self.box: Operator | None = None
        self.saved: Saved | None = None
        self._state_wake_us = int(END_US)
        self.nbytes = 0
        self.used = 0
        self.late = self.dead = 0
        self._forget()

    def _forget(self) -> None:
        self._beside: list[list[pa.RecordBatch]] = [[] for _ in self._kind.plain.inputs_us]
        self._files: list[SpoolFile | None] = [None for _ in self._beside]
        self._beside_bytes = 0
        self._least_us = int(END_US)
        self.beside_rows = 0

    @property
    def wake_us(self) -> int:
        beside = self._least_us + self._kind.pending_us if self.beside_rows else int(END_US)
        return min(self._state_wake_us, beside)

    @property
    def cold_bytes(self) -> int:
        """About what it will take in memory."""
        files = sum(file.nbytes for file in self._files if file is not None)
        return files + self._beside_bytes + (0 if self.saved is None else self.saved.nbytes)

    @property
    def waits_too_much(self) -> bool:
        state = 0 if self.saved is None else self.saved.nbytes
        return self.cold_bytes - state > max(WAITING_BYTES_MIN, 2 * state)

    # Rows

    def add(self, input: int, train: Train) -> None:
        """Rows with their positions."""
        if self.box is not None:
            self.box.on_train(input, train)
            self.measure()
            return
        times = train.times
        self._least_us = min(self._least_us, int(as_int64(times).min()))
        self._beside[input].append(train.batch.append_column(pa.field("@time", TIME), times))
        self.beside_rows += len(train)
        size = int(train.batch.nbytes) + 8 * len(train)
        self._beside_bytes += size
        self.nbytes += size

    def measure(self) -> None:
        box = self.box
        if box is None:
            self.nbytes = self._beside_bytes
            return
        self.nbytes = box.state_bytes() + box.queue_bytes()
        self.late += box.late
        self.dead += box.dead
        box.late = box.dead = 0

    def flush(self, at_least: int = 0) -> None:
        """Write the rows beside to disk, if they take more than so many bytes.

        Raises:
            StateError: they couldn't be written, and stay.
        """
        if self._beside_bytes <= at_least:
            return
        for input, batches in enumerate(self._beside):
            if batches:
                whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
                file = self._files[input] or self._spool.file(whole[0].schema)
                file.append(piece for batch in whole for piece in cut_batch(batch, self._chunk_bytes))
                self._files[input] = file
                self._beside_bytes -= sum(int(batch.nbytes) for batch in batches)
                self._beside[input] = []
        self._beside_bytes = 0
        self.measure()

    # To disk and back

    def evict(self) -> None:
        """Be cold.

        Raises:
            StateError: the state couldn't be written; the part is hot as before.
        """
        box = self.box
        if box is None:
            return
        state = box.save()
        saved = Saved.write(self._spool, state, self._chunk_bytes)
        self.put(saved if saved.rows else None, self._kind.wake_us(state, box.input_us))
        self.box = None
        self.measure()

    def put(self, saved: Saved | None, wake_us: int) -> None:
        """Be cold, with this state."""
        self.saved, self._state_wake_us = saved, wake_us

    def load(self) -> Operator:
        """Be hot: as if the rows beside had come now.

        Raises:
            StateError: what is on disk can't be read; the part is as before.
        """
        if self.box is not None:
            return self.box
        box = self.empty() if self.saved is None else self.restored(self.saved.read())
        for input, batches in enumerate(self._beside):
            for source in (self._files[input], batches):
                held = list(source or ())
                if held:
                    for batch in pa.Table.from_batches(held).combine_chunks().to_batches():
                        *columns, times = batch.columns
                        rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])
                        box.on_train(input, Train(batch=rows, times=times))
        self.box, self.saved = box, None
        self._forget()
        self.measure()
        return box

    def empty(self) -> Operator:
        """A fresh box that holds nothing."""
        box = self._kind.make(self._letters)
        box.now = self._kind.plain.now
        return box

    def restored(self, state: BoxState) -> Operator:
        """ValueError, KeyError, TypeError: it isn't the state of a part."""
        box = self.empty()
        box.load(state)
        return box

    def snapshot(self) -> Saved:
        """The state, which the part keeps."""
        if self.box is None:
            if self.beside_rows:
                self.load()
                self._evict_or_stay()
            if self.box is None:
                return self.saved or self._of(self.empty())
        return self._of(self.box)

    def _evict_or_stay(self) -> None:
        try:
            self.evict()
        except StateError:
            return

    def _of(self, box: Operator) -> Saved:
        state = box.save()
        try:
            return Saved.write(self._spool, state, self._chunk_bytes)
        except StateError:
            return Saved(state.meta, state.tables)

    def answer(self, time_us: int) -> None:
        """Of a hot part: a boundary."""
        assert self.box is not None
        self.box.inputs_us[:] = [time_us] * len(self.box.inputs_us)
        self.box.on_boundary(time_us)
        self.measure()

    def end(self) -> None:
        """Hold nothing any more."""
        self.box = self.saved = None
        self._state_wake_us = int(END_US)
        self._forget()
        self.measure()
