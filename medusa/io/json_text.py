"""JSON lines as record batches, with the line of a row that can't be read."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from medusa.errors import DataError
from medusa.io.declared_types import first_misfit, looser, tightened
from medusa.io.line_batches import (
    AWARE,
    NAIVE,
    first_null,
    guessed,
    null_time,
    others,
    said_types,
    unfit,
    written,
)
from medusa.query.types import DURATION

__all__ = ["JsonText", "first_unknown", "without_nested"]

_TIME_LIKE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?(\d\d)?)?")
_ROW = re.compile(r"in row (\d+)")


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
        self._known: dict[str, str] = {}
        self._strict = False
        self.schema = pa.schema([])
        self.required: str | None = None
        self.passed_by: frozenset[str] = frozenset()

    def require(self, column: str) -> None:
        self.required = column

    def enough(self, sample: bytes) -> bool:
        return bool(sample.strip())

    def begin(
        self,
        sample: bytes,
        types: Mapping[str, str],
        known: Mapping[str, str] | None,
        *,
        strict: bool = False,
    ) -> bytes:
        said = said_types(types, self._label) | dict(known or {})
        found: dict[str, pa.DataType] = {}
        if sample.strip() and known is None:
            flat, nested = self._flat(sample, set(said))
            table = self._parse(flat, None)
            nested |= {field.name for field in table.schema if pa.types.is_nested(field.type)}
            found = {
                field.name: _json_guess(table[field.name], field.type)
                for field in table.schema
                if field.name not in nested
            }
            self.passed_by = nested
        self._known = dict(known or {})
        self._strict = strict
        self._ignore = not strict and (known is not None or bool(self.passed_by))
        for name in dict.fromkeys([*found, *said]):
            type = written(said[name], found.get(name)) if name in said else found[name]
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
                table = self._typed(block)
            except DataError:
                flat, nested = self._flat(block, set(self._types))
                if not nested:
                    raise
                table = self._typed(flat)  # objects or lists that the first lines didn't have
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
            (final, AWARE if final == NAIVE else NAIVE) if pa.types.is_timestamp(final) else (final,)
        ):
            try:
                return column.cast(target)
            except pa.ArrowException:
                continue
        if name in self._known and pa.types.is_timestamp(final) and pa.types.is_string(column.type):
            made, row = tightened(column, final)
            if row < 0:
                return made
            where = f"{self._label}, line {self._line_of(block, row)}"
            raise unfit(where, name, self._known[name], repr(column[row].as_py()))
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

    def _typed(self, block: bytes) -> pa.Table:
        """The rows with the types that were learnt; a known one takes its values however they are written."""
        loose: dict[str, pa.DataType] = {}
        while True:
            try:
                table = self._parse(block, self._types | loose)
                break
            except DataError:
                lines = [line for line in block.split(b"\n") if line.strip()] if self._known else []
                misfit = first_misfit(lines, self._types | loose, self._reads) if lines else None
                if misfit is None:
                    raise
                row, name, value = misfit
                # Text is read as what it says; a number only as a number.
                other = looser(self._types[name]) if name not in loose else None
                if other is None:
                    raise self._misfit(block, row, name, value) from None
                loose[name] = other
        for name in loose:
            column, row = tightened(table[name], self._types[name])
            if row >= 0:
                value = str(table[name][row].as_py()).rstrip("0").rstrip(".")
                raise self._misfit(block, row, name, value)
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _misfit(self, block: bytes, row: int, name: str, value: str) -> DataError:
        where = f"{self._label}, line {self._line_of(block, row)}"
        return unfit(where, name, self._known.get(name, str(self._types[name])), value)

    def _reads(self, block: bytes, types: Mapping[str, pa.DataType]) -> bool:
        try:
            self._arrow(block, types, ignore=True)
        except (pa.ArrowException, UnicodeDecodeError):
            return False
        return True

    def _arrow(self, block: bytes, types: Mapping[str, pa.DataType] | None, *, ignore: bool) -> pa.Table:
        from pyarrow import json as arrow_json

        options = arrow_json.ParseOptions()
        if types is not None:
            options = arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())),
                unexpected_field_behavior="ignore" if ignore else "error",
            )
        return arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(1 << 16, len(block) + 1)),
            parse_options=options,
        )

    def _parse(self, block: bytes, types: Mapping[str, pa.DataType] | None) -> pa.Table:
        """The rows with these types; None: with those that their values have."""
        try:
            return self._arrow(block, types, ignore=self._ignore)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            text = str(error).splitlines()[0]
            found = _ROW.search(text)
            where = f", line {self._line_of(block, int(found[1]))}" if found else ""
            why = _ROW.sub("", text).replace("JSON parse error: ", "").strip()
            if "unexpected field" in why:  # the parser doesn't say which and where
                row, name = first_unknown(block, set(self._types))
                where, why = f", line {self._line_of(block, row)}", f"column {name!r} is new here"
                if self._strict:
                    raise others(f"{self._label}{where}", name, self._known) from None
            raise DataError(
                f"{self._label}{where}: {why[:200]}",
                hint=""
                if self._known
                else "columns and types are told from the first rows; --schema says them",
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
            return AWARE if values[0].endswith("Z") or "+" in values[0] else NAIVE
    return guessed(found)


def without_nested(sample: bytes, kept: set[str]) -> tuple[bytes, frozenset[str]]:
    """The lines without the columns that hold objects or lists anywhere in them, and which those are.

    Lines stay lines, also those that are no JSON: the parser says what is wrong with them.

    Args:
        kept: columns that stay, whatever they hold.

    Raises:
        RecursionError: they are too deep.
    """
    lines = sample.split(b"\n")
    if b"[" not in sample and sample.count(b"{") == sum(bool(line.strip()) for line in lines):
        return sample, frozenset()
    rows: list[Any] = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            rows.append(None)
    nested = {
        name
        for row in rows
        if isinstance(row, dict)
        for name, value in row.items()
        if isinstance(value, dict | list) and name not in kept
    }
    if not nested:
        return sample, frozenset()
    for place, row in enumerate(rows):
        if isinstance(row, dict) and not nested.isdisjoint(row):
            lines[place] = json.dumps({name: row[name] for name in row if name not in nested}).encode()
    return b"\n".join(lines), frozenset(nested)


def first_unknown(block: bytes, known: set[str]) -> tuple[int, str]:
    """The first row (from 0) with a column that isn't known, and which."""
    for row, line in enumerate(filter(bytes.strip, block.split(b"\n"))):
        found: Any = None
        with contextlib.suppress(ValueError, RecursionError):  # what this parser can't read
            found = json.loads(line)
        new = [name for name in found if name not in known] if isinstance(found, dict) else []
        if new:
            return row, new[0][:80]
    return 0, "?"
