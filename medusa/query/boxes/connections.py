"""Connection points: arcs that keep history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import BoxData
from medusa.query.boxes.checks import check_duration
from medusa.query.shape import StreamShape
from medusa.query.structs import Input
from medusa.units import duration_text, size_text

__all__ = ["KEEP_BYTES_MIN", "ConnectionPoint"]


KEEP_BYTES_MIN = 1 << 16
"""Of a history: what is kept is whole segments, and some of them."""


class ConnectionPoint(BoxData, frozen=True, tag_field="kind", tag="connection_point", kw_only=True):
    """Passes its rows on, numbers them, and keeps the last ones.

    Attributes:
        keep_us: how far behind the boundary rows are kept at least, where ``keep_bytes`` allows it.
        keep_bytes: what they may take. At least one of the two is set.
    """

    order_dependent: ClassVar[bool] = True
    stays_whole = "it keeps one history"
    embedded_only = "keeps history, which nodes don't yet", "leave it out, or run the query embedded"

    inputs: tuple[Input, ...]
    keep_us: int | None = None
    keep_bytes: int | None = None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if self.keep_us is None and self.keep_bytes is None:
            raise QueryError(
                f"{label}: doesn't say how much to keep",
                hint='keep="1h", keep_bytes="1 GiB", or both',
                code="query.keep",
            )
        if self.keep_us is not None:
            if not row.timed:
                raise QueryError(
                    f"{label}: keep= needs a stream with time, {row.box} has none",
                    hint='say how much with keep_bytes="1 GiB"',
                    code="query.keep",
                )
            check_duration(self.keep_us, label, "keep", minimum_us=1)
        if self.keep_bytes is not None and not KEEP_BYTES_MIN <= self.keep_bytes < 1 << 62:
            raise QueryError(
                f"{label}: keep_bytes is {self.keep_bytes}, expected at least {size_text(KEEP_BYTES_MIN)}",
                code="query.keep",
            )
        return replace(row, box=label)

    def describe(self) -> str:
        age = [] if self.keep_us is None else [duration_text(self.keep_us)]
        size = [] if self.keep_bytes is None else [f"at most {size_text(self.keep_bytes)}"]
        return f"keeps {', '.join([*age, *size])}"

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]
