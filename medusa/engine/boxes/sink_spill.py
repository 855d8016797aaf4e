"""Output that waits on disk to be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from medusa.elements import Boundary, Element, Kind, Train
from medusa.engine.rows import TIME
from medusa.engine.spool import Spool

__all__ = ["LATE", "PIECE_BYTES", "TIMES", "Spilled", "held_bytes", "pieces_to_spill"]

TIMES, LATE = "@time", "@late"

PIECE_BYTES = 1 << 22
"""About so much is written at once, and read at once when it is taken."""

Head = Boundary | tuple[Kind, int, int, bool]
"""A boundary; or of a train its kind, the number of its first row, its rows, and whether it has times."""


class Spilled:
    """Some elements of a sink, on disk: trains with all that they carry, and the boundaries between.

    Attributes:
        rows: of trains that aren't early.

    Raises:
        StateError: they couldn't be written.
    """

    def __init__(self, spool: Spool, elements: Sequence[Element], schema: pa.Schema) -> None:
        self._schema = schema
        full = schema.append(pa.field(TIMES, TIME)).append(pa.field(LATE, pa.bool_()))
        self._heads: list[Head] = []
        batches = []
        self.rows = 0
        for element in elements:
            if not isinstance(element, Train):
                assert isinstance(element, Boundary)
                self._heads.append(element)
                continue
            rows = len(element)
            timed = element.times is not None
            times = pa.nulls(rows, TIME) if element.times is None else element.times
            late = pa.nulls(rows, pa.bool_()) if element.late is None else element.late
            columns = [*element.batch.columns, times, late]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=full))
            self._heads.append((element.kind, element.first_seq, rows, timed))
            self.rows += rows if element.kind is Kind.STABLE else 0
        self._file = spool.file(full)
        self._file.append(batches)

    def __iter__(self) -> Iterator[Element]:
        """The elements, read from disk one by one.

        Raises:
            StateError: a train can't be read or is damaged.
        """
        batches = iter(self._file)
        for head in self._heads:
            if isinstance(head, Boundary):
                yield head
                continue
            kind, first_seq, _, timed = head
            columns = next(batches).columns
            late, times = columns.pop(), columns.pop()
            yield Train(
                batch=pa.RecordBatch.from_arrays(columns, schema=self._schema),
                times=times if timed else None,
                first_seq=first_seq,
                kind=kind,
                late=None if late.null_count else late,
            )


def held_bytes(element: Element | Spilled) -> int:
    """In memory."""
    return int(element.batch.nbytes) if isinstance(element, Train) else 0


def pieces_to_spill(
    held: Sequence[Element | Spilled], nbytes: int
) -> tuple[int, list[list[Element | Spilled]]]:
    """From which element on, counted from the end, so many bytes are held; and the elements from there on.

    What is on disk already stands alone; the others stand together, at most ``PIECE_BYTES`` or one train.
    """
    start, freed = len(held), 0
    while start and freed < nbytes:
        start -= 1
        freed += held_bytes(held[start])
    pieces: list[list[Element | Spilled]] = []
    size = 0
    for element in held[start:]:
        alone = isinstance(element, Spilled)
        if not pieces or alone or size >= PIECE_BYTES or isinstance(pieces[-1][-1], Spilled):
            pieces.append([])
            size = 0
        pieces[-1].append(element)
        size += held_bytes(element)
    return start, pieces
