"""Methods of streams for keyed tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Update
from medusa.query.stream.base import StreamBase
from medusa.query.stream.keyed_table import KeyedTable, key_columns, lookup_box, update_of, write

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["TableMethods"]


class TableMethods(StreamBase):
    """Update, delete, lookup."""

    __slots__ = ()

    def update(
        self,
        table: KeyedTable,
        set: Mapping[str, Any],
        insert: bool | Mapping[str, Any] | None = None,
        *,
        by: Any = None,
    ) -> Stream:
        """Change a table by each row, and give what is stored after it.

        All updates of a table are merged by time; at equal times those of an earlier ``update`` come first,
        then by position. A row whose key isn't in the table, with ``insert=False``, changes nothing and
        gives nothing.

        Args:
            set: columns (not the key) and their new values: expressions over the row, in which
                ``table.x`` is the value stored so far.
            insert: what a key that isn't in the table gets: True: the same with ``table.x`` null; a
                mapping of expressions over the row (columns left out are null); False: nothing. May be
                left out where ``set`` doesn't read ``table.``: True.
            by: the key of the row, where its columns are called otherwise than those of the table.
        """
        label = f"update of table {self._table(table, 'update').name!r} after {self.name!r}"
        made = update_of(table, self, set, insert, by, label=label)
        return self._query._stream(write(table, self, made, label=label))

    def delete(self, table: KeyedTable, *, by: Any = None) -> Stream:
        """Take the row of a key out of a table, and give what was stored; nothing where nothing was.

        Args:
            by: the key of the row, where its columns are called otherwise than those of the table.
        """
        label = f"delete from table {self._table(table, 'delete').name!r} after {self.name!r}"
        made = Update(keys=key_columns(by, table, self, label), delete=True)
        return self._query._stream(write(table, self, made, label=label))

    def lookup(
        self,
        table: KeyedTable,
        how: str = "left",
        *,
        by: Any = None,
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Each row with the row of a table as it was at its time, updates of that time included.

        Args:
            how: ``left``: a row that finds nothing has nulls; ``inner``: it is left out.
            by: the key of the row, where its columns are called otherwise than those of the table.
            suffix: added to names of the table's columns that the stream has too.
        """
        label = self._labelled("lookup", name)
        self._table(table, "lookup")
        box = lookup_box(table, self, how, by, suffix, label=label)
        return self._add(box, name, self._query.stream(table.name))

    def _table(self, table: object, what: str) -> KeyedTable:
        if not isinstance(table, KeyedTable):
            raise QueryError(
                f"{what} after {self.name!r}: expected a table, got {type(table).__name__}",
                hint='q.table("accounts", key="vid", schema=...)',
                code="query.table",
            )
        if table.query is not self._query:
            raise QueryError(
                f"{what} after {self.name!r}: table {table.name!r} belongs to another query",
                code="query.table",
            )
        return table
