"""What runs, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from medusa.elements import END_US, START_US
from medusa.engine.boxes.base import Operator
from medusa.engine.rows import TIME

__all__ = ["STATS_SCHEMA", "stats_table"]

STATS_SCHEMA = pa.schema(
    [
        ("box", pa.string()),
        ("kind", pa.string()),
        ("rows_in", pa.int64()),
        ("rows_out", pa.int64()),
        ("late", pa.int64()),
        ("ahead", pa.int64()),
        ("tentative", pa.int64()),
        ("dead", pa.int64()),
        ("dropped", pa.int64()),
        ("state_bytes", pa.int64()),
        ("queue_bytes", pa.int64()),
        ("busy_us", pa.int64()),
        ("boundary", TIME),
        ("finished", pa.bool_()),
    ]
)
"""``late``: rows judged late (at a source), or left out because they were (elsewhere). ``ahead``: rows too
far ahead of their arrival. ``tentative``: early rows that came, passed on or (boxes with state) ignored,
none of which is in ``rows_in``. ``busy_us``: time spent in the box; what a chain of boxes that runs as one
spends on rows stands at its first. ``boundary``: what the box has promised; null before anything and after
the end."""


def stats_table(boxes: Sequence[Operator]) -> pa.Table:
    """One row per box, in the order of the query."""
    rows = [
        {
            "box": box.id,
            "kind": box.kind,
            "rows_in": box.rows_in,
            "rows_out": box.rows_out,
            "late": box.late,
            "ahead": box.ahead,
            "tentative": box.tentative,
            "dead": box.dead,
            "dropped": box.dropped,
            "state_bytes": box.state_bytes(),
            "queue_bytes": box.queue_bytes(),
            "busy_us": box.busy_us,
            "boundary": box.boundary_us if START_US < box.boundary_us < END_US else None,
            "finished": box.boundary_us >= END_US,
        }
        for box in boxes
    ]
    return pa.Table.from_pylist(rows, schema=STATS_SCHEMA)
