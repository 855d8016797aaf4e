"""Boxes that put rows in order: sunion, the two sorts, resample."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.expressions.expression import Named

__all__ = ["BSort", "Resample", "SUnion", "WSort"]


class SUnion(BoxData, frozen=True, tag_field="kind", tag="sunion", kw_only=True):
    """Borealis' serializing union: rows leave bucket by bucket, by (time, input, position)."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    bucket_us: int


class BSort(BoxData, frozen=True, tag_field="kind", tag="bsort", kw_only=True):
    """Aurora's bounded-pass sort: of the ``slack + 1`` rows held per group, the smallest leaves.

    Attributes:
        column: what to sort by, ascending.
        keys: the groups; may be empty.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    column: str
    slack: int
    keys: tuple[Named, ...] = ()


class WSort(BoxData, frozen=True, tag_field="kind", tag="wsort", kw_only=True):
    """Sorts for at most ``timeout_us`` of stream time; a row that comes after a later one left is dropped."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    column: str
    timeout_us: int
    keys: tuple[Named, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")


class Resample(BoxData, frozen=True, tag_field="kind", tag="resample", kw_only=True):
    """Values on a grid of times aligned to the epoch, per key, between neighbours at most ``gap_us`` apart.

    Attributes:
        how: ``linear`` or ``previous``.
        time: name of the output column that holds the times of the grid.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    every_us: int
    gap_us: int
    how: str = "linear"
    time: str = "ts"
    keys: tuple[Named, ...] = ()
