"""One part of a box that may lie on disk: its state, and the rows that came for it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, Element, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.rows import TIME, as_int64
from medusa.engine.core.sorted_runs import Run, cut_batch
from medusa.engine.core.spool import Spool, SpoolFile
from medusa.engine.operators.spill.spill_kind import PartLetters, SpillKind
from medusa.errors import StateError

__all__ = ["Form", "PartOutput", "SavedPart", "SpillPart"]

FILE_CHUNKS = 8
"""Of rows beside a part: so many times what is written at once lies in one file, which goes as a whole."""

WAITING_BYTES_MIN = 1 << 20
"""Rows beside a cold part up to which it is left alone, where they are folded into less."""

Form = tuple[pa.Schema, bool, bool]
"""What leaves: its columns, and whether times and marks of late rows stand behind them."""


class PartOutput:
    """What a part gives by one port, as batches: columns, times, marks, and what they are in order of."""

    def __init__(self, kind: SpillKind, port: str, spool: Spool, bytes_max: int) -> None:
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


class SavedPart:
    """State of a part, on disk or, where the disk takes nothing, in memory."""

    def __init__(self, meta: Mapping[str, Any], tables: Mapping[str, SpoolFile | pa.Table]) -> None:
        self.meta = dict(meta)
        self._tables = tables

    @classmethod
    def write(cls, spool: Spool, state: BoxState, chunk_bytes: int) -> SavedPart:
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


@dataclass(slots=True)
class _Lot:
    """Rows beside a part in one file: of each batch the least time, and how many rows; the first were fed."""

    file: SpoolFile
    least_us: list[int]
    rows: list[int]
    fed: int = 0


class _Beside:
    """Rows of one input that a part hasn't been fed, in their order: files, then a buffer.

    Attributes:
        rows: of both.
        buffer_bytes: in memory.
    """

    def __init__(self, spool: Spool, chunk_bytes: int) -> None:
        self._spool = spool
        self._chunk_bytes = chunk_bytes
        self._lots: list[_Lot] = []
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_us = int(END_US)
        self.buffer_bytes = 0
        self.rows = 0

    @property
    def least_us(self) -> int:
        return min([self._buffer_us, *(each for lot in self._lots for each in lot.least_us[lot.fed :])])

    @property
    def file_bytes(self) -> int:
        return sum(lot.file.nbytes for lot in self._lots)

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
        pieces = [piece for batch in whole for piece in cut_batch(batch, self._chunk_bytes)]
        lot = self._lots[-1] if self._lots else None
        if lot is None or lot.file.nbytes >= FILE_CHUNKS * self._chunk_bytes:
            lot = _Lot(self._spool.file(pieces[0].schema), [], [])
        lot.file.append(pieces)
        lot.least_us += [int(as_int64(piece.column(piece.num_columns - 1)).min()) for piece in pieces]
        lot.rows += [piece.num_rows for piece in pieces]
        if not self._lots or self._lots[-1] is not lot:
            self._lots.append(lot)
        self._buffer, self._buffer_us, self.buffer_bytes = [], int(END_US), 0

    def due(self, boundary_us: int | None) -> int:
        """So many batches on disk, and one more for the buffer, until no later row is below a boundary."""
        least = [each for lot in self._lots for each in lot.least_us[lot.fed :]]
        if boundary_us is None or self._buffer_us < boundary_us:
            return len(least) + 1
        return max((place + 1 for place, each in enumerate(least) if each < boundary_us), default=0)

    def read(self, due: int) -> Iterator[Train]:
        """The first rows; they stay until ``drop``.

        Raises:
            StateError: they can't be read.
        """
        for batch in self._first(due):
            *columns, times = batch.columns
            rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])
            yield Train(batch=rows, times=times)

    def _first(self, due: int) -> Iterator[pa.RecordBatch]:
        for lot in self._lots:
            stop = min(lot.fed + due, len(lot.rows))
            due -= stop - lot.fed
            yield from lot.file.batches(lot.fed, stop)
        if due and self._buffer:
            yield from pa.Table.from_batches(self._buffer).combine_chunks().to_batches()

    def drop(self, due: int) -> None:
        """Forget the first rows."""
        for lot in self._lots:
            stop = min(lot.fed + due, len(lot.rows))
            due -= stop - lot.fed
            self.rows -= sum(lot.rows[lot.fed : stop])
            lot.fed = stop
        if due:
            self.rows -= sum(batch.num_rows for batch in self._buffer)
            self._buffer, self._buffer_us, self.buffer_bytes = [], int(END_US), 0
        self._lots = [lot for lot in self._lots if lot.fed < len(lot.rows)]


class SpillPart:
    """Some keys of a box: hot (``box``) or cold. Beside it stand rows that it hasn't been fed.

    Attributes:
        saved: of a cold part; None: it holds nothing but the rows beside it.
        wake_us: of a cold part: no boundary below brings anything.
        nbytes: in memory.
        used: when it was needed last.
        late, dead: rows that its boxes counted, until somebody takes these numbers over.
    """

    def __init__(self, kind: SpillKind, spool: Spool, letters: PartLetters, chunk_bytes: int) -> None:
        self._kind = kind
        self._spool = spool
        self._letters = letters
        self._chunk_bytes = chunk_bytes
        self.box: Operator | None = None
        self.saved: SavedPart | None = None
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

    def needed(self, turn: int) -> None:
        """Some turn needs it."""
        self.used = turn

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
            _, late, dead = box.hand_over_counts()
            self.late += late
            self.dead += dead

    def hand_over_counts(self) -> tuple[int, int]:
        """Rows of its boxes that were late and that died, since this was asked last."""
        counts = self.late, self.dead
        self.late = self.dead = 0
        return counts

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
        saved = SavedPart.write(self._spool, state, self._chunk_bytes)
        self.put(saved if saved.rows else None, self._kind.wake_us(state, box.input_us))
        self.box = None
        self.measure()

    def put(self, saved: SavedPart | None, wake_us: int) -> None:
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
        return self._kind.fresh(self._letters)

    def restored(self, state: BoxState) -> Operator:
        """ValueError, KeyError, TypeError: it isn't the state of a part."""
        box = self.empty()
        box.load(state)
        return box

    def snapshot(self) -> SavedPart:
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

    def _of(self, box: Operator) -> SavedPart:
        state = box.save()
        try:
            return SavedPart.write(self._spool, state, self._chunk_bytes)
        except StateError:
            return SavedPart(state.meta, state.tables)

    def answer(self, time_us: int) -> None:
        """Of a hot part: a boundary."""
        assert self.box is not None
        self.box.inputs_us[:] = [time_us] * len(self.box.inputs_us)
        self.box.on_boundary(time_us)
        self.measure()
        if self.nbytes == self._beside_bytes:
            self.evict()  # it holds no rows: nothing is written, and its indexes go

    def end(self) -> None:
        """Hold nothing any more."""
        self.box = self.saved = None
        self._state_wake_us = int(END_US)
        self._forget()
        self.measure()
