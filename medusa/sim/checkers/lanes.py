"""Both lanes of a stream as a program reads them: what it was shown, when, and what of that stays.

The stable lane is compared with the rows of a run without failures as they come, so a row that was shown is
never taken back; tentative rows are those of keys that there are. The table of both is a plain one's whenever
the stream is otherwise than before, and when it promises something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.elements import Train
from medusa.runtime.client.followed_table import CorrectedRows
from medusa.sim.checkers.plain_table import Key, PlainTable
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.link.tentative_receiver import StateChanged, TentativePromise, TentativeRowsCame
from medusa.wire.messages.tentative import STABLE

__all__ = ["LaneChecks", "Shown"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as it came, on whichever lane."""

    at_us: int
    row: dict[str, Any]
    tentative: bool


class LaneChecks:
    """Of one stream at one reader.

    Attributes:
        shown: key -> the rows that came with it.
        forks: that were said to be there.
        turns: when the stream became otherwise, and how; without those after which it is as before.
        corrected: when it was said that all is corrected, and how many rows that count had come.
        state: as the reader knows it.
        missed_us: when an input of it was missing first; None: none was.
        tentative_rows: so many came.

    Args:
        want: the rows without failures, in their order.
        key: columns by which rows are told apart, as ``Subscription.table`` takes them.
        now: the time of the world.
    """

    def __init__(self, stream: str, want: pa.Table, key: Sequence[str], *, now: Callable[[], int]) -> None:
        self.shown: dict[Key, list[Shown]] = {}
        self.forks: list[int] = []
        self._changes: list[tuple[int, str, int]] = []
        """When the stream was said to be otherwise: state and fork."""
        self.turns: list[tuple[int, str]] = []
        self.corrected: list[tuple[int, int]] = []
        self.state = STABLE
        self.missed_us: int | None = None
        self.tentative_rows = 0
        self._stream = stream
        self._want = want
        self._key = list(key)
        self._ordered = self.keys_of(want)
        self._keys = set(self._ordered)
        self._now = now
        self._next = 0
        self._fork = 0
        self._to_correct = False
        """It was said that something is missing, or comes late."""
        self._table = CorrectedRows(want.schema, key)
        self._plain = PlainTable()

    def keys_of(self, rows: pa.Table | pa.RecordBatch) -> list[Key]:
        """The key of each row."""
        return list(zip(*(rows.column(name).to_pylist() for name in self._key), strict=True))

    def stable(self, train: Train) -> None:
        """Rows of the stable lane came."""
        end = self._next + len(train)
        want = self._want.slice(self._next, len(train))
        if not pa.Table.from_batches([train.batch], self._want.schema).equals(want):
            self._fail(
                f"stable rows {self._next} to {end} are {train.batch.to_pylist()}, not {want.to_pylist()}"
            )
        self._next = end
        self._table.stable(train)
        self._plain.stable(self._shown(train.batch, tentative=False))

    def promised(self, time_us: int) -> None:
        """The stable lane has come so far."""
        self._table.promised(time_us)
        self._plain.promised(time_us)
        self._check_table()

    def turned(self, change: StateChanged) -> None:
        """The stream is otherwise."""
        is_another = change.fork != self._fork
        self.state, self._fork = change.state, change.fork
        self._changes.append((self._now(), change.state, change.fork))
        if change.fork and change.fork not in self.forks:
            self.forks.append(change.fork)
        if change.fork and change.state == STABLE:
            self._fail(f"is stable, and rows of fork {change.fork} hold")
        if change.state == "up_failure" and self.missed_us is None:
            self.missed_us = self._now()
        if not self.turns or self.turns[-1][1] != change.state:
            self.turns.append((self._now(), change.state))
        if change.state == STABLE and self._to_correct:
            self.corrected.append((self._now(), self._next))
        self._to_correct = change.state in ("up_failure", "stabilization") or (
            self._to_correct and change.state != STABLE
        )
        self._table.turned(change.fork)
        if is_another:
            self._plain.has_another_fork()
        self._check_table()

    def tentative(self, came: TentativeRowsCame, train: Train) -> None:
        """Rows of the tentative lane came."""
        if came.fork != self._fork or self.state == STABLE:
            self._fail(f"tentative rows of fork {came.fork} came, it is {self.state} with {self._fork}")
        if unknown := set(self.keys_of(train.batch)) - self._keys:
            self._fail(f"tentative rows of {min(unknown, key=repr)}, and there are none")
        self.tentative_rows += len(train)
        self._table.tentative(train, came.fork)
        assert train.times is not None, "an output with delay has times"
        times = train.times.cast(pa.int64()).to_pylist()
        rows = self._shown(train.batch, tentative=True)
        self._plain.tentative((*row, time_us) for row, time_us in zip(rows, times, strict=True))

    def promised_tentatively(self, promise: TentativePromise) -> None:
        """The tentative lane has come so far."""
        if promise.fork != self._fork or self.state == STABLE:
            self._fail(f"fork {promise.fork} promises, it is {self.state} with {self._fork}")

    def _shown(self, batch: pa.RecordBatch, *, tentative: bool) -> list[tuple[Key, dict[str, Any]]]:
        rows = list(zip(self.keys_of(batch), batch.to_pylist(), strict=True))
        for key, row in rows:
            self.shown.setdefault(key, []).append(Shown(self._now(), row, tentative))
        return rows

    def left(self, stable_rows: int) -> set[Key]:
        """The keys of the rows after so many of those that count."""
        return set(self._ordered[stable_rows:])

    def _check_table(self) -> None:
        wanted, tentative = self._plain.rows(), len(self._plain.tentative_keys)
        table = self._table.arrow()
        found = dict(zip(self.keys_of(table), table.to_pylist(), strict=True))
        if found != wanted or table.num_rows != len(wanted) or self._table.tentative_rows != tentative:
            self._fail(
                f"the table has {table.num_rows} rows, {self._table.tentative_rows} of them tentative; what"
                f" came makes {len(wanted)}, {tentative} of them tentative"
            )

    def has_fork(self, from_us: int, to_us: int) -> bool:
        """Whether an input was missing all the time, as the reader knew, and one fork there."""
        before = [turn for turn in self._changes if turn[0] <= from_us]
        meanwhile = [turn for turn in self._changes if from_us < turn[0] <= to_us]
        return bool(before) and not meanwhile and before[-1][1] == "up_failure" and before[-1][2] > 0

    @property
    def settled(self) -> bool:
        """Nothing is tentative, or may be."""
        return self.state == STABLE and not self._table.tentative_rows

    def check_end(self) -> None:
        """All has come, and has healed.

        Raises:
            SimulationError: rows are missing, something is tentative, or the table isn't that of the rows.
        """
        if self._next != len(self._want):
            self._fail(f"{self._next} stable rows came of {len(self._want)}")
        if self.state != STABLE:
            self._fail(f"is {self.state} in the end")
        if left := self._table.tentative_rows:
            self._fail(f"{left} rows of the table are tentative in the end")
        last = dict(zip(self.keys_of(self._want), self._want.to_pylist(), strict=True))
        table = self._table.arrow()
        found = dict(zip(self.keys_of(table), table.to_pylist(), strict=True))
        if found != last or table.num_rows != len(last):
            self._fail(
                f"the table has {len(found)} keys and others rows than the stream, which has {len(last)}"
            )

    def _fail(self, what: str) -> None:
        raise SimulationError(f"lanes: {self._stream}: {what}")
