"""Boxes that stand before and behind the parts of a box that was split: they come from
``query.rewrite.split``."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.expressions.expression import Named

__all__ = ["KeyRouter", "OrderedMerge"]


class KeyRouter(BoxData, frozen=True, tag_field="kind", tag="key_router", kw_only=True):
    """Sends each row to the part whose range its key falls into, or rows in turns; numbers them.

    Ports: ``""`` of the first part, ``"1"``, ``"2"`` ... of the others. All get every boundary, and late
    rows go where others of their key go. A row on whose keys an expression fails goes to the first part,
    which fails on it too.

    Attributes:
        parts: how many.
        keys: ``hash_partition`` of these decides; none: the number of the row does.
        cuts: where ranges of the hash end: part i has ``cuts[i - 1] <= hash < cuts[i]``.
        block: without keys: so many rows in a row go the same way, then the next.
        number: the column (int64, the last) that holds the number of the row, counted from 0; None: none.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    parts: int
    keys: tuple[Named, ...] = ()
    cuts: tuple[int, ...] = ()
    block: int | None = None
    number: str | None = None

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", *(str(part) for part in range(1, self.parts)))


class OrderedMerge(BoxData, frozen=True, tag_field="kind", tag="ordered_merge", kw_only=True):
    """Puts the rows of the parts of a box into the order in which one box would have sent them.

    Rows wait until the boundaries of all parts have passed them.

    Attributes:
        positions: columns (int64) that number the rows of which a row was made; they leave here.
        by: columns that come before them in the order.
        arrival: rows leave in the order of ``positions`` alone, between the same boundaries as before the
            router; False: by (release, ``by``, ``positions``, a missing one last).
        within_us: a row that lacks one of ``positions``, or has but one, is released so long after its time.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    positions: tuple[str, ...]
    by: tuple[str, ...] = ()
    arrival: bool = False
    within_us: int = 0
