"""Look-ups that don't stand behind their table, since it or they are in parts, say themselves what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from medusa.query.boxes import Box, KeyRouter, Lookup, OrderedMerge, Table

__all__ = ["with_tables"]


def with_tables(boxes: Iterable[Box]) -> list[Box]:
    """The boxes of a graph, where look-ups have what they need to know of their tables and no more."""
    every = list(boxes)
    by_id = {box.id: box for box in every}
    return [_with_table(box, by_id) if isinstance(box, Lookup) else box for box in every]


def _with_table(box: Lookup, boxes: Mapping[str, Box]) -> Lookup:
    origin = boxes[box.inputs[1].box]
    if isinstance(origin, Table):
        return box if box.table is None else msgspec.structs.replace(box, table=None)
    if box.table is not None:
        return box
    while isinstance(origin, KeyRouter):
        origin = boxes[origin.inputs[0].box]
    id = origin.id
    while isinstance(origin, OrderedMerge):
        origin = boxes[origin.inputs[0].box]
    if not isinstance(origin, Table):
        return box
    table = msgspec.structs.replace(origin, id=id, inputs=(), updates=(), position=None)
    return msgspec.structs.replace(box, table=table)
