"""State that is copied piece by piece, while the boxes that hold it go on.

A checkpoint holds what the boxes held between two elements. Where that is much, the box says so only
(``BoxState.later``), and its driver asks for piece after piece, with elements in between: so a fragment rests
for one piece at a time, however much it holds. What changes meanwhile is copied before it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from medusa._native import ItemsCopy, Snapshot, Store, Window, snapshot_of
from medusa.engine.state import delta
from medusa.engine.state.capture import Capture, Known
from medusa.engine.state.delta import Part, table_pieces, write_parts, write_table
from medusa.engine.state.readable_json import json_text, readable
from medusa.engine.state.row_changes import TableChange
from medusa.ports import Buffer, Content

__all__ = [
    "AT_ONCE",
    "SLICE_ROWS",
    "BackgroundCopy",
    "ByNumber",
    "Deferred",
    "Document",
    "Later",
    "OfItems",
    "OfParts",
    "OfWindow",
    "capture_of",
    "groups_later",
    "items_later",
    "rows_later",
]

AT_ONCE = 1 << 15
"""Rows of a table that are copied in one go: a millisecond or two."""

SLICE_ROWS = 1 << 14
"""Rows copied before the fragment may go on. Too many: that is how long it rests; too few: what else waits is
fed as often in between, and the checkpoint is late."""


PICKED_AT_ONCE = 1 << 12
"""``AT_ONCE`` of rows that stand here and there, of all tables together: where much is held, finding
what changed takes its time already."""

PICKED_WEIGHT = 4
"""Such a row costs as much as so many in order."""


class OfWindow:
    """The groups of a native window as they are when this is made, or those that changed.

    Args:
        made: the table of the rows that ``state`` of the window gives.
        captured: later captures say what changed since.

    Attributes:
        change: how the table is made of an earlier one and of what is copied; None: it is copied whole.
        picked: only what changed is copied.
        weight: of a row that is copied, in rows of a whole one.
    """

    def __init__(
        self, snapshot: Snapshot, made: Callable[[pa.RecordBatch], pa.Table], *, captured: bool = False
    ) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._made = made
        self._rows: pa.RecordBatch | None = None
        self._change = _Change(snapshot)
        self.picked = snapshot.partial
        self.weight = PICKED_WEIGHT if self.picked else 1
        self.captured = captured

    @property
    def change(self) -> TableChange | None:
        return self._change.of()

    @property
    def left(self) -> int:
        """Rows to be copied in the thread of the box."""
        return self._snapshot.left if self._snapshot is not None else 0

    @property
    def done(self) -> bool:
        return self._snapshot is None

    def copy(self, rows: int) -> None:
        """Copy about so many of them. MemoryError: nothing is lost."""
        if self._snapshot is None:
            return
        self._snapshot.copy(rows)
        if not self._snapshot.left:
            self._rows = pa.record_batch(self._snapshot.finish())
            self._snapshot = None

    def table(self) -> pa.Table:
        """The table of what was copied, once nothing is left; in any thread."""
        assert self._rows is not None, "not copied yet"
        return self._made(self._rows)


class _Change:
    """How a table is made of an earlier one, read of a copy when it is asked for first; in any thread."""

    def __init__(self, copy: Snapshot | ItemsCopy) -> None:
        self._copy: Snapshot | ItemsCopy | None = copy if copy.partial else None
        self._found: TableChange | None = None

    def of(self) -> TableChange | None:
        if self._copy is not None:
            runs = np.asarray(pa.array(self._copy.runs()).to_numpy()).reshape(-1, 2)
            self._found, self._copy = TableChange(self._copy.base_rows, runs), None
        return self._found


def capture_of(capture: Capture | None, rows: int) -> Capture | None:
    """What a table of so many rows is captured for; None: it is small, and always written whole."""
    return capture if rows >= delta.ROWS_MIN else None


def groups_later(
    window: Window,
    made: Callable[[pa.RecordBatch], pa.Table],
    groups: int | None = None,
    *,
    patient: bool = True,
    capture: Capture | None = None,
) -> OfWindow | None:
    """The groups of a window as they are now, copied piece by piece.

    Args:
        groups: how many there should be; None: all that there are.
        patient: not all at once.
        capture: only those that changed since its base, where the window knows them.

    Returns:
        None: they are few, others than expected, or of kinds that aren't copied in pieces.
    """
    held = window.living() if isinstance(window, Store) else window.groups_open()
    if groups is not None and held != groups:  # 0 too: groups that have left may be there still
        return None
    capture = capture_of(capture, held)
    if capture is None and (not patient or held <= AT_ONCE):
        return None
    snapshot = snapshot_of(window, *((capture.number, capture.base) if capture else ()))
    if snapshot is None:
        return None
    later = OfWindow(snapshot, made, captured=capture is not None)
    if not patient or (not snapshot.partial and snapshot.left <= AT_ONCE):
        later.copy(held + 1)
    return later


class ByNumber:
    """Rows that never change, in the order of this table. Methods and attributes as those of ``OfWindow``.

    Args:
        rows: of this table, or where only what changed is copied, the fresh ones.
        take: columns of the rows [start, end) of this table.
        made: the table of all its columns.
    """

    def __init__(
        self,
        rows: int,
        take: Callable[[int, int], list[pa.Array]],
        made: Callable[[list[pa.Array]], pa.Table],
        *,
        captured: bool = False,
        change: TableChange | None = None,
    ) -> None:
        self.captured = captured
        self.change = change
        self.picked = change is not None
        self.weight = PICKED_WEIGHT if self.picked else 1
        self._rows = rows
        self._take = take
        self._made = made
        self._parts: list[list[pa.Array]] = []
        self._next = 0

    @property
    def left(self) -> int:
        return self._rows - self._next

    @property
    def done(self) -> bool:
        return self._next >= self._rows and bool(self._parts)

    def copy(self, rows: int) -> None:
        end = min(self._next + rows, self._rows)
        self._parts.append(self._take(self._next, end))
        self._next = end

    def table(self) -> pa.Table:
        return self._made(_joined(self._parts))


def rows_later(
    rows: int,
    take: Callable[[int, int], list[pa.Array]],
    made: Callable[[list[pa.Array]], pa.Table],
    *,
    patient: bool = True,
    captured: bool = False,
    change: TableChange | None = None,
) -> ByNumber | None:
    """As ``ByNumber``; None: they are few, or all are wanted at once, and nothing is captured.

    Args:
        patient: not all at once.
    """
    if not captured and (not patient or rows <= AT_ONCE):
        return None
    later = ByNumber(rows, take, made, captured=captured, change=change)
    if not patient or (change is None and rows <= AT_ONCE):
        later.copy(rows)
    return later


def _joined(parts: list[list[pa.Array]]) -> list[pa.Array]:
    """The columns of a table of which these are the parts. One part stays as it is: ``concat_arrays`` leaves
    bits behind the last row as memory had them."""
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(each) for each in zip(*parts, strict=True)]


class OfItems:
    """Rows of numbered items as they are when this is made, or those that changed. Methods and attributes as
    those of ``OfWindow``.

    Args:
        take: columns of the table, of rows that were copied.
        made: the table of all its columns.
        cost: of a row, in rows of a window.
    """

    def __init__(
        self,
        copy: ItemsCopy,
        take: Callable[[pa.RecordBatch], list[pa.Array]],
        made: Callable[[list[pa.Array]], pa.Table],
        *,
        captured: bool = False,
        cost: int = 1,
    ) -> None:
        self.captured = captured
        self._change = _Change(copy)
        self.picked = copy.partial
        self.weight = cost * (PICKED_WEIGHT if self.picked else 1)
        self._copy: ItemsCopy | None = copy
        self._batch: pa.RecordBatch | None = None
        self._take = take
        self._made = made
        self._parts: list[list[pa.Array]] = []

    @property
    def change(self) -> TableChange | None:
        return self._change.of()

    @property
    def left(self) -> int:
        return self._copy.left if self._copy is not None else 0

    @property
    def done(self) -> bool:
        return self._copy is None

    def copy(self, rows: int) -> None:
        if self._copy is None:
            return
        if self._batch is None:
            self._batch = pa.record_batch(self._copy.next(rows))
        # Without memory that may be called again.
        self._parts.append(self._take(self._batch))
        self._batch = None
        if not self._copy.left:
            self._copy = None

    def table(self) -> pa.Table:
        return self._made(_joined(self._parts))


def items_later(
    begin: Callable[[int, int], ItemsCopy],
    rows: int,
    take: Callable[[pa.RecordBatch], list[pa.Array]],
    made: Callable[[list[pa.Array]], pa.Table],
    *,
    patient: bool = True,
    capture: Capture | None = None,
    cost: int = 1,
) -> OfItems:
    """As ``OfItems``; copied already where it is little, or all is wanted at once.

    Args:
        begin: a copy, by its number and that of the one before.
        rows: how many there are.
        patient: not all at once.
        capture: only those that changed since its base, where that is known.
        cost: of a row, in rows of a window.
    """
    capture = capture_of(capture, rows)
    copy = begin(*((capture.number, capture.base) if capture is not None else (0, 0)))
    later = OfItems(copy, take, made, captured=capture is not None, cost=cost)
    if not patient or (not copy.partial and copy.left * cost <= AT_ONCE):
        later.copy(copy.left + 1)
    return later


class OfParts:
    """What the parts of a box hold that several threads share, put together by who writes it. Methods and
    attributes as those of ``OfWindow``.

    Args:
        parts: what each holds, all of it.
        make: of their tables the one of the box, and how it is made of an earlier one; called once, in any
            thread.
    """

    picked = False
    weight = 1

    def __init__(
        self,
        parts: Sequence[OfWindow | OfItems],
        make: Callable[[list[pa.Table]], tuple[pa.Table, TableChange | None]],
        *,
        captured: bool = False,
    ) -> None:
        self.captured = captured
        self._parts = list(parts)
        self._made = _Once(lambda: make([part.table() for part in self._parts]))

    @property
    def left(self) -> int:
        return sum(part.left for part in self._parts)

    @property
    def done(self) -> bool:
        return all(part.done for part in self._parts)

    @property
    def change(self) -> TableChange | None:
        return self._made.of()[1]

    def copy(self, rows: int) -> None:
        for part in self._parts:
            if not part.done and rows > 0:
                before = part.left
                part.copy(rows)
                rows -= before - part.left

    def table(self) -> pa.Table:
        return self._made.of()[0]


class _Once:
    """A table and how it is made of an earlier one, made when it is asked for first."""

    def __init__(self, make: Callable[[], tuple[pa.Table, TableChange | None]]) -> None:
        self._make = make
        self._made: tuple[pa.Table, TableChange | None] | None = None

    def of(self) -> tuple[pa.Table, TableChange | None]:
        if self._made is None:
            self._made = self._make()
        return self._made


class Deferred:
    """A table of parts that never change, put together by who writes it. Methods and attributes as those of
    ``OfWindow``.

    Args:
        make: the table and how it is made of an earlier one; called once, in any thread.
    """

    left = 0
    done = True
    picked = False
    weight = 1

    def __init__(
        self, make: Callable[[], tuple[pa.Table, TableChange | None]], *, captured: bool = False
    ) -> None:
        self.captured = captured
        self._made = _Once(make)

    @property
    def change(self) -> TableChange | None:
        return self._made.of()[1]

    def copy(self, rows: int) -> None:
        """Nothing has to be."""

    def table(self) -> pa.Table:
        return self._made.of()[0]


Later: TypeAlias = OfWindow | ByNumber | OfItems | OfParts | Deferred
"""A table that is still being copied."""


class Document:
    """JSON values as they are when this is made; they become readable text in another thread."""

    def __init__(self, values: Any) -> None:
        self._text = json_text(values)

    def text(self) -> bytes:
        return readable(self._text)


class BackgroundCopy:
    """The state of a fragment at one moment. What changed is copied when this is made, where that is little.

    Args:
        found: by file, in order.
        capture: what it was taken for.
    """

    def __init__(self, found: Mapping[str, Part | Later | Document], capture: Capture | None = None) -> None:
        self._found = dict(found)
        self._capture = capture
        later = (part for part in found.values() if isinstance(part, Later))
        self._later = [part for part in later if not part.done]
        picked = [part for part in self._later if part.picked]
        if sum(part.left * part.weight for part in picked) <= PICKED_AT_ONCE * PICKED_WEIGHT:
            for part in picked:
                part.copy(part.left + 1)
            self._later = [part for part in self._later if not part.done]

    @property
    def done(self) -> bool:
        """All is copied."""
        return not self._later

    @property
    def left(self) -> int:
        """Rows to be copied, as ``step`` counts them."""
        return sum(part.left * part.weight for part in self._later)

    def step(self, rows: int | None = None) -> bool:
        """Copy about so many rows more (None: ``SLICE_ROWS``) between two elements; whether that was all."""
        rows = SLICE_ROWS if rows is None else rows
        while self._later and rows > 0:
            part = self._later[0]
            before = part.left
            part.copy(-(-rows // part.weight))
            rows -= (before - part.left) * part.weight
            if part.done:
                del self._later[0]
        return self.done

    def drop(self) -> None:
        """Nothing of it is wanted any more. One that isn't done looks at what the engine changes, so the
        engine's thread calls this: there it goes."""
        self._found = {}
        self._later = []

    def finish(self) -> None:
        """Copy all that is left."""
        while not self.step():
            pass

    def known(self) -> Known:
        """What boxes said themselves of what changed."""
        if self._capture is None:
            return Known()
        later = {name: part for name, part in self._found.items() if isinstance(part, Later)}
        ours = {name: part.change for name, part in later.items() if part.captured}
        return Known(
            number=self._capture.number,
            whole={name for name, change in ours.items() if change is None},
            changed={name: change.rows for name, change in ours.items() if change and not change.same},
            same={name for name, change in ours.items() if change and change.same},
        )

    def files(self) -> dict[str, Buffer]:
        """All as files, once it is copied; in any thread. Of those that changed in part, the parts."""
        made = self.contents().items()
        return {name: b"".join(data) if isinstance(data, tuple) else data for name, data in made}

    def contents(self) -> dict[str, Content]:
        """The same for who writes them. Tables that nobody has to read to find what changed come in pieces,
        which are their own memory."""
        assert self.done, "not copied yet"
        made: dict[str, Content] = {}
        for name, part in self._found.items():
            change = part.change if isinstance(part, Later) else None
            if isinstance(part, Later) and change is not None:
                if not change.same:
                    made.update(write_parts(name, part.table(), change.runs, change.base_rows))
            elif isinstance(part, Later) and part.captured:
                made[name] = table_pieces(part.table())
            else:
                made[name] = _written(part)
        return made


def _written(part: Part | Later | Document) -> Buffer:
    if isinstance(part, Document):
        return part.text()
    if isinstance(part, Later):
        part = part.table()
    return write_table(part) if isinstance(part, pa.Table) else part
