"""A scheduler that bounds what waits between boxes: output that is too much comes in steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from medusa.engine.boxes.base import Operator
from medusa.engine.scheduler import Scheduler
from medusa.ports import Clock

__all__ = ["SteppingScheduler"]


class SteppingScheduler(Scheduler):
    """Runs boxes below one that emits in steps (``Operator.steps``) after each of its steps.

    Only those that get rows of it alone, and so do all below them: what any box sees is the same, in the
    same order, as if all had left at once. Where streams meet below, the rows wait before that box.

    Args:
        relieve: called when a step has left and after a run, to move to disk what is too much.
    """

    def __init__(
        self,
        boxes: Sequence[Operator],
        clock: Clock | None = None,
        relieve: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(boxes, clock)
        self._relieve = relieve
        self._below: list[set[int]] = [set() for _ in boxes]
        self._arcs = [0] * len(boxes)
        self._numbers = {box.id: place for place, box in enumerate(boxes)}
        self._tails: dict[int, list[int]] = {}
        for box in boxes:
            box.paced = True

    def connect(self, origin: Operator, port: str, target: int, input: int) -> None:
        """Draw an arc to an input of the box at place ``target``."""
        super().connect(origin, port, target, input)
        self._below[self._numbers[origin.id]].add(target)
        self._arcs[target] += 1
        self._tails.clear()

    def run(self) -> None:
        """Run to quiescence."""
        for place in range(len(self._places)):
            self._work(place)
        self._relieve()

    def _work(self, place: int) -> None:
        box, queue = self._places[place]
        if not queue and box.steps is None:
            return
        moment = self._moment
        begin = moment() if moment is not None else 0
        self._drain(place, box)
        for input, element in queue:
            box.receive(input, element)
            if box.steps is not None:
                self._drain(place, box)
        queue.clear()
        if moment is not None:
            box.busy_us += moment() - begin

    def _drain(self, place: int, box: Operator) -> None:
        """Let a box go on until nothing is left of its output."""
        while box.steps is not None:
            for below in self._tail(place):
                self._work(below)
            self._relieve()
            box.step()

    def _tail(self, place: int) -> list[int]:
        """The boxes that get rows of this one alone, and so do all below them."""
        if place not in self._tails:
            found: set[int] = set()
            for target in self._below[place]:
                if self._calm(target):
                    found |= {target, *self._tail(target)}
            self._tails[place] = sorted(found)
        return self._tails[place]

    def _calm(self, place: int) -> bool:
        return self._arcs[place] == 1 and all(map(self._calm, self._below[place]))
