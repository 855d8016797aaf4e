"""One part of a box that may lie on disk: its state, and the rows that came for it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

FILE_CHUNKS = 8
"""Of rows beside a part: so many times what is written at once lies in one file, which goes as a whole."""

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


class _Beside:
    """Rows of one input that a part hasn't been fed, in their order: files, then a buffer.

    Attributes:
        rows: of both.
        buffer_bytes: in memory.
    """

    def __init__(self, spool: Spool, chunk_bytes: int) -> None:
        self._spool = spool
        self._chunk_bytes = chunk_bytes
        self._files: list[tuple[SpoolFile, int]] = []  # and the least time in each
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_us = int(END_US)
        self.buffer_bytes = 0
        self.rows = 0

    @property
    def least_us(self) -> int:
        return min([self._buffer_us, *(least for _, least in self._files)])

    @property
    def file_bytes(self) -> int:
        return sum(file.nbytes for file, _ in self._files)

    def add(self, train: Train) -> int:
        """How many bytes more are in memory."""
        self._buffer_us = min(self._buffer_us, int(as_int64(train.times).min()))
        batch = train.batch.append_column(pa.field("@time", TIME), train.times)
        self._buffer.append(batch)
        self.rows += len(train)
        self.buffer_bytes += int(batch.nbytes)
        return int(batch.nbytes)

    def flush(self) -> None:
        """StateError: the buffer couldn't be written, and stays."""
        if not self._buffer:
            return
        whole = pa.Table.from_batches(self._buffer).combine_chunks().to_batches()
        file, least_us = self._files[-1] if self._files else (None, int(END_US))
        if file is None or file.nbytes >= FILE_CHUNKS * self._chunk_bytes:
            file, least_us = self._spool.file(whole[0].schema), int(END_US)
            self._files.append((file, least_us))
        try:
            file.append(piece for batch in whole for piece in cut_batch(batch, self._chunk_bytes))
        finally:
            self._files = [each for each in self._files if len(each[0])]
        self._files[-1] = (file, min(least_us, self._buffer_us))
        self._buffer, self._buffer_us, self.buffer_bytes = [], int(END_US), 0

    def due(self, boundary_us: int | None) -> int:
        """So many of the files, and one more for the buffer, until no later row is below a boundary."""
        if boundary_us is None:
            return len(self._files) + 1
        if self._buffer_us < boundary_us:
            return len(self._files) + 1
        late = [place for place, (_, least_us) in enumerate(self._files) if least_us < boundary_us]
        return late[-1] + 1 if late else 0

    def read(self, due: int) -> Iterator[Train]:
        """The first rows; they stay until ``drop``.

        Raises:
            StateError: they can't be read.
        """
        sources: list[Iterable[pa.RecordBatch]] = [file for file, _ in self._files[:due]]
        if due > len(self._files):
            sources.append(self._buffer)
        for source in sources:
            held = list(source)
            if held:
                for batch in pa.Table.from_batches(held).combine_chunks().to_batches():
                    *columns, times = batch.columns
                    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])
                    yield Train(batch=rows, times=times)

    def drop(self, due: int) -> None:
        """Forget the first rows."""
        self.rows -= sum(file.rows for file, _ in self._files[:due])
        if due > len(self._files):
            self.rows -= sum(batch.num_rows for batch in self._buffer)
            self._buffer, self._buffer_us, self.buffer_bytes = [], int(END_US), 0
        self._files = self._files[due:]


class SpillPart:
    """Some keys of a box: hot (``box``) or cold. Beside it stand rows that it hasn't been fed.

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
        self._beside = [_Beside(self._spool, self._chunk_bytes) for _ in self._kind.plain.inputs_us]

    @property
    def beside_rows(self) -> int:
        return sum(each.rows for each in self._beside)

    @property
    def wake_us(self) -> int:
        beside = min(each.least_us for each in self._beside)
        return min(self._state_wake_us, beside + self._kind.pending_us)

    @property
    def _beside_bytes(self) -> int:
        return sum(each.buffer_bytes for each in self._beside)

    @property
    def cold_bytes(self) -> int:
        """About what it will take in memory."""
        files = sum(each.file_bytes for each in self._beside)
        return files + self._beside_bytes + (0 if self.saved is None else self.saved.nbytes)

    @property
    def waits_too_much(self) -> bool:
        state = 0 if self.saved is None else self.saved.nbytes
        return self.cold_bytes - state > max(WAITING_BYTES_MIN, 2 * state)

    # Rows

    def add(self, input: int, train: Train) -> None:
        """Rows with their positions."""
        if self.box is not None and not self.beside_rows:
            self.box.on_train(input, train)
            self.measure()
            return
        self.nbytes += self._beside[input].add(train)

    def measure(self) -> None:
        box = self.box
        self.nbytes = self._beside_bytes
        if box is not None:
            self.nbytes += box.state_bytes() + box.queue_bytes()
            self.late += box.late
            self.dead += box.dead
            box.late = box.dead = 0

    def flush(self, at_least: int = 0) -> None:
        """Write the rows beside to disk, if they take more than so many bytes.

        Raises:
            StateError: they couldn't be written, and stay.
        """
        if self._beside_bytes > at_least:
            for each in self._beside:
                each.flush()
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

    def load(self, boundary_us: int | None = None) -> Operator:
        """Be hot, and fed the rows beside.

        Args:
            boundary_us: rows from there on may stay beside; None: none may.

        Raises:
            StateError: what is on disk can't be read; the part holds what it held.
        """
        box = self.box
        if box is None:
            box = self._fresh()
        dues = self._feed(box, boundary_us)
        for each, due in zip(self._beside, dues, strict=True):
            each.drop(due)
        self.box, self.saved = box, None
        self.measure()
        return box

    def _fresh(self) -> Operator:
        return self.empty() if self.saved is None else self.restored(self.saved.read())

    def _feed(self, box: Operator, boundary_us: int | None) -> list[int]:
        dues = [each.due(boundary_us) for each in self._beside]
        for input, (each, due) in enumerate(zip(self._beside, dues, strict=True)):
            for train in each.read(due):
                box.on_train(input, train)
        return dues

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
        """The state, rows beside too; the part is unchanged.

        Raises:
            StateError: what is on disk can't be read.
        """
        if self.box is None:
            if self.saved is not None and not self.beside_rows:
                return self.saved
            box = self._fresh()
        elif self.beside_rows:
            box = self.restored(self.box.save())
        else:
            box = self.box
        if self.beside_rows:
            self._feed(box, None)
        return self._of(box)

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
