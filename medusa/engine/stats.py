"""What runs, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from medusa.elements import END_US, START_US
from medusa.engine.boxes.base import Operator
from medusa.engine.rows import TIME
from medusa.query.boxes import Graph, Input

__all__ = ["STATS_SCHEMA", "explain_boxes", "stats_table"]

STATS_SCHEMA = pa.schema(
    [
        ("box", pa.string()),
        ("kind", pa.string()),
        ("rows_in", pa.int64()),
        ("rows_out", pa.int64()),
        ("late", pa.int64()),
        ("dead", pa.int64()),
        ("state_bytes", pa.int64()),
        ("queue_bytes", pa.int64()),
        ("busy_us", pa.int64()),
        ("boundary", TIME),
        ("finished", pa.bool_()),
    ]
)
"""``late``: rows judged late (at a source), or left out because they were (elsewhere). ``boundary``:
what the box has promised; null before anything and after the end."""


def stats_table(boxes: Sequence[Operator]) -> pa.Table:
    """One row per box, in the order of the query."""
    rows = [
        {
            "box": box.id,
            "kind": box.kind,
            "rows_in": box.rows_in,
            "rows_out": box.rows_out,
            "late": box.late,
            "dead": box.dead,
            "state_bytes": box.state_bytes(),
            "queue_bytes": box.queue_bytes(),
            "busy_us": box.busy_us,
            "boundary": box.boundary_us if START_US < box.boundary_us < END_US else None,
            "finished": box.boundary_us >= END_US,
        }
        for box in boxes
    ]
    return pa.Table.from_pylist(rows, schema=STATS_SCHEMA)


def explain_boxes(graph: Graph, boxes: Mapping[str, Operator]) -> str:
    """One line per box: what it reads, what it waits for, what it has left out."""
    lines = [f"query {graph.name}"]
    for spec in graph.boxes:
        box = boxes[spec.id]
        names = [_arc_name(arc) for arc in spec.inputs]
        origin = f" from {', '.join(names)}" if names else ""
        line = f"  {box.kind} {box.id}{origin}: {box.waits_for(names)}"
        if box.late:
            line += f"; {box.late} rows late"
        if box.dead:
            line += f"; {box.dead} rows dead"
        lines.append(line)
    return "\n".join(lines)


def _arc_name(arc: Input) -> str:
    return f"{arc.box}.{arc.port}" if arc.port else arc.box
