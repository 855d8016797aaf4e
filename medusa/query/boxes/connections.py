"""Connection points: arcs that keep history."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input

__all__ = ["ConnectionPoint"]


class ConnectionPoint(BoxData, frozen=True, tag_field="kind", tag="connection_point", kw_only=True):
    """Passes its rows on, numbers them, and keeps the last ones.

    Attributes:
        keep_us: how far behind the boundary rows are kept at least, where ``keep_bytes`` allows it.
        keep_bytes: what they may take. At least one of the two is set.
    """

    order_dependent: ClassVar[bool] = True

    id: str
    inputs: tuple[Input, ...]
    keep_us: int | None = None
    keep_bytes: int | None = None
