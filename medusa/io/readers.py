"""Rows of a file as record batches: never the whole file at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from medusa.errors import DataError
from medusa.io.csv_text import CsvText
from medusa.io.formats import FORMATS, FORMATS_OF_LINES
from medusa.io.json_text import JsonText
from medusa.io.line_batches import LineFormat, first_null, null_time
from medusa.io.lines import Lines, open_binary, wait_for
from medusa.io.places import FilePlace

__all__ = ["RowReader", "open_reader"]

BATCH_ROWS = 1 << 17
SAMPLE_BYTES = 1 << 20
"""Of lines that tell the columns; of a file that is followed, what is there."""


class RowReader(Protocol):
    """Rows of one place.

    Attributes:
        schema: its columns, with types that a query takes.
        fraction: how much has been read, 0 to 1; None: unknown.
        passed_by: columns that are left out, as they hold objects or lists.
        lines: where rows are text, what they are read from.
    """

    schema: pa.Schema
    lines: Lines | None
    passed_by: frozenset[str]

    @property
    def fraction(self) -> float | None: ...

    def require(self, column: str) -> None:
        """The time of the rows: a null in it is refused with its line, or its row from 1."""

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows from here on; of one that is followed, those that are there."""

    def close(self) -> None: ...


def open_reader(
    place: FilePlace,
    *,
    types: Mapping[str, str],
    known: Mapping[str, str] | None,
    follow: bool = False,
    strict: bool = False,
) -> RowReader:
    """A reader.

    Args:
        types: of columns, from the user; the others are told from the first rows.
        known: types of all columns that are wanted; None: what there is is read.
        follow: a file of lines is read on as it grows.
        strict: in CSV and JSON lines, columns that aren't known are refused, but those of objects or lists.

    Raises:
        DataError: no such file, or not of this format.
    """
    if follow and place.packed:
        raise DataError(
            f"{place.label}: a file in gzip can't be followed",
            hint="run it to its end, without --follow",
            code="data.format",
        )
    if FORMATS[place.format].lines:
        return _LineReader(place, types, known, follow, strict)
    if follow:
        raise DataError(
            f"{place.label}: {place.format} can't be followed",
            hint=f"{FORMATS_OF_LINES} can",
            code="data.format",
        )
    return _READERS[place.format](place)


class _LineReader:
    """A format of lines."""

    def __init__(
        self,
        place: FilePlace,
        types: Mapping[str, str],
        known: Mapping[str, str] | None,
        follow: bool,
        strict: bool,
    ) -> None:
        self.lines: Lines | None
        self._lines = self.lines = Lines(place, follow=follow, quoted=FORMATS[place.format].quoted)
        self._follow = follow
        self._text = _TEXTS[place.format](place)
        try:
            self._lines.push_back(self._text.begin(self._sample(), types, known, strict=strict))
        except BaseException:
            self.close()
            raise
        self.schema = self._text.schema
        self.passed_by = self._text.passed_by

    def _sample(self) -> bytes:
        """The first lines: as many as tell the columns."""
        sample, least = b"", 0 if self._follow else SAMPLE_BYTES
        while not self._lines.ended and (len(sample) < least or not self._text.enough(sample)):
            more = self._lines.next()
            if not more and not self._lines.ended:
                wait_for([self._lines])
            sample += more
        return sample

    @property
    def fraction(self) -> float | None:
        return self._lines.fraction

    def require(self, column: str) -> None:
        self._text.require(column)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        while block := self._lines.next():
            yield from self._text.read(block, columns)

    def close(self) -> None:
        self._lines.close()


