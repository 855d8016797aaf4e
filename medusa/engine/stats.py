"""What runs, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, START_US
from medusa.engine.core.box import Operator
from medusa.engine.core.rows import TIME
from medusa.engine.operators.source import SourceBox
from medusa.engine.qos.rates import Meter
from medusa.query.boxes import Graph
from medusa.query.graph import UNTIMED_PORTS

__all__ = ["STATS_SCHEMA", "TIMED", "counts_of", "figures", "stats_table", "told_apart"]

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
        ("queue_rows", pa.int64()),
        ("lag_us", pa.int64()),
        ("selectivity", pa.float64()),
        ("cost_us", pa.float64()),
        ("rows_in_per_s", pa.float64()),
        ("rows_out_per_s", pa.float64()),
        ("load", pa.float64()),
        ("shed", pa.int64()),
    ]
)
"""``late``: rows judged late (at a source), or left out because they were (elsewhere). ``ahead``: rows too
far ahead of their arrival. ``tentative``: early rows that came, passed on or (boxes with state) ignored,
none of which is in ``rows_in``. ``busy_us``: time spent in the box; what a chain of boxes that runs as one
spends on rows stands at its first. ``boundary``: what the box has promised; null before anything and after
the end. ``queue_rows``, ``queue_bytes``: rows that wait for a boundary, or to be taken. ``lag_us``: how far
the boundary is behind the largest time that any source above has seen; 0 at the end, null before anything
and without time. ``selectivity``: rows out per row in, since the stream began; null before any.
``cost_us``: ``busy_us`` per row in, since this process took the query up. ``rows_in_per_s``,
``rows_out_per_s``, ``load`` (the share of time that the box was busy, 0 to 1): means over the last 5 s by
the clock of the run, or since its first rows; null as long as no time has passed. ``shed``: rows that were
left out under overload (docs/shedding.md): behind this source, before this box, or on all ways to a sink."""

TIMED = ("busy_us", "cost_us", "rows_in_per_s", "rows_out_per_s", "load")
"""The columns that a clock decides: they differ between two runs over the same rows."""


def counts_of(boxes: Sequence[Operator]) -> list[int]:
    """What rates are made of: rows in, rows out and time busy of each box."""
    counts: list[int] = []
    for box in boxes:
        counts += (box.rows_in, box.rows_out, box.busy_us)
    return counts


def figures(graph: Graph, boxes: Mapping[str, Operator], *, timed: bool) -> list[dict[str, Any]]:
    """One dict per box, in the order of the query: ``STATS_SCHEMA`` without rates, boundaries in us.

    Args:
        timed: somebody measured how busy the boxes were.
    """
    newest = _newest_us(graph, boxes)
    found = []
    for box in boxes.values():
        taken = box.rows_in - box.rows_before
        at_us = box.boundary_us
        finished = at_us >= END_US
        known = START_US < at_us < END_US
        came_us = newest.get(box.id)
        lag_us = None if came_us is None or not known else max(came_us - at_us, 0)
        found.append(
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
                "boundary": at_us if known else None,
                "finished": finished,
                "queue_rows": box.queue_rows(),
                "lag_us": 0 if finished else lag_us,
                "selectivity": box.rows_out / box.rows_in if box.rows_in else None,
                "cost_us": box.busy_us / taken if timed and taken > 0 else None,
                "shed": box.shed,
            }
        )
    return found


def stats_table(
    found: Sequence[dict[str, Any]],
    meter: Meter,
    now_us: int | None,
    counts: Sequence[int],
    since_us: int | None,
) -> pa.Table:
    """What ``figures`` found, with rates where a time is told: one row per box.

    Args:
        counts: as ``counts_of`` gives them.
        since_us: when they changed last.
    """
    rates = None if now_us is None else meter.rates(now_us, counts, since_us)
    if rates is not None:
        for place, row in enumerate(found):
            came, left, busy = rates[3 * place : 3 * place + 3]
            row |= {"rows_in_per_s": came, "rows_out_per_s": left, "load": busy / 1e6}
    return pa.Table.from_pylist(list(found), schema=STATS_SCHEMA)


def told_apart(tables: Sequence[tuple[str, str | None, pa.Table]]) -> pa.Table:
    """Statistics of several queries in one table, with two columns more.

    Args:
        tables: of each query its name, for ``query``, what tells it apart from others of that name, for
            ``attached``, and its statistics.
    """
    made = []
    for name, label, table in tables:
        for column, value in (("query", name), ("attached", label)):
            table = table.append_column(column, pa.array([value] * len(table), pa.string()))
        made.append(table)
    return pa.concat_tables(made)


def _newest_us(graph: Graph, boxes: Mapping[str, Operator]) -> dict[str, int]:
    """The largest time that the sources above each box have seen; boxes without time aren't there."""
    found: dict[str, int] = {}
    for spec in graph.boxes:  # inputs come first
        box = boxes[spec.id]
        above = [found[arc.box] for arc in spec.inputs if arc.port not in UNTIMED_PORTS and arc.box in found]
        if isinstance(box, SourceBox):
            above = [] if box.newest_us is None else [box.newest_us]
        if above:
            found[spec.id] = max(above)
    return found
