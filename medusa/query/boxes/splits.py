"""Boxes that stand before and behind the parts of a box that was split: they come from
``query.rewrite.split``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, PART_OF_SPLIT, BoxData
from medusa.query.boxes.checks import key_type, need_time
from medusa.query.boxes.text import by_text
from medusa.query.expressions.expression import Named
from medusa.query.expressions.tree import reads_time
from medusa.query.shape import StreamShape, refuse_twice, types_of
from medusa.query.structs import Field, Input
from medusa.query.types import TIMESTAMP, check_column_name
from medusa.units import DURATION_MAX_US

__all__ = ["PARTS_MAX", "KeyRouter", "OrderedMerge"]


PARTS_MAX = 256
HASHES = 1 << 64
BLOCK_MAX = 1 << 31


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
        last_time: before the end, a row of nulls with the number -1 tells all parts the time of the last row
            that was not late, or the boundary where that is later: what a box does at the end may depend on
            it, whichever part has the row.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    stays_whole = PART_OF_SPLIT

    inputs: tuple[Input, ...]
    parts: int
    keys: tuple[Named, ...] = ()
    cuts: tuple[int, ...] = ()
    block: int | None = None
    number: str | None = None
    last_time: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", *(str(part) for part in range(1, self.parts)))

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if not 2 <= self.parts <= PARTS_MAX:
            raise QueryError(f"{label}: from 2 to {PARTS_MAX} parts, got {self.parts}", code="query.split")
        for key in self.keys:
            key_type(key, row, label)
        if self.keys:
            _check_cuts(self, label)
        elif self.cuts or self.block is None or not 1 <= self.block <= BLOCK_MAX:
            raise QueryError(
                f"{label}: without keys rows go in blocks of 1 to {BLOCK_MAX:,} rows, got {self.block}"
                + (", and ranges" if self.cuts else ""),
                code="query.split",
            )
        schema = row.schema
        if self.number is not None:
            schema = (*schema, Field(check_column_name(self.number, what=label), "int64"))
            refuse_twice(schema, label=label)
        return replace(row, box=f"{label}, {port}" if port else label, schema=schema)

    def describe(self) -> str:
        way = "in ranges of the key" if self.keys else f"in blocks of {self.block:,} rows"
        return f"{self.parts} parts {way}{by_text(self.keys)}"

    def reads_time(self, below: bool) -> bool:
        return below or self.last_time or any(reads_time(key.expression) for key in self.keys)


class OrderedMerge(BoxData, frozen=True, tag_field="kind", tag="ordered_merge", kw_only=True):
    """Puts the rows of the parts of a box into the order in which one box would have sent them.

    Rows wait until the boundaries of all parts have passed them.

    Attributes:
        positions: columns (int64) that number the rows of which a row was made; they leave here.
        by: columns that come before them in the order.
        arrival: rows leave in the order of ``positions`` alone, between the same boundaries as before the
            router; False: by (release, ``by``, ``positions``, a missing one last).
        within_us: a row that lacks one of ``positions``, or has but one, is released so long after its time.
        release: the column (int64) with the microsecond at which a row is released, where its time doesn't
            tell that; it leaves here.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = MANY
    stays_whole = PART_OF_SPLIT
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of all parts to pass it"

    inputs: tuple[Input, ...]
    positions: tuple[str, ...]
    by: tuple[str, ...] = ()
    arrival: bool = False
    within_us: int = 0
    release: str | None = None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        first = inputs[0]
        for other in inputs:
            need_time(other, label, "a merge in order")
            if other.schema != first.schema:
                raise QueryError(
                    f"{label}: {first.box} and {other.box} send different columns", code="query.split"
                )
        types = types_of(first.schema)
        expected = {
            **dict.fromkeys(self.by, (TIMESTAMP, "int64")),
            **dict.fromkeys(self.hidden, ("int64",)),
        }
        for name, kinds in expected.items():
            if types.get(name) not in kinds:
                raise QueryError(
                    f"{label}: expected a column {name!r} of type {' or '.join(kinds)},"
                    f" got {types.get(name)}",
                    code="query.split",
                )
        if not 1 <= len(self.positions) <= 2 or len(expected) < len(self.by) + len(self.hidden):
            raise QueryError(
                f"{label}: needs one or two positions, other columns than by and release", code="query.split"
            )
        if self.release is not None and self.within_us:
            raise QueryError(
                f"{label}: a row is released by a column or within, not both", code="query.split"
            )
        if self.arrival and (self.by or self.within_us or self.release or len(self.positions) > 1):
            raise QueryError(
                f"{label}: in order of arrival there is one position and no more", code="query.split"
            )
        if not 0 <= self.within_us <= DURATION_MAX_US:
            raise QueryError(f"{label}: within is out of range", code="query.duration")
        schema = tuple(field for field in first.schema if field.name not in self.hidden)
        if not schema:
            raise QueryError(f"{label}: no columns are left", code="query.split")
        return replace(first, box=label, schema=schema)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns that leave here."""
        return self.positions if self.release is None else (*self.positions, self.release)

    def describe(self) -> str:
        order = "arrival" if self.arrival else "release"
        return f"{len(self.inputs)} parts in order of {order}"


def _check_cuts(box: KeyRouter, label: str) -> None:
    if box.block is not None:
        raise QueryError(f"{label}: rows go by key or in blocks, not both", code="query.split")
    edges = (0, *box.cuts, HASHES)
    if len(box.cuts) != box.parts - 1 or any(low >= high for low, high in pairwise(edges)):
        raise QueryError(
            f"{label}: {box.parts} parts need {box.parts - 1} cuts that ascend between 0 and 2^64,"
            f" got {', '.join(map(str, box.cuts[:8])) or 'none'}",
            code="query.split",
        )
