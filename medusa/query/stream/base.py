"""What every stream has, whatever boxes may be added to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from medusa.query.boxes import Box, Input
from medusa.query.shape import StreamShape, types_of

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.query.stream.stream import Stream

__all__ = ["StreamBase", "label_after"]


def label_after(kind: str, name: object, inputs: Iterable[StreamBase]) -> str:
    """A box without a name is known by what it reads."""
    if name is not None:
        return f"{kind} {name!r}"[:120]
    return f"{kind} after " + " and ".join(repr(stream.name) for stream in inputs)


class StreamBase:
    """The output of a box; immutable."""

    __slots__ = ("_arc", "_query")

    def __init__(self, query: Query, arc: Input) -> None:
        self._query = query
        self._arc = arc

    @property
    def query(self) -> Query:
        """The query that it belongs to."""
        return self._query

    @property
    def arc(self) -> Input:
        """The box and port that it comes from."""
        return self._arc

    @property
    def name(self) -> str:
        """Id of its box; ``cars.late`` of a late port."""
        return f"{self._arc.box}.{self._arc.port}" if self._arc.port else self._arc.box

    @property
    def label(self) -> str:
        """How messages name it."""
        return self._shape.box

    @property
    def schema(self) -> dict[str, str]:
        """Column name -> type, in order."""
        return types_of(self._shape.schema)

    @property
    def timed(self) -> bool:
        """Whether its rows have a time, which windows and joins need."""
        return self._shape.timed

    @property
    def _shape(self) -> StreamShape:
        return self._query._shapes[self._arc]

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {type}" for name, type in self.schema.items())
        return f"<Stream {self.name!r} of query {self._query.name!r}: {columns}>"

    def _labelled(self, kind: str, name: object) -> str:
        return label_after(kind, name, (self,))

    def _add(self, box: Box, name: str | None, *others: StreamBase) -> Stream:
        """Check a box that reads this stream, then ``others``, and take it into the query."""
        return self._query._add(box, (self, *others), name)
