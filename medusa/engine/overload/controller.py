"""Decides, from time to time, how much of what comes is left out, and where.

It measures rates of arrival, costs and selectivities, and how long rows wait, and sets the valves by the road
map. It reads no clock: whoever drives it tells the time. The same counts and times give the same drops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pyarrow as pa

from medusa.engine.core.memory_bounds import Storage
from medusa.engine.fragment import Fragment
from medusa.engine.input.intake import IntakeQueue
from medusa.engine.overload.drop_operator import ALL, DropOperator, valve_of
from medusa.engine.overload.drop_set import DropSet
from medusa.engine.overload.drop_sites import DropSite, arcs_of, cut_off
from medusa.engine.overload.road_map import DropPlan, LoadModel, RoadMap, coefficients
from medusa.engine.qos.delay_utility import Utility
from medusa.engine.qos.rates import Recent
from medusa.query.boxes import Graph, Input, Sink
from medusa.query.graph import UNTIMED_PORTS, CheckedGraph

__all__ = [
    "DRIFT",
    "HEADROOM",
    "HORIZON_US",
    "PERIOD_US",
    "WAIT_SHARE",
    "OverloadController",
    "has_qos",
    "tolerated_us",
]

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

BUSY_MIN = 0.5
"""A run that was less busy since the last look is calm, whatever the few rows before it seem to have cost."""

FULL = 7 / 8
"""Of a budget of state: from there on no rows come to the box that holds most; beyond it, to none that has
some."""

EASED = 3 / 4
"""Of a budget of state: from there on rows come again."""

DRIFT = 0.2
"""Where something measured has changed by so much since the road map was drawn, it is drawn again."""


class OverloadController:
    """Of a fragment with outputs that have quality of service.

    Args:
        drops: its valves; None: it gets some.
        seed: of what is dropped by chance, and
        make: of a place and a seed, the valve; both where ``drops`` isn't given.
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
        drops: DropSet | None = None,
        *,
        seed: int = 0,
        headroom: float = HEADROOM,
        period_us: int = PERIOD_US,
        make: Callable[[DropSite, int], DropOperator] = valve_of,
        choose: Callable[[LoadModel, list[DropSite], float], tuple[float, ...]] | None = None,
    ) -> None:
        self._fragment = fragment
        self.drops = drops or DropSet(fragment.checked, fragment.boxes, seed=seed, make=make)
        self.drops.expect_by(self._expected)
        self._headroom = headroom
        self._period_us = period_us
        self._choose = choose
        self._due_us: int | None = None
        self._looked_us = 0
        self._past_us = 0.0
        self._busy = 0.0
        self._counts: dict[str, Recent] = {}
        self._drawn: tuple[list[float], RoadMap] | None = None
        self._comes: dict[tuple[DropSite, str], float] = {}
        self.load = 0.0
        self.coefficients: dict[str, float] = {}
        self.plan: DropPlan | None = None
        self._look_at(self.drops.checked)

    @property
    def valves(self) -> list[DropOperator]:
        """What drops, one at each place."""
        return self.drops.valves

    def table(self) -> pa.Table:
        """As ``DropSet.table``."""
        return self.drops.table()

    def _look_at(self, checked: CheckedGraph) -> None:
        """See what the query is."""
        self._checked = checked
        self._losses, self._wait_us = _graphs(checked)
        self._drawn = None
        self._full = {valve.place.key for valve in self.valves if valve.share >= ALL}
        self._trimmed: dict[str, int] = {}
        self._shares = tuple(0.0 if valve.share >= ALL else valve.share for valve in self.valves)
        places = [valve.place for valve in self.valves]
        cuts = {box.id: cut_off(checked, places, box.id) for box in checked.graph.boxes}
        self._cuts = {
            id: {place.key for place in cut} for id, cut in cuts.items() if checked.boxes[id].keeps_state
        }

    def _expected(self, place: DropSite, sink: str) -> float:
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
            came = counts.get(f"in {box.id}", Recent()).grown
            costs[box.id] = counts.get(f"busy {box.id}", Recent()).grown / came if came else 0.0
            for port in box.ports:
                left = counts.get(f"out {box.id} {port}", Recent()).grown
                gives[box.id, port] = left / came if came else 0.0
        arcs = [arc for arc in arcs_of(checked) if arc[0].port not in UNTIMED_PORTS]
        return LoadModel([box.id for box in checked.graph.boxes], arcs, rates, costs, gives)

    def _look(self, now_us: int, queue: IntakeQueue) -> LoadModel:
        """Take note of all counts, and what follows from how they grew."""
        boxes = self._fragment.boxes
        self._comes.clear()
        busy_us = 0.0
        seen = {(v.place.stream.box, v.place.stream.port): v.seen for v in self.valves}
        for box in self._checked.graph.boxes:
            running = boxes[box.id]
            self._note(f"in {box.id}", running.rows_in)
            was_us = self._counts.get(f"busy {box.id}", Recent(running.busy_us)).last
            self._note(f"busy {box.id}", running.busy_us)
            for port in box.ports:
                left = running.rows_out if port == "" else seen.get((box.id, port), self._read(box.id, port))
                self._note(f"out {box.id} {port}", left)
            busy_us += max(0.0, running.busy_us - was_us)
        self._busy = busy_us / (now_us - self._looked_us) if now_us > self._looked_us else 1.0
        self._past_us = self._past_us * Recent.KEPT + now_us - self._looked_us
        self._looked_us = now_us
        for source, rows in queue.positions.items():
            self._note(f"came {source}", rows)
        rates = {
            source: self._counts[f"came {source}"].grown * 1e6 / self._past_us if self._past_us else 0.0
            for source in queue.positions
        }
        return self._model(rates)

    def _read(self, box: str, port: str) -> int:
        """Rows of a port, by what a box that reads nothing else has taken."""
        for id, _ in self._checked.consumers.get(Input(box, port), ()):
            if len(self._checked.boxes[id].inputs) == 1:
                return self._fragment.boxes[id].rows_in
        return 0

    def _note(self, name: str, count: float) -> None:
        self._counts.setdefault(name, Recent(count)).look(count)

    # Deciding

    def control(self, now_us: int, queue: IntakeQueue) -> None:
        """Decide again, where that is due.

        Args:
            now_us: of a clock that never runs back.
            queue: what waits.
        """
        if self.drops.checked is not self._checked:
            self._look_at(self.drops.checked)
        if not self.valves:
            return
        storage = self._fragment.storage
        if storage is not None and storage.sheds_state:
            self._bound(storage)
        if self._due_us is None:
            self._looked_us = now_us
            self._look(now_us, queue)
        elif now_us >= self._due_us:
            self._decide(self._look(now_us, queue), queue, now_us)
        else:
            return
        self._due_us = now_us + self._period_us

    def _decide(self, model: LoadModel, queue: IntakeQueue, now_us: int) -> None:
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
        waited_us = now_us - queue.head.came_us if queue.head is not None else 0
        calm = self._busy < BUSY_MIN and waited_us <= WAIT_SHARE * allowed_us
        if calm or target >= self.load:
            shares = (0.0,) * len(self.valves)
            self.plan = DropPlan(shares, self.load, 0.0)
        elif self._choose is not None:
            shares = self._choose(model, [valve.place for valve in self.valves], target / self.load)
            self.plan = DropPlan(shares, target, 0.0)
        else:
            self.plan = self._map(model).down_to(target / self.load)
            shares = self.plan.shares
        self._shares = tuple(shares)
        self._apply()

    def _apply(self) -> None:
        self.drops.decide(
            [
                ALL if valve.place.key in self._full else share
                for valve, share in zip(self.valves, self._shares, strict=True)
            ]
        )

    def _trim(self) -> bool:
        """Have memory given back that windows needed which have closed; whether some have."""
        boxes = [self._fragment.boxes[id] for id in self._cuts]
        moved = [box for box in boxes if self._trimmed.get(box.id) != box.boundary_us]
        for box in moved:
            box.trim()
            self._trimmed[box.id] = box.boundary_us
        return bool(moved)

    def _bound(self, storage: Storage) -> None:
        """Keep rows away from boxes with state, where that is near its budget, until windows have closed."""
        used, most = storage.used()
        if used > (EASED if self._full else FULL) and self._trim():
            used, most = storage.used()
        full = self._full
        if used > 1:
            full = full.union(*self._cuts.values())
        elif used > FULL:
            full = full | self._cuts.get(most, set())
        elif used <= EASED:
            full = set()
        if full != self._full:
            self._full = full
            self._apply()

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


