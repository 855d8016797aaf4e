"""Lines as record batches: what CSV and JSON have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from medusa.errors import DataError
from medusa.query.types import DURATION, TIMESTAMP, schema_from, to_arrow

__all__ = [
    "AWARE",
    "NAIVE",
    "LineFormat",
    "first_null",
    "guessed",
    "null_time",
    "others",
    "said_types",
    "unfit",
    "written",
]

NAIVE, AWARE = pa.timestamp("us"), pa.timestamp("us", "UTC")


class LineFormat(Protocol):
    """How lines are read.

    Attributes:
        passed_by: columns that are left out, as they hold objects or lists.
    """

    schema: pa.Schema
    passed_by: frozenset[str]

    def require(self, column: str) -> None:
        """This column may hold no null: it is the time of the rows."""

    def enough(self, sample: bytes) -> bool:
        """Whether these lines tell the columns."""

    def begin(
        self,
        sample: bytes,
        types: Mapping[str, str],
        known: Mapping[str, str] | None,
        *,
        strict: bool = False,
    ) -> bytes:
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


def others(where: str, name: str, known: Mapping[str, str]) -> DataError:
    """A column that isn't known where only known ones may be."""
    return DataError(
        f"{where}: column {name[:80]!r} isn't in the schema",
        hint=f"there is {', '.join(known)}"[:200],
        code="data.column",
    )


def unfit(where: str, name: str, type: str, value: str) -> DataError:
    return DataError(f"{where}: column {name!r}: expected {type}, came {value[:80]}", code="data.row")


def said_types(types: Mapping[str, str], label: str) -> dict[str, str]:
    fields = schema_from(dict(types), what=label) if types else ()
    return {field.name: field.type for field in fields}


def guessed(found: pa.DataType) -> pa.DataType:
    """A type that queries take, for one that pyarrow found in text."""
    if pa.types.is_timestamp(found):
        return NAIVE if found.tz is None else AWARE
    if pa.types.is_null(found) or pa.types.is_time(found):
        return pa.string()
    return found


def written(type: str, found: pa.DataType | None) -> pa.DataType:
    """How a type of ours is read from text; a timestamp with zone or without, as the rows have it."""
    if type == TIMESTAMP:
        return AWARE if found is not None and pa.types.is_timestamp(found) and found.tz else NAIVE
    if type == DURATION:
        return pa.int64()
    return to_arrow(type)
