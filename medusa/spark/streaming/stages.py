"""A streaming query in Spark as a row of stateful steps: which box is in which, and what goes between them.

Boxes with keys are split as on nodes (``query/rewrite/split.py``): a router, parts, a merge. Steps with an
even number have one group, which holds all boxes that aren't parts; those with an odd number have a group for
each shard, with its parts. Rows only go to steps with higher numbers, by way of those between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import Box, Graph, Input, Lookup, Sink, Source
from medusa.query.codec import graph_to_msgpack
from medusa.query.graph import CheckedGraph, check_graph
from medusa.query.rewrite.split import find_split, split
from medusa.query.shape import StreamShape
from medusa.spark.dataframes.flow import judged
from medusa.spark.streaming.lateness import Entered
from medusa.spark.streaming.packed import place
from medusa.spark.support import Way, way_of

__all__ = ["Group", "StageInput", "Out", "StagePlan", "StatefulStage", "plan"]


class StageInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a group.

    Attributes:
        source: of its graph; None: only late rows are read.
        judged: rows of a source of the query, which are judged here; None: they come from another step.
        late: the source of the graph that takes the late ones.
    """

    number: int
    source: str | None
    judged: Entered | None = None
    late: str | None = None


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """Where what comes to a sink of a group goes.

    Attributes:
        final: it is a sink of the query, whose rows leave with Spark's types.
        numbered: with their numbers.
    """

    sink: str
    stage: int
    shard: int
    lane: int
    final: bool = False
    numbered: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of one group of a step.

    Attributes:
        shard: the number by which Spark has it.
        graph: as ``graph_to_msgpack`` gives it.
    """

    shard: int
    graph: bytes
    lanes: tuple[StageInput, ...]
    outs: tuple[Out, ...]


class StatefulStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stateful step.

    Attributes:
        shards: of the query's boxes with keys; 1: it has none in shards.
    """

    number: int
    groups: tuple[Group, ...]
    shards: int
    on_error: str
    modules: tuple[str, ...]


@dataclass(frozen=True)
class StagePlan:
    """The steps, and the lanes of sources at the first and of sinks behind the last."""

    stages: tuple[StatefulStage, ...]
    sources: Mapping[str, int]
    sinks: Mapping[str, tuple[int, StreamShape]]
    entry: int


def plan(
    checked: CheckedGraph,
    entered: Mapping[str, Entered],
    *,
    shards: int,
    numbered: bool,
    on_error: str,
    modules: tuple[str, ...],
) -> StagePlan:
    """Cut a query into steps.

    Args:
        checked: only boxes whose rows reach a sink; ``ways.check`` has passed them.
    """
    graph, parts = _split(checked, shards)
    planner = _Planner(check_graph(graph), parts, entered, shards if parts else 1)
    return planner.run(numbered=numbered, on_error=on_error, modules=modules)


def _split(checked: CheckedGraph, shards: int) -> tuple[Graph, dict[str, int]]:
    """The graph with all boxes split that can be, and the shard of each part."""
    graph = checked.graph
    parts: dict[str, int] = {}
    if shards == 1:
        return graph, parts
    for box in checked.graph.boxes:
        if isinstance(box, Source | Sink):
            continue
        if way_of(box, "", timed=all(checked.shapes[arc].timed for arc in box.inputs)) is not Way.KEYS:
            continue
        try:
            graph = split(graph, box.id, shards)
        except QueryError:
            continue  # such as one whose .dead is read: it stays whole
        for number, part in enumerate(find_split(graph, box.id).parts):
            parts[part.id] = number
    return graph, parts


def _levels(boxes: tuple[Box, ...], parts: Mapping[str, int]) -> dict[str, int]:
    """The step of each box; a table is in that of its look-ups."""
    floor: dict[str, int] = {}
    while True:
        level: dict[str, int] = {}
        for box in boxes:
            above = max((level[arc.box] for arc in box.inputs), default=0)
            part = box.id in parts
            level[box.id] = max(above + (above % 2 == (0 if part else 1)), floor.get(box.id, 0))
        before = dict(floor)
        for box in boxes:
            if isinstance(box, Lookup):
                table = box.inputs[1].box
                floor[table] = max(level[table], level[box.id], floor.get(table, 0))
        for box in boxes:
            if isinstance(box, Lookup):
                floor[box.id] = floor[box.inputs[1].box]
        if floor == before:
            return level


Place = tuple[int, int]


