"""The load of a query and the road map of what to leave out first when there is too much.

The load coefficient of a source is what one of its rows costs on all its ways: the sum over the boxes of
the product of the selectivities above a box and its cost per row. The load is the sum of coefficient times
arrival rate, as a share of one processor. The road map is a list of plans, each with a little more dropped
than the one before, in the order of utility lost per cycle gained (Tatbul et al., VLDB 2003, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medusa.engine.overload.drop_sites import Arc
from medusa.engine.qos.delay_utility import Utility

__all__ = ["STEPS", "DropPlan", "LoadModel", "RoadMap", "coefficients"]

STEPS = 20
"""A place drops multiples of 1 / STEPS of its rows (5 %), and what lies between two plans in part."""

STRIDES = (1, 2, 5, 10, 20)
"""So many steps at once are looked at: a graph may fall first and be flat then."""

LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class LoadModel:
    """What was measured of a query.

    Attributes:
        order: the boxes, inputs before those that read them.
        arcs: all arcs.
        rates: of each source, rows that arrive, per second.
        costs_us: of each box, per row that it takes.
        gives: of each stream (as its box and port), rows of it per row that its box takes.
    """

    order: Sequence[str]
    arcs: Sequence[Arc]
    rates: Mapping[str, float]
    costs_us: Mapping[str, float]
    gives: Mapping[tuple[str, str], float]

    def flows(self) -> dict[str, float]:
        """Rows per second that come to each box."""
        found = {id: self.rates.get(id, 0.0) for id in self.order}
        above = self.above()
        for id in self.order:
            found[id] += sum(found[arc[0].box] * gives for arc, gives in above.get(id, ()))
        return found

    def load(self) -> float:
        """The work that comes in a second, in processors."""
        return sum(rows * self.costs_us.get(id, 0.0) for id, rows in self.flows().items()) / 1e6

    def above(self) -> dict[str, list[tuple[Arc, float]]]:
        """Of each box the arcs to it, and what they carry of a row of the box that they come from."""
        found: dict[str, list[tuple[Arc, float]]] = {}
        for arc in self.arcs:
            found.setdefault(arc[1], []).append((arc, self.gives.get((arc[0].box, arc[0].port), 0.0)))
        return found


def coefficients(model: LoadModel) -> dict[str, float]:
    """Of each source, what one of its rows costs on all its ways, in microseconds."""
    below: dict[str, list[Arc]] = {}
    for arc in model.arcs:
        below.setdefault(arc[0].box, []).append(arc)
    found: dict[str, float] = {}
    for id in reversed(model.order):
        found[id] = model.costs_us.get(id, 0.0) + sum(
            model.gives.get((stream.box, stream.port), 0.0) * found[reader]
            for stream, reader, _ in below.get(id, ())
        )
    return {id: found[id] for id in model.rates}


@dataclass(frozen=True, slots=True)
class DropPlan:
    """Attributes:
    shares: of each place, the share of its rows that is dropped.
    load: what is left to do, in processors.
    utility: of all outputs together.
    """

    shares: tuple[float, ...]
    load: float
    utility: float


class RoadMap:
    """Plans in the order in which more and more is dropped; the first drops nothing.

    It is drawn as far as somebody looks.

    Args:
        arcs: of each place those that it stands on.
        lost: of each place, the importance that is lost by the share of rows dropped, 0 to 1 each.
        losses: of each sink, its utility by percent delivered.
    """

    def __init__(
        self,
        model: LoadModel,
        arcs: Sequence[Sequence[Arc]],
        lost: Sequence[Utility],
        losses: Mapping[str, Utility],
    ) -> None:
        on: dict[Arc, list[int]] = {}
        for number, each in enumerate(arcs):
            for arc in each:
                on.setdefault(arc, []).append(number)
        # What is asked hundreds of times for each map: boxes by number, in order.
        numbers = {id: number for number, id in enumerate(model.order)}
        above = model.above()
        self._boxes = [
            (
                model.rates.get(id, 0.0),
                model.costs_us.get(id, 0.0),
                [(numbers[arc[0].box], gives, on.get(arc, ())) for arc, gives in above.get(id, ())],
            )
            for id in model.order
        ]
        full = model.flows()
        self._outputs = [(numbers[id], full[id], graph) for id, graph in losses.items() if full.get(id)]
        self._lost = [[float(each.at(step / STEPS)) for step in range(STEPS + 1)] for each in lost]
        self._plans = [self.plan((0.0,) * len(arcs))]
        self._whole = False

    def plan(self, shares: tuple[float, ...]) -> DropPlan:
        """What is left to do, and what all outputs are worth, with these drops."""
        kept = [1.0 - share for share in shares]
        worth = [1.0 - _between(lost, share) for lost, share in zip(self._lost, shares, strict=True)]
        rows: list[float] = []
        weights: list[float] = []
        work_us = 0.0
        for rate, cost_us, inputs in self._boxes:
            came = weight = rate
            for above, gives, places in inputs:
                flow, value = rows[above] * gives, weights[above] * gives
                for place in places:
                    flow *= kept[place]
                    value *= worth[place]
                came += flow
                weight += value
            rows.append(came)
            weights.append(weight)
            work_us += came * cost_us
        utility = sum(float(graph.at(100.0 * weights[box] / full)) for box, full, graph in self._outputs)
        return DropPlan(shares, work_us / 1e6, utility)

    def plans(self) -> list[DropPlan]:
        """All of them."""
        while self._extend():
            pass
        return list(self._plans)

    def _extend(self) -> bool:
        """Draw one plan more, where there is one."""
        further = None if self._whole else self._further(self._plans[-1])
        if further is None:
            self._whole = True
            return False
        self._plans.append(further)
        return True

    def _further(self, plan: DropPlan) -> DropPlan | None:
        """The plan with a little more dropped, where that costs the least utility per cycle gained."""
        best: tuple[float, int, int] | None = None
        for number, share in enumerate(plan.shares):
            done = round(share * STEPS)
            for stride in STRIDES:
                if done + stride > STEPS:
                    break
                made = self.plan(_with(plan.shares, number, (done + stride) / STEPS))
                gain = plan.load - made.load
                if gain <= LEAST_GAIN:
                    break
                ratio = round((plan.utility - made.utility) / gain, 12)
                if best is None or ratio < best[0]:
                    best = ratio, number, done
        if best is None:
            return None
        # Of a stride only the first step: what follows is chosen again, and plans lie close together.
        _, number, done = best
        return self.plan(_with(plan.shares, number, (done + 1) / STEPS))

    def down_to(self, kept: float) -> DropPlan:
        """The first plan that leaves no more than this share of the work, its last step in part."""
        load = kept * self._plans[0].load
        place = 0
        while self._plans[place].load > load:
            place += 1
            if place == len(self._plans) and not self._extend():
                return self._plans[-1]
        if not place:
            return self._plans[0]
        before, after = self._plans[place - 1], self._plans[place]
        part = (before.load - load) / (before.load - after.load)
        pairs = zip(before.shares, after.shares, strict=True)
        return self.plan(tuple(a + (b - a) * part for a, b in pairs))


def _between(lost: Sequence[float], share: float) -> float:
    """The importance lost by a share, which may lie between two steps."""
    step = min(int(share * STEPS), STEPS - 1)
    return lost[step] + (lost[step + 1] - lost[step]) * (share * STEPS - step)


def _with(shares: tuple[float, ...], number: int, share: float) -> tuple[float, ...]:
    return (*shares[:number], share, *shares[number + 1 :])
