"""Checkpoints as deltas: of each table only the rows that changed since the one before.

A delta says how each table is made of the rows of the table before and of fresh ones: as runs of
rows. So a changed accumulator costs its row, rows that are forgotten cost nothing, and what moved up
because others are gone costs a run. It works for every table alike, and boxes know nothing of it.
What is remembered of the last checkpoint is 16 bytes per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from medusa._native import Digests
from medusa.engine.core.spool import WHOLE
from medusa.engine.state.capture import Known
from medusa.errors import StateError
from medusa.ports import Buffer, Content, pieces_of

__all__ = [
    "DeltaCut",
    "DeltaFiles",
    "Part",
    "Patched",
    "Tables",
    "as_files",
    "cut",
    "is_plan",
    "part_names",
    "patch",
    "patched",
    "read_table",
    "size_of",
    "table_pieces",
    "together",
    "whole_bytes",
    "write_parts",
    "write_table",
]

ROWS_MIN = 256
"""Tables of fewer rows are written whole."""

SLICES_MAX = 64
"""Runs up to which a table is put together of slices rather than row by row."""

Part: TypeAlias = Buffer | pa.Table
"""A file as it lies there, or a table that was put together."""

Tables: TypeAlias = dict[str, Digests]
"""What is remembered: by file, the digests of the rows."""


@dataclass(slots=True)
class DeltaCut:
    """What has to be written, and what is remembered of it.

    Attributes:
        files: to write.
        same: names of files of the one before that hold as they are.
        changed: of files that are made of the one before: how many rows they have.
        rows: what to compare the next one with.
        whole_bytes: of all files, had they been written whole.
    """

    files: dict[str, Content] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    changed: dict[str, int] = field(default_factory=dict)
    rows: Tables = field(default_factory=dict)
    whole_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return sum(size_of(data) for data in self.files.values())

    def plan(self) -> dict[str, Any]:
        """For the manifest."""
        return {"same": self.same, "changed": self.changed}


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """A delta without the checkpoint that it stands on.

    Attributes:
        token: of its checkpoint.
        base: of the one that it stands on.
        plan: as ``DeltaCut.plan`` gives it.
        files: its own files of the state.
    """

    token: int
    base: int
    plan: Mapping[str, Any]
    files: Mapping[str, Buffer]

    def names_after(self, names: Set[str], where: str) -> set[str]:
        """Names of all files of the state after it, by those before it.

        Raises:
            StateError: it needs a file that isn't there, or names one twice; names the file.
        """
        made = set(self.files)
        for name in self.plan["same"]:
            if name not in names or name in made:
                raise _wrong(where, name, "is not in the checkpoint before")
            made.add(name)
        for name in self.plan["changed"]:
            parts = set(part_names(name))
            if name not in names or name in made or not parts <= made:
                raise _wrong(where, name, "or what it is made of is missing")
            made = (made - parts) | {name}
        return made


def cut(
    files: Mapping[str, Content], before: Tables, secret: tuple[int, int], known: Known | None = None
) -> DeltaCut:
    """What of the files differs from the ones before.

    Args:
        before: ``rows`` of the cut that was written last; empty: everything is written whole.
        secret: seed of the digests: it makes sure that nobody can prepare rows that look alike.
        known: what is known without comparing.
    """
    known = known or Known()
    made = DeltaCut(same=sorted(known.same), changed=dict(known.changed))
    as_given = {*known.whole, *(part for name in known.changed for part in part_names(name))}
    for name, data in files.items():
        made.whole_bytes += size_of(data)
        compared = name.endswith(".arrow") and name not in as_given
        table = read_table(data) if compared and not isinstance(data, tuple) else None
        rows = None if table is None or table.num_rows < ROWS_MIN else _digests(table, secret)
        if table is None or rows is None or isinstance(data, tuple):
            made.files[name] = data
            continue
        made.rows[name] = rows
        _cut_table(made, name, data, table, before.get(name))
    return made


def _cut_table(made: DeltaCut, name: str, data: Buffer, table: pa.Table, before: Digests | None) -> None:
    if before is None:
        made.files[name] = data
        return
    runs = np.asarray(pa.array(made.rows[name].runs(before)).to_numpy()).reshape(-1, 2)
    if len(runs) == 1 and runs[0, 0] == 0 and runs[0, 1] == len(before) == table.num_rows:
        made.same.append(name)
        return
    ends = np.cumsum(runs[:, 1])
    fresh = _joined(table, runs[:, 0] >= len(before), ends - runs[:, 1], runs[:, 1])
    parts = write_parts(name, fresh, runs, len(before))
    if sum(map(size_of, parts.values())) > size_of(data) // 2:
        made.files[name] = data
        return
    made.files.update(parts)
    made.changed[name] = table.num_rows


def part_names(name: str) -> tuple[str, str]:
    """The files that stand in the place of one that is made of the one before: fresh rows, and runs."""
    return f"{_stem(name)}.fresh.arrow", f"{_stem(name)}.runs.arrow"


def write_parts(name: str, fresh: pa.Table, runs: Any, before: int) -> dict[str, Buffer]:
    """Those files.

    Args:
        runs: an array of (start, length), as a delta has them.
        before: rows of the table before.
    """
    # int32 where it is enough: with many runs they are as large as the rows.
    kind = np.int64 if before + int(runs[:, 1].sum()) >= 1 << 31 else np.int32
    steps = pa.table({"start": runs[:, 0].astype(kind), "length": runs[:, 1].astype(kind)})
    return dict(zip(part_names(name), (write_table(fresh), write_table(steps)), strict=True))


def _joined(table: pa.Table, wanted: Any, starts: Any, lengths: Any) -> pa.Table:
    """The rows of some runs, one after the other."""
    return _pick(table, starts[wanted], lengths[wanted])


def _pick(table: pa.Table, starts: Any, lengths: Any) -> pa.Table:
    if len(starts) <= SLICES_MAX:
        slices = [table.slice(int(a), int(n)) for a, n in zip(starts, lengths, strict=True)]
        return pa.concat_tables(slices) if slices else table.slice(0, 0)
    return table.combine_chunks().take(pa.array(_rows_of(starts, lengths)))


def _rows_of(starts: Any, lengths: Any) -> Any:
    """The numbers in some runs, one after the other."""
    shift = np.cumsum(lengths) - lengths
    return np.repeat(starts - shift, lengths) + np.arange(int(lengths.sum()))


def is_plan(plan: Any) -> bool:
    """Whether that is what ``DeltaCut.plan`` gives."""
    return (
        isinstance(plan.get("same"), list)
        and all(isinstance(name, str) for name in plan["same"])
        and isinstance(plan.get("changed"), dict)
        and all(type(rows) is int and rows >= 0 for rows in plan["changed"].values())
    )


def patch(
    base: Mapping[str, Part], plan: Mapping[str, Any], files: Mapping[str, Buffer], where: str
) -> dict[str, Part]:
    """The files of a checkpoint, from those of the one before and its own.

    Args:
        where: the checkpoint as a person would look for it, for messages.

    Raises:
        StateError: they don't fit together; names the file.
    """
    made = patched(base, plan, files, where)
    return {name: part.table() if isinstance(part, Patched) else part for name, part in made.items()}


def patched(
    base: Mapping[str, Part | Patched], plan: Mapping[str, Any], files: Mapping[str, Buffer], where: str
) -> dict[str, Part | Patched]:
    """As ``patch``, but tables are not put together yet: another delta may follow."""
    made: dict[str, Part | Patched] = dict(files)
    for name in plan["same"]:
        if name not in base or name in made:
            raise _wrong(where, name, "is not in the checkpoint before")
        made[name] = base[name]
    for name, rows in plan["changed"].items():
        fresh, runs = part_names(name)
        if name not in base or name in made or fresh not in made or runs not in made:
            raise _wrong(where, name, "or what it is made of is missing")
        try:
            before = base[name]
            if not isinstance(before, Patched):
                before = Patched(before if isinstance(before, pa.Table) else read_table(before))
            made[name] = before.then(read_table(files[fresh]), read_table(files[runs]), rows)
        except (ValueError, TypeError, OSError, OverflowError, KeyError, pa.ArrowException) as error:
            raise _wrong(where, name, f"can't be put together: {error}") from None
        del made[fresh], made[runs]
    return made


class Patched:
    """A table that is put together of the rows of others, once it is known which.

    Attributes:
        rows: how many it has.
    """

    def __init__(self, table: pa.Table) -> None:
        self._tables = [table]
        self._index = np.arange(table.num_rows)
        """Of each row: its number in all tables, one after the other."""

    @property
    def rows(self) -> int:
        return len(self._index)

    def then(self, fresh: pa.Table, runs: pa.Table, rows: int) -> Patched:
        """The table after one more delta. ValueError: they don't fit."""
        if runs.schema.names != ["start", "length"] or any(
            not pa.types.is_integer(t) for t in runs.schema.types
        ):
            raise ValueError(f"runs of columns {runs.schema.names}")
        if any(column.null_count for column in runs.columns) or not self._tables[0].schema.equals(
            fresh.schema
        ):
            raise ValueError("a run is null, or the fresh rows have other columns")
        starts, lengths = (column.to_numpy().astype(np.int64) for column in runs.columns)
        total = self.rows + fresh.num_rows
        inside = (starts >= 0) & (lengths > 0) & (starts <= total) & (lengths <= total - starts)
        # Each length is at most `total`, so that a sum of them as Python numbers can't overflow.
        if not inside.all() or sum(lengths.tolist()) != rows:
            raise ValueError("runs that leave the tables, or don't give the rows that were there")
        first = sum(table.num_rows for table in self._tables)
        index = np.concatenate([self._index, first + np.arange(fresh.num_rows)])
        made = Patched.__new__(Patched)
        made._tables = [*self._tables, fresh]
        made._index = index[_rows_of(starts, lengths)]
        return made

    def table(self) -> pa.Table:
        """Put it together."""
        begins = np.flatnonzero(np.diff(self._index, prepend=-2) != 1)
        lengths = np.diff(begins, append=self.rows)
        return _pick(pa.concat_tables(self._tables), self._index[begins], lengths)


