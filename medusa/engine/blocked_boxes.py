"""Why nothing comes out: what each box waits for, which input holds it back since when, and the cause."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.elements import END_US, START_US
from medusa.engine.core.box import Operator, show_time
from medusa.engine.operators.source import SourceBox
from medusa.query.boxes import Box, Graph, Input
from medusa.units import duration_text

__all__ = ["explain_boxes", "held_by"]


def explain_boxes(graph: Graph, boxes: Mapping[str, Operator], now_us: int | None = None) -> str:
    """One line per box: what it reads, what it waits for, who holds it back, what it has left out.

    Args:
        now_us: the moment by the clock that the fragment is told of; None: nobody knows for how long.
    """
    specs = {spec.id: spec for spec in graph.boxes}
    lines = [f"query {graph.name}"]
    for spec in graph.boxes:
        box = boxes[spec.id]
        names = [arc.label for arc in spec.inputs]
        origin = f" from {', '.join(names)}" if names else ""
        text = box.waits_for(names)
        told = "holds its boundary at" in text  # by which input, the box says itself
        parts = [text, *_cause(spec, specs, boxes, now_us, told=told), *_left_out(box)]
        lines.append(f"  {box.kind} {box.id}{origin}: {'; '.join(parts)}")
    return "\n".join(lines)


def _left_out(box: Operator) -> list[str]:
    counts = {"late": box.late, "ahead": box.ahead, "dead": box.dead, "dropped": box.dropped}
    found = [f"{count} rows {name}" for name, count in counts.items() if count]
    if box.tentative and not box.takes_tentative:
        found.append(f"{box.tentative} early rows ignored")
    return found


def _cause(
    spec: Box, specs: Mapping[str, Box], boxes: Mapping[str, Operator], now_us: int | None, *, told: bool
) -> list[str]:
    box = boxes[spec.id]
    if isinstance(box, SourceBox):
        holder = box.holder()
        found = [f"{holder} holds it"] if holder and box.boundary_us < END_US else []
        return found + [f"unmoved for {text}" for text in _since(box, now_us)]
    held = held_by(spec, box)
    if held is None:
        return []
    above = boxes[held.box]
    found = [] if told else [f"held back by {held.label} at {show_time(above.boundary_us)}"]
    found += [f"unmoved for {since}" for since in _since(above, now_us)]
    while (further := held_by(specs[held.box], boxes[held.box])) is not None:
        held = further
    root = boxes[held.box]
    if isinstance(root, SourceBox):
        because = [f"source {root.id}"] if root is not above else []
        because += [root.holder()] if root.holder() else []
        because += ["idle"] if root.idle else []
        found += [f"because of {', '.join(because)}"] if because else []
    return [", ".join(found)] if found else []


def held_by(spec: Box, box: Operator) -> Input | None:
    """The input with the lowest boundary; None where none holds: a source, the end, a stream without time."""
    if not spec.inputs or box.input_us >= END_US:
        return None
    arc = spec.inputs[box.inputs_us.index(box.input_us)]
    return None if arc.port in ("late", "ahead", "dead") else arc


def _since(box: Operator, now_us: int | None) -> list[str]:
    """How long ago its boundary moved; empty where that isn't known, or where it has ended."""
    if now_us is None or box.moved_us is None or not START_US < box.boundary_us < END_US:
        return []
    seconds = (now_us - box.moved_us) // 1_000_000
    return [duration_text(seconds * 1_000_000)] if seconds > 0 else []