class _ParquetReader:
    """Parquet; row groups are read in batches."""

    lines: Lines | None = None
    passed_by: frozenset[str] = frozenset()
    _required: str | None = None

    def __init__(self, place: FilePlace) -> None:
        import pyarrow.parquet as pq

        if place.standard:
            raise DataError(
                "standard input: Parquet needs a file, as it is read from its end",
                hint="write it to a file, or use arrows, csv or jsonl",
                code="data.format",
            )
        self._place = place
        self._source = open_binary(place)
        try:
            self._file = pq.ParquetFile(self._source)
        except (pa.ArrowException, OSError) as error:
            self._source.close()
            raise _damaged(place, error) from None
        self.schema, self.passed_by = _flat(self._file.schema_arrow)
        self._total = self._file.metadata.num_rows
        self._rows = 0

    @property
    def fraction(self) -> float | None:
        return self._rows / self._total if self._total else None

    def require(self, column: str) -> None:
        self._required = column

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        columns = columns or (self.schema.names if self.passed_by else None)
        try:
            for batch in self._file.iter_batches(BATCH_ROWS, columns=columns):
                _refuse_null(self._place, batch, self._required, self._rows)
                self._rows += batch.num_rows
                yield batch
        except pa.ArrowException as error:
            raise _damaged(self._place, error) from None

    def close(self) -> None:
        self._file.close()
        self._source.close()


class _ArrowReader:
    """Arrow IPC, file or stream, told apart by the first bytes."""

    lines: Lines | None = None
    passed_by: frozenset[str] = frozenset()
    _required: str | None = None

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._source = open_binary(place)
        self._next = 0
        self._rows = 0
        self._file: Any = None
        self._stream: Any = None
        try:
            if not place.standard and self._source.peek(6)[:6] == b"ARROW1":
                self._file = pa.ipc.open_file(pa.memory_map(place.path))
                found = self._file.schema
            else:
                self._stream = pa.ipc.open_stream(self._source)
                found = self._stream.schema
        except (pa.ArrowException, OSError) as error:
            self.close()
            raise _damaged(place, error) from None
        self.schema, self.passed_by = _flat(found)

    @property
    def fraction(self) -> float | None:
        return None if self._file is None else self._next / max(1, self._file.num_record_batches)

    def require(self, column: str) -> None:
        self._required = column

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        columns = columns or (self.schema.names if self.passed_by else None)
        try:
            if self._stream is not None:
                for batch in self._stream:
                    self._check(batch)
                    yield batch if columns is None else batch.select(columns)
                return
            for place in range(self._file.num_record_batches):
                batch = self._file.get_batch(place)
                self._check(batch)
                yield batch if columns is None else batch.select(columns)
                self._next = place + 1
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self._place, error) from None

    def _check(self, batch: pa.RecordBatch) -> None:
        _refuse_null(self._place, batch, self._required, self._rows)
        self._rows += batch.num_rows

    def close(self) -> None:
        if not self._place.standard:
            self._source.close()


def _flat(schema: pa.Schema) -> tuple[pa.Schema, frozenset[str]]:
    """The columns that a query can take, and the names of those that hold lists or structs."""
    nested = frozenset(field.name for field in schema if pa.types.is_nested(field.type))
    return pa.schema([field for field in schema if field.name not in nested]), nested


def _refuse_null(place: FilePlace, batch: pa.RecordBatch, required: str | None, before: int) -> None:
    row = first_null(batch, required)
    if row is not None:
        raise null_time(f"{place.label}, row {before + row + 1}", required)


def _damaged(place: FilePlace, error: Exception) -> DataError:
    why = str(error).splitlines()[0][:200]
    return DataError(f"{place.label}: no whole {place.format} file: {why}", code="data.format")


_TEXTS: dict[str, Callable[[FilePlace], LineFormat]] = {
    "csv": lambda place: CsvText(place.label, place.delimiter),
    "jsonl": lambda place: JsonText(place.label),
}
_READERS: dict[str, Callable[[FilePlace], RowReader]] = {
    "parquet": _ParquetReader,
    "arrow": _ArrowReader,
    "arrows": _ArrowReader,
}
"""Of the formats that aren't of lines."""
