"""State that is copied piece by piece, while the boxes that hold it go on.

A checkpoint holds what the boxes held between two elements. Where that is much, the box says so only
(``BoxState.later``), and its driver asks for piece after piece, with elements in between: so a fragment rests
for one piece at a time, however much it holds. What changes meanwhile is copied before it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from medusa._native import Snapshot, Window, snapshot_of
from medusa.engine.state import delta
from medusa.engine.state.capture import Capture, Known
from medusa.engine.state.delta import Part, write_parts, write_table
from medusa.ports import Buffer

__all__ = [
    "AT_ONCE",
    "SLICE_ROWS",
    "BackgroundCopy",
    "ByNumber",
    "Later",
    "OfWindow",
    "groups_later",
    "rows_later",
]

AT_ONCE = 1 << 15
"""Rows of a table that are copied in one go: a millisecond or two."""

SLICE_ROWS = 1 << 14
"""Rows copied before the fragment may go on. Too many: that is how long it rests; too few: what else waits is
fed as often in between, and the checkpoint is late."""


PICKED_AT_ONCE = 1 << 12
"""The same of rows that stand here and there in a table."""


class OfWindow:
    """The groups of a native window as they are when this is made, or those that changed.

    Args:
        made: the table of the rows that ``state`` of the window gives.
        captured: later captures say what changed since.
    """

    def __init__(
        self, snapshot: Snapshot, made: Callable[[pa.RecordBatch], pa.Table], *, captured: bool = False
    ) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._made = made
        self._rows: pa.RecordBatch | None = None
        self._base_rows = snapshot.base_rows
        runs = snapshot.runs()
        self._runs = None if runs is None else np.asarray(pa.array(runs).to_numpy()).reshape(-1, 2)
        self.captured = captured

    @property
    def left(self) -> int:
        """Rows to be copied in the thread of the box."""
        return self._snapshot.left if self._snapshot is not None else 0

    @property
    def done(self) -> bool:
        return self._snapshot is None

    @property
    def partial(self) -> bool:
        """Only what changed since the base of the capture."""
        return self._runs is not None

    @property
    def same(self) -> bool:
        """Nothing has."""
        runs = self._runs
        if runs is None or len(runs) > 1:
            return False
        return runs[0].tolist() == [0, self._base_rows] if len(runs) else not self._base_rows

    @property
    def rows(self) -> int:
        """Of the whole table, where this is a part of it."""
        return int(self._runs[:, 1].sum()) if self._runs is not None else 0

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

    def parts(self, name: str) -> dict[str, Buffer]:
        """The files of what changed in the one of that name."""
        return write_parts(name, self.table(), self._runs, self._base_rows)


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
    held = window.groups_open()
    if groups is not None and held != groups:  # 0 too: groups that have left may be there still
        return None
    if held < delta.ROWS_MIN:
        capture = None
    if capture is None and (not patient or held <= AT_ONCE):
        return None
    snapshot = snapshot_of(window, *((capture.number, capture.base) if capture else ()))
    if snapshot is None:
        return None
    later = OfWindow(snapshot, made, captured=capture is not None)
    if not patient or snapshot.left <= (PICKED_AT_ONCE if later.partial else AT_ONCE):
        later.copy(held + 1)
    return later


class ByNumber:
    """Rows that never change, in the order of this table. Methods as those of ``OfWindow``.

    Args:
        take: columns of the rows [start, end) of this table.
        made: the table of all its columns.
    """

    def __init__(
        self,
        rows: int,
        take: Callable[[int, int], list[pa.Array]],
        made: Callable[[list[pa.Array]], pa.Table],
    ) -> None:
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
        return self._next >= self._rows

    def copy(self, rows: int) -> None:
        end = min(self._next + rows, self._rows)
        self._parts.append(self._take(self._next, end))
        self._next = end

    def table(self) -> pa.Table:
        return self._made([pa.concat_arrays(parts) for parts in zip(*self._parts, strict=True)])


def rows_later(
    rows: int, take: Callable[[int, int], list[pa.Array]], made: Callable[[list[pa.Array]], pa.Table]
) -> ByNumber | None:
    """As ``ByNumber``; None: they are few."""
    return ByNumber(rows, take, made) if rows > AT_ONCE else None


Later: TypeAlias = OfWindow | ByNumber
"""A table that is still being copied."""


class BackgroundCopy:
    """The state of a fragment at one moment.

    Args:
        found: by file, in order.
        capture: what it was taken for.
    """

    def __init__(self, found: Mapping[str, Part | Later], capture: Capture | None = None) -> None:
        self._found = dict(found)
        self._capture = capture
        later = (part for part in found.values() if isinstance(part, OfWindow | ByNumber))
        self._later = [part for part in later if not part.done]

    @property
    def done(self) -> bool:
        """All is copied."""
        return not self._later

    def step(self, rows: int | None = None) -> bool:
        """Copy about so many rows more (None: ``SLICE_ROWS``) between two elements; whether that was all."""
        rows = SLICE_ROWS if rows is None else rows
        while self._later and rows > 0:
            part = self._later[0]
            before = part.left
            part.copy(rows)
            rows -= before - part.left
            if part.done:
                del self._later[0]
        return self.done

    def finish(self) -> None:
        """Copy all that is left."""
        while not self.step():
            pass

    def known(self) -> Known:
        """What boxes said themselves of what changed."""
        if self._capture is None:
            return Known()
        ours = {
            name: part for name, part in self._found.items() if isinstance(part, OfWindow) and part.captured
        }
        return Known(
            number=self._capture.number,
            whole={name for name, part in ours.items() if not part.partial},
            changed={name: part.rows for name, part in ours.items() if part.partial and not part.same},
            same={name for name, part in ours.items() if part.same},
        )

    def files(self) -> dict[str, Buffer]:
        """All as files, once it is copied; in any thread. Of those that changed in part, the parts."""
        assert self.done, "not copied yet"
        made: dict[str, Buffer] = {}
        for name, part in self._found.items():
            if not isinstance(part, OfWindow) or not part.partial:
                made[name] = _written(part)
            elif not part.same:
                made |= part.parts(name)
        return made


def _written(part: Part | Later) -> Buffer:
    if isinstance(part, OfWindow | ByNumber):
        part = part.table()
    return write_table(part) if isinstance(part, pa.Table) else part
