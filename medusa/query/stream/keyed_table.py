"""Keyed tables as they are written: ``q.table``, ``stream.update``, ``.delete``, ``.lookup``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import Box, Input, Lookup, Table, Update
from medusa.query.boxes.base import shape_of
from medusa.query.boxes.tables import PREFIX
from medusa.query.checker import infer
from medusa.query.expressions.column import as_tree
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal, Named
from medusa.query.expressions.tree import columns_of
from medusa.query.graph import label_of
from medusa.query.shape import types_of
from medusa.query.stream.output import Output
from medusa.query.types import common_type, schema_from, schema_to_arrow
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["KeyedTable", "key_columns", "lookup_box", "make_table", "update_of", "write"]


class KeyedTable:
    """A table of a query, one row for each key. ``stream.update``, ``.delete`` and ``.lookup`` use it."""

    __slots__ = ("_name", "_query")

    def __init__(self, query: Query, name: str) -> None:
        self._query = query
        self._name = name

    @property
    def query(self) -> Query:
        """The query that it belongs to."""
        return self._query

    @property
    def name(self) -> str:
        """Its name in the query."""
        return self._name

    @property
    def box(self) -> Table:
        """What it is by now: every update is part of it."""
        box = self._query._boxes[self._name]
        assert isinstance(box, Table)
        return box

    @property
    def schema(self) -> dict[str, str]:
        """Column name -> type, in order."""
        return types_of(self.box.schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {type}" for name, type in self.schema.items())
        return f"<KeyedTable {self._name!r} of query {self._query.name!r}: {columns}>"


def make_table(
    query: Query, name: str, key: Any, schema: Any, from_: Any, expire: Duration | None, *, label: str
) -> KeyedTable:
    """Take an empty table, or one with the rows of ``from_``, into a query."""
    fields = schema_from(schema, what=label)
    keys = tuple(key) if isinstance(key, list | tuple) else (key,)
    if not all(isinstance(each, str) for each in keys):
        raise QueryError(f"{label}: key is the name of a column, or several", code="query.key")
    box = Table(
        id=name,
        inputs=(),
        schema=fields,
        keys=keys,
        rows=None if from_ is None else _rows(from_, fields, label),
        expire_us=None if expire is None else duration_us(expire, what=f"{label}: expire", minimum_us=1),
    )
    query._add(box, name)
    return KeyedTable(query, name)


def _rows(data: Any, fields: Any, label: str) -> bytes:
    """The rows as an Arrow IPC stream of the table's columns."""
    import pyarrow as pa

    schema = schema_to_arrow(fields)
    try:
        table = pa.table(data)
        missing = [name for name in schema.names if name not in table.column_names]
        extra = [name for name in table.column_names if name not in schema.names]
        if missing or extra:
            raise QueryError(
                f"{label}: from_ has other columns than the table: "
                + ", ".join([*(f"no {name}" for name in missing), *(f"{name} besides" for name in extra)]),
                code="query.table",
            )
        table = table.select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise QueryError(f"{label}: from_: not rows of this table: {error}", code="query.table") from None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def key_columns(by: Any, table: KeyedTable, output: Output, label: str) -> tuple[Named, ...]:
    """The key of a row, under the names of the table: columns of these names, or what ``by`` says."""
    keys = table.box.keys
    if by is None:
        return tuple(Named(key, Column(key)) for key in keys)
    if isinstance(by, Mapping):
        given = [by.get(key, key) for key in keys]
        unknown = [str(name) for name in by if name not in keys]
        if unknown:
            raise QueryError(f"{label}: by: {unknown[0][:60]!r} is no key of the table", code="query.key")
    else:
        given = list(by) if isinstance(by, list | tuple) else [by]
    if len(given) != len(keys):
        raise QueryError(
            f"{label}: by: {len(given)} columns for the {len(keys)} keys {', '.join(keys)}", code="query.key"
        )
    made = []
    for key, each in zip(keys, given, strict=True):
        plain = isinstance(each, str) and each in output.schema
        made.append(Named(key, Column(each) if plain else as_tree(each, box=f"{label}: by")))
    return tuple(made)


def update_of(table: KeyedTable, output: Output, set: Any, insert: Any, by: Any, *, label: str) -> Update:
    """What ``stream.update(table, set=..., insert=...)`` does.

    Raises:
        QueryError: unknown columns, other types, or ``insert`` left open where ``set`` reads the table.
    """
    keys = key_columns(by, table, output, label)
    types = table.schema
    ours = output.schema
    both = {**ours, **{PREFIX + name: type for name, type in types.items()}}
    changed = _values(set, both, types, f"{label}: set", output.timed)
    reads = any(name.startswith(PREFIX) for each in changed for name in columns_of(each.expression))
    if insert is None:
        if reads:
            raise QueryError(
                f"{label}: set reads table., so say what a key that isn't there gets",
                hint='insert={"bal": "toll"}, insert=True (table. is null then), or insert=False (nothing)',
                code="query.table",
            )
        insert = True
    if insert is True:
        new: tuple[Named, ...] | None = tuple(
            Named(each.name, _without_table(each.expression, both)) for each in changed
        )
    elif insert is False:
        new = None
    else:
        new = _values(insert, ours, types, f"{label}: insert", output.timed)
    return Update(keys=keys, set=changed, insert=new)


