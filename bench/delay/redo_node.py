"""A node of Borealis as its authors' chain ran it: an SUnion before every input, and SOutput.

Checkpoint/redo: while all is stable it notes each ``checkpoint_us`` where it is, and keeps all buckets since
then. A bucket that isn't complete 0.9 X after it began leaves as tentative, those behind it 350 ms after they
began. Once the first of them is complete the node goes back to its checkpoint and takes all buckets again;
what had left as stable is dropped, the rest are the corrections. No IO: time and messages come as arguments.
The figures are those of ``SUnionQBox`` (0.9, 350 ms, 200 ms), the state machine that of SIGMOD 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CORRECTING", "Left", "RedoNode", "Row"]

STABLE, TENTATIVE, CORRECTING = "stable", "tentative", "correcting"

FIRST_SHARE = 0.9
LATER_US = 350_000
CAUGHT_UP_US = 200_000

Row = tuple[int, int]
"""(input, time)."""


@dataclass(frozen=True, slots=True)
class Left:
    """What left it at once. ``undo``: all tentative rows so far are void."""

    at_us: int
    tentative: bool
    rows: tuple[Row, ...]
    undo: bool = False


@dataclass(slots=True)
class _Bucket:
    """``taken``: so many of its rows have been processed."""

    since_us: int
    rows: list[Row] = field(default_factory=list)
    taken: int = 0


class RedoNode:
    """See above.

    Args:
        inputs: how many there are.
        delay_us: X.
        row_us: what a row takes.

    Attributes:
        state: ``stable``, ``tentative`` or ``correcting``.
        again_rows: that it has taken more than once.
        below_rows: of those, that had left as stable before.
    """

    def __init__(
        self, inputs: int, *, bucket_us: int, delay_us: int, checkpoint_us: int, row_us: int
    ) -> None:
        self.state = STABLE
        self.again_rows = self.below_rows = 0
        self._bucket_us, self._delay_us = bucket_us, delay_us
        self._checkpoint_us, self._row_us = checkpoint_us, row_us
        self._buckets: dict[int, _Bucket] = {}
        self._bounds_us = [0] * inputs
        self._next = self._first = self._checkpoint = 0
        self._noted_us = self._busy_us = 0

    def rows(self, input: int, times_us: list[int], now_us: int) -> None:
        """Rows come by an input."""
        for time_us in times_us:
            self._bucket(time_us // self._bucket_us, now_us).rows.append((input, time_us))

    def boundary(self, input: int, time_us: int, now_us: int) -> None:
        """No later row of the input has a time below this. Buckets begin by it too."""
        self._bounds_us[input] = max(self._bounds_us[input], time_us)
        self._bucket(time_us // self._bucket_us, now_us)

    def _bucket(self, number: int, now_us: int) -> _Bucket:
        for missing in range(self._newest + 1, number + 1):
            self._buckets[missing] = _Bucket(now_us)
        return self._buckets[number]

    @property
    def _newest(self) -> int:
        return max(self._buckets, default=-1)

    def _complete(self, number: int) -> bool:
        return number in self._buckets and min(self._bounds_us) >= (number + 1) * self._bucket_us

    def run(self, now_us: int, *, may_correct: bool = True) -> list[Left]:
        """Do what is due.

        Args:
            may_correct: the replica has given leave, so that one of them always answers.
        """
        left: list[Left] = []
        while self._busy_us <= now_us and self._turn(now_us, may_correct, left):
            pass
        return left

    def _turn(self, now_us: int, may_correct: bool, left: list[Left]) -> bool:
        """One bucket, or one step from a state to the next; whether there was any."""
        if self.state == STABLE:
            return self._turn_stable(now_us, left)
        if self.state == TENTATIVE:
            if may_correct and self._complete(self._first):
                self.state = CORRECTING
                self._redo = self._checkpoint
                left.append(Left(now_us, False, (), undo=True))
                return True
            return self._turn_tentative(now_us, left)
        return self._turn_correcting(now_us, left)

    def _turn_stable(self, now_us: int, left: list[Left]) -> bool:
        if self._complete(self._next):
            left.append(Left(self._take(self._next, now_us), False, self._sorted(self._next)))
            self._next += 1
            if now_us - self._noted_us >= self._checkpoint_us:
                self._note(now_us)
            return True
        if self._expired(self._next, now_us, int(self._delay_us * FIRST_SHARE)):
            self.state, self._first = TENTATIVE, self._next
            return True
        return False

    def _turn_tentative(self, now_us: int, left: list[Left]) -> bool:
        wait_us = int(self._delay_us * FIRST_SHARE) if self._next == self._first else LATER_US
        if not self._expired(self._next, now_us, wait_us):
            return False
        left.append(Left(self._take(self._next, now_us), True, self._sorted(self._next)))
        self._next += 1
        return True

    def _turn_correcting(self, now_us: int, left: list[Left]) -> bool:
        if self._complete(self._redo):
            rows = self._sorted(self._redo)
            taken = self._buckets[self._redo].taken
            self.again_rows += taken
            if self._redo < self._first:
                self.below_rows += taken
            at_us = self._take(self._redo, now_us)
            if self._redo >= self._first:
                left.append(Left(at_us, False, rows))
            self._redo += 1
            return True
        if self._expired(self._redo, now_us, int(self._delay_us * FIRST_SHARE)):
            # A failure amid corrections: what was put right stays, and the rest is tentative again.
            self.state, self._first = TENTATIVE, self._redo
            self._next = max(self._next, self._redo)
            return True
        if now_us - self._redo * self._bucket_us < CAUGHT_UP_US + self._bucket_us:
            self.state, self._next = STABLE, self._redo
            self._note(now_us)
            return True
        return False

    def _expired(self, number: int, now_us: int, wait_us: int) -> bool:
        bucket = self._buckets.get(number)
        return bucket is not None and now_us - bucket.since_us >= wait_us

    def _take(self, number: int, now_us: int) -> int:
        """The engine takes a bucket; when it is done."""
        bucket = self._buckets[number]
        bucket.taken = len(bucket.rows)
        self._busy_us = max(self._busy_us, now_us) + bucket.taken * self._row_us
        return self._busy_us

    def _sorted(self, number: int) -> tuple[Row, ...]:
        return tuple(sorted(self._buckets[number].rows, key=lambda row: (row[1], row[0])))

    def _note(self, now_us: int) -> None:
        """A checkpoint; buckets of before are forgotten."""
        self._checkpoint, self._noted_us = self._next, now_us
        for number in [each for each in self._buckets if each < self._next]:
            if number != self._newest:
                del self._buckets[number]
