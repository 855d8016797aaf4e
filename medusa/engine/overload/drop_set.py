"""What is left out of a query under overload: a valve at each place, and the rows that they took.

How much is dropped where is a decision (``decide``), made by a ``OverloadController`` or taken from the log
of an earlier life. Given the rows and the decisions, each at its place between the rows, the same rows are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from medusa.engine.core.box import Operator, Queue
from medusa.engine.operators.sink import SinkBox
from medusa.engine.overload.drop_operator import DropOperator, WindowDropOperator, valve_of
from medusa.engine.overload.drop_sites import DropSite, find_places, ruled_places, sources_above
from medusa.engine.overload.window_filter import WindowFilter
from medusa.errors import StateError
from medusa.query.boxes import Aggregate, Input
from medusa.query.graph import CheckedGraph

__all__ = ["SHEDDING_SCHEMA", "DropSet"]

SHEDDING_SCHEMA = pa.schema(
    [
        ("box", pa.string()),
        ("how", pa.string()),
        ("sinks", pa.list_(pa.string())),
        ("share", pa.float64()),
        ("seen", pa.int64()),
        ("shed", pa.int64()),
    ]
)


class DropSet:
    """The valves of a fragment.

    Args:
        boxes: the boxes that run.
        seed: of what is dropped by chance.
        make: of a place and a seed, the valve.
        decided: is told of each decision: of each valve, by its key, the share.
        find: the places of a query.

    Attributes:
        valves: one at each place, in the order of ``find``.
        screens: one behind each box of windows, by its name: they stay when the query changes.
        sources: of each valve, by its key, the sources whose rows come by it.
    """

    def __init__(
        self,
        checked: CheckedGraph,
        boxes: Mapping[str, Operator],
        *,
        seed: int = 0,
        make: Callable[[DropSite, int], DropOperator] = valve_of,
        decided: Callable[[Mapping[str, float]], None] = lambda shares: None,
        find: Callable[[CheckedGraph], list[DropSite]] = find_places,
    ) -> None:
        self._seed, self._make, self._find = seed, make, find
        self._taps: dict[str, list[Callable[[pa.Table], object]]] = {}
        self._untold: dict[DropSite, list[pa.RecordBatch]] = {}
        self._expected: Callable[[DropSite, str], float] = lambda place, sink: 0.0
        self._decided = decided
        self.valves: list[DropOperator] = []
        self.screens: dict[str, WindowFilter] = {}
        self.install(checked, boxes)

    def install(self, checked: CheckedGraph, boxes: Mapping[str, Operator]) -> None:
        """Put a valve at every place of the query, as it is now; places that stay keep theirs."""
        self.checked, self._boxes = checked, boxes
        before = {valve.place: valve for valve in self.valves}
        places = self._find(checked)
        self.valves = [
            before[place] if place in before else self._make(place, self._seed + n)
            for n, place in enumerate(places)
        ]
        self.sources = {place.key: sources_above(checked, place) for place in places}
        screens, self.screens = self.screens, {}
        ruled = self._find is ruled_places  # its rules never leave a window in part
        for id, box in checked.boxes.items():
            if isinstance(box, Aggregate) and not ruled:
                made = WindowFilter(box.size_us, box.advance_us)
                same = id in screens and screens[id].spans_us == made.spans_us
                self.screens[id] = screens[id] if same else made
        whole = {valve.place.stream: valve for valve in self.valves if valve.place.reader is None}
        parts = {(valve.place.stream, valve.place.reader): valve for valve in self.valves}
        for box in checked.graph.boxes:
            for port in box.ports:
                self._wire(boxes[box.id], Input(box.id, port), whole, parts)
        for valve in self.valves:
            valve.report_to(self._teller(valve))
            if isinstance(valve, WindowDropOperator):
                valve.warn_of_gaps(self._misser(valve.place))

    def expect_by(self, expected: Callable[[DropSite, str], float]) -> None:
        """Ask from now on how many rows of a sink come of one that passes a place."""
        self._expected = expected

    def _wire(
        self,
        origin: Operator,
        stream: Input,
        whole: Mapping[Any, DropOperator],
        parts: Mapping[Any, DropOperator],
    ) -> None:
        targets = []
        readers = self.checked.consumers.get(stream, ())
        for reader, target in zip(readers, origin.targets(stream.port), strict=True):
            targets.append(_stand(parts.get((stream, reader)), [target]))
        if stream in whole:
            targets = [_stand(whole[stream], targets)]
        if stream.port == "" and origin.id in self.screens and targets:
            screen = self.screens[origin.id]
            screen.stand_behind(origin, targets)
            targets = [(screen, 0)]
        origin.redirect(stream.port, targets)

    def _misser(self, place: DropSite) -> Callable[[int, int], None]:
        """What tells the screens below which windows aren't to be there."""

        def missed(begin_us: int, end_us: int) -> None:
            ends: dict[str, int] = {}
            for each in place.windows:  # what is missing of a window is missing in windows of it
                mine_us = max([end_us, *(ends[id] for id in each.above)])
                self.screens[each.id].miss(begin_us, mine_us)
                ends[each.id] = self.screens[each.id].reach_us(mine_us)

        return missed

    def _teller(self, valve: DropOperator) -> Callable[[pa.RecordBatch, float], None]:
        """What counts the rows that a valve drops, where they would have been read."""
        place = valve.place
        counted = [self._boxes[id] for id in dict.fromkeys([place.box, *place.sinks])]
        sinks = [each for each in counted if isinstance(each, SinkBox) and each.id in place.sinks]

        def told(rows: pa.RecordBatch, importance: float) -> None:
            for box in counted:
                box.count(shed=rows.num_rows)
            for sink in sinks:
                if sink.meter is not None:
                    sink.meter.shed(rows.num_rows * self._expected(place, sink.id), importance)
            if place.box in self._taps:
                self._untold.setdefault(place, []).append(rows)

        return told

    # Deciding

    def decide(self, shares: Sequence[float]) -> None:
        """From now on drop these shares, one of each valve."""
        if any(shares) or any(valve.share for valve in self.valves):
            made = {valve.place.key: share for valve, share in zip(self.valves, shares, strict=True)}
            self.set(made)
            self._decided(made)

    def set(self, shares: Mapping[str, float]) -> None:
        """Do what was decided, of some valves by their keys."""
        for valve in self.valves:
            if valve.place.key in shares:
                valve.set(shares[valve.place.key])

    @property
    def merges(self) -> bool:
        """Rows of several sources come by some valve, so that their order shows in what it drops."""
        return any(len(sources) > 1 for sources in self.sources.values())

    # What is asked about it

    def table(self) -> pa.Table:
        """One row of ``SHEDDING_SCHEMA`` for each place."""
        rows = [
            {
                "box": valve.place.box,
                "how": valve.place.how,
                "sinks": list(valve.place.sinks),
                "share": min(1.0, valve.share),
                "seen": valve.seen,
                "shed": valve.shed,
            }
            for valve in self.valves
        ]
        return pa.Table.from_pylist(rows, schema=SHEDDING_SCHEMA)

    @property
    def boxes(self) -> list[str]:
        """Where something may be shed."""
        return list(dict.fromkeys(valve.place.box for valve in self.valves))

    def tap(self, box: str, call: Callable[[pa.Table], object]) -> None:
        """From now on ``tell`` gives what is shed at a box, as tables."""
        self._taps.setdefault(box, []).append(call)

    @property
    def untold(self) -> bool:
        """``tell`` has something to give."""
        return any(self._untold.values())

    def tell(self) -> None:
        """Give what has been shed to those who asked; what a call that raises was given comes again."""
        for place, rows in self._untold.items():
            if rows:
                table = pa.Table.from_batches(rows)
                for call in self._taps[place.box]:
                    call(table)
                rows.clear()

    # State

    def save(self) -> dict[str, Any]:
        """What all valves hold, as JSON values, by their keys."""
        return {
            "valves": {valve.place.key: valve.save() for valve in self.valves},
            "screens": {id: screen.save() for id, screen in self.screens.items()},
        }

    def load(self, state: Any) -> None:
        """Take back what ``save`` gave; valves that weren't there begin anew.

        Raises:
            StateError: it can't have come from ``save``.
        """
        try:
            valves, screens = state["valves"], state["screens"]
            for valve in self.valves:
                if valve.place.key in valves:
                    valve.load(valves[valve.place.key])
            for id, screen in self.screens.items():
                if id in screens:
                    screen.load(screens[id])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StateError(
                f"not the state of what is left out under overload: {error}", code="state.corrupt"
            ) from None


def _stand(valve: DropOperator | None, targets: list[tuple[Queue, int]]) -> tuple[Queue, int]:
    """A valve in front of inputs, as one of them; without one the only input itself."""
    if valve is None:
        return targets[0]
    valve.stand_before(targets)
    return valve, 0
