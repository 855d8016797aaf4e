"""How much a box gives at once: more leaves in pieces, and the boxes below take each before the next is made.

Cuts don't show in the output, and depend on the rows alone: not on clocks, nor on what else runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["cuts", "row_cuts", "text_bytes", "text_columns"]

ROWS_MAX = 1 << 16
"""Rows of a piece. Too few: each costs a call of every box below; too many: their columns fill the cache, and
six joins in a row hold six such pieces."""

BYTES_MAX = 8 << 20
"""Bytes of text in a piece, beyond its first row."""

_LENGTH = pc.get_function("binary_length")


def row_cuts(rows: int) -> Iterator[tuple[int, int]]:
    """(first, end) of pieces of so many rows."""
    for first in range(0, rows, ROWS_MAX):
        yield first, min(first + ROWS_MAX, rows)


def cuts(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(first, end) of pieces of rows with so many bytes of text each."""
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(sizes):
        fits = int(ends.searchsorted(before + BYTES_MAX, side="right"))
        end = max(first + 1, min(fits, first + ROWS_MAX))
        yield first, end
        first, before = end, int(ends[end - 1])


def text_columns(schema: pa.Schema) -> list[int]:
    """The columns whose values have no fixed size, by index."""
    return [index for index, field in enumerate(schema) if _is_text(field.type)]


def text_bytes(batch: pa.RecordBatch, columns: list[int]) -> npt.NDArray[np.int64]:
    """Bytes of text in each row, of the columns that ``text_columns`` gave."""
    total = np.zeros(batch.num_rows, np.int64)
    for index in columns:
        lengths = _LENGTH.call([batch.column(index)])
        total += lengths.fill_null(0).to_numpy(zero_copy_only=False)
    return total


def _is_text(type: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type)
        or kinds.is_binary(type)
        or kinds.is_large_string(type)
        or kinds.is_large_binary(type)
    )
