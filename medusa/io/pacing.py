"""Rows of a file at the pace of their times, a chosen number of times as fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from medusa.errors import DataError

__all__ = ["paced", "paced_by"]

STEP_S = 0.1
"""Rows of so much time of this machine are sent at once."""


def paced(
    batches: Iterator[Any],
    column: str,
    speed: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Iterator[Any]:
    """The same rows, each when its time has come: ``speed`` seconds of the file in one of the clock.

    Raises:
        DataError: the column is no timestamp, or null.
    """
    import pyarrow as pa

    def timed() -> Iterator[tuple[Any, Any]]:
        for batch in batches:
            times = batch.column(batch.schema.names.index(column))
            if not pa.types.is_timestamp(times.type) or times.null_count:
                raise DataError(
                    f"--time {column}: expected timestamps without null, got {times.type}", code="data.time"
                )
            yield batch, times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64()).to_numpy()

    return paced_by(timed(), speed, clock=clock, sleep=sleep)


def paced_by(
    batches: Iterator[tuple[Any, Any]],
    speed: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Iterator[Any]:
    """The same, of batches with their times in microseconds beside them; a batch may come in slices."""
    import numpy as np

    began, first_us, highest_us = clock(), None, -(1 << 63)
    for batch, micros in batches:
        peaks = np.maximum(np.maximum.accumulate(micros), highest_us)
        first_us = int(micros[0]) if first_us is None and len(micros) else first_us
        row = 0
        while row < batch.num_rows and first_us is not None:
            due = began + (int(peaks[row]) - first_us) / 1e6 / speed
            wait = due - clock()
            if wait > 0:
                sleep(wait)
            reached_us = first_us + (max(clock(), due) - began + STEP_S) * speed * 1e6
            end = max(row + 1, int(np.searchsorted(peaks, reached_us, side="right")))
            yield batch.slice(row, end - row)
            row = end
        if len(peaks):
            highest_us = int(peaks[-1])
