"""A stream that runs elsewhere, as the catalog describes it: what ``q.source(name, of=...)`` takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import Graph, Schema, Source
from medusa.query.graph import label_of
from medusa.query.suggest import did_you_mean
from medusa.query.types import schema_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PublishedStream", "reads_of", "refuse_published", "same_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStream:
    """A stream in the catalog, as it was when ``fed.stream`` asked; plain data, which holds no connection.

    Attributes:
        name: in full: ``participant/entity``.
        columns: names and types.
        timed: its rows have a time.
        time, unit: of a stream defined by name, the column that holds the time; of others None: the time of
            their rows needs no column.
        window_us: of results of windows, their size and advance in microseconds.
        version: of the definition; 0: it is the sink of a query.
        epoch: one higher with each move of what puts it out.
    """

    name: str
    columns: Schema
    timed: bool
    time: str | None = None
    unit: str | None = None
    window_us: tuple[int, int] | None = None
    version: int = 0
    epoch: int = 1

    @property
    def schema(self) -> pa.Schema:
        """The columns as a ``pyarrow.Schema``."""
        return schema_to_arrow(self.columns)

    def select(self, *columns: str) -> PublishedStream:
        """The same stream with some of its columns, in its order: those that a contract sells.

        Only a stream of another participant is read so, and only by a contract of just these columns.

        Raises:
            QueryError: it has no such column, or none is named.
        """
        known = [field.name for field in self.columns]
        wrong = next((each for each in columns if each not in known), None)
        if wrong is not None or not columns:
            text = f"stream {self.name!r}: " + (f"no column {wrong!r:.80}" if columns else "no columns")
            hint = did_you_mean(str(wrong), known) or f"it has {', '.join(known)}"
            raise QueryError(text, hint=hint, code="query.column")
        return replace(self, columns=tuple(field for field in self.columns if field.name in columns))

    def source(self, id: str) -> Source:
        """The box that reads it: lateness was judged where its rows entered."""
        return Source(
            id=id,
            schema=self.columns,
            judged=True,
            timed=self.timed,
            window_us=self.window_us,
            of=self.name,
        )


def reads_of(graph: Graph) -> dict[str, Source]:
    """Sources of a graph that read streams from the catalog, by id."""
    return {box.id: box for box in graph.boxes if isinstance(box, Source) and box.of is not None}


def refuse_published(graph: Graph, what: str) -> None:
    """Raises QueryError where a source reads a stream from the catalog, which only nodes can.

    Args:
        what: what was asked for, for the message.
    """
    for box in reads_of(graph).values():
        raise QueryError(
            f"{label_of(box)} reads stream {box.of!r}, which only nodes can: {what} has no catalog",
            hint="fed.deploy(q); to try the query here, give its source schema= and time= instead of of=",
            code="query.of",
        )


def same_columns(source: Source, columns: Schema, timed: bool) -> str:
    """What is other in a stream than its reader says; empty: nothing. Names the column."""
    found = {field.name: field.type for field in columns}
    for field in source.schema:
        if field.name not in found:
            return f"has no column {field.name!r} any more"
        if found[field.name] != field.type:
            return f"column {field.name!r} is {found[field.name]} now, the query says {field.type}"
    known = {field.name for field in source.schema}
    if (more := next((name for name in found if name not in known), None)) is not None:
        return f"has a column {more!r} that the query doesn't know"
    if columns != source.schema:
        return f"its columns stand in another order now: {', '.join(found)}"
    if timed != source.timed:
        return "has a time now" if timed else "has no time any more"
    return ""
