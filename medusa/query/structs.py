"""The plain parts of which boxes, types and aggregates are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal

__all__ = ["AggregateCall", "Field", "Function", "Input", "Schema", "StrictData", "expressions_of"]


class StrictData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Plain frozen data; a reader refuses parts that it doesn't know.

    It refers to nothing that refers back, so the cycle collector leaves it out: with it a graph of 4 MiB
    takes three times as long to read, in one piece.
    """


class Field(StrictData, frozen=True):
    """A column: its name and its type as text (``medusa.query.types``)."""

    name: str
    type: str


Schema: TypeAlias = tuple[Field, ...]


class Input(StrictData, frozen=True):
    """Where an arc begins: a box and one of its ports.

    Ports: ``""`` the output proper; ``late`` of a source: the rows that came too late; ``ahead`` of
    one with ``ahead_us``: those too far before their arrival.
    """

    box: str
    port: str = ""

    @property
    def label(self) -> str:
        """Id of its box; ``cars.late`` of a late port."""
        return f"{self.box}.{self.port}" if self.port else self.box


class Function(StrictData, frozen=True):
    """A function or class of the user's, by the name and version under which it is registered.

    The empty name: not registered; the query then holds it beside the graph and runs embedded only.
    """

    name: str
    version: int = 1


class AggregateCall(StrictData, frozen=True):
    """One aggregate of a window: its output name, function and argument (none: ``count`` of rows).

    Attributes:
        parameter: what the function asks for besides its argument: the fraction of a quantile, the name
            under which a ``user`` aggregate is registered.
        version: of a ``user`` aggregate.
        more: further arguments of a ``user`` aggregate.
    """

    name: str
    function: str
    arg: Expression | None = None
    parameter: int | float | str | None = None
    version: int | None = None
    more: tuple[Expression, ...] | None = None


def expressions_of(part: object, path: str = "") -> Iterator[tuple[str, Expression]]:
    """The outermost expressions in a box, or in a part of one, and where each stands."""
    if isinstance(part, Column | Literal | Call | Cast | Case):
        yield path, part
    elif isinstance(part, tuple):
        for index, each in enumerate(part):
            yield from expressions_of(each, f"{path}[{index}]")
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from expressions_of(getattr(part, name), f"{path}.{name}")
