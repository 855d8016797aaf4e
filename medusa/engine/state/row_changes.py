"""What changed in a table of rows with numbers since a capture of it, for boxes that keep rows as they came.

A row never changes but for a mark; rows are added behind the others, and may go. So the numbers at a capture
and the marks say all: 9 bytes per row, or none at all where no row goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from medusa.engine.state.capture import Capture

__all__ = [
    "TableChange",
    "GrowingRows",
    "NumberedRows",
    "SlotChanges",
    "SlotsSince",
    "SlottedRows",
    "slots_changed",
]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")

CAPTURES = 3
"""Remembered at most: the one that is on disk, and those that may get there."""

SPREAD = 4
"""So many numbers per row, up to which places are looked up in a table of all numbers."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a table is made of the one at an earlier capture and of fresh rows.

    Attributes:
        base_rows: of the earlier one.
        runs: (start, length) into the rows of the earlier one and then the fresh ones.
    """

    base_rows: int
    runs: Ints

    @property
    def rows(self) -> int:
        """Of the table now."""
        return int(self.runs[:, 1].sum())

    @property
    def same(self) -> bool:
        """Nothing changed."""
        if len(self.runs) > 1:
            return False
        return self.runs[0].tolist() == [0, self.base_rows] if len(self.runs) else not self.base_rows


class _Captures(Generic[T]):
    """What was noted at the last captures."""

    def __init__(self) -> None:
        self._noted: dict[int, T] = {}

    def turn(self, capture: Capture, now: T) -> T | None:
        """Note it, forget what is asked for no more; what was noted at the base."""
        found = self._noted.get(capture.base)
        others = [number for number in sorted(self._noted) if number > capture.base]
        kept = [*([capture.base] if found is not None else []), *others[1 - CAPTURES :]]
        self._noted = {number: self._noted[number] for number in kept}
        self._noted[capture.number] = now
        return found


class GrowingRows:
    """Of a table of which no row changes or goes."""

    def __init__(self) -> None:
        self._captures: _Captures[int] = _Captures()

    def since(self, capture: Capture, rows: int) -> TableChange | None:
        """What is new since the base of a capture; None: nothing is known of that.

        Args:
            rows: of the table now.
        """
        base = self._captures.turn(capture, rows)
        if base is None or base > rows or rows - base > rows // 2:
            return None
        runs = [(start, length) for start, length in ((0, base), (base, rows - base)) if length]
        return TableChange(base, np.array(runs, dtype=np.int64).reshape(-1, 2))


class NumberedRows:
    """Of a table of rows with numbers that ascend."""

    def __init__(self) -> None:
        self._captures: _Captures[tuple[Ints, Bools]] = _Captures()

    def since(self, capture: Capture, numbers: Ints, marks: Bools) -> tuple[TableChange, Ints] | None:
        """What changed since the base of a capture, and which rows of now are fresh or marked otherwise.

        Args:
            numbers: of the rows now.
            marks: theirs; not changed afterwards.

        Returns:
            None: nothing is known of the base, or more than half changed.
        """
        base = self._captures.turn(capture, (numbers.copy(), marks))
        if base is None:
            return None
        held, marked = base
        found = _behind(held, marked, numbers, marks)
        if found is None:
            found = _anywhere(held, marked, numbers, marks)
        return found if len(found[1]) <= len(numbers) // 2 else None


@dataclass(frozen=True, slots=True)
class SlottedRows:
    """Where the rows of each slot stand in a table by slot, of which some newer ones stand apart.

    Attributes:
        held: the slot of each row, ascending.
        newer: the same of the newer ones; where a slot has any, those in ``held`` count no more.
    """

    held: Ints
    newer: Ints

    def before(self, slots: Ints) -> Ints:
        """How many rows stand before those of each slot."""
        seen = self.newer[np.flatnonzero(np.diff(self.newer, prepend=-1))]
        begins = _places_of(self.held)
        gone = np.concatenate([[0], np.cumsum(begins(seen + 1) - begins(seen))])
        found = begins(slots) + self.newer.searchsorted(slots) - gone[seen.searchsorted(slots)]
        return np.asarray(found, dtype=np.int64)


def _places_of(held: Ints) -> Callable[[Ints], Ints]:
    """Gives how many of these slots, which ascend, are below each of some. Of 0, 1, 2 ..., a row each, as
    most are, nothing is searched."""
    if len(held) and held[0] == 0 and held[-1] == len(held) - 1 and (held[1:] > held[:-1]).all():
        return lambda slots: np.minimum(slots, len(held))
    return lambda slots: held.searchsorted(slots)


@dataclass(frozen=True, slots=True)
class SlotsSince:
    """Slots at a capture, and marks of those that changed after it. Nothing of it changes any more, so it is
    read in any thread, and the capture that asks needn't wait.

    Attributes:
        then: where rows stood.
        slots: how many there were.
        marks: of those that changed; where there are several, together.
    """

    then: SlottedRows
    slots: int
    marks: Sequence[Bools]

    def changed(self, slots: int) -> Ints | None:
        """Those that changed or came, ascending; None: more than half of all.

        Args:
            slots: how many there are now.
        """
        found = np.zeros(self.slots, dtype=np.bool_)
        for marks in self.marks:
            found |= marks[: self.slots]
        changed = np.concatenate([np.flatnonzero(found), np.arange(self.slots, slots)])
        return changed if len(changed) <= slots // 2 else None


class SlotChanges:
    """Which of the slots 0, 1, 2 ... changed since a capture, where every slot has a row at least."""

    def __init__(self) -> None:
        self._captures: dict[int, SlotsSince] = {}
        """By number, ascending; the marks of each are of what changed up to the next."""

    def note(self, slots: Ints) -> None:
        """These change, or come; they ascend."""
        if self._captures:
            (marks,) = next(reversed(self._captures.values())).marks
            marks[slots[: slots.searchsorted(len(marks))]] = True

    def since(self, capture: Capture, rows: SlottedRows, slots: int) -> SlotsSince | None:
        """What changed since the base of a capture; None: nothing is known of that.

        Args:
            rows: where they stand now.
            slots: how many there are now.
        """
        for number in [number for number in self._captures if number < capture.base]:
            del self._captures[number]
        while len(self._captures) > CAPTURES:
            self._forget(list(self._captures)[1 if capture.base in self._captures else 0])
        base = self._captures.get(capture.base)
        marks = [marks for each in self._captures.values() for marks in each.marks]
        self._captures[capture.number] = SlotsSince(rows, slots, [np.zeros(slots, dtype=np.bool_)])
        return SlotsSince(base.then, base.slots, marks) if base is not None else None

    def _forget(self, number: int) -> None:
        """What changed after it changed after the one before it too."""
        gone = self._captures.pop(number)
        before = [each for each in self._captures if each < number]
        if before:
            to = self._captures[before[-1]]
            marks = [each[: to.slots] for each in (*to.marks, *gone.marks)]
            self._captures[before[-1]] = SlotsSince(to.then, to.slots, [np.logical_or(*marks)])


def slots_changed(then: SlottedRows, slots: Ints, fresh: Ints) -> TableChange:
    """How a table by slot is made of an earlier one.

    Args:
        then: of the earlier one.
        slots: those that changed, ascending.
        fresh: the slot of each of their rows now, ascending.
    """
    bounds = then.before(np.concatenate([slots, slots + 1, [np.iinfo(np.int64).max]]))
    begins, ends, rows = bounds[: len(slots)], bounds[len(slots) : -1], int(bounds[-1])
    first = fresh.searchsorted(slots)
    # The rows between two that changed, then those of that one; at last those behind.
    runs = np.empty((2 * len(slots) + 1, 2), dtype=np.int64)
    runs[0::2, 0] = np.concatenate([[0], ends])
    runs[0::2, 1] = np.append(begins, rows) - runs[0::2, 0]
    runs[1::2, 0] = rows + first
    runs[1::2, 1] = fresh.searchsorted(slots, side="right") - first
    return TableChange(rows, runs[runs[:, 1] > 0])


def _behind(held: Ints, marked: Bools, numbers: Ints, marks: Bools) -> tuple[TableChange, Ints] | None:
    """Where rows only went in front and came behind, so that few need be looked at; None: elsewhere."""
    if not len(held) or not len(numbers):
        return None
    gone = int(held.searchsorted(numbers[0]))
    stay = len(held) - gone
    if not 0 < stay <= len(numbers) or not np.array_equal(held[gone:], numbers[:stay]):
        return None
    marked_anew = np.flatnonzero(marked[gone:] != marks[:stay])
    fresh = np.concatenate([marked_anew, np.arange(stay, len(numbers))])
    # The rows between two that are marked anew, then that one; at last those that came.
    runs = np.empty((2 * len(marked_anew) + 2, 2), dtype=np.int64)
    ends = np.append(marked_anew, stay)
    begins = np.concatenate([[0], marked_anew + 1])
    runs[0::2, 0], runs[0::2, 1] = gone + begins, ends - begins
    runs[1::2, 0] = len(held) + np.arange(len(ends))
    runs[1::2, 1] = 1
    runs[-1, 1] = len(numbers) - stay
    return TableChange(len(held), runs[runs[:, 1] > 0]), fresh


def _anywhere(held: Ints, marked: Bools, numbers: Ints, marks: Bools) -> tuple[TableChange, Ints]:
    place = _places(held, numbers)
    kept = place >= 0
    kept[kept] = marked[place[kept]] == marks[kept]
    fresh = np.flatnonzero(~kept)
    place[fresh] = len(held) + np.arange(len(fresh))
    begins = np.ones(len(numbers), dtype=np.bool_)
    begins[1:] = (np.diff(place) != 1) | (place[1:] == len(held))
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(numbers))
    return TableChange(len(held), np.stack([place[starts], lengths], axis=1)), fresh


def _places(held: Ints, wanted: Ints) -> Ints:
    """Where each of the wanted numbers stands among those held, both ascending; -1: nowhere."""
    if not len(held) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    first, last = int(held[0]), int(held[-1])
    if last - first == len(held) - 1:  # none has gone
        at = wanted - first
        at[(at < 0) | (at >= len(held))] = -1
        return at
    if last - first < SPREAD * len(held):
        table = np.full(last - first + 1, -1, dtype=np.int64)
        table[held - first] = np.arange(len(held))
        low, high = np.searchsorted(wanted, [first, last + 1])
        found = np.full(len(wanted), -1, dtype=np.int64)
        found[low:high] = table[wanted[low:high] - first]
        return found
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.where(held[at] == wanted, at, -1)
