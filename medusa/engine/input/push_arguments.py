"""What is said at a push beside the rows: from which row on, when they came, up to when nothing comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from medusa.elements import END_US, START_US
from medusa.errors import DataError, QueryError
from medusa.query.expressions.text_casts import read_timestamp

__all__ = ["boundary_time_us", "callback", "from_first"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_first(batches: list[pa.RecordBatch], first: int, accepted: int, source: str) -> list[pa.RecordBatch]:
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise DataError(
            f"source {source!r}: first is the number of a row, got {first!r:.80}", code="data.argument"
        )
    if first > accepted:
        raise DataError(
            f"source {source!r}: rows {accepted} to {first - 1} are missing before row {first}",
            hint="push from positions()",
            code="data.gap",
        )
    skip, kept = accepted - first, []
    for batch in batches:
        if skip < batch.num_rows:
            kept.append(batch.slice(skip) if skip else batch)
        skip = max(0, skip - batch.num_rows)
    return kept


def boundary_time_us(time: object, box: str, what: str = "a boundary", *, kind: str = "source") -> int:
    """The time of an explicit boundary (or of ``what``) in microseconds; whole ones, a datetime or text.

    Args:
        box, kind: where it is said, for the error.

    Raises:
        DataError: it is no time.
    """
    found: int | None = None
    if isinstance(time, bool):
        pass
    elif isinstance(time, int):
        found = time
    elif isinstance(time, datetime):
        aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        found = (aware - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(time, str):
        found = read_timestamp(time)
    if found is None or not START_US < found < END_US:
        raise DataError(
            f"{kind} {box!r}: {time!r:.80} is no time for {what}",
            hint='microseconds since 1970, a datetime, or text such as "2026-03-01 12:00:00"',
            code="data.time",
        )
    return found


def callback(call: Callable[[pa.Table], object], what: str) -> Callable[[pa.Table], object]:
    """What is called with tables, checked.

    Raises:
        QueryError: it can't be called.
    """
    if not callable(call):
        raise QueryError(
            f"{what}: expected a function that takes a table, got {call!r:.80}", code="query.argument"
        )
    return call
