"""From a checked graph to boxes that run."""

from __future__ import annotations

from medusa.engine.boxes.aggregate import AggregateBox, CombineBox
from medusa.engine.boxes.base import Operator
from medusa.engine.boxes.filter import FilterBox
from medusa.engine.boxes.join import JoinBox
from medusa.engine.boxes.project import ProjectBox
from medusa.engine.boxes.sink import SinkBox
from medusa.engine.boxes.source import SourceBox
from medusa.engine.boxes.union import UnionBox
from medusa.engine.dead import DeadLetters
from medusa.query.boxes import (
    Aggregate,
    Box,
    Filter,
    Input,
    Join,
    Schema,
    Select,
    Sink,
    Source,
    Union,
    WindowJoin,
    WithColumns,
)
from medusa.query.expression import Call, Column, Expression, Named
from medusa.query.graph import CheckedGraph
from medusa.query.shape import WINDOW_COLUMNS, types_of
from medusa.query.tree import walk
from medusa.query.types import schema_to_arrow

__all__ = ["compile_graph", "readers_of_time"]


def compile_graph(checked: CheckedGraph, letters: DeadLetters, *, sink_times: bool) -> list[Operator]:
    """One running box for each box of the graph, in its order, not yet connected.

    Args:
        sink_times: trains at sinks carry their times.
    """
    timed = readers_of_time(checked, sink_times=sink_times)
    return [_operator(box, checked, letters, timed=timed[box.id]) for box in checked.graph.boxes]


def readers_of_time(checked: CheckedGraph, *, sink_times: bool) -> dict[str, bool]:
    """Of each box: whether anything below reads the times of its output."""
    reads: dict[str, bool] = {}
    for box in reversed(checked.graph.boxes):
        readers = [checked.boxes[id] for id, _ in checked.consumers[Input(box.id)]]
        reads[box.id] = any(_reads_time(reader, reads, sink_times) for reader in readers)
    return reads


def _reads_time(box: Box, reads: dict[str, bool], sink_times: bool) -> bool:
    match box:
        case Aggregate(stage="combine"):
            return False
        case Aggregate() | Join() | WindowJoin():
            return True
        case Filter():
            return reads[box.id] or _has_time(box.predicate)
        case Select() | WithColumns():
            return reads[box.id] or any(_has_time(named.expression) for named in box.columns)
        case Sink():
            return sink_times
    return reads[box.id]


def _has_time(expression: Expression) -> bool:
    return any(isinstance(node, Call) and node.function == "tuple_time" for node in walk(expression))


def _operator(box: Box, checked: CheckedGraph, letters: DeadLetters, *, timed: bool) -> Operator:
    inputs = [checked.shapes[arc] for arc in box.inputs]
    output = checked.shapes[Input(box.id)].schema
    match box:
        case Source():
            return SourceBox(box, timed=timed)
        case Filter():
            return FilterBox(box, input=inputs[0].schema, letters=letters, timed=inputs[0].timed)
        case Select() | WithColumns():
            return ProjectBox(
                box, input=inputs[0].schema, output=output, letters=letters, timed=inputs[0].timed
            )
        case Union():
            return UnionBox(box.id, inputs=len(inputs))
        case Aggregate():
            made = CombineBox if box.stage == "combine" else AggregateBox
            return made(box, input=inputs[0].schema, output=output, letters=letters, timed=timed)
        case Join() | WindowJoin():
            return _join(box, inputs[0].schema, inputs[1].schema, output, letters)
        case Sink():
            return SinkBox(box.id, schema_to_arrow(output), timed=inputs[0].timed)


def _join(
    box: Join | WindowJoin, left: Schema, right: Schema, output: Schema, letters: DeadLetters
) -> JoinBox:
    pairs = list(zip(box.left_keys, box.right_keys, strict=True))
    if isinstance(box, WindowJoin):
        bounds = [Named(name, Column(name)) for name in WINDOW_COLUMNS]
        pairs = [*zip(bounds, bounds, strict=True), *pairs]
    types = types_of(output)
    return JoinBox(
        box,
        keys=[(ours, theirs, types[ours.name]) for ours, theirs in pairs],
        # Rows of equal windows have equal times.
        within_us=box.within_us if isinstance(box, Join) else 0,
        sides=(left, right),
        schema=output,
        letters=letters,
    )
