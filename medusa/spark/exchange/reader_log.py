"""The rows of a stream on a gateway's disk: in order, by their numbers, from when the node gave them until
Spark has committed what came of them.

The files are those of a history (``medusa.engine.history.records``): segments of record batches, each under
a CRC-32C, with the late mark of each row and the boundary that stood before it. Only what is synced is
shown to Spark and acknowledged at the node; what a killed gateway had not synced comes from there again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from medusa.elements import START_US, Train
from medusa.engine.history.records import (
    ENTRY_BYTES,
    HEAD_BYTES,
    RecordEntry,
    decode,
    encode,
    full_schema,
    head,
    merged_index,
    pack,
    plain_schema,
    read_entries,
    read_head,
    unpack,
)
from medusa.errors import LinkError, StateError
from medusa.ports import Segments
from medusa.query.boxes import Field, Schema
from medusa.query.types import from_arrow

__all__ = ["RECORD_BYTES", "ReadRows", "ReaderLog", "columns_of", "schema_of"]

SEGMENT_BYTES = 16 << 20
PARTS = 8
"""Segments in what may be kept, at least."""

RECORD_BYTES = 1 << 20
CUTS_MAX = 10_000
SCHEMA_BYTES_MAX = 1 << 24


@dataclass(slots=True)
class _Segment:
    first: int
    rows_bytes: int
    entries: list[RecordEntry] = field(default_factory=list)

    def add(self, entry: RecordEntry) -> None:
        self.entries.append(entry)
        self.rows_bytes += entry.length

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.first

    @property
    def nbytes(self) -> int:
        return self.rows_bytes + HEAD_BYTES + ENTRY_BYTES * len(self.entries)


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows that were read.

    Attributes:
        train: numbered, with late marks; None: the rows asked for are missing, all of them.
        boundary_us: no row from the first on has a time below it, but those that are late.
        next: the number to read from next.
    """

    train: Train | None
    boundary_us: int
    next: int


