"""A whole query, checked: what a graph from a file or a link must pass before anything reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.errors import QueryError
from medusa.query.boxes import (
    FORMAT_VERSION,
    Aggregate,
    Box,
    BoxData,
    Graph,
    Input,
    Schema,
    Sink,
    Source,
)
from medusa.query.boxes.base import shape_of
from medusa.query.ids import check_name, kind_of
from medusa.query.shape import StreamShape
from medusa.query.structs import expressions_of
from medusa.query.suggest import did_you_mean

__all__ = [
    "ARCS_MAX",
    "BOXES_MAX",
    "UNTIMED_PORTS",
    "CheckedGraph",
    "check_graph",
    "interleaves",
    "label_of",
    "order_dependent",
    "ports_of",
    "reads_dead_of_several",
    "schemas",
    "taps_of",
    "time_dependent",
]

BOXES_MAX = 1_000
ARCS_MAX = 10_000
COLUMNS_TOTAL_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A graph that holds, and what follows from it.

    Attributes:
        shapes: columns, time and windows of every stream: of each box's ``Input(id)`` and of the
            ``Input(id, "late")`` of each source with time, in the order of the boxes; of taps, such as
            ``Input(id, "dead")``, those that a box reads.
        consumers: the boxes that read a stream, as (box id, which of its inputs), in that order.
    """

    graph: Graph
    shapes: dict[Input, StreamShape]
    consumers: dict[Input, tuple[tuple[str, int], ...]]

    @property
    def schemas(self) -> dict[Input, Schema]:
        """Columns of every stream."""
        return {arc: shape.schema for arc, shape in self.shapes.items()}

    @property
    def boxes(self) -> dict[str, Box]:
        """By id, inputs first."""
        return {box.id: box for box in self.graph.boxes}


def label_of(box: Box) -> str:
    """How messages name a box: ``filter 'fast'``."""
    return f"{kind_of(box)} {box.id!r}"


def ports_of(box: Box) -> tuple[str, ...]:
    """The ports from which arcs may begin."""
    return box.ports


UNTIMED_PORTS = ("late", "ahead", "dead")
"""Of any box: their rows have no time, and boxes that depend on time can't read them."""


def taps_of(box: BoxData) -> tuple[str, ...]:
    """Ports that exist only where something reads them: ``dead`` of a box that computes expressions
    or calls functions."""
    computes = bool(box.functions) or any(True for _ in expressions_of(box))
    return ("dead",) if computes else ()


def check_graph(graph: Graph, *, require_sinks: bool = False) -> CheckedGraph:
    """Check everything that the builder would have checked.

    Args:
        require_sinks: refuse a graph without a source or a sink: it can't run.

    Raises:
        QueryError: names the box, what was expected and what came.
    """
    if graph.version != FORMAT_VERSION:
        raise QueryError(
            f"query: its format has version {graph.version}, this program reads {FORMAT_VERSION}",
            hint="a newer Medusa wrote it" if graph.version > FORMAT_VERSION else "",
            code="query.version",
        )
    check_name(graph.name, what="query")
    if len(graph.boxes) > BOXES_MAX:
        raise QueryError(
            f"query {graph.name!r}: has {len(graph.boxes):,} boxes, at most {BOXES_MAX:,}", code="query.limit"
        )
    arcs = sum(len(box.inputs) for box in graph.boxes)
    if arcs > ARCS_MAX:
        raise QueryError(f"query {graph.name!r}: has {arcs:,} arcs, at most {ARCS_MAX:,}", code="query.limit")
    _check_ids(graph)
    _check_order(graph)
    shapes: dict[Input, StreamShape] = {}
    consumers: dict[Input, list[tuple[str, int]]] = {}
    columns = 0
    tapped = {arc for box in graph.boxes for arc in box.inputs if arc.port == "dead"}
    for box in graph.boxes:
        label = label_of(box)
        inputs = [_input(arc, shapes, label) for arc in box.inputs]
        taps = [port for port in taps_of(box) if Input(box.id, port) in tapped] if tapped else []
        for port in (*ports_of(box), *taps):
            shapes[Input(box.id, port)] = shape_of(box, inputs, label=label, port=port)
        for index, arc in enumerate(box.inputs):
            consumers.setdefault(arc, []).append((box.id, index))
        columns += len(shapes[Input(box.id)].schema)
        if columns > COLUMNS_TOTAL_MAX:
            raise QueryError(
                f"query {graph.name!r}: more than {COLUMNS_TOTAL_MAX:,} columns", code="query.limit"
            )
    if require_sinks:
        _check_ends(graph)
    return CheckedGraph(graph, shapes, {arc: tuple(consumers.get(arc, ())) for arc in shapes})


def _check_ids(graph: Graph) -> None:
    seen: dict[str, Box] = {}
    for box in graph.boxes:
        check_name(box.id, what=f"query {graph.name!r}: {kind_of(box)}")
        if box.id in seen:
            raise QueryError(
                f"query {graph.name!r}: the name {box.id!r} stands for a {kind_of(seen[box.id])} and for a"
                f" {kind_of(box)}",
                code="query.name",
            )
        seen[box.id] = box


