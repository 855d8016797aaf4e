"""Rows of one input that results may still name: by number, in batches as they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa._native import Chunks
from medusa.engine.core import output_pieces

__all__ = ["MERGED_ROWS_MAX", "KeptRows"]

MERGED_ROWS_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive rows, the first of which has number ``first``; none is later than ``last_us``."""

    batch: pa.RecordBatch
    first: int
    last_us: int

    @property
    def end(self) -> int:
        return self.first + int(self.batch.num_rows)


class KeptRows:
    """Batches of one schema, numbered by row from 0; forgotten as a whole, by time.

    Small batches are merged with their neighbour when it is not much larger, so that n pushes of
    one row cost n log n, and there are few batches to look through.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.next = 0
        self._parts: list[_Part] = []
        self._chunks = Chunks()
        self._texts = output_pieces.text_columns(schema)
        self.widest = 0
        self._sizes: npt.NDArray[np.int64] | None = None
        """Bytes of text of each row, part by part; None: not known since parts came or went."""

    def __len__(self) -> int:
        return sum(part.batch.num_rows for part in self._parts)

    def add(self, batch: pa.RecordBatch, last_us: int) -> int:
        """Keep rows; the number of the first."""
        first = self.next
        self.next += batch.num_rows
        self._sizes = None
        if self._texts and batch.num_rows:
            self.widest = max(self.widest, int(output_pieces.text_bytes(batch, self._texts).max()))
        made = _Part(batch, first, last_us)
        count = len(self._parts)
        while self._parts and self._merges(self._parts[-1], made):
            before = self._parts.pop()
            made = _Part(
                pa.concat_batches([before.batch, made.batch]), before.first, max(before.last_us, made.last_us)
            )
        if len(self._parts) < count:
            self._chunks.keep(0, len(self._parts))
        self._parts.append(made)
        self._chunks.add(made.batch, made.first)
        return first

    @staticmethod
    def _merges(before: _Part, last: _Part) -> bool:
        rows = before.batch.num_rows, last.batch.num_rows
        return rows[0] <= 2 * rows[1] and sum(rows) <= MERGED_ROWS_MAX and before.end == last.first

    def take(self, numbers: pa.Array, columns: Sequence[int]) -> list[pa.Array]:
        """Some columns of rows by number; -1 gives nulls."""
        if not self._parts:
            return [pa.nulls(len(numbers), self.schema.field(index).type) for index in columns]
        made: list[pa.Array] = pa.record_batch(self._chunks.take(numbers, columns)).columns
        return made

    def text_bytes(self, numbers: pa.Array) -> npt.NDArray[np.int64]:
        """Bytes of text of rows by number; 0 for -1."""
        if not self._texts or not self._parts:
            return np.zeros(len(numbers), np.int64)
        if self._sizes is None:
            self._sizes = np.concatenate(
                [output_pieces.text_bytes(part.batch, self._texts) for part in self._parts]
            )
            self.widest = int(self._sizes.max(initial=0))
        wanted = np.asarray(numbers)
        firsts = np.array([part.first for part in self._parts])
        before = np.cumsum([0, *(part.batch.num_rows for part in self._parts)])
        part = np.maximum(firsts.searchsorted(wanted, side="right") - 1, 0)
        found = self._sizes[np.maximum(before[part] + wanted - firsts[part], 0)]
        return np.where(wanted < 0, 0, found)

    def picking(self) -> Callable[[pa.Array], list[pa.Array]]:
        """Gives all columns of rows by number: of those held now, however many are forgotten then."""
        if not self._parts:
            return lambda numbers: [pa.nulls(len(numbers), field.type) for field in self.schema]
        parts, columns, made = tuple(self._parts), range(len(self.schema)), list[Chunks]()

        def pick(numbers: pa.Array) -> list[pa.Array]:
            if not made:  # not before: who asks for a copy of much only wants it begun
                made.append(Chunks())  # ours forget
                for part in parts:
                    made[0].add(part.batch, part.first)
            picked: list[pa.Array] = pa.record_batch(made[0].take(numbers, columns)).columns
            return picked

        return pick

    def forget(self, before_us: int) -> None:
        """Drop the batches whose rows are all older."""
        left = [part for part in self._parts if part.last_us >= before_us]
        gone = len(self._parts) - len(left)
        if not gone:
            return
        if not left or left[0] is self._parts[gone]:
            self._chunks.keep(gone, len(self._parts))
        else:
            self._chunks = Chunks()
            for part in left:
                self._chunks.add(part.batch, part.first)
        self._parts = left
        self._forget_sizes()

    def replace(self, parts: Sequence[tuple[pa.RecordBatch, int]]) -> None:
        """Keep these rows only, numbered from 0: batches as of ``add``."""
        self._parts = []
        self._chunks = Chunks()
        self._forget_sizes()
        self.next = 0
        for batch, last_us in parts:
            self.add(batch, last_us)

    def clear(self) -> None:
        """Forget all rows; numbers go on."""
        self._parts = []
        self._chunks = Chunks()
        self._forget_sizes()

    def _forget_sizes(self) -> None:
        self._sizes = None
        if not self._parts:
            self.widest = 0

    def nbytes(self) -> int:
        return sum(int(part.batch.nbytes) for part in self._parts)
