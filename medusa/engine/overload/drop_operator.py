"""What stands on an arc and leaves rows out when it is told to: by chance, by value, or whole windows.

A valve takes the place of the queues that rows would go to. What it drops depends on the rows that came and
on the shares that it was told, each at its place between the rows; not on how trains are cut. So rows that
come again after a restore are dropped again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from medusa.elements import Boundary, Element, Kind, Train
from medusa.engine.core.box import Queue
from medusa.engine.core.rows import as_bools, as_int64, filter_rows
from medusa.engine.operators.drop import Chance, mixed
from medusa.engine.overload.drop_sites import DropSite
from medusa.engine.qos.delay_utility import Utility

__all__ = ["ALL", "RandomDropOperator", "DropOperator", "ValueDropOperator", "WindowDropOperator", "valve_of"]

Bools = npt.NDArray[np.bool_]

ALL = 2.0
"""A share of this: all rows go, also those of windows of which rows have passed."""

CLASSES = 64
"""Importances are told apart in so many classes between the least and the greatest of the graph."""

FADES = 3
"""Of the counts of importances 1 / 2^3 goes at each decision: what came lately counts most."""

UNIT = 1 << 10
"""What a row counts: fading counts stay whole numbers, which add up to the same in any order."""

BLOCK = 1 << 10
"""Who is important is seen anew after so many rows, and sooner at the beginning."""


class DropOperator(list[tuple[int, Element]], ABC):
    """A drop at a place: stands in for the queues behind it.

    Attributes:
        share: of the rows (or windows) that come, which is dropped; or ``ALL``.
        seen, shed: rows that came, and that were dropped.
    """

    def __init__(self, place: DropSite, seed: int) -> None:
        super().__init__()
        self.place = place
        self.share = 0.0
        self.seen = 0
        self.shed = 0
        self._told: Callable[[pa.RecordBatch, float], None] = lambda rows, importance: None
        self._seed = seed
        self._targets: list[tuple[Queue, int]] = []

    def set(self, share: float) -> None:
        """From now on drop this share."""
        self.share = share

    def report_to(self, told: Callable[[pa.RecordBatch, float], None]) -> None:
        """From now on call with the rows that are dropped, and with their mean importance."""
        self._told = told

    def stand_before(self, targets: Sequence[tuple[Queue, int]]) -> None:
        """From now on what passes goes to these inputs."""
        self._targets = list(targets)

    def append(self, pair: tuple[int, Element], /) -> None:
        element: Element | None = pair[1]
        if isinstance(element, Train):
            if element.kind is Kind.STABLE:
                element = self._pass(element)
                if element is None:
                    return
        elif isinstance(element, Boundary):
            self.reached(element.time_us)
        for queue, input in self._targets:
            queue.append((input, element))  # type: ignore[arg-type]

    def _pass(self, train: Train) -> Train | None:
        """What of a train goes on; the rest is counted."""
        dropped = self.choose(train)
        self.seen += len(train)
        count = 0 if dropped is None else int(np.count_nonzero(dropped))
        if dropped is None or not count:
            return train
        self.shed += count
        marks = pa.array(dropped)
        gone = filter_rows(train, marks) if count < len(train) else train
        self._told(gone.batch, self.importance(gone))
        return filter_rows(train, pa.array(~dropped)) if count < len(train) else None

    @abstractmethod
    def choose(self, train: Train) -> Bools | None:
        """The rows to drop; None: none of them."""

    def reached(self, time_us: int) -> None:
        """A boundary passes."""

    def importance(self, train: Train) -> float:
        """Mean importance of rows; 1 where nobody said."""
        return 1.0

    def look(self) -> Utility:
        """The importance that is lost by the share dropped; both from 0 to 1."""
        return Utility([(0.0, 0.0), (1.0, 1.0)])

    def save(self) -> dict[str, Any]:
        """Everything that what it drops depends on, and its counts, as JSON values."""
        return {"share": self.share, "seen": self.seen, "shed": self.shed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what ``save`` gave.

        Raises:
            ValueError, KeyError, TypeError: it can't have come from there.
        """
        share = _number(state["share"], ALL)
        seen, shed = (_count(state[each]) for each in ("seen", "shed"))
        if shed > seen:
            raise ValueError(f"{shed} rows shed of {seen}")
        self.share, self.seen, self.shed = share, seen, shed


