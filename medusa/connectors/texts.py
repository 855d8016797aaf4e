"""Lines of CSV and JSON as record batches, with the line of a row that can't be read."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from medusa.connectors.nested import first_unknown, without_nested
from medusa.errors import DataError
from medusa.query.types import DURATION, TIMESTAMP, schema_from, to_arrow

__all__ = ["CsvText", "JsonText", "Text", "first_null", "null_time"]

_NAIVE, _AWARE = pa.timestamp("us"), pa.timestamp("us", "UTC")
_TIME_LIKE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?(\d\d)?)?")
_ROW = re.compile(r"Row #(\d+)")
_JSON_ROW = re.compile(r"in row (\d+)")


class Text(Protocol):
    """How lines are read.

    Attributes:
        required: a column that may hold no null: the time of the rows.
        passed_by: columns that are left out, as they hold objects or lists.
    """

    schema: pa.Schema
    required: str | None
    passed_by: frozenset[str]

    def enough(self, sample: bytes) -> bool:
        """Whether these lines tell the columns."""

    def begin(self, sample: bytes, types: Mapping[str, str], known: Mapping[str, str] | None) -> bytes:
        """Learn the columns; what is left of the lines."""

    def read(self, block: bytes, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of whole lines."""


def first_null(table: pa.Table | pa.RecordBatch, column: str | None) -> int | None:
    """The first row (from 0) in which a column holds null; None: no row, or no such column."""
    if column is None or column not in table.schema.names or not table[column].null_count:
        return None
    return int(table[column].is_null().index(True).as_py())


def null_time(where: str, column: str | None) -> DataError:
    """The time of a row is null."""
    return DataError(
        f"{where}: column {column!r} is the time, and holds null",
        hint="every row needs its time",
        code="data.time",
    )


def _said(types: Mapping[str, str], label: str) -> dict[str, str]:
    fields = schema_from(dict(types), what=label) if types else ()
    return {field.name: field.type for field in fields}


def _guess(found: pa.DataType) -> pa.DataType:
    """A type that queries take, for one that pyarrow found in text."""
    if pa.types.is_timestamp(found):
        return _NAIVE if found.tz is None else _AWARE
    if pa.types.is_null(found) or pa.types.is_time(found):
        return pa.string()
    return found


def _written(type: str, found: pa.DataType | None) -> pa.DataType:
    """How a type of ours is read from text; a timestamp with zone or without, as the rows have it."""
    if type == TIMESTAMP:
        return _AWARE if found is not None and pa.types.is_timestamp(found) and found.tz else _NAIVE
    if type == DURATION:
        return pa.int64()
    return to_arrow(type)


