"""Boxes that use keyed tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Update
from medusa.query.stream.keyed_table import KeyedTable, key_columns, lookup_box, update_of, write
from medusa.query.stream.output import Output

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["delete", "lookup", "update"]


def update(
    output: Output,
    table: KeyedTable,
    set: Mapping[str, Any],
    insert: bool | Mapping[str, Any] | None,
    *,
    by: Any,
) -> Stream:
    """As ``Stream.update``."""
    label = f"update of table {_table(output, table, 'update').name!r} after {output.name!r}"
    made = update_of(table, output, set, insert, by, label=label)
    return output.stream(write(table, output, made, label=label))


def delete(output: Output, table: KeyedTable, *, by: Any) -> Stream:
    """As ``Stream.delete``."""
    label = f"delete from table {_table(output, table, 'delete').name!r} after {output.name!r}"
    made = Update(keys=key_columns(by, table, output, label), delete=True)
    return output.stream(write(table, output, made, label=label))


def lookup(output: Output, table: KeyedTable, how: str, *, by: Any, suffix: str, name: str | None) -> Stream:
    """As ``Stream.lookup``."""
    label = output.labelled("lookup", name)
    _table(output, table, "lookup")
    box = lookup_box(table, output, how, by, suffix, label=label)
    return output.add(box, name)


def _table(output: Output, table: object, what: str) -> KeyedTable:
    if not isinstance(table, KeyedTable):
        raise QueryError(
            f"{what} after {output.name!r}: expected a table, got {type(table).__name__}",
            hint='q.table("accounts", key="vid", schema=...)',
            code="query.table",
        )
    if table.query is not output.query:
        raise QueryError(
            f"{what} after {output.name!r}: table {table.name!r} belongs to another query",
            code="query.table",
        )
    return table
