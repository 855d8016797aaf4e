"""What all boxes of a query are made of: plain frozen data."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

__all__ = ["BoxData", "Data", "Field", "Function", "Input", "Schema"]


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Plain frozen data; a reader refuses parts that it doesn't know.

    It refers to nothing that refers back, so the cycle collector leaves it out: with it a graph of 4 MiB
    takes three times as long to read, in one piece.
    """


class Field(Data, frozen=True):
    """A column: its name and its type as text (``medusa.query.types``)."""

    name: str
    type: str


Schema: TypeAlias = tuple[Field, ...]


class Input(Data, frozen=True):
    """Where an arc begins: a box and one of its ports.

    Ports: ``""`` the output proper; ``late`` of a source: the rows that came too late; ``ahead`` of
    one with ``ahead_us``: those too far before their arrival.
    """

    box: str
    port: str = ""


class Function(Data, frozen=True):
    """A function or class of the user's, by the name and version under which it is registered.

    The empty name: not registered; the query then holds it beside the graph and runs embedded only.
    """

    name: str
    version: int = 1


class BoxData(Data, frozen=True):
    """What holds for every box of a kind.

    Attributes:
        time_dependent: its answer depends on time, so late rows never enter it.
        order_dependent: the order in which its rows arrive shows in its output.
        determinism: ``arbitrary`` (depends on arrival order), ``deterministic`` (on its input only, as
            a sequence), ``convergent`` (and forgets old input), ``repeatable`` (one row at a time).
    """

    time_dependent: ClassVar[bool] = False
    order_dependent: ClassVar[bool] = False
    determinism: ClassVar[str] = "repeatable"

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports from which arcs may begin: ``""`` is the output proper, which every box has."""
        return ("",)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of users that it names."""
        return ()
