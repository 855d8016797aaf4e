"""CSV as record batches, with the line of a row that can't be read."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from medusa.errors import DataError
from medusa.io.declared_types import looser, tightened
from medusa.io.line_batches import first_null, guessed, null_time, others, said_types, unfit, written
from medusa.query.types import DURATION

__all__ = ["CsvText"]

_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"In CSV column #(\d+):")
_VALUE = re.compile(r"error to .*?: .*? '(.*)'$")


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
        self._known: dict[str, str] = {}
        self._wrong: list[Any] = []
        self.schema = pa.schema([])
        self.required: str | None = None

    def require(self, column: str) -> None:
        self.required = column

    def enough(self, sample: bytes) -> bool:
        return len(sample.rstrip(b"\n").split(b"\n", 1)) > 1

    def begin(
        self,
        sample: bytes,
        types: Mapping[str, str],
        known: Mapping[str, str] | None,
        *,
        strict: bool = False,
    ) -> bytes:
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
        self._known = dict(known or {})
        if strict:
            self._check_names(names)
        self._line = 2
        self._types = dict.fromkeys(names, pa.string())
        found = {name: pa.null() for name in names}
        if rest:
            found = {field.name: field.type for field in self._parse(rest).schema}
        said = said_types(types, self._label) | {
            name: type for name, type in self._known.items() if name in names
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
            self._types[name] = written(said[name], found[name]) if name in said else guessed(found[name])
            self._final[name] = pa.duration("us") if said.get(name) == DURATION else self._types[name]
        self.schema = pa.schema(list(self._final.items()))
        return rest

    def _check_names(self, names: list[str]) -> None:
        where = f"{self._label}, line 1"
        for name in names:
            if name not in self._known:
                raise others(where, name, self._known)
        for name in self._known:
            if name not in names:
                raise DataError(
                    f"{where}: column {name!r} is missing",
                    hint=f"there is {', '.join(names)}"[:200],
                    code="data.column",
                )

    def read(self, block: bytes, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        table = self._typed(block, columns)
        row = first_null(table, self.required)
        if row is not None:
            raise null_time(f"{self._label}, line {self._line_of(block, row + 1)}", self.required)
        self._line += block.count(b"\n")
        for name in table.column_names:
            if self._final[name] != self._types[name]:
                place = table.column_names.index(name)
                table = table.set_column(place, name, table[name].cast(self._final[name]))
        yield from table.to_batches()

    def _typed(self, block: bytes, columns: list[str] | None) -> pa.Table:
        """The rows with the types that were learnt; a known one takes its values however they are written."""
        loose: dict[str, pa.DataType] = {}
        while True:
            try:
                table = self._arrow(block, columns, self._types | loose)
                break
            except (pa.ArrowException, UnicodeDecodeError) as error:
                name = self._column_of(str(error))
                other = looser(self._types[name]) if name in self._known and name not in loose else None
                if other is None:
                    raise self._refused(block, error) from None
                loose[name] = other
        for name in loose:
            column, row = tightened(table[name], self._types[name])
            if row >= 0:
                where = f"{self._label}, line {self._line_of(block, row + 1)}"
                value = str(table[name][row].as_py())
                if pa.types.is_decimal(loose[name]):
                    value = value.rstrip("0").rstrip(".")
                raise unfit(where, name, self._known[name], repr(value))
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _parse(self, block: bytes) -> pa.Table:
        """The rows with the types that their values have."""
        try:
            return self._arrow(block, None, None)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._refused(block, error) from None

    def _arrow(
        self, block: bytes, columns: list[str] | None, types: Mapping[str, pa.DataType] | None
    ) -> pa.Table:
        from pyarrow import csv as arrow_csv

        self._wrong = []

        def note(row: Any) -> str:
            self._wrong.append(row)
            return "error"

        return arrow_csv.read_csv(
            pa.BufferReader(block),
            read_options=arrow_csv.ReadOptions(
                column_names=list(self._types), use_threads=False, block_size=max(1 << 16, len(block) + 1)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=columns,
                null_values=["", "null", "NULL"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _column_of(self, text: str) -> str:
        """Which column an error of the parser is about; empty: none."""
        found = _COLUMN.search(text)
        return list(self._types)[int(found[1])] if found else ""

    def _refused(self, block: bytes, error: Exception) -> DataError:
        text = str(error).splitlines()[0]
        if self._wrong:
            row = self._wrong[0]
            line = self._line_of(block, row.number or 1)
            return DataError(
                f"{self._label}, line {line}: expected {row.expected_columns} columns,"
                f" came {row.actual_columns}: {row.text[:80]!r}",
                code="data.row",
            )
        found = _ROW.search(text)
        where = f", line {self._line_of(block, int(found[1]))}" if found else ""
        name, value = self._column_of(text), _VALUE.search(text)
        if name in self._known and value:
            return unfit(f"{self._label}{where}", name, self._known[name], repr(value[1]))
        why = _ROW.sub("", text).replace("In CSV column ", "column ").replace(": : ", ": ")
        why = why.replace(f"column #{list(self._types).index(name)}:", f"column {name!r}:") if name else why
        return DataError(
            f"{self._label}{where}: {why[:200]}",
            hint="types are told from the first rows; --schema says them"
            if found and name not in self._known
            else "",
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