class RandomDropOperator(DropOperator):
    """A hash of the seed and the row's number at this place decides."""

    def choose(self, train: Train) -> Bools | None:
        if not self.share:
            return None
        numbers = np.arange(self.seen, self.seen + len(train), dtype=np.uint64)
        return Chance(self.share, self._seed)(mixed(numbers))


class ValueDropOperator(DropOperator):
    """The least important rows go first; of the class at the margin a hash decides, as at random.

    What share each class has is counted as rows come. A null or NaN has the least importance that there is.
    """

    def __init__(self, place: DropSite, seed: int) -> None:
        super().__init__(place, seed)
        assert place.value is not None, "there is a graph"
        self._column, points = place.value
        self._graph = Utility(points)
        self._least, most = self._graph.bounds
        self._width = (most - self._least) / CLASSES
        self._counts = np.zeros(CLASSES, np.int64)
        self._sums = np.zeros(CLASSES)
        self._aim()

    def set(self, share: float) -> None:
        super().set(share)
        self._counts -= self._counts >> FADES
        self._sums *= 1 - 2.0**-FADES
        self._aim()

    def _aim(self) -> None:
        """By what has been counted, see which class is at the margin, and how much of it goes."""
        counts = self._counts + UNIT // 4  # nothing known: each as likely as the others
        below = np.cumsum(counts) / counts.sum()
        self._margin = min(int(np.searchsorted(below, self.share, side="left")), CLASSES - 1)
        before = float(below[self._margin - 1]) if self._margin else 0.0
        own = float(below[self._margin]) - before
        self._part = min(1.0, (self.share - before) / own) if own > 0 else 1.0

    def choose(self, train: Train) -> Bools | None:
        worth = self._worth(train)
        classes = self._classes(worth)
        self._sums += np.bincount(classes, worth, minlength=CLASSES)
        dropped = np.zeros(len(train), np.bool_) if self.share else None
        start = 0
        while start < len(train):  # so often by the numbers of the rows, wherever trains are cut
            number = self.seen + start
            stop = min(len(train), start + _next_look(number) - number)
            part = classes[start:stop]
            if dropped is not None:
                numbers = np.arange(number, number + stop - start, dtype=np.uint64)
                chance = Chance(self._part, self._seed)(mixed(numbers))
                dropped[start:stop] = (part < self._margin) | ((part == self._margin) & chance)
            self._counts += np.bincount(part, minlength=CLASSES) * UNIT
            if self.seen + stop == _next_look(number):
                self._aim()
            start = stop
        return dropped

    def _worth(self, train: Train) -> npt.NDArray[np.float64]:
        column = pc.cast(train.batch.column(self._column), pa.float64(), safe=False)
        values = column.to_numpy(zero_copy_only=False)  # nulls become NaN
        worth: npt.NDArray[np.float64] = np.where(np.isnan(values), self._least, self._graph.at(values))
        return worth

    def _classes(self, worth: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        if not self._width:
            return np.zeros(len(worth), np.int64)
        return np.minimum(((worth - self._least) / self._width).astype(np.int64), CLASSES - 1)

    def importance(self, train: Train) -> float:
        return float(np.mean(self._worth(train)))

    def look(self) -> Utility:
        rows, worth = np.cumsum(self._counts), np.cumsum(self._sums)
        if not rows[-1] or not worth[-1]:
            return super().look()
        points = {0.0: 0.0}
        points |= {round(r / rows[-1], 9): w / worth[-1] for r, w in zip(rows, worth, strict=True)}
        return Utility(sorted(points.items()))

    def save(self) -> dict[str, Any]:
        more = {"counts": self._counts.tolist(), "sums": self._sums.tolist()}
        return {**super().save(), **more, "margin": self._margin, "part": self._part}

    def load(self, state: Mapping[str, Any]) -> None:
        counts, sums = [_count(each) for each in state["counts"]], [_number(each) for each in state["sums"]]
        margin, part = _count(state["margin"]), _number(state["part"], 1.0)
        if len(counts) != CLASSES or len(sums) != CLASSES or margin >= CLASSES:
            raise ValueError(f"not {CLASSES} classes, one at the margin")
        super().load(state)
        self._counts, self._sums = np.array(counts, np.int64), np.array(sums)
        self._margin, self._part = margin, part


class WindowDropOperator(DropOperator):
    """Whole windows go, of all keys, decided when the first row of one comes and kept to.

    So a window below is what it would be, or isn't there: one of which only some rows are gone is left out by
    the ``WindowFilter`` behind it. Windows are dropped evenly: of a share of a third every third. Late rows
    pass: the windows below leave them out.
    """

    def __init__(self, place: DropSite, seed: int) -> None:
        super().__init__(place, seed)
        assert place.window_us is not None, "it goes by windows"
        self._window_us = place.window_us
        self._missed: Callable[[int, int], None] = lambda begin_us, end_us: None
        self._owed = 0.0
        self._decided: dict[int, bool] = {}
        slid_us = max((each.slid_us for each in place.windows), default=0)
        self._edge = min(1.0, slid_us / self._window_us)

    def look(self) -> Utility:
        """At the edges of what is dropped, and of what is kept, windows are lost that lie there in part."""
        return Utility([(0.0, 0.0), (0.5, 0.5 + self._edge / 2), (1.0, 1.0)])

    def choose(self, train: Train) -> Bools | None:
        if train.extent is not None and train.late is None:  # as most come: all of one window
            first, last = (us // self._window_us for us in train.extent)
            if first == last:
                return np.ones(len(train), np.bool_) if self._decide(first) else None
        numbers = as_int64(train.times) // self._window_us
        on_time = None if train.late is None else ~as_bools(train.late)
        windows, firsts = np.unique(numbers if on_time is None else numbers[on_time], return_index=True)
        in_order = windows[np.argsort(firsts)]  # in which they would come row by row
        gone = [window for window in in_order.tolist() if self._decide(window)]
        if not gone:
            return None
        dropped: Bools = np.isin(numbers, gone)
        if on_time is not None:
            np.logical_and(dropped, on_time, out=dropped)
        return dropped

    def _decide(self, window: int) -> bool:
        if self.share >= ALL:
            if not self._decided.get(window):
                self._decided[window] = True
                self._miss(window)
        elif window not in self._decided:
            self._owed += self.share
            drops = self._owed >= 1.0 - 1e-9
            self._owed -= drops
            self._decided[window] = drops
            if drops:
                self._miss(window)
        return self._decided[window]

    def _miss(self, window: int) -> None:
        self._missed(window * self._window_us, (window + 1) * self._window_us)

    def warn_of_gaps(self, missed: Callable[[int, int], None]) -> None:
        """From now on call with times, from and up to, of which rows are dropped; at once with those of which
        some are: windows below may be new."""
        self._missed = missed
        for window, drops in self._decided.items():
            if drops:
                self._miss(window)

    def reached(self, time_us: int) -> None:
        """What has passed is forgotten."""
        done = [window for window in self._decided if (window + 1) * self._window_us <= time_us]
        for window in done:
            del self._decided[window]

    def save(self) -> dict[str, Any]:
        decided = [[window, drops] for window, drops in self._decided.items()]
        return {**super().save(), "owed": self._owed, "decided": decided}

    def load(self, state: Mapping[str, Any]) -> None:
        owed, decided = _number(state["owed"], 2.0), {}
        for window, drops in state["decided"]:
            if type(window) is not int or type(drops) is not bool:
                raise TypeError(f"not a window and whether it goes: {window!r:.80}, {drops!r:.80}")
            decided[window] = drops
        super().load(state)
        self._owed, self._decided = owed, decided


def _next_look(number: int) -> int:
    """The row at which importances are looked at next: after 1, 2, 4 ... rows, then every ``BLOCK``."""
    return 1 << number.bit_length() if number < BLOCK else (number // BLOCK + 1) * BLOCK


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"not a count: {value!r:.80}")
    return value


def _number(value: Any, most: float = math.inf) -> float:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"not a number of 0 to {most}: {value!r:.80}")
    return float(value)


def valve_of(place: DropSite, seed: int) -> DropOperator:
    """The valve for a place."""
    if place.window_us is not None:
        return WindowDropOperator(place, seed)
    return RandomDropOperator(place, seed) if place.value is None else ValueDropOperator(place, seed)
