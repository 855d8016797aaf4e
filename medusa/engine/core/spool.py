"""Rows on disk while a run lasts: Arrow record batches, one behind the other, each with its CRC-32C.

    record:  length of the message (8 bytes) | CRC-32C of it (4) | zeros (4) | Arrow IPC message

A file is written at its end and read from its beginning. It goes when nobody holds it any more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedWriter, RawIOBase
from typing import Any

import pyarrow as pa

from medusa._native import crc32c
from medusa.errors import StateError
from medusa.ports import Buffer, Spill

__all__ = ["WHOLE", "Spool", "SpoolFile", "Streamed"]

WHOLE = b"medusa.whole"
"""In the metadata of a schema: a checkpoint writes this table whole, however little of it has changed."""

_HEAD = struct.Struct("<QIxxxx")


class Spool:
    """Makes files, and knows how many bytes they hold.

    Attributes:
        held_bytes: on disk now.
        written_bytes: since the run began.
    """

    def __init__(self, port: Spill) -> None:
        self.port = port
        self.held_bytes = 0
        self.written_bytes = 0
        self._made = 0

    def file(self, schema: pa.Schema) -> SpoolFile:
        """A new file for rows of these columns; nothing is on disk before the first of them."""
        return SpoolFile(self, self.name(), schema)

    def name(self) -> str:
        """Of a file that there never was."""
        self._made += 1
        return str(self._made)

    def wrote(self, nbytes: int) -> None:
        """A file has grown."""
        self.held_bytes += nbytes
        self.written_bytes += nbytes

    def freed(self, nbytes: int) -> None:
        """A file goes."""
        self.held_bytes -= nbytes


class SpoolFile:
    """Some batches of the same columns, on disk.

    Attributes:
        rows: of all batches.
        nbytes: on disk.
    """

    def __init__(self, spool: Spool, name: str, schema: pa.Schema) -> None:
        self._spool = spool
        self._port = spool.port
        self._name = name
        self.schema = schema
        self.rows = 0
        self.nbytes = 0
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write batches at the end, all or none.

        Raises:
            StateError: they couldn't be written; the file is as before.
        """
        parts: list[memoryview | bytes] = []
        lengths, rows = [], 0
        for batch in batches:
            message = memoryview(batch.serialize()).cast("B")
            parts += [_HEAD.pack(len(message), crc32c(message)), message]
            lengths.append(len(message))
            rows += batch.num_rows
        if not parts:
            return
        self._port.append(self._name, parts)
        size = sum(lengths) + _HEAD.size * len(lengths)
        self._lengths += lengths
        self.rows += rows
        self.nbytes += size
        self._spool.wrote(size)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches in their order, each read when it is asked for.

        Raises:
            StateError: one can't be read or is damaged.
        """
        return self.batches(0, len(self._lengths))

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Some of them, as ``__iter__`` gives them."""
        start = sum(self._lengths[:first]) + _HEAD.size * first
        for length in self._lengths[first:stop]:
            yield self._read(start, length)
            start += _HEAD.size + length

    def _read(self, start: int, length: int) -> pa.RecordBatch:
        port = self._port
        data = memoryview(port.read(self._name, start, _HEAD.size + length))
        size, crc = _HEAD.unpack(data[: _HEAD.size])
        message = data[_HEAD.size :]
        if size != length or crc32c(message) != crc:
            raise StateError(
                f"{port.where(self._name)} is damaged: the checksum at byte {start} is wrong",
                hint="the disk lost or changed what the run had written there",
                code="state.corrupt",
            )
        return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)

    def remove(self) -> None:
        """Forget the rows; the file is gone, and new again."""
        if self._lengths:
            self._spool.freed(self.nbytes)
            self._lengths, self.rows, self.nbytes = [], 0, 0
            self._port.remove(self._name)

    def __del__(self) -> None:
        self.remove()


@dataclass(slots=True)
class Streamed:
    """A table of a box's state that needn't fit in memory: its rows come one batch at a time, once."""

    spool: Spool
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]

    def write(self) -> Buffer:
        """The table as an Arrow IPC file, which is on disk and read where it is touched.

        Raises:
            StateError: it couldn't be written.
        """
        spool, schema = self.spool, self.schema.with_metadata({WHOLE: b"true"})
        name = spool.name()
        try:
            with (
                BufferedWriter(_Appender(spool.port, name), 1 << 20) as sink,
                pa.ipc.new_file(sink, schema) as writer,
            ):
                for batch in self.batches:
                    writer.write_batch(batch)
            return spool.port.map(name)
        finally:
            spool.port.remove(name)  # what is mapped stays until nobody looks at it


class _Appender(RawIOBase):
    def __init__(self, port: Spill, name: str) -> None:
        self._port = port
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = memoryview(data).cast("B")
        self._port.append(self._name, [part])
        return len(part)
