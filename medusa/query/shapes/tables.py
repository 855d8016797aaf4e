"""The shapes of keyed tables, their updates and look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import Field, Schema
from medusa.query.boxes.tables import Lookup, Table, Update
from medusa.query.expressions.expression import Named
from medusa.query.shape import Shape, column_type, refuse_twice, types_of
from medusa.query.shapes.user import check_declared
from medusa.query.shapes.windows import key_type, need_time
from medusa.query.suggest import did_you_mean
from medusa.query.types import schema_to_arrow
from medusa.units import DURATION_MAX_US, size_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DELETED", "PREFIX", "ROWS_BYTES_MAX", "lookup_shape", "read_rows", "row_and_table", "table_shape"]

DELETED = "_deleted"
PREFIX = "table."
"""How expressions name the columns of the stored row."""

ROWS_BYTES_MAX = 4 << 20
"""Of the rows that a table holds before all time: they are part of the query, wherever it goes."""


def table_shape(box: Table, inputs: Sequence[Shape], label: str, port: str) -> Shape:
    if port == "":
        _check_table(box, label)
        changes = (*box.schema, Field(DELETED, "bool"))
        return Shape(label, changes, timed=bool(inputs))
    if len(box.updates) != len(inputs):
        raise QueryError(f"{label}: {len(box.updates)} updates for {len(inputs)} inputs", code="query.arity")
    number = box.ports.index(port) - 1 if port in box.ports else -1
    if number < 0:
        raise QueryError(f"{label}: has no port {port[:60]!r}", code="query.port")
    _check_update(box, box.updates[number], inputs[number], label)
    return Shape(f"{label}.{port}", box.schema, timed=True)


def _check_table(box: Table, label: str) -> None:
    check_declared(box.schema, label, reserved=(DELETED,))
    types = types_of(box.schema)
    if not box.keys:
        raise QueryError(f'{label}: needs a key: key="vid"', code="query.key")
    refuse_twice(box.keys, label=f"{label}: key")
    for key in box.keys:
        if key not in types:
            raise QueryError(
                f"{label}: the key {key[:60]!r} is not in the schema",
                hint=did_you_mean(key, types),
                code="query.column",
            )
    if box.expire_us is not None and not 1 <= box.expire_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: expire is out of range", code="query.duration")
    if len(box.updates) != len(box.inputs):
        raise QueryError(
            f"{label}: {len(box.updates)} updates for {len(box.inputs)} inputs", code="query.arity"
        )
    if box.rows is not None:
        read_rows(box, label)


def _check_update(box: Table, update: Update, row: Shape, label: str) -> None:
    need_time(row, label, "update")
    types = types_of(box.schema)
    _check_keys(update.keys, [types[key] for key in box.keys], box.keys, row, label)
    if update.delete:
        if update.set or update.insert is not None:
            raise QueryError(f"{label}: a delete sets nothing", code="query.table")
        return
    both = row_and_table(row, box.schema, box.keys, label)
    for what, named, stream in (("set", update.set, both), ("insert", update.insert or (), row)):
        refuse_twice([each.name for each in named], label=f"{label}: {what}")
        for each in named:
            if each.name in box.keys or each.name not in types:
                rest = [name for name in types if name not in box.keys]
                raise QueryError(
                    f"{label}: {what}: {each.name[:60]!r} is no column of the table besides its key",
                    hint=did_you_mean(each.name, rest),
                    code="query.column",
                )
            came = column_type(each, stream, label=f"{label}: {what}")
            if came != types[each.name]:
                raise QueryError(
                    f"{label}: {what}: column {each.name!r} is {types[each.name]}, the expression {came}",
                    hint=f"CAST(... AS {types[each.name]})",
                    code="query.type",
                )


def row_and_table(row: Shape, schema: Schema, keys: Sequence[str], label: str) -> Shape:
    """What the expressions of an update may read: the row, and ``table.x`` of what is stored."""
    taken = [field.name for field in row.schema if field.name.startswith(PREFIX)]
    if taken:
        raise QueryError(
            f"{label}: the column {taken[0]!r} reads like one of the table",
            hint="rename it with select before",
            code="query.name",
        )
    stored = tuple(Field(PREFIX + field.name, field.type) for field in schema)
    return Shape(row.box, (*row.schema, *stored), timed=row.timed)


def lookup_shape(box: Lookup, row: Shape, table: Shape, label: str) -> Shape:
    need_time(row, label, "lookup")
    *fields, last = table.schema
    if last != Field(DELETED, "bool") or not fields:
        raise QueryError(f"{label}: {table.box} is no table", code="query.table")
    if box.how not in ("left", "inner"):
        raise QueryError(
            f'{label}: how is "left" or "inner", got {box.how[:40]!r}',
            hint="left: rows that find nothing have nulls",
            code="query.join",
        )
    types = {field.name: field.type for field in fields}
    names = [key.name for key in box.keys]
    if not names:
        raise QueryError(f"{label}: needs a key", code="query.key")
    for name in names:
        if name not in types:
            raise QueryError(f"{label}: the table has no column {name[:60]!r}", code="query.column")
    _check_keys(box.keys, [types[name] for name in names], names, row, label)
    ours = types_of(row.schema)
    found = [
        Field(field.name + box.suffix if field.name in ours else field.name, field.type)
        for field in fields
        if field.name not in names
    ]
    schema = (*row.schema, *found)
    refuse_twice([field.name for field in schema], label=label, hint="choose another suffix=")
    return Shape(label, schema, timed=True, window=row.window, no_window=row.no_window)


def _check_keys(
    keys: Sequence[Named], types: Sequence[str], names: Sequence[str], row: Shape, label: str
) -> None:
    if [key.name for key in keys] != list(names):
        raise QueryError(
            f"{label}: expected the keys {', '.join(names)}, got {', '.join(key.name for key in keys)[:80]}",
            code="query.key",
        )
    for key, type in zip(keys, types, strict=True):
        came = key_type(key, row, label)
        if came != type:
            raise QueryError(
                f"{label}: the key {key.name!r} of the table is {type}, got {came}",
                hint=f'by="CAST({key.name} AS {type})"',
                code="query.type",
            )


def read_rows(box: Table, label: str) -> pa.Table:
    """The rows that a table holds before all time.

    Raises:
        QueryError: not an Arrow IPC stream of its columns, too large, or two rows of one key.
    """
    import pyarrow as pa

    schema = schema_to_arrow(box.schema)
    data = box.rows or b""
    if len(data) > ROWS_BYTES_MAX:
        raise QueryError(
            f"{label}: from_ has {size_text(len(data))}, at most {size_text(ROWS_BYTES_MAX)}",
            hint="push them through a source of their own: updates.update(...)",
            code="query.limit",
        )
    if not data:
        return schema.empty_table()
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            if not reader.schema.equals(schema):
                raise pa.ArrowInvalid("other columns")
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise QueryError(f"{label}: from_: not rows of this table: {error}", code="query.table") from None
    keys = table.select(list(box.keys))
    if keys.group_by(list(box.keys)).aggregate([]).num_rows != keys.num_rows:
        raise QueryError(
            f"{label}: from_: several rows have the same {', '.join(box.keys)}",
            hint="one row for each key",
            code="query.table",
        )
    return table
