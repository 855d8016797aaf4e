"""The tables of a box that is cut into parts, and of parts that become one box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from medusa._native import hash_partition
from medusa.engine.core.box import BoxState
from medusa.engine.core.native_types import narrow
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import TIME, as_bools, as_int64
from medusa.engine.expressions.evaluate import compile_projection
from medusa.engine.operators.key_router import part_of
from medusa.query.boxes import Box, OrderedMerge
from medusa.query.checker import infer
from medusa.query.expressions.expression import Named
from medusa.query.rewrite.split import SplitBoxes
from medusa.query.shape import StreamShape, types_of
from medusa.query.types import to_arrow

__all__ = [
    "CutState",
    "Joined",
    "StateCut",
    "StatePartition",
    "Tables",
    "array_of",
    "each_row_once",
    "hashes_of",
    "ints",
    "keys_in",
    "ordered",
    "put",
    "typed_keys",
]

Tables = dict[str, pa.Table]


@dataclass(slots=True)
class StateCut:
    """A state that is about to be cut; ``shelve`` as of ``partition_state``."""

    made: SplitBoxes
    inputs: Sequence[StreamShape]
    state: BoxState
    fresh: list[BoxState]
    shelve: Callable[[pa.Table], pa.Table]

    def keys(self, table: pa.Table, keys: Sequence[Named]) -> list[pa.Array]:
        """The key columns of a table that names them ``key.NAME``, in the types of the query."""
        return typed_keys(table, keys, self.inputs[0], self.made.whole.id)

    def row_keys(
        self, table: pa.Table, keys: Sequence[Named], input: int
    ) -> tuple[list[pa.Array], NDArray[np.bool_]]:
        """The keys of rows of an input, held with columns and ``@time``, and on which rows they fail."""
        types = types_of(self.inputs[input].schema)
        batch = pa.RecordBatch.from_arrays([array_of(table.column(name)) for name in types], list(types))
        times = array_of(table.column("@time")).cast(TIME)
        made = compile_projection(list(keys), types, box="split", timed=True)(batch, times)
        failed = np.zeros(table.num_rows, np.bool_) if made.failed is None else as_bools(made.failed)
        return list(made.columns), failed

    def hashes(self, keys: list[pa.Array]) -> NDArray[np.uint64]:
        return hashes_of(keys)

    def owners(self, keys: list[pa.Array], input: int = 0) -> Ints:
        return part_of(keys, self.made.routers[input].cuts)

    def parts(self, name: str, table: pa.Table, owners: Ints, more: Mapping[str, pa.Array]) -> list[pa.Table]:
        """The rows of each part as its table of that name, with the columns that it has more."""
        whole = table
        for column, values in more.items():
            whole = whole.append_column(column, values)
        return [
            self.shelve(whole.filter(pa.array(owners == number)).select(each.tables[name].schema.names))
            for number, each in enumerate(self.fresh)
        ]

    @property
    def hidden(self) -> str:
        return _hidden(self.made)


UNASKED = ("rows.n", "all rows.n")
"""What a window, and what has slots, calls the count of rows that no aggregate of the query asked for."""


@dataclass(slots=True)
class Joined:
    """States that are about to become one."""

    made: SplitBoxes
    inputs: Sequence[StreamShape]
    parts: list[BoxState]
    seen: list[int]
    fresh: BoxState

    def table(self, name: str) -> pa.Table:
        """The rows of all parts, with the number of the part as column ``@part``."""
        tables = [
            part.tables[name].append_column("@part", pa.array(np.full(part.tables[name].num_rows, number)))
            for number, part in enumerate(self.parts)
        ]
        return pa.concat_tables(tables)

    def plain(self, name: str, table: pa.Table) -> pa.Table:
        """With the columns that the box has. Where all its aggregates are users' it counts rows; its parts
        don't, since they have the number of a row to keep."""
        schema = self.fresh.tables[name].schema
        for counted in (column for column in UNASKED if column in schema.names):
            if counted not in table.schema.names:
                table = table.append_column(counted, table.column("rows"))
        return table.select(schema.names).cast(schema)

    @property
    def hidden(self) -> str:
        return _hidden(self.made)


def _hidden(made: SplitBoxes) -> str:
    """The column of the parts' results that tells the first row."""
    merge = made.merges[-1]
    assert isinstance(merge, OrderedMerge)
    return f"{merge.positions[0]}.value"


def typed_keys(table: pa.Table, keys: Sequence[Named], shape: StreamShape, box: str) -> list[pa.Array]:
    """The key columns of a table that names them ``key.NAME``, in the types that they have over a stream."""
    types = types_of(shape.schema)
    found = []
    for key in keys:
        type = infer(key.expression, types, box=box, timed=True)
        column = array_of(table.column(f"key.{key.name}"))
        found.append(column if column.type == to_arrow(type) else narrow(column, type))
    return found


def hashes_of(keys: list[pa.Array]) -> NDArray[np.uint64]:
    """The hash of each row of the key columns, by which parts share the rows."""
    batch = pa.RecordBatch.from_arrays(keys, [str(place) for place in range(len(keys))])
    return np.asarray(pa.array(hash_partition(batch)).to_numpy(), np.uint64)


def array_of(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def ints(table: pa.Table, name: str) -> Ints:
    return as_int64(array_of(table.column(name)))


def put(table: pa.Table, name: str, values: Ints) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values))


def ordered(table: pa.Table, *keys: Ints) -> pa.Table:
    """Rows by some numbers, the first of them first; equal ones as they stand."""
    return table.take(pa.array(np.lexsort(keys[::-1])))


CutState = tuple[list[Tables], dict[str, Any], list[int]]
"""Tables of each part, what else all of them know, and how many rows each router has numbered."""


@dataclass(frozen=True, slots=True)
class StatePartition:
    """How the state of a kind of box is cut by ranges of its keys, joined again, and weighed.

    Attributes:
        weights: for each table with keys, how many rows each of its rows stands for.
        keys: the key columns of these tables.
    """

    cut: Callable[[StateCut], CutState]
    join: Callable[[Joined], tuple[Tables, dict[str, Any]]]
    weights: Callable[[Box, Tables], list[Ints]]
    keys: Callable[[StateCut], list[list[pa.Array]]]


def keys_in(name: str) -> Callable[[StateCut], list[list[pa.Array]]]:
    """The keys of a box that has them in one table."""

    def keys(cut: StateCut) -> list[list[pa.Array]]:
        whole: Any = cut.made.whole
        return [cut.keys(cut.state.tables[name], whole.keys)]

    return keys


def each_row_once(name: str) -> Callable[[Box, Tables], list[Ints]]:
    """Every row of a table stands for one."""
    return lambda whole, tables: [np.ones(tables[name].num_rows, np.int64)]
