"""Text read as a declared type: what a type takes beyond its own spelling, and which value doesn't fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_misfit", "looser", "tightened"]

_WHOLE = pa.decimal128(38, 18)
"""Holds every integer of 64 bits exactly, and shows whether there is a fraction."""
_ZONED = r":\d\d(\.\d+)?(Z|[+-]\d\d:?(\d\d)?)$"
_NAIVE, _AWARE = pa.timestamp("us"), pa.timestamp("us", "UTC")


def looser(type: pa.DataType) -> pa.DataType | None:
    """As what a column is read whose text isn't all spelt as its type is: ``3.0`` for an integer, times with
    a zone and without; None: as nothing else."""
    if pa.types.is_integer(type):
        return _WHOLE
    return pa.string() if pa.types.is_timestamp(type) else None


def tightened(column: Any, type: pa.DataType) -> tuple[Any, int]:
    """What was read as ``looser`` says, as its type.

    Returns:
        The column, and -1; or None, and the row (from 0) of the first value that would change.
    """
    convert = _times if pa.types.is_timestamp(type) else _cast
    try:
        return convert(column, type), -1
    except pa.ArrowException:
        pass
    for row in range(len(column)):
        try:
            convert(column.slice(row, 1), type)
        except pa.ArrowException:
            return None, row
    raise AssertionError("a column that doesn't convert has a value that doesn't")


def _cast(column: Any, type: pa.DataType) -> Any:
    return column.cast(type)


def _times(column: Any, type: pa.DataType) -> Any:
    """Times without a zone are in UTC."""
    zoned = pc.match_substring_regex(column, _ZONED)
    nothing = pa.scalar(None, pa.string())
    aware = pc.if_else(zoned, column, nothing).cast(_AWARE)
    naive = pc.if_else(zoned, nothing, column).cast(_NAIVE).cast(pa.int64()).cast(_AWARE)
    return pc.coalesce(aware, naive).cast(pa.int64()).cast(type)


def first_misfit(
    lines: list[bytes], types: Mapping[str, pa.DataType], reads: Callable[[bytes, Mapping[str, Any]], bool]
) -> tuple[int, str, str] | None:
    """The first JSON value that isn't of its column's type: row (from 0), column, and how it is written.

    Args:
        lines: none is empty.
        reads: whether lines can be read with these columns, others left aside.

    Returns:
        None: it isn't for the type of a value that they can't be read.
    """
    good, bad = 0, len(lines)  # So many lines from the first on can be read, so many can't.
    while bad - good > 1:
        half = (good + bad) // 2
        good, bad = (half, bad) if reads(b"\n".join(lines[:half]), types) else (good, half)
    try:
        row = json.loads(lines[bad - 1])
    except (ValueError, RecursionError):
        return None
    for name, type in types.items():
        if isinstance(row, dict) and name in row and not reads(lines[bad - 1], {name: type}):
            return bad - 1, name, json.dumps(row[name])[:60]
    return None
