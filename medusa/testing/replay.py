"""Sources that replay a table: at a chosen speed or in simulated time, that stop, abort or repeat."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from medusa.engine.core.rows import as_int64
from medusa.errors import DataError, MedusaError
from medusa.ports import Clock
from medusa.units import Duration, duration_us

__all__ = ["Aborted", "ManualClock", "Replay", "replay"]


class Aborted(MedusaError):
    """A source broke off, as it was asked to."""

    code = "testing.aborted"


class Target(Protocol):
    """What rows are pushed into: a run."""

    def push(self, source: str, data: Any, /) -> None: ...

    def positions(self) -> dict[str, int]: ...


class ManualClock:
    """A clock that stands until it is moved: ``md.start(q, clock=clock)``."""

    def __init__(self, start_us: int = 0) -> None:
        self._us = start_us

    def now_us(self) -> int:
        """Microseconds since 1970, as far as it has been moved."""
        return self._us

    def monotonic_us(self) -> int:
        """The same: it never goes back."""
        return self._us

    def advance(self, length: Duration) -> None:
        """Let time pass: ``"10s"``, a timedelta, or microseconds."""
        self._us += duration_us(length, what="advance", minimum_us=0)

    def sleep_until(self, us: int) -> None:
        """Move on to a moment; one that has passed changes nothing."""
        self._us = max(self._us, us)


@dataclass(frozen=True, slots=True)
class _Step:
    due_us: int
    """In the time of the rows: the largest up to the last row of the step."""
    first: int
    rows: pa.RecordBatch


class Replay:
    """Rows of a table as one source of a run.

    Args:
        source: the name of the source.
        table: anything with the Arrow PyCapsule interface; rows go in their order.
        by: the column of times that sets the pace, and the order among several sources: a timestamp,
            or integers that count microseconds.
        rows: rows of a push.
        stop_after: end after so many rows of the table, without an end of the source.
        abort_after: raise ``Aborted`` after so many rows of the table.
        repeat: each push begins with so many rows that came before it, as after a reconnect.
        numbered: pushes say the number of their first row (``first=``), so that a run drops what it
            holds already. False: repeated rows count twice.
    """

    def __init__(
        self,
        source: str,
        table: Any,
        *,
        by: str = "ts",
        rows: int = 1_000,
        stop_after: int | None = None,
        abort_after: int | None = None,
        repeat: int = 0,
        numbered: bool = True,
    ) -> None:
        if rows < 1 or repeat < 0:
            raise DataError(
                f"Replay {source!r}: rows must be at least 1 and repeat at least 0", code="data.argument"
            )
        self.source = source
        self._table = pa.table(table).combine_chunks()
        if by not in self._table.schema.names:
            raise DataError(f"Replay {source!r}: there is no column {by!r}", code="data.column")
        column = self._table.column(by)
        times = column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
        numbers = as_int64(times.cast(pa.int64()).combine_chunks())
        self._peaks = np.maximum.accumulate(numbers) if len(numbers) else numbers
        self._rows = rows
        self._stop_after = stop_after
        self._abort_after = abort_after
        self._repeat = repeat
        self._numbered = numbered

    def into(self, run: Target, *, speed: float | None = None, clock: Clock | None = None) -> int:
        """Push all rows that the run doesn't hold yet; see ``replay``."""
        return replay(run, self, speed=speed, clock=clock)

    def steps(self, position: int) -> Iterator[_Step]:
        """The pushes from a row on; raises ``Aborted`` where the source breaks off."""
        ends = [
            each for each in (self._stop_after, self._abort_after, self._table.num_rows) if each is not None
        ]
        end = min(ends)
        for start in range(position, end, self._rows):
            stop = min(start + self._rows, end)
            first = max(0, start - self._repeat)
            (batch,) = self._table.slice(first, stop - first).combine_chunks().to_batches()
            yield _Step(int(self._peaks[stop - 1]), first, batch)
        if self._abort_after is not None and end == self._abort_after:
            raise Aborted(f"source {self.source!r} broke off after {end} rows, as it was asked to")

    def push(self, run: Any, step: _Step) -> None:
        """Push one step, numbered unless the replay isn't."""
        if self._numbered:
            run.push(self.source, step.rows, first=step.first)
        else:
            run.push(self.source, step.rows)


def replay(run: Target, *sources: Replay, speed: float | None = None, clock: Clock | None = None) -> int:
    """Push the rows of several sources into a run, merged by their times.

    Each source goes on from ``run.positions()``: after a restore, call it again. It doesn't finish
    the run.

    Args:
        speed: stream time over clock time: 1 as it happened, 60 an hour in a minute; None: as fast as
            it goes.
        clock: a ``ManualClock`` is moved, so that the run sees time pass while nobody waits; without one,
            and with a speed, this sleeps.

    Returns:
        How many pushes were made.

    Raises:
        Aborted: a source broke off; what was pushed before stays.
        DataError, FullError, StateError: as the push raises.
    """
    if speed is not None and not speed > 0:
        raise DataError(f"speed must be more than 0, got {speed!r}", code="data.argument")
    positions = run.positions()
    for each in sources:
        if each.source not in positions:
            raise DataError(f"the run has no source {each.source!r}", code="data.source")
    begun: tuple[int, int] | None = None
    pushes = 0
    for step, _, each in heapq.merge(
        *(_numbered(number, each, positions[each.source]) for number, each in enumerate(sources)),
        key=lambda found: (found[0].due_us, found[1]),
    ):
        if speed is not None:
            now_us = clock.monotonic_us() if clock is not None else _now_us()
            begun = begun or (now_us, step.due_us)
            _wait(clock, begun[0] + int((step.due_us - begun[1]) / speed))
        each.push(run, step)
        pushes += 1
    return pushes


def _numbered(number: int, each: Replay, position: int) -> Iterator[tuple[_Step, int, Replay]]:
    for step in each.steps(position):
        yield step, number, each


def _now_us() -> int:
    return time.monotonic_ns() // 1_000


def _wait(clock: Clock | None, until_us: int) -> None:
    if isinstance(clock, ManualClock):
        clock.sleep_until(until_us)
        return
    left = until_us - (_now_us() if clock is None else clock.monotonic_us())
    if left > 0:
        time.sleep(left / 1e6)
