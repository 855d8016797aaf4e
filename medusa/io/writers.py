"""Rows to a file or to standard output, as they come."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from medusa.errors import DataError
from medusa.io.formats import FORMATS
from medusa.io.places import FilePlace

__all__ = ["RowWriter", "open_writer"]


class RowWriter(Protocol):
    """Takes rows; ``close`` makes the file whole, ``discard`` leaves none."""

    rows: int

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...

    def discard(self) -> None: ...


def open_writer(place: FilePlace, schema: pa.Schema, *, live: bool) -> RowWriter:
    """A writer.

    Args:
        live: rows are to be seen at once. Otherwise a file gets its name when it is whole.

    Raises:
        DataError: the file can't be written.
    """
    return _Writer(place, schema, live=live)


class _Writer:
    def __init__(self, place: FilePlace, schema: pa.Schema, *, live: bool) -> None:
        self.rows = 0
        self._live = live
        self._place = place
        target = Path(place.path)
        # Devices and pipes are written to as they are.
        self._whole = not (live or place.standard or (target.exists() and not target.is_file()))
        self._path = target.with_name(f".{target.name}.part") if self._whole else target
        try:
            self._file: Any = _standard() if place.standard else self._path.open("wb")
        except OSError as error:
            raise DataError(
                f"{place.path}: {(error.strerror or str(error)).lower()}", code="data.file"
            ) from None
        self._encoder = _ENCODERS[place.format](self._file, _plain(schema, place.format), place)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._encoder.write_table(table.cast(_plain(table.schema, self._place.format)))
            self.rows += table.num_rows
        if self._live or self._place.standard:
            self._file.flush()

    def close(self) -> None:
        self._encoder.close()
        self._file.flush()
        if not self._place.standard:
            self._file.close()
        if self._whole:
            os.replace(self._path, self._place.path)

    def discard(self) -> None:
        if not self._place.standard:
            self._file.close()
        if self._whole:
            self._path.unlink(missing_ok=True)


def _standard() -> Any:
    """Standard output; with PYTHONUNBUFFERED Python's own is raw: it writes a part when a signal comes."""
    out = sys.stdout.buffer
    if not isinstance(out, io.RawIOBase):
        return out
    return io.BufferedWriter(io.FileIO(out.fileno(), "wb", closefd=False))


def _plain(schema: pa.Schema, format: str) -> pa.Schema:
    """Durations are whole microseconds where the format has none, in Parquet too."""
    if FORMATS[format].durations:
        return schema
    return pa.schema([pa.field(f.name, pa.int64()) if pa.types.is_duration(f.type) else f for f in schema])


class _JsonLines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        lines = [json.dumps(row, default=_json, ensure_ascii=False) for row in table.to_pylist()]
        self._file.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        pass


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, timedelta):
        return math.floor(value / timedelta(microseconds=1))
    return str(value)


class _Parquet:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, schema)
        self._held: list[pa.Table] = []
        self._rows = 0

    def write_table(self, table: pa.Table) -> None:
        # A row group for every few rows would make a large and slow file.
        self._held.append(table)
        self._rows += table.num_rows
        if self._rows >= 1 << 17:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held))
        self._held, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


def _csv(file: Any, schema: pa.Schema, place: FilePlace) -> Any:
    from pyarrow import csv

    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(delimiter=place.delimiter))


_ENCODERS: dict[str, Callable[[Any, pa.Schema, FilePlace], Any]] = {
    "csv": _csv,
    "jsonl": lambda file, schema, place: _JsonLines(file),
    "parquet": lambda file, schema, place: _Parquet(file, schema),
    "arrow": lambda file, schema, place: pa.ipc.new_file(file, schema),
    "arrows": lambda file, schema, place: pa.ipc.new_stream(file, schema),
}
"""What writes tables in a format: it has ``write_table`` and ``close`` as pyarrow's writers do."""
