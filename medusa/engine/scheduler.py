"""Runs the boxes of a fragment until none has anything left to do."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.elements import Element
from medusa.engine.boxes.base import Operator
from medusa.ports import Clock

__all__ = ["Scheduler"]


class Scheduler:
    """Trains wait before each box; a box takes all of its own before the next box runs.

    Boxes stand in an order in which inputs come first, so one pass over them leaves nothing
    waiting, and what a box sees doesn't depend on anything but the elements fed.

    Args:
        clock: measures how long each box was busy; without one nobody knows.
    """

    def __init__(self, boxes: Sequence[Operator], clock: Clock | None = None) -> None:
        self._waiting: list[list[tuple[int, Element]]] = [[] for _ in boxes]
        self._places = list(zip(boxes, self._waiting, strict=True))
        self._moment = None if clock is None else clock.monotonic_us

    def connect(self, origin: Operator, port: str, target: int, input: int) -> None:
        """Draw an arc to an input of the box at place ``target``."""
        origin.connect(port, self._waiting[target], input)

    def run(self) -> None:
        """Run to quiescence."""
        moment = self._moment
        begin = moment() if moment is not None else 0
        for box, queue in self._places:
            if not queue:
                continue
            receive = box.receive
            for input, element in queue:
                receive(input, element)
            queue.clear()
            if moment is not None:
                end = moment()
                box.busy_us += end - begin
                begin = end

    def step(self) -> bool:
        """The same; False: nothing waited."""
        waited = any(self._waiting)
        self.run()
        return waited

    def clear(self) -> None:
        """Forget what waits, after a box has raised."""
        for queue in self._waiting:
            queue.clear()
