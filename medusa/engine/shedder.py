"""Decides, from time to time, how much of what comes is left out, and where.

It measures rates of arrival, costs and selectivities, and how long rows wait, and sets the valves by the road
map. It reads no clock: whoever drives it tells the time. The same counts and times give the same drops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.engine.boxes.base import Operator, Queue
from medusa.engine.boxes.sink import SinkBox
from medusa.engine.fragment import Fragment
from medusa.engine.intake import InputQueue
from medusa.engine.qos import Utility
from medusa.engine.shed_places import Place, arcs_of, find_places
from medusa.engine.shedding import LoadModel, Plan, RoadMap, coefficients
from medusa.engine.valves import Valve, valve_of
from medusa.query.boxes import Graph, Sink
from medusa.query.graph import UNTIMED_PORTS, CheckedGraph

__all__ = ["HEADROOM", "PERIOD_US", "SHEDDING_SCHEMA", "Shedder", "has_qos"]

HEADROOM = 0.95
"""The share of one processor that the boxes may use: the rest is for what isn't measured."""

PERIOD_US = 250_000
"""How often it decides: soon enough for latency graphs of a second, seldom enough to cost nothing."""

HORIZON_US = 1_000_000
"""At least so far ahead it looks: by then, or within the delay allowed, what waits too long is gone."""

WAIT_SHARE = 0.25
"""Of the delay at which utility begins to be lost: so long may rows wait."""

FALLEN = 0.1
"""Utility begins to be lost where this share of a latency graph's range is gone."""

KEPT = 7 / 8
"""Of a smoothed count at each look."""

DRIFT = 0.2
"""Where something measured has changed by so much since the road map was drawn, it is drawn again."""

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


@dataclass(slots=True)
class _Count:
    """A count that only grows, and how fast it grew lately."""

    last: float = 0.0
    recent: float = 0.0

    def look(self, now: float) -> None:
        self.recent = self.recent * KEPT + max(0.0, now - self.last)  # less: a box was made anew
        self.last = now