def has_qos(graph: Graph) -> bool:
    """Whether somebody said what some output is worth: else nothing is ever shed."""
    return any(isinstance(box, Sink) and box.qos is not None for box in graph.boxes)


def _graphs(checked: CheckedGraph) -> tuple[dict[str, Utility], float]:
    """Of each sink its utility by percent delivered; and the delay at which the first begins to lose."""
    losses, wait_us = {}, math.inf
    for box in checked.graph.boxes:
        if isinstance(box, Sink) and box.qos is not None:
            losses[box.id] = Utility(box.qos.loss or ((0.0, 0.0), (100.0, 1.0)))
            if box.qos.latency is not None:
                wait_us = min(wait_us, tolerated_us(Utility(box.qos.latency)))
    return losses, wait_us


def tolerated_us(latency: Utility) -> float:
    """The delay at which ``FALLEN`` of the range of a graph is lost."""
    high, low = float(latency.ys[0]), float(latency.ys[-1])
    if high <= low:
        return math.inf
    goal = high - FALLEN * (high - low)
    for x0, x1, y0, y1 in zip(latency.xs, latency.xs[1:], latency.ys, latency.ys[1:], strict=False):
        if y1 <= goal < y0 or (y1 < goal <= y0):
            return float(x0 + (x1 - x0) * (y0 - goal) / (y0 - y1))
    return float(latency.xs[-1])