class CsvText:
    """CSV with a header; fields in double quotes may hold delimiters and line ends.

    An empty field is null, ``""`` the empty text; ``null`` and ``NULL`` are null too. NaN and inf
    are floats. Times are ISO 8601; durations whole microseconds.
    """

    passed_by: frozenset[str] = frozenset()

    def __init__(self, label: str, delimiter: str = ",") -> None:
        self._label = label
        self._delimiter = delimiter
        self._line = 1
        self._types: dict[str, pa.DataType] = {}
        self._final: dict[str, pa.DataType] = {}
        self.schema = pa.schema([])
        self.required: str | None = None

    def enough(self, sample: bytes) -> bool:
        return len(sample.rstrip(b"\n").split(b"\n", 1)) > 1

    def begin(self, sample: bytes, types: Mapping[str, str], known: Mapping[str, str] | None) -> bytes:
        head, _, rest = sample.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
        try:
            names = next(csv.reader([head.decode()], delimiter=self._delimiter), [])
        except (UnicodeDecodeError, csv.Error):
            names = []
        if not names:
            raise DataError(
                f"{self._label}: the file is empty or has no header",
                hint="the first line names the columns",
                code="data.format",
            )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self._label}, line 1: two columns are called {twice!r}", code="data.column")
        self._line = 2
        self._types = dict.fromkeys(names, pa.string())
        found = {name: pa.null() for name in names}
        if rest:
            found = {field.name: field.type for field in self._parse(rest, None, infer=True).schema}
        said = _said(types, self._label) | {
            name: type for name, type in (known or {}).items() if name in names
        }
        for name in types:
            if name not in names:
                from medusa.query.suggest import did_you_mean

                raise DataError(
                    f"{self._label}: there is no column {name!r}",
                    hint=did_you_mean(name, names),
                    code="data.column",
                )
        for name in names:
            self._types[name] = _written(said[name], found[name]) if name in said else _guess(found[name])
            self._final[name] = pa.duration("us") if said.get(name) == DURATION else self._types[name]
        self.schema = pa.schema(list(self._final.items()))
        return rest

    def read(self, block: bytes, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        table = self._parse(block, columns, infer=False)
        row = first_null(table, self.required)
        if row is not None:
            raise null_time(f"{self._label}, line {self._line_of(block, row + 1)}", self.required)
        self._line += block.count(b"\n")
        for name in table.column_names:
            if self._final[name] != self._types[name]:
                place = table.column_names.index(name)
                table = table.set_column(place, name, table[name].cast(self._final[name]))
        yield from table.to_batches()

    def _parse(self, block: bytes, columns: list[str] | None, *, infer: bool) -> pa.Table:
        from pyarrow import csv as arrow_csv

        wrong: list[Any] = []

        def note(row: Any) -> str:
            wrong.append(row)
            return "error"

        try:
            return arrow_csv.read_csv(
                pa.BufferReader(block),
                read_options=arrow_csv.ReadOptions(
                    column_names=list(self._types), use_threads=False, block_size=max(1 << 16, len(block) + 1)
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=None if infer else self._types,
                    include_columns=columns,
                    null_values=["", "null", "NULL"],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._refused(block, error, wrong) from None

    def _refused(self, block: bytes, error: Exception, wrong: list[Any]) -> DataError:
        text = str(error).splitlines()[0]
        if wrong:
            row = wrong[0]
            line = self._line_of(block, row.number or 1)
            return DataError(
                f"{self._label}, line {line}: expected {row.expected_columns} columns,"
                f" came {row.actual_columns}: {row.text[:80]!r}",
                code="data.row",
            )
        found = _ROW.search(text)
        where = f", line {self._line_of(block, int(found[1]))}" if found else ""
        why = _ROW.sub("", text).replace("In CSV column ", "column ").replace(": : ", ": ")
        for place, name in enumerate(self._types):
            why = why.replace(f"column #{place}:", f"column {name!r}:")
        return DataError(
            f"{self._label}{where}: {why[:200]}",
            hint="types are told from the first rows; --schema says them" if found else "",
            code="data.row",
        )

    def _line_of(self, block: bytes, row: int) -> int:
        """The line at which a row (from 1) of a block begins: quoted fields may hold line ends."""
        line, seen, inside = self._line, 0, False
        for part in block.split(b"\n"):
            if not inside:
                seen += bool(part.strip())
                if seen >= row:
                    return line
            inside ^= part.count(b'"') % 2 == 1
            line += 1
        return line


class JsonText:
    """One JSON object a line. Times are texts in ISO 8601; durations whole microseconds.

    Columns of objects or lists are passed by, whatever they hold.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._line = 1
        self._types: dict[str, pa.DataType] = {}
        self._final: dict[str, pa.DataType] = {}
        self._ignore = False
        self.schema = pa.schema([])
        self.required: str | None = None
        self.passed_by: frozenset[str] = frozenset()

    def enough(self, sample: bytes) -> bool:
        return bool(sample.strip())

    def begin(self, sample: bytes, types: Mapping[str, str], known: Mapping[str, str] | None) -> bytes:
        said = _said(types, self._label) | dict(known or {})
        found: dict[str, pa.DataType] = {}
        if sample.strip() and known is None:
            flat, nested = self._flat(sample, set(said))
            table = self._parse(flat, infer=True)
            nested |= {field.name for field in table.schema if pa.types.is_nested(field.type)}
            found = {
                field.name: _json_guess(table[field.name], field.type)
                for field in table.schema
                if field.name not in nested
            }
            self.passed_by = nested
        self._ignore = known is not None or bool(self.passed_by)
        for name in dict.fromkeys([*found, *said]):
            type = _written(said[name], found.get(name)) if name in said else found[name]
            final = pa.duration("us") if said.get(name) == DURATION else type
            self._final[name] = final
            # Times are texts in JSON: read as such, then cast.
            self._types[name] = pa.string() if pa.types.is_temporal(type) else type
        if not self._final:
            raise DataError(
                f"{self._label}: all columns hold objects or lists"
                if self.passed_by
                else f"{self._label}: the file is empty",
                hint="--schema says its columns",
                code="data.format",
            )
        self.schema = pa.schema(list(self._final.items()))
        return sample

    def read(self, block: bytes, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        if block.strip():
            try:
                table = self._parse(block, infer=False)
            except DataError:
                flat, nested = self._flat(block, set(self._types))
                if not nested:
                    raise
                table = self._parse(flat, infer=False)  # objects or lists that the first lines didn't have
            row = first_null(table, self.required)
            if row is not None:
                raise null_time(f"{self._label}, line {self._line_of(block, row)}", self.required)
            names = columns or list(self._types)
            arrays = [self._cast(table[name], name, block) for name in names]
            yield from pa.table(arrays, names=names).to_batches()
        self._line += block.count(b"\n")

    def _flat(self, block: bytes, kept: set[str]) -> tuple[bytes, frozenset[str]]:
        try:
            return without_nested(block, kept)
        except RecursionError:
            raise DataError(
                f"{self._label}: from line {self._line} on objects or lists are too deep inside each other",
                code="data.row",
            ) from None

    def _cast(self, column: Any, name: str, block: bytes) -> Any:
        final = self._final[name]
        if column.type == final:
            return column
        for target in (
            (final, _AWARE if final == _NAIVE else _NAIVE) if pa.types.is_timestamp(final) else (final,)
        ):
            try:
                return column.cast(target)
            except pa.ArrowException:
                continue
        for row, value in enumerate(column.to_pylist()):
            try:
                pa.array([value], column.type).cast(final)
            except pa.ArrowException:
                wanted = "time" if pa.types.is_timestamp(final) else final
                raise DataError(
                    f"{self._label}, line {self._line_of(block, row)}: column {name!r}:"
                    f" {str(value)[:60]!r} is no {wanted}",
                    code="data.row",
                ) from None
        raise DataError(
            f"{self._label}, line {self._line}: column {name!r}: times with and without a zone",
            code="data.row",
        )

    def _parse(self, block: bytes, *, infer: bool) -> pa.Table:
        from pyarrow import json as arrow_json

        options = arrow_json.ParseOptions()
        if not infer:
            options = arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(self._types.items())),
                unexpected_field_behavior="ignore" if self._ignore else "error",
            )
        try:
            return arrow_json.read_json(
                pa.BufferReader(block),
                read_options=arrow_json.ReadOptions(
                    use_threads=False, block_size=max(1 << 16, len(block) + 1)
                ),
                parse_options=options,
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            text = str(error).splitlines()[0]
            found = _JSON_ROW.search(text)
            where = f", line {self._line_of(block, int(found[1]))}" if found else ""
            why = _JSON_ROW.sub("", text).replace("JSON parse error: ", "").strip()
            if "unexpected field" in why:  # the parser doesn't say which and where
                row, name = first_unknown(block, set(self._types))
                where, why = f", line {self._line_of(block, row)}", f"column {name!r} is new here"
            raise DataError(
                f"{self._label}{where}: {why[:200]}",
                hint="columns and types are told from the first rows; --schema says them",
                code="data.row",
            ) from None

    def _line_of(self, block: bytes, row: int) -> int:
        """The line of a row (from 0): empty lines are none."""
        for place, line in enumerate(block.split(b"\n")):
            if line.strip():
                if row == 0:
                    return self._line + place
                row -= 1
        return self._line


def _json_guess(column: Any, found: pa.DataType) -> pa.DataType:
    if pa.types.is_string(found):
        values = [value for value in column.to_pylist() if value is not None]
        if values and all(_TIME_LIKE.fullmatch(value) for value in values):
            return _AWARE if values[0].endswith("Z") or "+" in values[0] else _NAIVE
    return _guess(found)