@dataclass
class _Made:
    """A group while it is put together."""

    boxes: list[Box] = field(default_factory=list)
    sources: list[Box] = field(default_factory=list)
    sinks: list[Box] = field(default_factory=list)
    lanes: dict[Input, StageInput] = field(default_factory=dict)
    outs: list[Out] = field(default_factory=list)


class _Planner:
    def __init__(
        self,
        checked: CheckedGraph,
        parts: Mapping[str, int],
        entered: Mapping[str, Entered],
        shards: int,
    ) -> None:
        self._checked = checked
        self._entered = entered
        self._shards = shards
        level = _levels(checked.graph.boxes, parts)
        self._place = {id: (stage, parts.get(id, 0)) for id, stage in level.items()}
        self._last = max(level.values(), default=0) + 1
        self._made: dict[Place, _Made] = {}
        self._ids = {box.id for box in checked.graph.boxes}
        self._lanes = 0
        self._late: dict[str, Input] = {}

    def run(self, *, numbered: bool, on_error: str, modules: tuple[str, ...]) -> StagePlan:
        sources, sinks = {}, {}
        for box in self._checked.graph.boxes:
            made = self._group(self._place[box.id])
            if isinstance(box, Source):
                sources[box.id] = self._enter(made, box)
                continue
            box = msgspec.structs.replace(box, inputs=tuple(self._arc(arc, box) for arc in box.inputs))
            if isinstance(box, Sink):
                shape = self._checked.shapes[self._checked.boxes[box.id].inputs[0]]
                sinks[box.id] = (lane := self._lane(), shape)
                made.sinks.append(box)
                made.outs.append(
                    Out(sink=box.id, stage=self._last, shard=0, lane=lane, final=True, numbered=numbered)
                )
            else:
                made.boxes.append(box)
        stages = []
        for number in range(self._last):
            groups = tuple(
                self._finished(where, made) for where, made in self._made.items() if where[0] == number
            )
            if groups:
                stages.append(
                    StatefulStage(
                        number=number,
                        groups=groups,
                        shards=self._shards,
                        on_error=on_error,
                        modules=modules,
                    )
                )
        return StagePlan(tuple(stages), sources, sinks, place(0))

    def _enter(self, made: _Made, box: Source) -> int:
        """A source: its rows are judged in the first step."""
        arc, late = Input(box.id), Input(box.id, "late")
        shape = self._checked.shapes[arc]
        tap = None
        if self._checked.consumers.get(late):
            tap = self._fresh("late")
            made.sources.append(judged(tap, self._checked.shapes[late]))
            self._late[box.id] = Input(tap)
            self._place[tap] = self._place[box.id]
        read = bool(self._checked.consumers.get(arc))
        if read:
            made.sources.append(judged(box.id, shape))
        made.lanes[arc] = StageInput(
            number=(lane := self._lane()),
            source=box.id if read else None,
            judged=self._entered[box.id],
            late=tap,
        )
        return lane

    def _arc(self, arc: Input, reader: Box) -> Input:
        """Where a box finds a stream: in its own group, or as a source there that another step feeds."""
        shape = self._checked.shapes[arc]
        if arc.port == "late" and arc.box in self._late:
            arc = self._late[arc.box]
        came, here = self._place[arc.box], self._place[reader.id]
        if came == here:
            return arc
        made = self._group(here)
        if arc not in made.lanes:
            lane = StageInput(number=self._lane(), source=self._fresh("in"))
            made.lanes[arc] = lane
            assert lane.source is not None, "it was just named"
            made.sources.append(judged(lane.source, shape))
            sink = Sink(id=self._fresh("out"), inputs=(arc,))
            before = self._group(came)
            before.sinks.append(sink)
            before.outs.append(Out(sink=sink.id, stage=here[0], shard=place(here[1]), lane=lane.number))
        return Input(made.lanes[arc].source or "")

    def _finished(self, where: Place, made: _Made) -> Group:
        boxes = (*made.sources, *made.boxes, *made.sinks)
        graph = Graph(name=self._checked.graph.name, boxes=boxes)
        return Group(
            shard=place(where[1]),
            graph=graph_to_msgpack(graph),
            lanes=tuple(made.lanes.values()),
            outs=tuple(made.outs),
        )

    def _group(self, where: Place) -> _Made:
        return self._made.setdefault(where, _Made())

    def _lane(self) -> int:
        self._lanes += 1
        return self._lanes - 1

    def _fresh(self, name: str) -> str:
        number = 0
        while (made := f"{name}-{number}") in self._ids:
            number += 1
        self._ids.add(made)
        return made
