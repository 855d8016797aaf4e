"""What a fragment takes before it has a row: its boxes, and the programs of their expressions."""

from __future__ import annotations

import msgspec

from medusa.query.boxes import Graph

__all__ = ["compiled_bytes", "opening_bytes"]

BYTES_PER_BYTE = 32
BYTES_PER_BOX = 8 << 10
"""Measured over filters, selects, CASE, IN, aggregates and joins: 14 to 45 bytes for each byte of the graph,
the most where boxes are many and small. These give all of what is taken, and up to twice that."""

FILES_SHARE = 2
"""State in memory is at least this part of its files."""


def compiled_bytes(graph: Graph) -> int:
    """How many bytes it takes to run this graph, told from the graph alone: before they are spent."""
    return BYTES_PER_BYTE * len(msgspec.msgpack.encode(graph)) + BYTES_PER_BOX * len(graph.boxes)


def opening_bytes(graph: Graph, state_bytes: int) -> int:
    """What a fragment takes at least with a state whose files have so many bytes; told before it is made."""
    return compiled_bytes(graph) + state_bytes // FILES_SHARE
