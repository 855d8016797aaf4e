"""What a kind of box says of itself so that its state can lie in parts, some of them on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters, DeadRow
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64, only_chunk
from medusa.query.boxes import Field, Schema

__all__ = ["POSITION", "PartLetters", "SpillKind", "least_us", "single", "with_position"]

POSITION = "@position"
"""A column that rows have in parts and nowhere else: their number among all rows of the input."""


def with_position(schema: Schema) -> Schema:
    """Columns of an input of a part."""
    return (*schema, Field(POSITION, "int64"))


class PartLetters(DeadLetters):
    """Gathers what fails in parts, until the rows are in one order again."""

    def __init__(self, real: DeadLetters) -> None:
        super().__init__()
        self._real = real
        self.found: list[DeadRow] = []

    def room(self, box: str) -> int:
        return self._real.room(box)

    def add(self, *rows: DeadRow) -> None:
        self.found += rows

    def hand_on(self) -> None:
        """Keep them, by the positions of rows that have one."""
        found, self.found = self.found, []
        for row in sorted(found, key=lambda each: each.row.get(POSITION, 0)):
            named = {name: value for name, value in row.row.items() if name != POSITION}
            self._real.add(DeadRow(row.box, row.error, named))


class SpillKind(ABC):
    """A kind of box whose state is in parts over disjoint keys.

    A part is an ordinary box whose rows have positions, and whose output says by some columns of integers
    where it stands among that of the other parts.

    Args:
        plain: an empty box of the query; its columns are used, and its empty state tells the tables.

    Attributes:
        at_once: rows are answered as they come, not when a boundary does.
        folds: rows beside a cold part take more room than what is made of them.
        tables: of the state, in the order in which they are taken apart.
        sorted_by: of tables of rows that stand in one order in the state of the whole, by which columns.
        ports: by which rows leave.
        order: by how many columns what leaves is in order.
        pending_us: so long after a row its part must answer.
    """

    at_once = False
    folds = False
    tables: Sequence[str] = ()
    sorted_by: Mapping[str, Sequence[str]] = {}
    ports: Sequence[str] = ("",)
    order = 1
    pending_us = 1

    def __init__(self, plain: Operator) -> None:
        self.plain: Any = plain

    key_types: Sequence[str]
    """Native types of the keys."""

    @abstractmethod
    def make(self, letters: DeadLetters) -> Operator:
        """An empty part."""

    def fresh(self, letters: DeadLetters) -> Operator:
        """An empty part that finds the time where the box of the query does."""
        part, plain = self.make(letters), self.plain
        part.take_place(plain.now, interleaves_freely=plain.interleaves_freely)
        return part

    # Rows

    @abstractmethod
    def take(self, input: int, train: Train) -> tuple[Train, list[pa.Array]]:
        """Rows that are in time and don't fail, and their keys, wide; ``plain`` counts the others."""

    @abstractmethod
    def unpack(self, train: Train, port: str) -> tuple[pa.RecordBatch, list[pa.Array]]:
        """The columns that leave, and those by which rows of all parts are in order."""

    def leaves(self, port: str) -> bool:
        """Whether rows of a port count as those that left the box."""
        return not port

    @abstractmethod
    def boundary_us(self, time_us: int, hot: Sequence[Operator], wake_us: int) -> int:
        """The boundary that leaves after ``time_us``.

        Args:
            hot: parts in memory.
            wake_us: the least of those on disk, as ``wake_us`` gave it.
        """

    @abstractmethod
    def wake_us(self, state: BoxState, boundary_us: int) -> int:
        """The least boundary at which a part with this state may have something to give."""

    # State

    @abstractmethod
    def route(self, name: str, rows: pa.RecordBatch) -> list[pa.Array] | Ints:
        """Of rows of a table of the whole: their keys, wide; or their slots."""

    def slots(self, rows: pa.RecordBatch) -> Ints | None:
        """Of rows of the first table: which slots they have; None: there are none."""
        return None

    @abstractmethod
    def localise(self, state: BoxState) -> BoxState:
        """State of a part, of rows of the whole; ``sorted_by``: positions come last."""

    @abstractmethod
    def globalise(self, name: str, state: BoxState, offsets: Sequence[int]) -> pa.Table:
        """The rows of a table as they stand in the whole; those of ``sorted_by`` with their positions.

        Args:
            offsets: what the parts before this one have had, as ``counts`` gave it.
        """

    def held(self, name: str, rows: pa.RecordBatch, boundary_us: int) -> pa.RecordBatch:
        """What a whole holds of rows of a part at a boundary: a part on disk isn't told of one that brings
        nothing."""
        return rows

    def counts(self, meta: Mapping[str, Any], rows: Mapping[str, int]) -> Sequence[int]:
        """Numbers that a part has given: slots, and so on.

        Args:
            rows: of each table.
        """
        return ()

    def taken(self, meta: Mapping[str, Any]) -> int:
        """Rows that a box with this state has counted."""
        return 0

    def meta(self, totals: Sequence[int], taken: int) -> dict[str, Any]:
        """The numbers of the whole."""
        return {}


def single(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    columns = [only_chunk(c) for c in table.combine_chunks().columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def least_us(table: pa.Table, after_us: int = 0, keep: Ints | None = None) -> int:
    """The earliest ``@time`` of some rows, and so much later; the end where there are none."""
    times = as_int64(single(table.select(["@time"])).column(0))
    if keep is not None:
        times = times[keep]
    return min(int(times.min()) + after_us, int(END_US)) if len(times) else int(END_US)


def moved(rows: pa.RecordBatch, to: int) -> pa.RecordBatch:
    """The last column at another place."""
    last = rows.num_columns - 1
    return _ordered(rows, [*range(to), last, *range(to, last)])


def moved_last(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """A column at the end."""
    return _ordered(rows, [*range(place), *range(place + 1, rows.num_columns), place])


def _ordered(rows: pa.RecordBatch, order: Sequence[int]) -> pa.RecordBatch:
    schema = pa.schema([rows.schema.field(index) for index in order])
    return pa.RecordBatch.from_arrays([rows.column(index) for index in order], schema=schema)


def by_columns(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Rows in order of some columns of integers or times."""
    keys = [as_int64(rows.column(name)) for name in names]
    order = np.lexsort(keys[::-1])
    return rows.take(pa.array(order))
