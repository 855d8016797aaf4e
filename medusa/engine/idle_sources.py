"""Which silent sources are asked to go on, and how far: the boxes that wait ask.

A box with several inputs waits for the one whose boundary is lowest. Sources above that input which
are idle are sent the least boundary of the box's other inputs, and take it as theirs: never more, so
a source that meets no other is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from medusa.elements import END_US
from medusa.engine.core.box import Operator
from medusa.engine.operators.source import TIME_MAX_US, SourceBox
from medusa.query.boxes import Graph

__all__ = ["Idleness", "MissingSources"]

Meeting: TypeAlias = tuple[Operator, list[tuple[SourceBox, ...]]]
"""A box with several inputs, and of each the sources above it."""


class Idleness:
    """The sources of a graph that may be idle, and the boxes where they meet others."""

    def __init__(self, graph: Graph, boxes: Mapping[str, Operator]) -> None:
        self.sources = [
            box for box in boxes.values() if isinstance(box, SourceBox) and box.spec.idle_us is not None
        ]
        self._meetings = _meetings(graph, boxes, lambda source: source.spec.idle_us is not None)

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


class MissingSources:
    """The sources of a graph of which any may be missing, and the boxes where they meet others.

    An input is silent when all sources above it are, and silent inputs wait for nobody, not for each other
    either. Those without time have no boundaries, so nobody waits for them. One with a source that isn't
    silent is held by that: where the two meet, the silent one is asked. Where all that aren't silent have
    ended, it is asked for the highest boundary that is no end, as rows of those wait too.
    """

    def __init__(self, graph: Graph, boxes: Mapping[str, Operator]) -> None:
        self._meetings = _meetings(graph, boxes, lambda source: True)

    def asked(self, silent: Collection[str]) -> dict[str, int]:
        """Of these sources, those that hold a box back, and the boundary in us that it asks for."""
        goals: dict[str, int] = {}
        for box, inputs in self._meetings:
            quiet = [
                bool(sources) and all(each.id in silent or each.finished for each in sources)
                for sources in inputs
            ]
            others = [
                time_us
                for time_us, is_quiet in zip(box.inputs_us, quiet, strict=True)
                if not is_quiet and time_us < END_US
            ]
            if not others and not any(
                is_quiet and any(each.finished and each.spec.timed for each in sources)
                for sources, is_quiet in zip(inputs, quiet, strict=True)
            ):
                continue
            goal = min(others, default=TIME_MAX_US)
            for number, sources in enumerate(inputs):
                if quiet[number] and box.inputs_us[number] < goal:
                    for source in sources:
                        if source.boundary_us < goal:
                            goals[source.id] = max(goal, goals.get(source.id, goal))
        return goals


def _meetings(
    graph: Graph, boxes: Mapping[str, Operator], may_be_silent: Callable[[SourceBox], bool]
) -> list[Meeting]:
    above: dict[str, tuple[SourceBox, ...]] = {}
    found: list[Meeting] = []
    for spec in graph.boxes:
        box = boxes[spec.id]
        # A late or ahead port has no time, so nobody waits there.
        inputs = [() if arc.port in ("late", "ahead") else above[arc.box] for arc in spec.inputs]
        mine = (box,) if isinstance(box, SourceBox) and may_be_silent(box) else ()
        above[spec.id] = tuple(dict.fromkeys([*mine, *(each for input in inputs for each in input)]))
        if len(inputs) > 1 and any(inputs):
            found.append((box, inputs))
    return found
