"""The history of a connection point: numbered rows that stay for a while, to be read again.

Aurora's connection points (Carney et al., VLDB 2002, 2.2) keep the last part of a stream for queries that
come later. Here that is pure logic over the ``Segments`` port: which rows make a record, where a segment
ends, what is trimmed, and reading.

How a reader goes on live, without gap or repeat. All of it within one turn of the run, when the fragment
is at rest; ``box`` is ``fragment.connection(name)``::

    history = box.history                 # None: this fragment keeps none
    history.oldest_seq, history.next_seq  # numbers of the oldest row kept, and of the next that comes
    history.oldest_us, history.most_us    # times: the least one kept, the largest of all
    seq = history.seq_at(time_us)         # of the first row kept with that time or a later one
    since_us = history.complete_from(seq) # all rows of that time or later have numbers from seq on
    for element in history.read(seq):     # boundaries and numbered trains, up to the last row there is
        other.feed(source, element)
    box.watch(call)                       # from now on call(element): every numbered train and boundary
    box.boundary_us                       # which ``read`` doesn't end with

``read`` may be left and begun again at another number, in another turn, until it has caught up; rows that
were trimmed meanwhile raise ``StateError`` (``state.trimmed``). Trains keep the marks of late rows, so a
judged source takes them as they come. Early results are not kept, and are not given to watchers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.core.rows import as_int64
from medusa.engine.history.records import (
    ENTRY_BYTES,
    HEAD_BYTES,
    RecordEntry,
    decode,
    encode,
    full_schema,
    head,
    pack,
    unpack,
)
from medusa.errors import StateError
from medusa.ports import Segments

__all__ = ["MEMORY_BYTES", "RECORD_BYTES", "RECORD_ROWS", "SEGMENT_BYTES", "History", "Segment"]

MEMORY_BYTES = 64 << 20
"""Of a history in memory that isn't told how many."""

SEGMENT_BYTES = 64 << 20
RECORD_BYTES = 1 << 20
RECORD_ROWS = 8192
"""Rows that wait to become one record: then 72 bytes of index and a call of the system are little."""

PARTS = 8
"""Segments in what is to be kept, at least: so much more than asked for is kept, or less than allowed."""


@dataclass(slots=True)
class Segment:
    """What is known of a segment.

    Attributes:
        rows_bytes: of its rows file, as far as it counts.
        most_us: the largest time in it.
    """

    first: int
    rows_bytes: int
    entries: list[RecordEntry] = field(default_factory=list)
    most_us: int = int(START_US)

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.first

    @property
    def index_bytes(self) -> int:
        return HEAD_BYTES + ENTRY_BYTES * len(self.entries)

    @property
    def is_damaged(self) -> bool:
        """Some of its index is: nothing is added to it any more."""
        return any(entry.sum is None for entry in self.entries)

    def add(self, entry: RecordEntry) -> None:
        self.entries.append(entry)
        self.rows_bytes = entry.start + entry.length
        if entry.rows:
            self.most_us = max(self.most_us, entry.most_us)


