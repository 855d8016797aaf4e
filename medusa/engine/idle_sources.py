"""Which idle sources are asked to go on, and how far: the boxes that wait ask.

A box with several inputs waits for the one whose boundary is lowest. Sources above that input which
are idle are sent the least boundary of the box's other inputs, and take it as theirs: never more, so
a source that meets no other is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from medusa.elements import END_US
from medusa.engine.core.box import Operator
from medusa.engine.operators.source import SourceBox
from medusa.query.boxes import Graph

__all__ = ["Idleness"]


class Idleness:
    """The sources of a graph that may be idle, and the boxes where they meet others."""

    def __init__(self, graph: Graph, boxes: Mapping[str, Operator]) -> None:
        self.sources = [
            box for box in boxes.values() if isinstance(box, SourceBox) and box.spec.idle_us is not None
        ]
        above: dict[str, tuple[SourceBox, ...]] = {}
        self._meetings: list[tuple[Operator, list[tuple[SourceBox, ...]]]] = []
        for spec in graph.boxes:
            box = boxes[spec.id]
            # A late or ahead port has no time, so nobody waits there.
            inputs = [() if arc.port in ("late", "ahead") else above[arc.box] for arc in spec.inputs]
            mine = (box,) if isinstance(box, SourceBox) and box.spec.idle_us is not None else ()
            above[spec.id] = tuple(dict.fromkeys([*mine, *(each for input in inputs for each in input)]))
            if len(inputs) > 1 and any(inputs):
                self._meetings.append((box, inputs))

    def asked(self) -> Iterator[tuple[SourceBox, int]]:
        """(source, boundary in us) of every idle source that holds a box back; inputs first."""
        for box, inputs in self._meetings:
            for number, sources in enumerate(inputs):
                others = [
                    time_us
                    for other, time_us in enumerate(box.inputs_us)
                    if other != number and time_us < END_US  # what has ended waits for nobody
                ]
                goal = min(others, default=box.inputs_us[number])
                if goal <= box.inputs_us[number]:
                    continue
                for source in sources:
                    if source.idle and source.boundary_us < goal:
                        yield source, goal