def _check_order(graph: Graph) -> None:
    """Inputs exist, and come before the boxes that read them: then there is no cycle."""
    boxes = {box.id: box for box in graph.boxes}
    before: set[str] = set()
    for box in graph.boxes:
        for arc in box.inputs:
            if arc.box not in boxes:
                raise QueryError(
                    f"{label_of(box)}: there is no box {arc.box[:80]!r} to read",
                    hint=did_you_mean(arc.box, boxes),
                    code="query.input",
                )
            if isinstance(boxes[arc.box], Sink):
                raise QueryError(f"{label_of(box)}: reads sink {arc.box!r}", code="query.input")
            if arc.box not in before:
                cycle = _cycle(box.id, boxes)
                if cycle:
                    raise QueryError(
                        f"query {graph.name!r}: its boxes feed themselves: {' -> '.join(cycle)}",
                        code="query.cycle",
                    )
                raise QueryError(
                    f"{label_of(box)}: stands before {arc.box!r}, which it reads", code="query.order"
                )
        before.add(box.id)


def _cycle(start: str, boxes: dict[str, Box]) -> list[str]:
    """The way of a tuple from ``start`` back to it, or an empty list."""
    reads = {id: [arc.box for arc in box.inputs if arc.box in boxes] for id, box in boxes.items()}
    readers: dict[str, list[str]] = {id: [] for id in boxes}
    for id, inputs in reads.items():
        for origin in inputs:
            readers[origin].append(id)
    came: dict[str, str] = {}
    stack = [start]
    while stack:
        here = stack.pop()
        for reader in readers[here]:
            if reader in came:
                continue
            came[reader] = here
            if reader == start:
                way = [start, here]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            stack.append(reader)
    return []


def _input(arc: Input, shapes: dict[Input, StreamShape], label: str) -> StreamShape:
    shape = shapes.get(arc)
    if shape is None:
        raise QueryError(
            f"{label}: box {arc.box!r} has no port {arc.port[:60]!r}",
            hint="a source with time= has .late; other boxes have one output",
            code="query.port",
        )
    return shape


def _check_ends(graph: Graph) -> None:
    if not any(isinstance(box, Source) for box in graph.boxes):
        raise QueryError(
            f"query {graph.name!r}: has no source",
            hint='q.source("cars", schema, time="ts")',
            code="query.source",
        )
    if not any(isinstance(box, Sink) for box in graph.boxes):
        raise QueryError(
            f"query {graph.name!r}: has no sink, so nothing would come out",
            hint='q.sink("out", stream)',
            code="query.sink",
        )


def schemas(graph: Graph) -> dict[Input, Schema]:
    """Columns of every stream of a graph, which is checked.

    Raises:
        QueryError: as ``check_graph``.
    """
    return check_graph(graph).schemas


def time_dependent(graph: Graph) -> tuple[str, ...]:
    """Boxes whose answer depends on time, so that late rows never enter them."""
    return tuple(box.id for box in graph.boxes if box.time_dependent)


def order_dependent(graph: Graph, *, sinks: bool = True) -> tuple[tuple[str, str], ...]:
    """(union, box) pairs where the order in which the union took its rows shows in the box's output.

    Order-dependent are windows (groups leave by first appearance, float sums add in row order) and
    joins (equal releases leave by position). A ``combine`` window is not: it emits by key.

    Args:
        sinks: count sinks too: rows leave them numbered, so a rerun that interleaves otherwise would
            give a number to another row. Until interleavings are logged, a run with a checkpoint
            must refuse these queries.
    """
    return tuple(_below_unions(graph, sinks))


def interleaves(graph: Graph) -> bool:
    """Whether some stream depends on how the rows of several inputs came one after the other."""
    return any(box.determinism == "arbitrary" for box in graph.boxes) or reads_dead_of_several(graph)


def reads_dead_of_several(graph: Graph) -> bool:
    """Whether failed rows are read of a box with several inputs: rows fail there as they arrive."""
    several = {box.id for box in graph.boxes if len(box.inputs) > 1}
    return any(arc.port == "dead" and arc.box in several for box in graph.boxes for arc in box.inputs)


def _below_unions(graph: Graph, sinks: bool) -> Iterator[tuple[str, str]]:
    unions: dict[str, tuple[str, ...]] = {}
    for box in graph.boxes:
        above = tuple(dict.fromkeys(union for arc in box.inputs for union in unions[arc.box]))
        combines = isinstance(box, Aggregate) and box.stage == "combine"
        if (box.order_dependent and not combines) or (sinks and isinstance(box, Sink)):
            yield from ((union, box.id) for union in above)
        if box.determinism == "arbitrary":
            above = (*above, box.id)
        elif combines:
            above = ()
        unions[box.id] = above
