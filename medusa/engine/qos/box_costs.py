"""What boxes were measured to take, smoothed: their costs, and how long elements took to pass them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from medusa.engine.core.box import Operator
from medusa.engine.qos.rates import Recent

__all__ = ["BoxCosts"]


class BoxCosts:
    """Costs and times of the boxes of a fragment, by their places.

    Attributes:
        passing_us: T_B: from coming before the box to having passed it, queueing and processing.
        running_us: processing alone, of one run of the box.
    """

    def __init__(self, boxes: Sequence[Operator]) -> None:
        self._boxes = boxes
        count = len(boxes)
        self.passing_us = [0.0] * count
        self.running_us = [0.0] * count
        self._runs = [0] * count
        self._busy_us = [Recent() for _ in boxes]
        self._rows = [Recent(box.rows_in) for box in boxes]
        self._left = [box.rows_out for box in boxes]
        self._in = [Recent(box.rows_in) for box in boxes]
        self._out = [Recent(box.rows_out) for box in boxes]
        self._costs: dict[tuple[int, Collection[int]], float] = {}

    def ran(self, place: int, took_us: float, passed_us: float) -> None:
        """A box has run.

        Args:
            took_us: how long it ran.
            passed_us: how long its elements took from coming before it, on average.
        """
        box = self._boxes[place]
        rows, left = self._rows[place].look(box.rows_in), box.rows_out - self._left[place]
        self._left[place] = box.rows_out
        self._busy_us[place].add(took_us)
        if not rows and not left:
            return  # boundaries alone, of which nothing came, are no measure of what rows take
        kept = Recent.KEPT if self._runs[place] else 0.0
        self._runs[place] += 1
        self.running_us[place] = self.running_us[place] * kept + took_us * (1 - kept)
        self.passing_us[place] = self.passing_us[place] * kept + passed_us * (1 - kept)
        if self._runs[place] == 1:
            self._costs.clear()

    def refresh(self) -> None:
        """Take note of how many rows came out of each box for those that went in."""
        for place, box in enumerate(self._boxes):
            self._in[place].look(box.rows_in)
            self._out[place].look(box.rows_out)
        self._costs.clear()

    def cost_us(self, place: int, readers: Sequence[Sequence[int]], above: Collection[int]) -> float:
        """What a row before a box takes on its way to an output; 0 where nothing is known.

        Args:
            readers: of each box.
            above: the boxes that lead to the output.
        """
        key = (place, above)
        if key not in self._costs:
            below: dict[int, float] = {}
            for each in sorted((each for each in above if each >= place), reverse=True):
                rows, came = self._rows[each].grown, self._in[each].grown
                own = self._busy_us[each].grown / rows if rows else 0.0
                gives = self._out[each].grown / came if came else 1.0
                below[each] = own + gives * sum(below[reader] for reader in readers[each] if reader in below)
            self._costs[key] = below[place]
        return self._costs[key]
