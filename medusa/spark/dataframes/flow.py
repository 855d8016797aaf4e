"""A stream of a query as a DataFrame: rows, and what of a stream isn't in its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from medusa.query.boxes import Box, Field, Input, Select, Source
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import StreamShape
from medusa.spark import column_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Hidden", "RowFlow", "judged"]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Names of columns that no stream of the query has, for what travels beside its rows."""

    prefix: str

    @classmethod
    def of(cls, names: set[str]) -> Hidden:
        prefix = "_spark"
        while any(name.startswith(prefix) for name in names):
            prefix += "_"
        return cls(prefix)

    @property
    def bound(self) -> str:
        return f"{self.prefix}-bound"

    def orders(self, count: int) -> tuple[str, ...]:
        return tuple(f"{self.prefix}-order-{place}" for place in range(count))


@dataclass(frozen=True, slots=True)
class RowFlow:
    """Rows of a DataFrame through boxes that look at one row at a time and haven't run yet.

    Attributes:
        df: columns by place: values, ``TIME``, ``LATE``, ``BOUND``, and those of the order. ``BOUND`` doesn't
            decrease along the order, and a row that isn't late has a time that isn't below it.
        base: columns, time and windows of ``df``.
        shape: of the stream behind the boxes.
        orders: how many columns its order has; 0: nobody asked for it.
        chain: the boxes, and the port by which rows leave each.
    """

    df: DataFrame
    base: StreamShape
    shape: StreamShape
    orders: int
    chain: tuple[tuple[Box, str], ...] = ()

    def through(self, box: Box, port: str, shape: StreamShape) -> RowFlow:
        """The same rows through one box more."""
        return replace(self, shape=shape, chain=(*self.chain, (box, port)))

    def boxes(self, hidden: Hidden, origin: str) -> tuple[list[Box], Input]:
        """A judged source ``origin`` for ``df``, the boxes behind it, and what leaves them.

        The hidden columns of the order and the boundary go through all of them.
        """
        names = (*hidden.orders(self.orders), hidden.bound)
        boxes: list[Box] = [judged(origin, self.base, names)]
        came = Input(origin)
        for box, port in self.chain:
            box = msgspec.structs.replace(box, inputs=(came,))
            if isinstance(box, Select):
                kept = tuple(Named(name, Column(name)) for name in names)
                box = msgspec.structs.replace(box, columns=(*box.columns, *kept))
            boxes.append(box)
            came = Input(box.id, port)
        return boxes, came

    @property
    def way(self) -> tuple[tuple[str, str], ...]:
        """The boxes of the chain, and their ports, by name."""
        return tuple((box.id, port) for box, port in self.chain)

    def lane(self) -> tuple[str, ...]:
        """The columns of ``df`` for that source."""
        return (*column_types.values(self.base.schema), *column_types.orders(self.orders), column_types.BOUND)


def judged(id: str, shape: StreamShape, hidden: tuple[str, ...] = ()) -> Source:
    """A source for rows that were judged before, with hidden int64 columns behind their own."""
    kind = shape.window
    return Source(
        id=id,
        schema=(*shape.schema, *(Field(name, "int64") for name in hidden)),
        judged=True,
        timed=shape.timed,
        window_us=(kind.size_us, kind.advance_us) if kind else None,
    )
