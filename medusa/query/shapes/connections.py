"""Shape of connection points: the stream that comes in."""

from __future__ import annotations

from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes.connections import ConnectionPoint
from medusa.query.shape import Shape
from medusa.query.shapes.flow import check_duration
from medusa.units import size_text

__all__ = ["KEEP_BYTES_MIN", "connection_point_shape"]

KEEP_BYTES_MIN = 1 << 16
"""Of a history: what is kept is whole segments, and some of them."""


def connection_point_shape(box: ConnectionPoint, row: Shape, label: str) -> Shape:
    if box.keep_us is None and box.keep_bytes is None:
        raise QueryError(
            f"{label}: doesn't say how much to keep",
            hint='keep="1h", keep_bytes="1 GiB", or both',
            code="query.keep",
        )
    if box.keep_us is not None:
        if not row.timed:
            raise QueryError(
                f"{label}: keep= needs a stream with time, {row.box} has none",
                hint='say how much with keep_bytes="1 GiB"',
                code="query.keep",
            )
        check_duration(box.keep_us, label, "keep", minimum_us=1)
    if box.keep_bytes is not None and not KEEP_BYTES_MIN <= box.keep_bytes < 1 << 62:
        raise QueryError(
            f"{label}: keep_bytes is {box.keep_bytes}, expected at least {size_text(KEEP_BYTES_MIN)}",
            code="query.keep",
        )
    return replace(row, box=label)
