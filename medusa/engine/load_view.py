"""What a drawing says of the boxes of a fragment: who is busy, what waits, who holds whom back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.elements import END_US
from medusa.engine.blocked_boxes import held_by
from medusa.engine.core.box import Operator
from medusa.engine.qos.rates import OVER_US
from medusa.query.boxes import Graph
from medusa.query.render.diagram_load import BoxLoad, DiagramLoads
from medusa.units import duration_text, size_text

__all__ = ["loads"]


def loads(graph: Graph, boxes: Mapping[str, Operator], stats: Sequence[Mapping[str, Any]]) -> DiagramLoads:
    """How busy each box was in the last seconds; where none was, since the run began.

    Args:
        stats: one per box, as ``Fragment.stats`` has them.
    """
    recent = any(row["load"] for row in stats)
    busy = {row["box"]: float(row["load"] if recent else row["busy_us"]) for row in stats}
    whole = sum(busy.values())
    rows = {row["box"]: row for row in stats}
    specs = {spec.id: spec for spec in graph.boxes}
    found = {}
    for id, row in rows.items():
        box = boxes.get(id)
        if box is None:  # the query has changed since
            continue
        holder = ""
        if len(box.inputs_us) > 1 and box.input_us < max(box.inputs_us) and box.input_us < END_US:
            held = held_by(specs[id], box)
            holder = "" if held is None else held.label
        share = busy[id] / whole if whole else 0.0
        found[id] = BoxLoad(share, tuple(_marks(row, share, holder)), bool(holder), _tip(row))
    return DiagramLoads(found, f"over the last {duration_text(OVER_US)}" if recent else "since the run began")


def _marks(row: Mapping[str, Any], share: float, holder: str) -> list[str]:
    marks = [f"{share:.0%} of busy time"]
    if row["queue_rows"]:
        marks.append(f"{row['queue_rows']:,} rows wait, {size_text(row['queue_bytes'])}")
    if row.get("shed"):
        marks.append(f"{row['shed']:,} rows shed")
    if holder:
        lag_us = row["lag_us"]
        behind = "" if lag_us is None else f", {duration_text(lag_us - lag_us % 1000)} behind"
        marks.append(f"held by {holder}{behind}")
    return marks


def _tip(row: Mapping[str, Any]) -> str:
    parts = [f"{row['rows_in']:,} rows in, {row['rows_out']:,} out"]
    if row["rows_in_per_s"] is not None:
        parts.append(f"{row['rows_in_per_s']:,.0f} in and {row['rows_out_per_s']:,.0f} out per second")
    if row["cost_us"] is not None:
        parts.append(f"{row['cost_us']:.3g} us a row")
    parts += [f"{row[name]:,} {name}" for name in ("late", "dead", "dropped") if row[name]]
    return "; ".join(parts)
