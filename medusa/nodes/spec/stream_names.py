"""Names of streams between nodes: that of a box's output, and that of one reader of it alone."""

from __future__ import annotations

__all__ = ["output_of", "stream_for"]

FOR_ONE = ".to."


def stream_for(stream: str, reader: str) -> str:
    """The name of an output's stream that this reader alone reads: ``q.first.to.kind``."""
    return f"{stream}{FOR_ONE}{reader}"


def output_of(stream: str) -> str:
    """The name of the output, whoever reads it: what rules for a stream go by."""
    return stream.partition(FOR_ONE)[0]
