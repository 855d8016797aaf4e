"""Keyed tables: the box that holds one and takes its updates, and boxes that look rows up in it."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Data, Input, Schema
from medusa.query.expressions.expression import Named

__all__ = ["Lookup", "Table", "Update"]


class Update(Data, frozen=True, kw_only=True):
    """What the rows of one input do to a table.

    Expressions read columns of the row by name, and of the stored row as ``table.x``.

    Attributes:
        keys: one expression for each key column of the table, which names it.
        set: new values of columns where the key is in the table.
        insert: values of columns where it isn't; the others are null. None: nothing is stored.
        delete: the stored row is taken out instead; ``set`` and ``insert`` say nothing then.
    """

    keys: tuple[Named, ...]
    set: tuple[Named, ...] = ()
    insert: tuple[Named, ...] | None = None
    delete: bool = False


class Table(BoxData, frozen=True, tag_field="kind", tag="table", kw_only=True):
    """Aurora's SQL boxes that write: all updates of a table, merged by time.

    Port ``u0``, ``u1`` ...: for each row of that input what is stored after it (``delete``: what was
    stored before). The main port: every change, with the bool column ``_deleted``, for look-ups.

    Attributes:
        schema: its columns.
        keys: which of them name a row.
        updates: what the rows of each input do.
        rows: what it holds before all time, as an Arrow IPC stream; None: nothing.
        expire_us: a row more than that after the last change of its key sees nothing.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    schema: Schema
    keys: tuple[str, ...]
    updates: tuple[Update, ...] = ()
    rows: bytes | None = None
    expire_us: int | None = None

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", *(f"u{number}" for number in range(len(self.updates))))


class Lookup(BoxData, frozen=True, tag_field="kind", tag="lookup", kw_only=True):
    """Aurora's SQL boxes that read: rows with the row of a table as it was at their time.

    Inputs: the stream, and the changes of the table.

    Attributes:
        keys: one expression over the stream for each key column of the table, which names it.
        how: ``left``: a row that finds nothing has nulls; ``inner``: it is left out.
        suffix: added to names of the table's columns that the stream has too.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    how: str = "left"
    suffix: str = "_right"
