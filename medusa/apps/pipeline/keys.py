"""Which columns of a sink name a row: those by which rows of two answers are paired."""

from __future__ import annotations

from medusa.query.boxes import Graph, Sink

__all__ = ["key_of"]


def key_of(graph: Graph, sink: str) -> tuple[str, ...]:
    """The columns of a sink that no two of its rows share; empty where nothing tells.

    Rows of a window have its bounds and the keys of the box. Boxes on single rows keep that, as long as the
    columns go through.
    """
    keys: dict[str, tuple[str, ...]] = {}
    for box in graph.boxes:
        keys[box.id] = box.row_key([keys[arc.box] for arc in box.inputs])
    (found,) = (box for box in graph.boxes if box.id == sink)
    assert isinstance(found, Sink)
    return keys[found.inputs[0].box] if found.inputs[0].port not in ("late", "dead") else ()
