"""Methods of streams for boxes that look at one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Filter, Input, Select, Union, WithColumns
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.graph import ports_of
from medusa.query.named_columns import named_columns
from medusa.query.stream.base import StreamBase

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["RowMethods"]


class RowMethods(StreamBase):
    """Filter, select, with_columns, union."""

    __slots__ = ()

    def filter(self, predicate: str | Expr, *, name: str | None = None) -> Stream:
        """The rows for which the predicate is true (not false, not null).

        Args:
            predicate: SQL text such as ``"speed > 0"``, or ``md.col("speed") > 0``.
        """
        label = self._labelled("filter", name)
        box = Filter(id="", inputs=(self._arc,), predicate=as_tree(predicate, box=label))
        return self._add(box, name)

    def select(
        self, *columns: str | Expr | Mapping[str, Any], name: str | None = None, **named: str | Expr
    ) -> Stream:
        """Rows of exactly these columns.

        Args:
            columns: names of columns, or mappings of new names to expressions (for names that
                aren't Python words).
            named: new columns: ``mph="speed * 0.621"``.
        """
        label = self._labelled("select", name)
        made = named_columns(columns, named, self.schema, box=label)
        return self._add(Select(id="", inputs=(self._arc,), columns=made), name)

    def with_columns(
        self, *columns: str | Expr | Mapping[str, Any], name: str | None = None, **named: str | Expr
    ) -> Stream:
        """All columns, and these: a new one comes last, one of a known name takes its place."""
        label = self._labelled("with_columns", name)
        made = named_columns(columns, named, self.schema, box=label)
        return self._add(WithColumns(id="", inputs=(self._arc,), columns=made), name)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The rows of several streams of one schema, in the order in which they arrive."""
        label = self._labelled("union", name)
        inputs = (self._arc, *(self._query._owned(other, label) for other in others))
        return self._add(Union(id="", inputs=inputs), name, *others)

    @property
    def late(self) -> Stream:
        """The rows of a source that came too late for its windows and joins; without time.

        Raises:
            QueryError: this isn't the output of a source with time.
        """
        return self._port("late", "time=", "lateness is judged where rows enter")

    @property
    def ahead(self) -> Stream:
        """The rows of a source whose times were too far ahead of their arrival; without time.

        Raises:
            QueryError: this isn't the output of a source with ``ahead=``.
        """
        return self._port("ahead", "ahead=", 'how far may a clock run ahead: source(..., ahead="1h")')

    def _port(self, port: str, needs: str, hint: str) -> Stream:
        box = self._query._boxes[self._arc.box]
        if self._arc.port or port not in ports_of(box):
            raise QueryError(
                f"{self.label}: only a source with {needs} has .{port}", hint=hint, code="query.port"
            )
        return self._query._stream(Input(self._arc.box, port))