class Shedder:
    """Of a fragment with outputs that have quality of service.

    Args:
        seed: of what is dropped by chance.
        make: of a place and a seed, the valve.
        choose: the shares of all places, by the model and the share of the work that is to be kept; None:
            by the road map.

    Attributes:
        load: what comes, in processors, as it was measured last.
        coefficients: of each source, what one of its rows costs, in microseconds.
        plan: what is dropped now.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        seed: int = 0,
        headroom: float = HEADROOM,
        period_us: int = PERIOD_US,
        make: Callable[[Place, int], Valve] = valve_of,
        choose: Callable[[LoadModel, list[Place], float], tuple[float, ...]] | None = None,
    ) -> None:
        self._fragment = fragment
        self._seed = seed
        self._headroom = headroom
        self._period_us = period_us
        self._make, self._choose = make, choose
        self._due_us: int | None = None
        self._looked_us = 0
        self._past_us = 0.0
        self._counts: dict[str, _Count] = {}
        self._drawn: tuple[list[float], RoadMap] | None = None
        self._taps: dict[str, list[Callable[[pa.Table], object]]] = {}
        self._untold: dict[Place, list[pa.RecordBatch]] = {}
        self._comes: dict[tuple[Place, str], float] = {}
        self.valves: list[Valve] = []
        self.load = 0.0
        self.coefficients: dict[str, float] = {}
        self.plan: Plan | None = None
        self._install()

    # Valves

    def _install(self) -> None:
        """Put a valve at every place of the query, as it is now; places that stay keep theirs."""
        fragment = self._fragment
        checked = self._checked = fragment.checked
        before = {valve.place: valve for valve in self.valves}
        places = find_places(checked)
        self.valves = [
            before.get(place) or self._make(place, self._seed + n) for n, place in enumerate(places)
        ]
        whole = {valve.place.stream: valve for valve in self.valves if valve.place.reader is None}
        parts = {(valve.place.stream, valve.place.reader): valve for valve in self.valves}
        for box in checked.graph.boxes:
            for port in box.ports:
                self._wire(fragment.boxes[box.id], port, whole, parts)
        self._losses, self._wait_us = _graphs(checked)
        self._drawn = None
        for valve in self.valves:
            valve.told = self._teller(valve)

    def _wire(
        self, origin: Operator, port: str, whole: Mapping[Any, Valve], parts: Mapping[Any, Valve]
    ) -> None:
        stream, targets = self._stream(origin.id, port), []
        readers = self._checked.consumers.get(stream, ())
        for reader, target in zip(readers, origin.targets(port), strict=True):
            targets.append(_stand(parts.get((stream, reader)), [target]))
        if stream in whole:
            targets = [_stand(whole[stream], targets)]
        origin.redirect(port, targets)

    def _stream(self, box: str, port: str) -> Any:
        return next((each for each in self._checked.consumers if each.box == box and each.port == port), None)

    def _teller(self, valve: Valve) -> Callable[[pa.RecordBatch, float], None]:
        """What counts the rows that a valve drops, where they would have been read."""
        boxes, place = self._fragment.boxes, valve.place
        counted = [boxes[id] for id in dict.fromkeys([place.box, *place.sinks])]

        def told(rows: pa.RecordBatch, importance: float) -> None:
            for box in counted:
                box.shed += rows.num_rows
            for id in place.sinks:
                sink = boxes[id]
                if isinstance(sink, SinkBox) and sink.meter is not None:
                    sink.meter.shed(rows.num_rows * self._expected(place, id), importance)
            if place.box in self._taps:
                self._untold.setdefault(place, []).append(rows)

        return told

    def _expected(self, place: Place, sink: str) -> float:
        """How many rows of a sink come of one that passes a place, as it was measured last."""
        if (place, sink) not in self._comes:
            model, own = self._model({}), place.arcs(self._checked)
            arcs = [arc for arc in model.arcs if arc[0].box != place.stream.box or arc in own]
            gives = {**model.gives, (place.stream.box, place.stream.port): 1.0}
            flows = LoadModel(model.order, arcs, {place.stream.box: 1.0}, {}, gives).flows()
            for id in place.sinks:
                self._comes[place, id] = flows.get(id, 0.0)
        return self._comes[place, sink]

    # What was measured

    def _model(self, rates: Mapping[str, float]) -> LoadModel:
        checked, counts = self._checked, self._counts
        gives, costs = {}, {}
        for box in checked.graph.boxes:
            came = counts.get(f"in {box.id}", _Count()).recent
            costs[box.id] = counts.get(f"busy {box.id}", _Count()).recent / came if came else 0.0
            for port in box.ports:
                left = counts.get(f"out {box.id} {port}", _Count()).recent
                gives[box.id, port] = left / came if came else 0.0
        arcs = [arc for arc in arcs_of(checked) if arc[0].port not in UNTIMED_PORTS]
        return LoadModel([box.id for box in checked.graph.boxes], arcs, rates, costs, gives)

    def _look(self, now_us: int, queue: InputQueue) -> LoadModel:
        """Take note of all counts, and what follows from how they grew."""
        boxes = self._fragment.boxes
        self._comes.clear()
        seen = {(v.place.stream.box, v.place.stream.port): v.seen for v in self.valves}
        for box in self._checked.graph.boxes:
            running = boxes[box.id]
            self._note(f"in {box.id}", running.rows_in)
            self._note(f"busy {box.id}", running.busy_us)
            for port in box.ports:
                left = running.rows_out if port == "" else seen.get((box.id, port), self._read(box.id, port))
                self._note(f"out {box.id} {port}", left)
        self._past_us = self._past_us * KEPT + now_us - self._looked_us
        self._looked_us = now_us
        for source, rows in queue.positions.items():
            self._note(f"came {source}", rows)
        rates = {
            source: self._counts[f"came {source}"].recent * 1e6 / self._past_us if self._past_us else 0.0
            for source in queue.positions
        }
        return self._model(rates)

    def _read(self, box: str, port: str) -> int:
        """Rows of a port, by what a box that reads nothing else has taken."""
        for id, _ in self._checked.consumers.get(self._stream(box, port), ()):
            if len(self._checked.boxes[id].inputs) == 1:
                return self._fragment.boxes[id].rows_in
        return 0

    def _note(self, name: str, count: float) -> None:
        self._counts.setdefault(name, _Count(count)).look(count)

    # Deciding

    def control(self, now_us: int, queue: InputQueue) -> None:
        """Decide again, where that is due.

        Args:
            now_us: of a clock that never runs back.
            queue: what waits.
        """
        if self._fragment.checked is not self._checked:
            self._install()
        if not self.valves:
            return
        if self._due_us is None:
            self._looked_us = now_us
            self._look(now_us, queue)
        elif now_us >= self._due_us:
            self._decide(self._look(now_us, queue), queue)
        else:
            return
        self._due_us = now_us + self._period_us

    def _decide(self, model: LoadModel, queue: InputQueue) -> None:
        self.load = model.load()
        self.coefficients = coefficients(model)
        waits_us = sum(rows * self.coefficients.get(source, 0.0) for source, rows in queue.rows.items())
        allowed_us = self._wait_us
        if not math.isfinite(allowed_us):  # nobody loses by waiting: half of the queue is used
            used = queue.held_bytes / queue.bytes_max if queue.bytes_max else 1.0
            allowed_us = waits_us * 0.5 / used if used else HORIZON_US
        horizon_us = max(HORIZON_US, allowed_us)
        # What is kept of the work that comes and of that which waits is to be done within the horizon, but
        # for what may wait then.
        work_us = self.load * horizon_us + waits_us
        done_us = self._headroom * horizon_us + WAIT_SHARE * allowed_us
        target = self.load * min(1.0, done_us / work_us) if work_us else self.load
        if target >= self.load:
            shares = (0.0,) * len(self.valves)
            self.plan = Plan(shares, self.load, 0.0)
        elif self._choose is not None:
            shares = self._choose(model, [valve.place for valve in self.valves], target / self.load)
            self.plan = Plan(shares, target, 0.0)
        else:
            self.plan = self._map(model).down_to(target / self.load)
            shares = self.plan.shares
        for valve, share in zip(self.valves, shares, strict=True):
            valve.share = share

    def _map(self, model: LoadModel) -> RoadMap:
        """The road map, drawn again where what it was drawn by has changed."""
        looks = [valve.look() for valve in self.valves]
        now = [*model.rates.values(), *model.costs_us.values(), *model.gives.values()]
        now += [float(look.at(share)) for look in looks for share in (0.25, 0.5, 0.75)]
        if self._drawn is not None:
            was, drawn = self._drawn
            if all(abs(a - b) <= DRIFT * max(abs(a), abs(b), 1e-9) for a, b in zip(now, was, strict=True)):
                return drawn
        arcs = [valve.place.arcs(self._checked) for valve in self.valves]
        drawn = RoadMap(model, arcs, looks, self._losses)
        self._drawn = now, drawn
        return drawn

    # What is asked about it

    def table(self) -> pa.Table:
        """One row of ``SHEDDING_SCHEMA`` for each place."""
        rows = [
            {
                "box": valve.place.box,
                "how": valve.place.how,
                "sinks": list(valve.place.sinks),
                "share": valve.share,
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

    def tell(self) -> None:
        """Give what has been shed to those who asked; what a call that raises was given comes again."""
        for place, rows in self._untold.items():
            if rows:
                table = pa.Table.from_batches(rows)
                for call in self._taps[place.box]:
                    call(table)
                rows.clear()


def has_qos(graph: Graph) -> bool:
    """Whether somebody said what some output is worth: else nothing is ever shed."""
    return any(isinstance(box, Sink) and box.qos is not None for box in graph.boxes)


def _stand(valve: Valve | None, targets: list[tuple[Queue, int]]) -> tuple[Queue, int]:
    """A valve in front of inputs, as one of them; without one the only input itself."""
    if valve is None:
        return targets[0]
    valve.stand_before(targets)
    return valve, 0


def _graphs(checked: CheckedGraph) -> tuple[dict[str, Utility], float]:
    """Of each sink its utility by percent delivered; and the delay at which the first begins to lose."""
    losses, wait_us = {}, math.inf
    for box in checked.graph.boxes:
        if isinstance(box, Sink) and box.qos is not None:
            losses[box.id] = Utility(box.qos.loss or ((0.0, 0.0), (100.0, 1.0)))
            if box.qos.latency is not None:
                wait_us = min(wait_us, _tolerated_us(Utility(box.qos.latency)))
    return losses, wait_us


def _tolerated_us(latency: Utility) -> float:
    """The delay at which ``FALLEN`` of the range of a graph is lost."""
    high, low = float(latency.ys[0]), float(latency.ys[-1])
    if high <= low:
        return math.inf
    goal = high - FALLEN * (high - low)
    for x0, x1, y0, y1 in zip(latency.xs, latency.xs[1:], latency.ys, latency.ys[1:], strict=False):
        if y1 <= goal < y0 or (y1 < goal <= y0):
            return float(x0 + (x1 - x0) * (y0 - goal) / (y0 - y1))
    return float(latency.xs[-1])
