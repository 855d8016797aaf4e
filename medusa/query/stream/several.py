"""Boxes of several streams of which none is first: ``md.sunion`` and ``md.process``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa.errors import QueryError
from medusa.query.stream.output import label_after
from medusa.query.stream.stream import Stream
from medusa.query.user import process_box, remember
from medusa.units import Duration

__all__ = ["process", "sunion"]


def sunion(*streams: Stream, bucket: Duration, name: str | None = None) -> Stream:
    """The rows of several streams of one schema, merged by time: the same order in every run.

    Rows wait until all inputs have passed the end of their bucket; then they leave by (time, number
    of the input, position). Borealis' SUnion (Balazinska et al., SIGMOD 2005, section 4).

    Args:
        streams: at least two, of one query.
        bucket: its length, aligned to the epoch: how much is sorted at once, and how long rows wait
            beyond the boundaries.
    """
    if not streams:
        raise QueryError("sunion: needs at least two streams", code="query.arity")
    first = streams[0]
    if not isinstance(first, Stream):
        raise QueryError(f"sunion: expected streams, got {type(first).__name__}", code="query.stream")
    return first.sunion(*streams[1:], bucket=bucket, name=name)


def process(
    operator: type,
    inputs: Mapping[str, Stream],
    schema: Any,
    *,
    by: Any,
    state: Any = None,
    name: str | None = None,
) -> Stream:
    """Rows that a class makes of the rows of several streams, with state kept for each key.

    As ``stream.process(...)``; ``rows`` has a fifth argument, the name of the stream from which the rows
    come. The inputs are merged by time; at equal times rows of an earlier input come first.

    Args:
        operator: the class.
        inputs: name -> stream, all of one query; the key has the same name and type in each.
        schema: the output columns.
        by: the key: a column or several.
        state: the fields kept for each key.
    """
    label = "md.process" if name is None else f"process {name!r}"[:120]
    if not isinstance(inputs, Mapping) or not inputs:
        raise QueryError(
            f"{label}: expected a mapping of names to streams, got {type(inputs).__name__}",
            hint='{"cars": cars, "tolls": tolls}',
            code="query.stream",
        )
    streams = list(inputs.values())
    if not all(isinstance(stream, Stream) for stream in streams):
        raise QueryError(f"{label}: every input is a stream", code="query.stream")
    query = streams[0].query
    arcs = tuple(query._owned(stream, label) for stream in streams)
    label = label_after("process", name, arcs)
    box = process_box(arcs, streams[0].schema, tuple(inputs), operator, schema, by, state, label=label)
    return remember(query._add(box, name), operator)
