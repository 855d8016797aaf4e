"""Output that waits on disk to be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from medusa.elements import Boundary, Element, Kind, Train
from medusa.engine.core.rows import TIME
from medusa.engine.core.spool import Spool

__all__ = ["LATE", "PIECE_BYTES", "TIMES", "Spilled", "held_bytes", "pieces_to_spill"]

TIMES, LATE = "@time", "@late"

PIECE_BYTES = 1 << 22
"""About so much is written at once, and read at once when it is taken."""

Head = Boundary | tuple[Kind, int]
"""A boundary; or of a train its kind and the number of its first row."""


class Spilled:
    """Some elements of a sink, on disk: trains with all that they carry, and the boundaries between.

    Args:
        elements: at least one train; all have times or none has, and so with marks of late rows.

    Attributes:
        rows: of trains that aren't early.

    Raises:
        StateError: they couldn't be written.
    """

    def __init__(self, spool: Spool, elements: Sequence[Element], schema: pa.Schema) -> None:
        self._schema = schema
        first = next(element for element in elements if isinstance(element, Train))
        self._timed, self._late = _form(first)
        full = schema
        if self._timed:
            full = full.append(pa.field(TIMES, TIME))
        if self._late:
            full = full.append(pa.field(LATE, pa.bool_()))
        self._heads: list[Head] = []
        batches = []
        self.rows = 0
        for element in elements:
            if not isinstance(element, Train):
                assert isinstance(element, Boundary)
                self._heads.append(element)
                continue
            rows = len(element)
            columns = [*element.batch.columns]
            columns += [column for column in (element.times, element.late) if column is not None]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=full))
            self._heads.append((element.kind, element.first_seq))
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
            kind, first_seq = head
            columns = next(batches).columns
            late = columns.pop() if self._late else None
            times = columns.pop() if self._timed else None
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            yield Train(batch=batch, times=times, first_seq=first_seq, kind=kind, late=late)


def _form(train: Train) -> tuple[bool, bool]:
    """Whether it has times, and marks of late rows."""
    return train.times is not None, train.late is not None


def held_bytes(element: Element | Spilled) -> int:
    """In memory."""
    return int(element.batch.nbytes) if isinstance(element, Train) else 0


def pieces_to_spill(
    held: Sequence[Element | Spilled], nbytes: int
) -> tuple[int, list[list[Element | Spilled]]]:
    """From which element on, counted from the end, so many bytes are held; and the elements from there on.

    What is on disk already stands alone; the others stand together: at most ``PIECE_BYTES`` or one train, of
    the same form.
    """
    start, freed = len(held), 0
    while start and freed < nbytes:
        start -= 1
        freed += held_bytes(held[start])
    pieces: list[list[Element | Spilled]] = []
    size, form = 0, None
    for element in held[start:]:
        alone = isinstance(element, Spilled)
        other = isinstance(element, Train) and form is not None and _form(element) != form
        if not pieces or alone or other or size >= PIECE_BYTES or isinstance(pieces[-1][-1], Spilled):
            pieces.append([])
            size, form = 0, None
        if isinstance(element, Train):
            form = _form(element)
        pieces[-1].append(element)
        size += held_bytes(element)
    return start, pieces
