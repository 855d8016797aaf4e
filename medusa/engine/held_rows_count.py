"""How many rows a fragment holds: taken, and not all that comes of them has left.

A row counts where it enters the first box with state on its way. Each box with state says, as a
function of the row's time, at what time the last result comes that the row has a part in; behind each
other they make the time at which the row's last result leaves by a sink. As long as the sink's boundary
isn't above that, the row is held. All those functions grow with the time, so the rows held for any of
several sinks are those held for one of them.

Before that box nothing is kept, so a row that enters it is of the source that is being fed.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from medusa.elements import Kind, Train
from medusa.engine.core.box import Operator, Stateless
from medusa.engine.core.rows import as_int64
from medusa.engine.fragment import Fragment
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.source import SourceBox
from medusa.query.boxes import Box, Graph, Input

__all__ = ["NOTHING", "HeldRowsCount", "RowsAtRisk", "row_by_row", "uncounted"]

Times: TypeAlias = NDArray[np.int64]
Step: TypeAlias = tuple[int, int, int]
"""(advance, size, later): the end of the last window that has the time, less 1; or so much later."""

SAME: Step = (0, 0, 0)
PATHS_MAX = 16
"""Different ways from one box to one sink; with more nobody knows."""

PIECES_MAX = 64


class RowsAtRisk(NamedTuple):
    """What dies with a fragment.

    Attributes:
        rows: of which not all results have left; None: nobody can say.
        promises: of each source that judges lateness itself, the time below which rows are late.
        sources: how many of the rows came by each source; those with none are left out.
    """

    rows: int | None = 0
    promises: tuple[tuple[str, int], ...] = ()
    sources: tuple[tuple[str, int], ...] = ()


NOTHING = RowsAtRisk()


class HeldRowsCount:
    """Counts for one fragment, from its first element on.

    Attributes:
        unknown: boxes with state of which it can't be said by times what they hold.
    """

    def __init__(self, fragment: Fragment) -> None:
        self._sinks = fragment.sinks
        self._sources = [box for box in fragment.sources.values() if not box.spec.judged]
        checked = fragment.checked
        self._consumers = checked.consumers
        self._specs = checked.boxes
        self.unknown: list[str] = []
        self._counts: list[list[tuple[SinkBox, tuple[Step, ...], dict[str, _Count]]]] = []
        """Of each input of a box: for each sink, the rows by the source that they came by."""
        self._source = next(iter(fragment.sources), "")
        behind: set[str] = set()
        for spec in fragment.graph.boxes:
            box = fragment.boxes[spec.id]
            if isinstance(box, SourceBox | SinkBox):
                continue
            after = any(arc.box in behind for arc in spec.inputs)
            state = not isinstance(box, Stateless)
            if after or state:
                behind.add(spec.id)
            if state and spec.last_result is None:
                self.unknown.append(spec.id)
            elif state and not after:
                self._watch(box, spec)
            elif (chain := getattr(box, "chain", None)) is not None and chain.ends_in_window:
                chain.dissolve()  # A window in a chain isn't shown its rows.

    def _watch(self, box: Operator, spec: Box) -> None:
        paths = self._paths(spec.id)
        if paths is None:
            self.unknown.append(spec.id)
            return
        inputs: list[list[tuple[SinkBox, tuple[Step, ...], dict[str, _Count]]]]
        inputs = [[(sink, steps, {}) for sink, steps in paths] for _ in box.inputs_us]
        self._counts += inputs

        def look(input: int, train: Train) -> None:
            if train.kind is Kind.STABLE and train.times is not None:
                times = _on_time(train)
                for sink, steps, counts in inputs[input]:
                    count = counts.get(self._source)
                    if count is None:
                        count = counts[self._source] = _Count()
                    count.add(_last(times, steps), sink.boundary_us)

        box.watch_trains(look)

    def _paths(self, id: str) -> list[tuple[SinkBox, tuple[Step, ...]]] | None:
        """To each sink below a box, the steps on the way from its input; None: too many, or not by time."""
        spec = self._specs[id]
        step = spec.last_result
        if step is None:
            return None
        if id in self._sinks:
            return [(self._sinks[id], ())]
        found: dict[tuple[str, tuple[Step, ...]], tuple[SinkBox, tuple[Step, ...]]] = {}
        own = () if step == SAME else (step,)
        for port in spec.ports:
            for reader, _ in self._consumers.get(Input(id, port), ()):
                below = self._paths(reader)
                if below is None:
                    return None
                for sink, steps in below:
                    found[sink.id, own + steps] = sink, own + steps
        return list(found.values()) if len(found) <= PATHS_MAX else None

    def feeds(self, source: str) -> None:
        """What enters from now on came by this source."""
        self._source = source

    def held(self) -> RowsAtRisk:
        """Now."""
        promises = tuple((box.id, box.boundary_us) for box in self._sources)
        if self.unknown:
            return RowsAtRisk(None, promises)
        rows: Counter[str] = Counter()
        for input in self._counts:
            most: dict[str, int] = {}
            for sink, _, counts in input:
                for source, count in counts.items():
                    most[source] = max(most.get(source, 0), count.above(sink.boundary_us))
            rows.update(most)
        return RowsAtRisk(rows.total(), promises, tuple(sorted((each, n) for each, n in rows.items() if n)))


def uncounted(graph: Graph) -> list[str]:
    """Boxes of which nobody can say how many rows they hold."""
    behind: set[str] = set()
    for box in graph.boxes:
        if box.keeps_state or any(arc.box in behind for arc in box.inputs):
            behind.add(box.id)
    return [box.id for box in graph.boxes if box.last_result is None and box.id in behind]


def row_by_row(spec: Box) -> bool:
    """The box takes each row by itself and keeps nothing of it."""
    return not spec.keeps_state and spec.last_result == SAME


def _on_time(train: Train) -> Times:
    assert train.times is not None
    times: Times = as_int64(train.times)
    if train.late is not None:
        times = times[~train.late.to_numpy(zero_copy_only=False)]
    return times


def _last(times: Times, steps: tuple[Step, ...]) -> Times:
    for advance, size, later in steps:
        times = times // advance * advance + (size - 1) if advance else times + later
    return times


class _Count:
    """Times and how many rows have each, in pieces; what a boundary has passed is forgotten."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int, Times, Times]] = []
        """(least, largest, times, rows)"""
        self._rows = 0

    def add(self, times: Times, above_us: int) -> None:
        if not len(times):
            return
        least, largest = int(times.min()), int(times.max())
        if least == largest:  # As are most trains whose rows are of one window.
            if least >= above_us:
                self._add_one(least, len(times))
            return
        times = times[times >= above_us] if least < above_us else times
        if not len(times):
            return
        self._append(*np.unique(times, return_counts=True))
        if len(self._pieces) > PIECES_MAX:
            self._merge()

    def _add_one(self, time_us: int, rows: int) -> None:
        """So many rows of one time; often of the one that came last."""
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last[0] == last[1] == time_us:
            self._pieces[-1] = (time_us, time_us, last[2], last[3] + rows)
            self._rows += rows
            return
        self._append(np.array([time_us], np.int64), np.array([rows], np.int64))
        if len(self._pieces) > PIECES_MAX:
            self._merge()

    def _append(self, times: Times, rows: Times) -> None:
        if len(times):
            self._pieces.append((int(times[0]), int(times[-1]), times, rows))
            self._rows += int(rows.sum())

    def _merge(self) -> None:
        times, places = np.unique(np.concatenate([piece[2] for piece in self._pieces]), return_inverse=True)
        rows = np.zeros(len(times), np.int64)
        np.add.at(rows, places, np.concatenate([piece[3] for piece in self._pieces]))
        self._pieces, self._rows = [], 0
        self._append(times, rows)

    def above(self, boundary_us: int) -> int:
        """Rows that no boundary has passed; the last one given counts."""
        if any(piece[0] < boundary_us for piece in self._pieces):
            pieces, self._pieces, self._rows = self._pieces, [], 0
            for _, largest, times, rows in pieces:
                if largest >= boundary_us:
                    self._append(times[times >= boundary_us], rows[times >= boundary_us])
        return self._rows
