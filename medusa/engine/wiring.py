"""The arcs of a fragment: which box sends to which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from medusa.engine.core.box import Now, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.windows.aggregate import CombineBox
from medusa.ports import Clock
from medusa.query.boxes import Input, Sink
from medusa.query.graph import CheckedGraph

__all__ = ["Scheduling", "combines_of", "connect_all"]


class Scheduling(Protocol):
    """What runs the boxes of a fragment."""

    def connect(self, origin: Operator, port: str, target: int, input: int) -> None:
        """Draw an arc to an input of the box at place ``target``."""

    def run(self) -> None:
        """Run until nothing waits."""

    def run_until(self, rests: Callable[[], bool] | None) -> bool:
        """Run until nothing waits, or ``rests`` says so between two pieces; whether nothing is left."""

    @property
    def waits(self) -> bool:
        """Something waits."""

    def waiting_bytes(self) -> int:
        """Bytes of the rows that wait between boxes."""

    def step(self) -> bool:
        """Run some of what waits; False: nothing waits."""

    def clear(self) -> None:
        """Forget what waits, after a box has raised."""


def connect_all(
    checked: CheckedGraph,
    boxes: Sequence[Operator],
    scheduler: Scheduling,
    now: Now,
    letters: DeadLetters,
    clock: Clock | None,
) -> None:
    """Draw every arc, tell every box where it finds the time, and measure sinks with quality of service."""
    places = {box.id: place for place, box in enumerate(boxes)}
    for box in boxes:
        spec = checked.boxes[box.id]
        # Failed rows leave as they come, of whichever input.
        read = bool(checked.consumers.get(Input(box.id, "dead")))
        box.take_place(now, interleaves_freely=spec.determinism != "arbitrary" and not read)
        for port in spec.ports:
            for id, input in checked.consumers.get(Input(box.id, port), ()):
                scheduler.connect(box, port, places[id], input)
        for id, input in checked.consumers.get(Input(box.id, "dead"), ()):
            scheduler.connect(box, "dead", places[id], input)
            letters.tap(box.id, partial(box.emit, port="dead"))
        if isinstance(box, SinkBox):
            box.measure(spec.qos if isinstance(spec, Sink) else None, clock)


def combines_of(checked: CheckedGraph, boxes: Mapping[str, Operator], source: str) -> list[CombineBox]:
    """The boxes that put partial results of a source together."""
    readers = [boxes[reader] for reader, _ in checked.consumers.get(Input(source), ())]
    return [box for box in readers if isinstance(box, CombineBox)]