class History:
    """Rows of one stream, numbered from 0. ``medusa.engine.history.opening`` opens it.

    Args:
        keep_us: rows so much older than the boundary may be trimmed; None: no age is too old.
        keep_bytes: what it may take; None: on disk as much as there is, else ``MEMORY_BYTES``.

    Attributes:
        next_seq: number of the next row.
        most_us: the largest time of all rows so far.
        durable_seq: rows below are synced: they survive a power cut.
        trimmed: rows that were trimmed since this history was opened.
        broken: writing failed: nothing more is taken.
    """

    def __init__(
        self,
        segments: Segments,
        schema: pa.Schema,
        *,
        timed: bool,
        keep_us: int | None,
        keep_bytes: int | None,
    ) -> None:
        self.port = segments
        self.schema = schema
        self.timed = timed
        self.full_schema = full_schema(schema, timed=timed)
        self.retain(keep_us, keep_bytes)
        self.segments: list[Segment] = []
        self.next_seq = 0
        self.most_us = int(START_US)
        self.durable_seq = 0
        self.trimmed = 0
        self._bytes = 0
        self._boundary_us = int(START_US)
        self._waiting: list[Train] = []
        self._waiting_firsts: list[int] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._waiting_us = int(START_US)
        self._dirty = self._grown = False
        self._damaged: Segment | None = None
        self._unsettled: Callable[[], None] | None = None
        self.broken = False

    def retain(self, keep_us: int | None, keep_bytes: int | None) -> None:
        """Keep so much from now on; see the arguments. What is too much goes with the next rows."""
        if keep_bytes is None and self.port.memory:
            keep_bytes = MEMORY_BYTES
        self._keep_us, self._keep_bytes = keep_us, keep_bytes
        self._segment_bytes = SEGMENT_BYTES if keep_bytes is None else min(SEGMENT_BYTES, keep_bytes // PARTS)
        self._record_bytes = min(RECORD_BYTES, self._segment_bytes // 4)

    def take_over(self, segments: list[Segment], next_seq: int, most_us: int) -> None:
        """Go on behind what was opened: nothing of it waits, all of it is synced."""
        self.segments = segments
        self.next_seq = self.durable_seq = next_seq
        self.most_us = most_us
        self._damaged = segments[-1] if segments and segments[-1].is_damaged else None
        self._bytes = sum(map(self._bytes_of, segments))

    def note_newest(self, most_us: int) -> None:
        """There were rows of this time before those that it holds."""
        self.most_us = max(self.most_us, most_us)

    def settle_by(self, change: Callable[[], None]) -> None:
        """Before these files are written to, ``change`` makes them what was taken over."""
        self._unsettled = change

    def settle(self) -> None:
        """Change the files, where what was taken over asks for it.

        Raises:
            StateError: that failed; the history must not go on.
        """
        change, self._unsettled = self._unsettled, None
        if change is not None:
            try:
                change()
            except BaseException:
                self.broken = True
                raise

    # What is asked about it

    @property
    def settled(self) -> bool:
        """The files are what was taken over."""
        return self._unsettled is None

    @property
    def oldest_seq(self) -> int:
        """Number of the oldest row that is kept; ``next_seq`` where none is."""
        if self.segments:
            return self.segments[0].first
        return self._written

    @property
    def rows(self) -> int:
        """How many are kept."""
        return self.next_seq - self.oldest_seq

    @property
    def nbytes(self) -> int:
        """What it takes: of files, and of rows that wait to be written."""
        return self._bytes + self._waiting_bytes

    @property
    def memory_bytes(self) -> int:
        """What it takes of memory."""
        if self.port.memory:
            return self.nbytes
        return self._waiting_bytes + sum(len(segment.entries) for segment in self.segments) * 2 * ENTRY_BYTES

    @property
    def oldest_us(self) -> int | None:
        """The least time among the rows that are kept; None: no rows, or no time."""
        if not self.timed or not self.rows:
            return None
        return min((entry.least_us for _, entry in self.records() if entry.sum is not None), default=None)

    def _bytes_of(self, segment: Segment) -> int:
        return segment.rows_bytes + segment.index_bytes * (1 if self.port.memory else 2)

    @property
    def _written(self) -> int:
        """Number of the first row that waits to be written."""
        return self.next_seq - self._waiting_rows

    # Rows in

    def append(self, train: Train, boundary_us: int) -> None:
        """Take rows that ``next_seq`` begins with.

        Args:
            boundary_us: what the stream had promised before them.

        Raises:
            StateError: they couldn't be written; the history must not go on.
        """
        self.hold(train, boundary_us)
        if self._waiting_rows >= RECORD_ROWS or self._waiting_bytes >= self._record_bytes:
            self.write()
        if self._grown:
            self._trim()

    def hold(self, train: Train, boundary_us: int) -> None:
        """Take rows as ``append``, but write none."""
        if not self._waiting:
            self._waiting_us = boundary_us
        self._waiting.append(train)
        self._waiting_firsts.append(self.next_seq)
        rows = len(train)
        self.next_seq += rows
        self._waiting_rows += rows
        self._waiting_bytes += int(train.batch.nbytes) + 8 * rows

    def write(self) -> None:
        """Write the rows that wait. It trims nothing, so who looks sees what was there before.

        Raises:
            StateError: as ``append``.
        """
        if not self._waiting:
            return
        self._begin()
        packed = [pack(train, self.full_schema) for train in self._waiting]
        whole = packed[0] if len(packed) == 1 else pa.concat_batches(packed)
        step = whole.num_rows
        if self._waiting_bytes > self._record_bytes:
            step = max(1, step * self._record_bytes // self._waiting_bytes)
        seq = self._written
        for start in range(0, whole.num_rows, step):
            part = whole.slice(start, step)
            self._record(part, seq + start)
        self._waiting, self._waiting_firsts = [], []
        self._waiting_rows = self._waiting_bytes = 0
        self.broken = False
        self._grown = True

    def mark(self, boundary_us: int) -> None:
        """Note what the stream has promised behind its last row, for who reads the files later."""
        self.write()
        last = self.segments[-1].entries[-1] if self.segments and self.segments[-1].entries else None
        if last is not None and boundary_us > last.boundary_us:
            self._begin()
            self._waiting_us = boundary_us
            nothing = [pa.nulls(0, each.type) for each in self.full_schema]
            self._record(pa.RecordBatch.from_arrays(nothing, schema=self.full_schema), self.next_seq)
            self.broken = False

    def _begin(self) -> None:
        """Before files change; after a change that failed it can't be known what they hold."""
        self.settle()
        if self.broken:
            raise StateError(
                f"{self.port.where(self.oldest_seq)}: writing failed before", code="state.history"
            )
        self.broken = True

    def _record(self, batch: pa.RecordBatch, first: int) -> None:
        least = most = int(START_US)
        if self.timed and batch.num_rows:
            times = as_int64(batch.column(len(self.full_schema) - 2))
            least, most = int(times.min()), int(times.max())
        data, sum = encode(batch)
        segment = self._open_segment(first)
        entry = RecordEntry(
            first=first,
            rows=batch.num_rows,
            start=segment.rows_bytes,
            length=len(memoryview(data)),
            boundary_us=self._waiting_us,
            least_us=least,
            most_us=most,
            before_us=self.most_us,
            sum=sum,
        )
        before = self._bytes_of(segment)
        self._dirty = True
        self.port.append(data, entry.encoded())
        segment.add(entry)
        self._bytes += self._bytes_of(segment) - before
        self.most_us = max(self.most_us, most)

    def _open_segment(self, first: int) -> Segment:
        last = self.segments[-1] if self.segments else None
        if last is not None and not self._is_full(last):
            return last
        rows, index = head(self.full_schema)
        self.port.begin(first, rows, index)
        self.durable_seq = first
        made = Segment(first, len(memoryview(rows)))
        self.segments.append(made)
        self._bytes += self._bytes_of(made)
        return made

    def _is_full(self, segment: Segment) -> bool:
        if segment.end == segment.first:
            return False
        if segment.rows_bytes >= self._segment_bytes or self._damaged is segment:
            return True
        return self._spans_a_part(max(segment.entries[0].boundary_us, segment.entries[0].least_us))

    def _spans_a_part(self, since_us: int) -> bool:
        """Whether so much time has passed since that rows should become a unit that can be trimmed."""
        return self._keep_us is not None and self._boundary_us - since_us > max(1, self._keep_us // PARTS)

    def trim(self, boundary_us: int) -> None:
        """Forget whole segments that are too old, or too many.

        Args:
            boundary_us: of the stream; its end makes no row older.
        """
        if boundary_us < END_US:
            self._boundary_us = max(self._boundary_us, boundary_us)
        if self._waiting and self._spans_a_part(self._waiting_us):
            self.write()
        self._trim()

    def _trim(self) -> None:
        self._grown = False
        while self.settled and self.segments and self._may_go(self.segments[0]):
            gone = self.segments[0]
            self.port.remove(gone.first)
            del self.segments[0]
            self._bytes -= self._bytes_of(gone)
            self.trimmed += gone.end - gone.first

    def _may_go(self, oldest: Segment) -> bool:
        if oldest.end == oldest.first:
            return False
        if self._keep_us is not None and oldest.most_us < self._boundary_us - self._keep_us:
            return True
        if self._keep_bytes is None or len(self.segments) == 1:
            return False
        return self._bytes + 2 * self._record_bytes > self._keep_bytes  # room for the rows that wait

    def sync(self) -> None:
        """Write what waits; when this returns all rows survive a power cut. Raises as ``append``."""
        self.write()
        if self._dirty:
            self._begin()
            self.port.sync()
            self._dirty = self.broken = False
        self.durable_seq = self.next_seq

    # Reading

    def read(self, seq: int) -> Iterator[Element]:
        """Boundaries and numbered trains from row ``seq`` on, up to the last one there is.

        Raises:
            StateError: the row was trimmed, or its record is damaged: names the file.
        """
        told = int(START_US)
        while seq < self.next_seq:
            if seq >= self._written:  # who follows the stream row by row makes no records of single rows
                boundary_us = self._waiting_us
                at = bisect_right(self._waiting_firsts, seq) - 1
                train = numbered(self._waiting[at], self._waiting_firsts[at])
            else:
                segment, entry = self._find(seq)
                boundary_us, train = entry.boundary_us, self.load(segment, entry)
            if told < boundary_us:
                told = boundary_us
                yield Boundary(told)
            first, seq = seq, train.first_seq + len(train)
            skip = first - train.first_seq
            yield train.part(skip, len(train) - skip)

    def records(self) -> Iterator[tuple[Segment, RecordEntry]]:
        """All records with rows that are kept, oldest first."""
        self.write()
        for segment in self.segments:
            for entry in segment.entries:
                if entry.rows:
                    yield segment, entry

    def seq_at(self, time_us: int) -> int:
        """Number of the first row that is kept with this time or a later one; ``next_seq``: none is.

        Raises:
            StateError: a record is damaged.
        """
        for segment, entry in self.records():
            if entry.most_us >= time_us:
                times = as_int64(self.load(segment, entry).times)
                found = np.flatnonzero(times >= time_us)
                if len(found):
                    return entry.first + int(found[0])
        return self.next_seq

    def complete_from(self, seq: int) -> int:
        """The least time such that all rows so far of that time or a later one have numbers from ``seq`` on.

        Raises:
            StateError: the row was trimmed, or its record is damaged.
        """
        self.write()
        before_us = self.most_us
        if seq < self.next_seq:
            segment, entry = self._find(seq)
            before_us = entry.before_us
            if seq > entry.first and self.timed:
                times = as_int64(self.load(segment, entry).times)
                before_us = max(before_us, int(times[: seq - entry.first].max()))
        return int(START_US) if before_us <= START_US else before_us + 1

    def _find(self, seq: int) -> tuple[Segment, RecordEntry]:
        if seq < self.oldest_seq:
            raise StateError(
                f"{self.port.where(self.oldest_seq)}: row {seq} was trimmed, the oldest kept is"
                f" {self.oldest_seq}",
                hint="read from a later row, or keep more",
                code="state.trimmed",
            )
        segment = self.segments[bisect_right(self.segments, seq, key=lambda each: each.first) - 1]
        at = bisect_right(segment.entries, seq, key=lambda each: each.first) - 1
        while not segment.entries[at].rows:
            at -= 1
        return segment, segment.entries[at]

    def load(self, segment: Segment, entry: RecordEntry) -> Train:
        """The rows of a record.

        Raises:
            StateError: it is damaged: names the file.
        """
        data = self.port.read(segment.first, entry.start, entry.length)
        try:
            batch = decode(data, entry, self.full_schema, timed=self.timed)
        except ValueError as error:
            file = "index" if entry.sum is None else "rows"
            before, after = (self.oldest_seq, entry.first), (entry.end, self.next_seq)
            others = before if after[0] >= after[1] else after
            raise StateError(
                f"{self.port.where(segment.first, file)}: rows {entry.first} to {entry.end - 1} are damaged:"
                f" {error}",
                hint=f"other rows can be read, by view and md.read_history: rows={others}",
                code="state.corrupt",
            ) from None
        return unpack(batch, self.schema, timed=self.timed, first=entry.first)


def numbered(train: Train, first_seq: int) -> Train:
    """The same rows under their numbers."""
    return Train(batch=train.batch, times=train.times, first_seq=first_seq, late=train.late)