def as_files(parts: Mapping[str, Part | Patched]) -> dict[str, Buffer]:
    """All as files."""
    made: dict[str, Buffer] = {}
    for name, part in parts.items():
        whole = part.table() if isinstance(part, Patched) else part
        made[name] = write_table(whole) if isinstance(whole, pa.Table) else whole
    return made


def together(files: Mapping[str, Buffer], deltas: Iterable[DeltaFiles], where: str) -> dict[str, Buffer]:
    """The files of a state, had it been written whole.

    Args:
        files: of the whole one that the first delta stands on.
        deltas: each stands on the one before.

    Raises:
        StateError: they don't fit together; names the file.
    """
    parts: dict[str, Part | Patched] = dict(files)
    for each in deltas:
        parts = patched(parts, each.plan, each.files, where)
    return as_files(parts)


def whole_bytes(files: Mapping[str, Buffer], deltas: Sequence[DeltaFiles]) -> int:
    """About how large the files are that ``together`` gives, before they are put together: a delta may be
    small, and make many rows of few. What doesn't fit counts as nothing; ``together`` refuses it.
    """
    if not deltas:
        return sum(map(size_of, files.values()))
    sizes = {name: (size_of(data), _rows(data)) for name, data in files.items()}
    for each in deltas:
        made = {name: (size_of(data), _rows(data)) for name, data in each.files.items()}
        for name in each.plan["same"]:
            made[name] = sizes.get(name, (0, 0))
        for name, rows in each.plan["changed"].items():
            fresh, _ = (made.pop(part, (0, 0)) for part in part_names(name))
            # Of few rows most of a file is its head.
            nbytes, count = max(sizes.get(name, (0, 0)), fresh, key=itemgetter(1))
            made[name] = (nbytes * rows // max(count, 1), rows)
        sizes = made
    return sum(nbytes for nbytes, _ in sizes.values())


def _rows(data: Buffer) -> int:
    """Of a table; 0 of what is none."""
    try:
        return int(read_table(data).num_rows)
    except (OSError, ValueError, pa.ArrowException):
        return 0


def read_table(data: Buffer) -> pa.Table:
    """The table of an Arrow IPC file; its values aren't copied."""
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        return reader.read_all()


def write_table(table: pa.Table) -> Buffer:
    """A table as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


class _Pieces:
    """A file of pyarrow's that keeps what is written in its place."""

    closed = False

    def __init__(self) -> None:
        self.written: list[Buffer] = []
        self._at = 0

    def write(self, data: bytes | pa.Buffer) -> None:
        piece = memoryview(data)
        self.written.append(piece)
        self._at += piece.nbytes

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""


def table_pieces(table: pa.Table) -> tuple[Buffer, ...]:
    """As ``write_table``, in pieces: the columns are the memory of the table, which nobody copies."""
    pieces = _Pieces()
    with pa.PythonFile(pieces, mode="w") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return tuple(pieces.written)


def _digests(table: pa.Table, secret: tuple[int, int]) -> Digests | None:
    """None: a column has none, or the table is too large for memory."""
    if WHOLE in (table.schema.metadata or ()):
        return None
    whole = table.combine_chunks()
    batches = whole.to_batches()
    if len(batches) != 1:
        return None
    try:
        return Digests(batches[0], *secret)
    except ValueError:
        return None


def _stem(name: str) -> str:
    return name.removesuffix(".arrow")


def size_of(data: Content) -> int:
    """Bytes of a file."""
    return sum(memoryview(piece).nbytes for piece in pieces_of(data))


def _wrong(where: str, name: str, what: str) -> StateError:
    return StateError(f"{where}/{name} {what}", code="state.corrupt")
