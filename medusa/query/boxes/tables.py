"""Keyed tables: the box that holds one and takes its updates, and boxes that look rows up in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, PART_OF_MERGE, BoxData, Sharing, SplitPlan
from medusa.query.boxes.checks import check_declared, key_type, need_time, with_place
from medusa.query.boxes.text import listed, named_text
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import StreamShape, column_type, refuse_twice, types_of
from medusa.query.structs import Field, Input, Schema, StrictData
from medusa.query.suggest import did_you_mean
from medusa.query.text_growth import TextGrowth
from medusa.query.types import schema_to_arrow
from medusa.units import DURATION_MAX_US, duration_text, size_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DELETED", "PREFIX", "ROWS_BYTES_MAX", "Lookup", "Table", "Update", "read_rows"]


DELETED = "_deleted"
PREFIX = "table."
"""How expressions name the columns of the stored row."""


ROWS_BYTES_MAX = 4 << 20
"""Of the rows that a table holds before all time: they are part of the query, wherever it goes."""


class Update(StrictData, frozen=True, kw_only=True):
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
        position: of a part of a split: the last column (int64) of every input, with the number of the row;
            what leaves has it too, as the place of the row that caused it among those of one time.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    inputs_least: ClassVar[int] = 0
    inputs_most: ClassVar[int] = MANY
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of all updates to pass its time"

    inputs: tuple[Input, ...]
    schema: Schema
    keys: tuple[str, ...]
    updates: tuple[Update, ...] = ()
    rows: bytes | None = None
    expire_us: int | None = None
    position: str | None = None

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", *(f"u{number}" for number in range(len(self.updates))))

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        if port == "":
            _check_table(self, label)
            changes = (*self._given(inputs, label), Field(DELETED, "bool"))
            return StreamShape(label, changes, timed=bool(inputs))
        if len(self.updates) != len(inputs):
            raise QueryError(
                f"{label}: {len(self.updates)} updates for {len(inputs)} inputs", code="query.arity"
            )
        number = self.ports.index(port) - 1 if port in self.ports else -1
        if number < 0:
            raise QueryError(f"{label}: has no port {port[:60]!r}", code="query.port")
        _check_update(self, self.updates[number], inputs[number], label)
        return StreamShape(f"{label}.{port}", self._given(inputs, label), timed=True)

    def _given(self, inputs: Sequence[StreamShape], label: str) -> Schema:
        return self.schema if self.position is None else with_place(self.schema, self.position, inputs, label)

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if self.position is not None:
            return PART_OF_MERGE
        if not self.inputs:
            return "nothing updates it, so its look-ups have all of it and it has nothing to do"
        place = name("")
        return SplitPlan(
            keys=[update.keys for update in self.updates],
            part=msgspec.structs.replace(self, position=place),
            positions=(place,),
            numbers=(place,) * len(self.inputs),
        )

    def without(self, hidden: Sequence[str]) -> Table:
        return msgspec.structs.replace(self, position=None)

    def describe(self) -> str:
        expire = "" if self.expire_us is None else f", expires after {duration_text(self.expire_us)}"
        return f"key {listed(list(self.keys))}, {len(self.updates)} updates{expire}"

    @property
    def kept_bytes(self) -> int:
        return len(self.rows or b"")

    def texts(self, came: Sequence[TextGrowth]) -> TextGrowth:
        return TextGrowth({}, max((each.most() for each in came), default=1.0))


class Lookup(BoxData, frozen=True, tag_field="kind", tag="lookup", kw_only=True):
    """Aurora's SQL boxes that read: rows with the row of a table as it was at their time.

    Inputs: the stream, and the changes of the table.

    Attributes:
        keys: one expression over the stream for each key column of the table, which names it.
        how: ``left``: a row that finds nothing has nulls; ``inner``: it is left out.
        suffix: added to names of the table's columns that the stream has too.
        table: what its table is, without updates, where its changes come from parts or go to some; None: its
            second input is the table.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = 2
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of the stream and of the table to pass its time"

    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    how: str = "left"
    suffix: str = "_right"
    table: Table | None = None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row, table = inputs
        need_time(row, label, "lookup")
        *fields, last = table.schema
        if last != Field(DELETED, "bool") or not fields:
            raise QueryError(f"{label}: {table.box} is no table", code="query.table")
        if self.how not in ("left", "inner"):
            raise QueryError(
                f'{label}: how is "left" or "inner", got {self.how[:40]!r}',
                hint="left: rows that find nothing have nulls",
                code="query.join",
            )
        if self.table is not None:
            _check_table(self.table, label)
            if self.table.schema != tuple(fields) or self.table.inputs:
                raise QueryError(f"{label}: {table.box} isn't its table", code="query.table")
        types = {field.name: field.type for field in fields}
        names = [key.name for key in self.keys]
        if not names:
            raise QueryError(f"{label}: needs a key", code="query.key")
        for name in names:
            if name not in types:
                raise QueryError(f"{label}: the table has no column {name[:60]!r}", code="query.column")
        _check_keys(self.keys, [types[name] for name in names], names, row, label)
        ours = types_of(row.schema)
        found = [
            Field(field.name + self.suffix if field.name in ours else field.name, field.type)
            for field in fields
            if field.name not in names
        ]
        schema = (*row.schema, *found)
        refuse_twice(schema, label=label, hint="choose another suffix=")
        return StreamShape(label, schema, timed=True, window=row.window, no_window=row.no_window)

    def describe(self) -> str:
        return f"{self.how}, by {named_text(self.keys)}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        left = name("")
        changed = tuple(Named(key.name, Column(key.name)) for key in self.keys)
        return SplitPlan(keys=[self.keys, changed], part=self, positions=(left,), numbers=(left, None))

    @property
    def kept_bytes(self) -> int:
        return 0 if self.table is None else self.table.kept_bytes


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


def _check_update(box: Table, update: Update, row: StreamShape, label: str) -> None:
    need_time(row, label, "update")
    types = types_of(box.schema)
    _check_keys(update.keys, [types[key] for key in box.keys], box.keys, row, label)
    if update.delete:
        if update.set or update.insert is not None:
            raise QueryError(f"{label}: a delete sets nothing", code="query.table")
        return
    both = row_and_table(row, box.schema, box.keys, label)
    for what, named, stream in (("set", update.set, both), ("insert", update.insert or (), row)):
        refuse_twice(named, label=f"{label}: {what}")
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


def row_and_table(row: StreamShape, schema: Schema, keys: Sequence[str], label: str) -> StreamShape:
    """What the expressions of an update may read: the row, and ``table.x`` of what is stored."""
    taken = [field.name for field in row.schema if field.name.startswith(PREFIX)]
    if taken:
        raise QueryError(
            f"{label}: the column {taken[0]!r} reads like one of the table",
            hint="rename it with select before",
            code="query.name",
        )
    stored = tuple(Field(PREFIX + field.name, field.type) for field in schema)
    return StreamShape(row.box, (*row.schema, *stored), timed=row.timed)


def _check_keys(
    keys: Sequence[Named], types: Sequence[str], names: Sequence[str], row: StreamShape, label: str
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
    # In this thread: one of pyarrow's would let go of ``data`` a moment later. A program that ends by then is
    # aborted ("terminate called without an active exception"), for the thread can't have the GIL any more.
    if keys.group_by(list(box.keys), use_threads=False).aggregate([]).num_rows != keys.num_rows:
        raise QueryError(
            f"{label}: from_: several rows have the same {', '.join(box.keys)}",
            hint="one row for each key",
            code="query.table",
        )
    return table