class ReaderLog:
    """What is kept of one stream for one reader.

    Args:
        port: where; what is there is taken over.
        schema: of the stream.
        bytes_max: of rows that nobody has read; with that it is full.

    Attributes:
        next_seq: number of the row that comes next.
        durable_seq: rows below are synced, and shown.
        missing_rows: between rows that came since it was opened, or were here then.
        promised_us: no row behind those shown has a time below it, but those that are late.

    Raises:
        StateError: what is there is damaged, or of other columns.
    """

    def __init__(self, port: Segments, schema: pa.Schema, *, bytes_max: int) -> None:
        self._port = port
        self.schema = schema
        self._full_schema = full_schema(schema, timed=False)
        self._bytes_max = bytes_max
        self._segment_bytes = max(min(SEGMENT_BYTES, bytes_max // PARTS), 1)
        self._segments: list[_Segment] = []
        self._waiting: list[tuple[Train, int]] = []
        self.waiting_bytes = 0
        self._committed: int | None = None
        self._read_to = 0
        self._broken = False
        self.next_seq = self.durable_seq = 0
        self.missing_rows = 0
        self.promised_us = self._promising_us = int(START_US)
        self._open()

    # --- opening ----------------------------------------------------------------------------------

    def _open(self) -> None:
        names = self._port.names()
        for place, first in enumerate(names):
            made = self._segment(first, last=place == len(names) - 1)
            if made is not None:
                self._segments.append(made)
        if self._segments:
            last = self._segments[-1]
            entries = b"".join(entry.encoded() for entry in last.entries)
            self._port.rewrite_index(last.first, head(self._full_schema)[1] + entries)
            self._port.cut(last.first, last.rows_bytes, HEAD_BYTES + len(entries))
            self.next_seq = self.durable_seq = last.end
            held = sum(entry.rows for segment in self._segments for entry in segment.entries)
            self.missing_rows = last.end - self._segments[0].first - held
            self._read_to = self._segments[0].first

    def _segment(self, first: int, *, last: bool) -> _Segment | None:
        """None: it was just being begun."""
        index = merged_index(self._port.indexes(first))
        beginning = self._port.read(first, 0, SCHEMA_BYTES_MAX)
        try:
            start = read_head(index, beginning)
        except ValueError as error:
            raise StateError(f"{self._port.where(first, 'index')}: {error}", code="state.version") from None
        if start is None:
            begun = len(memoryview(head(self._full_schema)[0]))
            if not last or len(memoryview(self._port.read(first, begun, 1))):
                raise self._damaged(first)
            self._port.remove(first)
            return None
        if bytes(memoryview(beginning).cast("B")[:start]) != bytes(head(self._full_schema)[0]):
            raise StateError(
                f"{self._port.where(first)}: holds other columns than the stream has",
                hint="the stream was defined anew: forget this reader, and read under another name",
                code="state.columns",
            )
        made = _Segment(first, start)
        for entry in read_entries(index):
            if entry is None or not self._follows(made, entry, check=last):
                if not last:
                    raise self._damaged(first)
                break  # It wasn't synced, so nobody was told of it.
            made.add(entry)
        return made

    def _follows(self, segment: _Segment, entry: RecordEntry, *, check: bool) -> bool:
        if entry.start != segment.rows_bytes or entry.first < segment.end or entry.rows < 1:
            return False
        if not check:
            return True
        try:
            self._decoded(segment, entry)
        except StateError:
            return False
        return True

    def _damaged(self, first: int) -> StateError:
        return StateError(
            f"{self._port.where(first)}: is damaged",
            hint="forget this reader, and read under another name",
            code="state.corrupt",
        )

    def begin(self, seq: int) -> None:
        """Where nothing is there yet: the first row will have this number, or a higher one."""
        if not self._segments and not self._waiting:
            self.next_seq = self.durable_seq = self._read_to = seq

    # --- rows in ----------------------------------------------------------------------------------

    @property
    def earliest(self) -> int:
        """Number of the oldest row that is kept; ``durable_seq`` where none is."""
        return self._segments[0].first if self._segments else self.durable_seq

    @property
    def read_seq(self) -> int:
        """Rows below were read, as far as it was told since it was opened."""
        return max(self._read_to, self.earliest)

    @property
    def full(self) -> bool:
        """Rows that nobody has read take all the room there is: take no more from the node."""
        unread = sum(each.nbytes for each in self._segments if each.end > self._read_to)
        return unread + self.waiting_bytes >= self._bytes_max

    @property
    def nbytes(self) -> int:
        """On disk."""
        return sum(each.nbytes for each in self._segments)

    def append(self, train: Train, boundary_us: int) -> None:
        """Take rows behind all others; they count once ``sync`` has returned.

        Args:
            train: its number may lie above ``next_seq``: then rows are missing for good.
            boundary_us: what the stream had promised before them.
        """
        assert train.first_seq >= self.next_seq, "rows come in order"
        self.missing_rows += train.first_seq - self.next_seq
        self._waiting.append((train, boundary_us))
        self.waiting_bytes += int(train.batch.nbytes) + 8 * len(train)
        self.next_seq = train.first_seq + len(train)

    def promise(self, time_us: int) -> None:
        """No row behind those that were taken so far has a time below it, but those that are late."""
        self._promising_us = max(self._promising_us, time_us)
        if not self._waiting:
            self.promised_us = self._promising_us

    def sync(self) -> None:
        """Make all rows durable.

        Raises:
            StateError: they couldn't be written; this spool takes no more, and a new one goes on from what
                is on disk.
        """
        if self._broken:
            raise StateError(f"{self._port.where(self.earliest)}: writing failed before", code="state.spool")
        if not self._waiting:
            return
        self._broken = True
        waiting, self._waiting, self.waiting_bytes = self._waiting, [], 0
        for group in _runs(waiting):
            self._record(group)
        self._port.sync()
        self._broken = False
        self.durable_seq = self.next_seq
        self.promised_us = self._promising_us

    def _record(self, group: list[tuple[Train, int]]) -> None:
        packed = [pack(train, self._full_schema) for train, _ in group]
        batch = packed[0] if len(packed) == 1 else pa.concat_batches(packed)
        data, sum = encode(batch)
        first, boundary_us = group[0][0].first_seq, group[0][1]
        segment = self._open_segment(first)
        entry = RecordEntry(
            first=first,
            rows=batch.num_rows,
            start=segment.rows_bytes,
            length=memoryview(data).nbytes,
            boundary_us=boundary_us,
            least_us=int(START_US),
            most_us=int(START_US),
            before_us=int(START_US),
            sum=sum,
        )
        self._port.append(data, entry.encoded())
        segment.add(entry)

    def _open_segment(self, first: int) -> _Segment:
        if self._segments and self._segments[-1].rows_bytes < self._segment_bytes:
            return self._segments[-1]
        rows, index = head(self._full_schema)
        self._port.begin(first, rows, index)
        made = _Segment(first, memoryview(rows).nbytes)
        self._segments.append(made)
        return made

    # --- rows out ---------------------------------------------------------------------------------

    def read(self, lo: int, hi: int, nbytes: int = RECORD_BYTES) -> ReadRows:
        """Rows from ``lo`` on, before ``hi``: of neighbouring records as many as have about ``nbytes``.

        Raises:
            LinkError: they were let go (``E_GONE``), or aren't there yet (``E_SEQ``).
            StateError: their bytes are damaged.
        """
        self._check(lo, hi)
        trains: list[Train] = []
        boundary_us, size, at = int(START_US), 0, lo
        for segment, entry in self._entries(lo, hi):
            if trains and (entry.first != at or size >= nbytes):
                return ReadRows(_joined(trains), boundary_us, at)
            train = self._decoded(segment, entry)
            first = max(entry.first, lo)
            last = min(entry.end, hi)
            if not trains:
                boundary_us = entry.boundary_us
            trains.append(train.part(first - entry.first, last - first))
            size += entry.length
            at = last
        return ReadRows(_joined(trains) if trains else None, boundary_us, at if trains else hi)

    def cuts(self, lo: int, hi: int, nbytes: int) -> list[int]:
        """Rows between ``lo`` and ``hi`` at which a part of about ``nbytes`` begins.

        Raises:
            LinkError: as ``read``.
        """
        self._check(lo, hi)
        entries = [entry for _, entry in self._entries(lo, hi)]
        nbytes = max(nbytes, sum(entry.length for entry in entries) // CUTS_MAX)
        found: list[int] = []
        held = 0
        for entry in entries:
            if held >= nbytes and entry.first > lo:
                found.append(entry.first)
                held = 0
            held += entry.length
        return found

    def _check(self, lo: int, hi: int) -> None:
        if not lo <= hi <= self.durable_seq:
            raise LinkError(
                f"rows {lo} to {hi} were asked for, and there are those below {self.durable_seq}",
                hint="the gateway's folder is older than Spark's checkpoint, or of another stream",
                code="E_SEQ",
            )
        if lo < hi and lo < self.earliest:
            raise LinkError(
                f"rows from {lo} on were asked for, and those below {self.earliest} were let go",
                hint="another query commits under the same reader (give each its own option `reader`), or "
                "the node kept them no longer; the option failOnDataLoss=false goes on without them",
                code="E_GONE",
            )

    def _entries(self, lo: int, hi: int) -> Iterator[tuple[_Segment, RecordEntry]]:
        """Those with rows from ``lo`` on, before ``hi``, in order; the others aren't gone through."""
        place = max(bisect_right(self._segments, lo, key=lambda each: each.first) - 1, 0)
        for segment in islice(self._segments, place, None):
            entries = segment.entries
            for number in range(bisect_right(entries, lo, key=lambda each: each.end), len(entries)):
                if entries[number].first >= hi:
                    return
                yield segment, entries[number]

    def _decoded(self, segment: _Segment, entry: RecordEntry) -> Train:
        data = self._port.read(segment.first, entry.start, entry.length)
        try:
            batch = decode(data, entry, self._full_schema, timed=False)
        except ValueError as error:
            where = self._port.where(segment.first)
            raise StateError(f"{where}: row {entry.first}: {error}", code="state.corrupt") from None
        return unpack(batch, self.schema, timed=False, first=entry.first)

    # --- letting go -------------------------------------------------------------------------------

    def was_read(self, row: int) -> None:
        """Spark is done with the rows below: they wait for a commit, but don't make it full."""
        self._read_to = max(self._read_to, min(row, self.durable_seq))

    def commit(self, row: int) -> bool:
        """Rows below are done; those behind the commit before stay.

        Returns:
            whether that is new.

        Raises:
            LinkError: there are no such rows yet.
            StateError: files couldn't be removed.
        """
        self._check(row, row)
        before = self.earliest if self._committed is None else self._committed
        if row <= before:
            return False
        self._committed = row
        self.was_read(row)
        # The last segment says where the stream goes on: it stays.
        while len(self._segments) > 1 and self._segments[0].end <= before:
            self._port.remove(self._segments[0].first)
            del self._segments[0]
        return True


def schema_of(port: Segments) -> pa.Schema | None:
    """The columns of the rows that are there; None: there are none.

    Raises:
        StateError: it can't be read.
    """
    for first in port.names():
        index = merged_index(port.indexes(first))
        beginning = port.read(first, 0, SCHEMA_BYTES_MAX)
        try:
            start = read_head(index, beginning)
            if start is not None:
                return plain_schema(memoryview(beginning).cast("B")[:start])[0]
        except ValueError as error:
            raise StateError(f"{port.where(first)}: {error}", code="state.corrupt") from None
    return None


def columns_of(schema: pa.Schema) -> Schema:
    """Names and types."""
    return tuple(Field(field.name, from_arrow(field.type)) for field in schema)


def _runs(waiting: list[tuple[Train, int]]) -> list[list[tuple[Train, int]]]:
    """Neighbours that make a record together: one boundary for all, the first, holds for each."""
    groups: list[list[tuple[Train, int]]] = []
    size = 0
    for train, boundary_us in waiting:
        last = groups[-1][-1][0] if groups else None
        if last is None or last.first_seq + len(last) != train.first_seq or size >= RECORD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append((train, boundary_us))
        size += int(train.batch.nbytes)
    return groups


def _joined(trains: list[Train]) -> Train:
    if len(trains) == 1:
        return trains[0]
    late = None
    if any(train.late is not None for train in trains):
        late = pa.concat_arrays(
            [pa.array([False] * len(train)) if train.late is None else train.late for train in trains]
        )
    batch = pa.concat_batches([train.batch for train in trains])
    return Train(batch=batch, first_seq=trains[0].first_seq, late=late)
