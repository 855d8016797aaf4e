"""Which columns of a sink name a row: those by which rows of two answers are paired."""

from __future__ import annotations

from medusa.query.boxes import Aggregate, Box, Graph, Select, Session, Sink, WindowJoin, WithColumns
from medusa.query.expressions.expression import Column
from medusa.query.ids import kind_of

__all__ = ["key_of"]

WINDOW = ("window_start", "window_end")
PASSING = ("filter", "route", "random_drop", "semantic_drop", "window_drop", "connection_point")


def key_of(graph: Graph, sink: str) -> tuple[str, ...]:
    """The columns of a sink that no two of its rows share; empty where nothing tells.

    Rows of a window have its bounds and the keys of the box. Boxes on single rows keep that, as long as the
    columns go through.
    """
    boxes = {box.id: box for box in graph.boxes}
    found = boxes[sink]
    assert isinstance(found, Sink)
    return _of(boxes, boxes[found.inputs[0].box]) if found.inputs[0].port not in ("late", "dead") else ()


def _of(boxes: dict[str, Box], box: Box) -> tuple[str, ...]:
    if isinstance(box, Aggregate | Session):
        return (*WINDOW, *(key.name for key in box.keys))
    if isinstance(box, WindowJoin):
        key = (*WINDOW, *(key.name for key in box.left_keys))
        sides = [_of(boxes, boxes[arc.box]) for arc in box.inputs]
        return key if all(len(side) == len(key) for side in sides) else ()
    if kind_of(box) in PASSING:
        return _of(boxes, boxes[box.inputs[0].box])
    if isinstance(box, Select | WithColumns):
        key = _of(boxes, boxes[box.inputs[0].box])
        shown: dict[str, str] = {} if isinstance(box, Select) else {name: name for name in key}
        for named in box.columns:
            if isinstance(named.expression, Column):
                shown = {old: new for old, new in shown.items() if new != named.name}
                shown.setdefault(named.expression.name, named.name)
            else:
                shown = {old: new for old, new in shown.items() if new != named.name}
        return tuple(shown[name] for name in key) if all(name in shown for name in key) else ()
    return ()
