"""The output of a box, as those use it who add a box to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from medusa.query.boxes import Box, Input
from medusa.query.shape import StreamShape, types_of

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.query.stream.stream import Stream

__all__ = ["Output", "label_after"]


def label_after(kind: str, name: object, inputs: Iterable[Input]) -> str:
    """A box without a name is known by what it reads."""
    if name is not None:
        return f"{kind} {name!r}"[:120]
    return f"{kind} after " + " and ".join(repr(arc.label) for arc in inputs)


class Output:
    """The output of a box in a query that is being written; immutable.

    Attributes:
        query: the query that it belongs to.
        arc: the box and port that it comes from.
    """

    __slots__ = ("arc", "query")

    def __init__(self, query: Query, arc: Input) -> None:
        self.query = query
        self.arc = arc

    @property
    def name(self) -> str:
        """As ``Stream.name``."""
        return self.arc.label

    @property
    def label(self) -> str:
        """As ``Stream.label``."""
        return self.shape.box

    @property
    def schema(self) -> dict[str, str]:
        """As ``Stream.schema``."""
        return types_of(self.shape.schema)

    @property
    def timed(self) -> bool:
        """As ``Stream.timed``."""
        return self.shape.timed

    @property
    def shape(self) -> StreamShape:
        """What is known of its rows."""
        return self.query._shapes[self.arc]

    @property
    def box(self) -> Box:
        """The box that it comes from."""
        return self.query._boxes[self.arc.box]

    def labelled(self, kind: str, name: object) -> str:
        """How messages name a box that is to read it."""
        return label_after(kind, name, (self.arc,))

    def owned(self, other: object, label: str) -> Input:
        """The arc of another stream of its query.

        Raises:
            QueryError: it is none.
        """
        return self.query._owned(other, label)

    def add(self, box: Box, name: str | None) -> Stream:
        """Check a box and take it into the query.

        Raises:
            QueryError: it doesn't fit what it reads, or its name is taken; nothing changed.
        """
        return self.query._add(box, name)

    def stream(self, arc: Input) -> Stream:
        """Another output in its query."""
        return self.query._stream(arc)

    def port(self, port: str) -> Stream:
        """Another output of its box."""
        return self.stream(Input(self.arc.box, port))
