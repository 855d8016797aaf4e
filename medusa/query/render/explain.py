"""A query as a text tree: from each sink up to its sources."""

from __future__ import annotations

from medusa.query.boxes import Box, Filter, Graph, Input, Sink, Union
from medusa.query.boxes.text import columns_text
from medusa.query.graph import CheckedGraph, check_graph
from medusa.query.ids import kind_of

__all__ = ["explain"]


def explain(graph: Graph) -> str:
    """What each box does, the columns it gives, and what it waits for.

    A box that feeds several others is described once; later it stands with ``(see above)``.

    Raises:
        QueryError: the graph doesn't hold.
    """
    checked = check_graph(graph)
    sinks = [box.id for box in graph.boxes if isinstance(box, Sink)]
    lines = [f"query {graph.name}: {_counted(graph)}"]
    told: set[str] = set()
    for id in sinks:
        lines += ["", *_tree(Input(id), checked, told)]
    # Boxes that lead nowhere, from their last ones up.
    loose = [box.id for box in reversed(graph.boxes) if not _read(box, checked) and box.id not in told]
    for id in loose:
        lines += ["", f"{id} leads to no sink:", *_tree(Input(id), checked, told)]
    return "\n".join(lines) + "\n"


def _counted(graph: Graph) -> str:
    sinks = sum(isinstance(box, Sink) for box in graph.boxes)
    boxes = f"{len(graph.boxes)} box{'' if len(graph.boxes) == 1 else 'es'}"
    return f"{boxes}, {sinks} of them {'a sink' if sinks == 1 else 'sinks'}"


def _read(box: Box, checked: CheckedGraph) -> bool:
    return any(readers for arc, readers in checked.consumers.items() if arc.box == box.id)


def _tree(root: Input, checked: CheckedGraph, told: set[str]) -> list[str]:
    """Lines of one tree; by a stack, since a query may be a thousand boxes deep."""
    boxes = checked.boxes
    lines: list[str] = []
    stack = [(root, "", "")]
    while stack:
        arc, first, rest = stack.pop()
        box = boxes[arc.box]
        if box.id in told:
            lines.append(first + _name(box, arc) + " (see above)")
            continue
        text = box.describe()
        lines.append(first + _name(box, arc) + (f": {text}" if text else ""))
        details = _details(box, checked)
        told.add(box.id)
        bar = "│  " if box.inputs else "   "
        lines += [rest + bar + detail for detail in details]
        last = len(box.inputs) - 1
        for index in range(last, -1, -1):
            fork, below = ("└─ ", "   ") if index == last else ("├─ ", "│  ")
            stack.append((box.inputs[index], rest + fork, rest + below))
    return lines


def _name(box: Box, arc: Input) -> str:
    return f"{kind_of(box)} {box.id}" + (f".{arc.port}" if arc.port else "")


def _details(box: Box, checked: CheckedGraph) -> list[str]:
    if isinstance(box, Sink):
        return []
    shape = checked.shapes[Input(box.id)]
    lines = []
    if not isinstance(box, Filter | Union):
        lines.append(f"gives {columns_text(shape.schema)}")
    if not shape.timed:
        lines.append("has no time")
    if waiting := box.waits:
        lines.append(f"waits for {waiting}")
    return lines
