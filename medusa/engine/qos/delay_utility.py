"""Utility as a function of delay: piecewise linear, and inferred inward through the boxes.

An output says what its rows are worth by their delay, Q_o(t). Rows that stand before a box which takes
them T_B to pass (queueing and processing) are worth Q_i(t) = Q_o(t + T_B) when they are t old; where a
stream feeds several outputs their utilities add up (Aurora, CIDR 2003, section 4; Borealis 2005).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from medusa.query.boxes import Graph, Sink

__all__ = ["NOTHING", "Utility", "infer", "latency_graphs", "total"]

Floats = npt.NDArray[np.float64]


class Utility:
    """A piecewise linear function of a delay in microseconds, flat outside its points; immutable.

    Args:
        points: (x, y), x ascending without ties, at least one.
    """

    __slots__ = ("_points", "xs", "ys")

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        xs, ys = zip(*points, strict=True)
        self.xs: Floats = np.array(xs, np.float64)
        self.ys: Floats = np.array(ys, np.float64)
        self._points: tuple[list[float], list[float]] | None = None

    @classmethod
    def _of(cls, xs: Floats, ys: Floats) -> Utility:
        made = object.__new__(cls)
        made.xs, made.ys, made._points = xs, ys, None
        return made

    @property
    def bounds(self) -> tuple[float, float]:
        """Its least and its greatest value."""
        return float(self.ys.min()), float(self.ys.max())

    def at(self, x: Any) -> Any:
        """Its value at a number, or at each of an array."""
        return np.interp(x, self.xs, self.ys)

    def of(self, x: float) -> float:
        """The same of one number, without waking numpy, which takes longer than a small train."""
        xs, ys = self._lists()
        place = bisect_right(xs, x)
        if place == 0:
            return ys[0]
        if place == len(xs):
            return ys[-1]
        x0, y0 = xs[place - 1], ys[place - 1]
        return y0 + (ys[place] - y0) * ((x - x0) / (xs[place] - x0))

    def _lists(self) -> tuple[list[float], list[float]]:
        if self._points is None:
            self._points = self.xs.tolist(), self.ys.tolist()
        return self._points

    def slack(self, x: float) -> float:
        """How long after ``x`` it begins to fall: 0 where it does, infinite beyond its last fall."""
        xs, ys = self._lists()
        for place in range(bisect_right(xs, x), len(xs)):
            before = max(place - 1, 0)
            if ys[place] < ys[before]:
                return max(0.0, xs[before] - x)
        return math.inf

    def shift(self, us: float) -> Utility:
        """The function whose value at t is this one's at t + ``us``."""
        return Utility._of(self.xs - us, self.ys) if us else self

    def falls(self, x: Any, within_us: float) -> Any:
        """What is lost when what is ``x`` old waits for ``within_us`` more."""
        return self.at(x) - self.at(np.asarray(x) + within_us)


NOTHING = Utility([(0.0, 0.0)])
"""Of what leads to no output that has a graph."""


def latency_graphs(graph: Graph) -> dict[str, Utility]:
    """Utility by delay, of the sinks that have such a graph."""
    return {
        box.id: Utility(box.qos.latency)
        for box in graph.boxes
        if isinstance(box, Sink) and box.qos is not None and box.qos.latency is not None
    }


def total(functions: Sequence[Utility]) -> Utility:
    """Their sum."""
    if not functions:
        return NOTHING
    if len(functions) == 1:
        return functions[0]
    xs = np.unique(np.concatenate([each.xs for each in functions]))
    return Utility._of(xs, np.sum([each.at(xs) for each in functions], axis=0))


def infer(
    order: Sequence[str],
    readers: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Utility],
    times_us: Mapping[str, float],
) -> dict[str, Utility]:
    """What rows are worth when they leave each box, by their age at that moment.

    Args:
        order: the boxes, inputs before those that read them.
        readers: of each box those that read it; one that reads it twice stands once.
        outputs: of sinks, by the age of rows that have got there.
        times_us: T_B of each box: how long what reaches it takes to leave it; 0 where it isn't known.

    Returns:
        Of each box. What it is worth before a box is that shifted by the box's own time.
    """
    leaving: dict[str, Utility] = {}
    for id in reversed(order):
        if id in outputs:
            leaving[id] = outputs[id]
        else:
            below = [each for each in dict.fromkeys(readers.get(id, ())) if leaving[each] is not NOTHING]
            leaving[id] = total([leaving[each].shift(times_us.get(each, 0.0)) for each in below])
    return leaving
