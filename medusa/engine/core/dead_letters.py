"""Rows on which an expression failed: counted, the first of each box kept, one warning."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.elements import Train
from medusa.errors import DataError
from medusa.query.boxes.base import DEAD_SCHEMA
from medusa.query.types import schema_to_arrow

__all__ = ["DeadLetters", "DeadRow"]

KEPT_MAX = 100
"""Dead rows kept of each box."""

ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A row that was left out.

    Attributes:
        box: where it failed.
        error: why.
        row: the input row of that box, by column.
    """

    box: str
    error: str
    row: Mapping[str, Any]


class DeadLetters:
    """What failed in one fragment.

    Args:
        stop: raise at the first failed row instead of leaving it out.
    """

    def __init__(self, *, stop: bool = False) -> None:
        self._stop = stop
        self._kept: dict[str, list[DeadRow]] = {}
        self.fresh: DeadRow | None = None
        """The first dead row ever, until the owner has warned of it and calls ``told``."""
        self._any = False
        self._taps: dict[str, Callable[[Train], None]] = {}

    def tap(self, box: str, send: Callable[[Train], None]) -> None:
        """Send every failed row of a box on, too."""
        self._taps[box] = send

    def untap(self) -> None:
        """Send them nowhere any more."""
        self._taps.clear()

    def room(self, box: str) -> int:
        """How many more rows of this box are wanted."""
        if box in self._taps:
            return ALL
        return KEPT_MAX - len(self._kept.get(box, ()))

    def add(self, *rows: DeadRow) -> None:
        """Keep rows of one box, as far as there is room, and send them to its ``.dead`` if that is read.

        Raises:
            DataError: failed rows are to stop the run.
        """
        for row in rows:
            self._keep(row)
        tap = self._taps.get(rows[0].box) if rows else None
        if tap is not None:
            tap(dead_train(rows))

    def _keep(self, row: DeadRow) -> None:
        if self._stop:
            raise DataError(
                f"box {row.box!r}: {row.error}",
                hint=f'the row is {dict(row.row)}; on_error="dead" leaves such rows out and counts them',
                code="data.dead",
            )
        kept = self._kept.setdefault(row.box, [])
        if len(kept) < KEPT_MAX:
            kept.append(row)
        if not self._any:
            self._any = True
            self.fresh = row

    def told(self) -> None:
        """The owner has warned of ``fresh``."""
        self.fresh = None

    def rows(self) -> list[DeadRow]:
        """Those kept, by box in order of first failure, then in order of failure."""
        return [row for kept in self._kept.values() for row in kept]


_SCHEMA = schema_to_arrow(DEAD_SCHEMA)


def dead_train(rows: Sequence[DeadRow]) -> Train:
    """Failed rows as rows of ``.dead``."""
    columns = [
        pa.array([row.box for row in rows], pa.string()),
        pa.array([row.error for row in rows], pa.string()),
        pa.array([row_json(row.row) for row in rows], pa.string()),
    ]
    return Train(batch=pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))


def row_json(row: Mapping[str, Any]) -> str:
    """A row as JSON: times as ISO 8601, bytes in hex, decimals and what JSON has no number for as text."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def plain_value(scalar: pa.Scalar) -> Any:
    """A value as Python has it; a time out of the range of ``datetime`` as its number."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value