def _values(
    given: Any, readable: Mapping[str, str], types: Mapping[str, str], label: str, timed: bool
) -> tuple[Named, ...]:
    if not isinstance(given, Mapping):
        raise QueryError(
            f"{label}: expected a mapping of columns to expressions, got {type(given).__name__}",
            hint='{"bal": "table.bal + toll"}',
            code="query.table",
        )
    made = []
    for name, value in given.items():
        tree = as_tree(value, box=f"{label}: column {name!r}")
        wanted = types.get(str(name))
        if wanted is not None and not (isinstance(tree, Literal) and tree.value is None):
            came = infer(tree, readable, box=f"{label}: column {name!r}", timed=timed)
            if came != wanted and (common_type(came, wanted) == wanted or isinstance(tree, Literal)):
                tree = Cast(tree, wanted)
        elif wanted is not None:
            tree = Literal(wanted, None)
        made.append(Named(str(name), tree))
    return tuple(made)


def _without_table(tree: Expression, types: Mapping[str, str]) -> Expression:
    """The expression where nothing is stored: ``table.x`` is null."""
    match tree:
        case Column(name) if name.startswith(PREFIX):
            return Literal(types[name], None)
        case Call():
            return Call(tree.function, tuple(_without_table(arg, types) for arg in tree.args))
        case Cast():
            return Cast(_without_table(tree.arg, types), tree.type)
        case Case():
            branches = tuple((_without_table(a, types), _without_table(b, types)) for a, b in tree.branches)
            last = None if tree.otherwise is None else _without_table(tree.otherwise, types)
            return Case(branches, last)
    return tree


def write(table: KeyedTable, output: Output, update: Update, *, label: str) -> Input:
    """Add an update to a table: the arc of what it returns. On an error the query is unchanged.

    The table's box then reads the stream too, so it and all below it move behind the stream's box.
    """
    query, old = table.query, table.box
    boxes = query._boxes
    below = _below(old.id, boxes)
    origin = output.arc.box
    if origin in below or origin == old.id:
        through = next(
            (id for id in below if isinstance(boxes[id], Lookup) and old.id in _reads(boxes[id])), ""
        )
        by = (
            label_of(boxes[through])
            if through and _leads(through, origin, boxes)
            else f"an update of {old.id!r}"
        )
        raise QueryError(
            f"{label}: reads {output.label}, which comes from {by} of the same table {old.id!r}",
            hint="an update reads the stored row as table.x in set=; or use process",
            code="query.cycle",
        )
    new = msgspec.structs.replace(old, inputs=(*old.inputs, output.arc), updates=(*old.updates, update))
    inputs = [query._shapes[arc] for arc in new.inputs]
    last = new.ports[-1]
    shape_of(new, inputs, label=label, port=last)
    shapes = {
        Input(new.id, port): shape_of(new, inputs, label=label_of(new), port=port) for port in new.ports
    }
    moved = {id: box for id, box in boxes.items() if id in below}
    kept = {id: box for id, box in boxes.items() if id not in below and id != old.id}
    query._rearrange({**kept, new.id: new, **moved}, shapes)
    return Input(new.id, last)


def _reads(box: Box) -> set[str]:
    return {arc.box for arc in box.inputs}


def _below(start: str, boxes: Mapping[str, Box]) -> dict[str, None]:
    """Every box that a box feeds, however indirectly, in order."""
    found: dict[str, None] = {}
    for id, box in boxes.items():
        if any(name == start or name in found for name in _reads(box)):
            found[id] = None
    return found


def _leads(start: str, end: str, boxes: Mapping[str, Box]) -> bool:
    return start == end or end in _below(start, boxes)


def lookup_box(table: KeyedTable, output: Output, how: Any, by: Any, suffix: Any, *, label: str) -> Lookup:
    """The box of ``stream.lookup(table)``, without an id."""
    if not isinstance(suffix, str) or not isinstance(how, str):
        raise QueryError(f"{label}: how and suffix are texts", code="query.join")
    keys = key_columns(by, table, output, label)
    return Lookup(id="", inputs=(output.arc, Input(table.name)), keys=keys, how=how, suffix=suffix)
