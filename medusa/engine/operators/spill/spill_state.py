"""State of a whole box into parts by key, and back: what a checkpoint holds doesn't tell of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from medusa._native import Split
from medusa.engine.core.box import BoxState
from medusa.engine.core.row_buffer import Ints
from medusa.engine.core.rows import as_int64, take
from medusa.engine.core.sorted_runs import Run, cut_batch, merge_runs
from medusa.engine.core.spool import Spool, SpoolFile, Streamed
from medusa.engine.operators.spill.spill_kind import POSITION, SpillKind, by_columns, single
from medusa.engine.operators.spill.spill_part import SavedPart, SpillPart
from medusa.engine.operators.windows.window_parts import split_rows
from medusa.errors import StateError

__all__ = ["Router", "divide", "merge"]


class Router:
    """Which rows go to which part."""

    def __init__(self, key_types: Sequence[str], parts: int) -> None:
        self.parts = parts
        self._split = Split(keys=key_types, parts=parts)

    def rows(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Of each part the places of its rows, ascending."""
        count = len(keys[0])
        names = list(map(str, range(len(keys) + 1)))
        batch = pa.RecordBatch.from_arrays([pa.array(np.zeros(count, np.int64)), *keys], names=names)
        try:
            split_rows(self._split, batch, None)
            return [pa.array(self._split.take(part)[1]) for part in range(self.parts)]
        finally:
            self._split.end()

    def part_of(self, keys: Sequence[pa.Array]) -> Ints:
        """Of each row its part."""
        found = np.zeros(len(keys[0]), np.int64)
        for part, places in enumerate(self.rows(keys)):
            found[as_int64(places)] = part
        return found


def divide(
    kind: SpillKind,
    state: BoxState,
    parts: Sequence[SpillPart],
    router: Router,
    spool: Spool,
    chunk_bytes: int,
) -> list[int]:
    """Give parts, which hold nothing, the state of a whole; all are cold then.

    Returns:
        Rows of each table of ``kind.sorted_by``: positions go on behind them.

    Raises:
        ValueError, KeyError, TypeError: it isn't the state of such a box.
        StateError: it couldn't be written; the parts hold nothing.
    """
    boundary_us = int(min(state.meta["inputs_us"]))
    files, counts = _routed(kind, state, router, spool, chunk_bytes)
    made: list[tuple[SavedPart | None, int]] = []
    for number, part in enumerate(parts):
        tables = {name: each[number] for name, each in files.items()}
        if not any(map(len, tables.values())):
            made.append((None, 1 << 62))
            continue
        held = {name: pa.Table.from_batches(list(file), file.schema) for name, file in tables.items()}
        local = kind.localise(BoxState(meta=dict(state.meta), tables=held))
        local.note(
            inputs_us=[boundary_us] * len(kind.plain.inputs_us),
            boundary_us=int(state.meta["boundary_us"]),
            counts=[0, 0, 0, 0],
        )
        part.restored(local)  # which looks at every number
        made.append((SavedPart.write(spool, local, chunk_bytes), kind.wake_us(local, boundary_us)))
        for name in tables:
            files[name][number].remove()
    for part, (saved, wake_us) in zip(parts, made, strict=True):
        part.put(saved, wake_us)
    return counts


def _routed(
    kind: SpillKind, state: BoxState, router: Router, spool: Spool, chunk_bytes: int
) -> tuple[dict[str, list[SpoolFile]], list[int]]:
    """Of each table the rows of each part, as they are but for positions; and how many have those."""
    files: dict[str, list[SpoolFile]] = {}
    counts: list[int] = []
    slots: list[Ints] = []
    owners: list[Ints] = []
    for place, name in enumerate(kind.tables):
        table = state.tables[name]
        schema = table.schema
        numbered = name in kind.sorted_by
        if numbered:
            schema = schema.append(pa.field(POSITION, pa.int64()))
        files[name] = [spool.file(schema) for _ in range(router.parts)]
        at = 0
        for batch in table.to_batches():
            for rows in cut_batch(batch, max(chunk_bytes, 1 << 20)):
                found = kind.route(name, rows)
                owner = router.part_of(found) if isinstance(found, list) else _owners(found, slots, owners)
                if place == 0 and (mine := kind.slots(rows)) is not None:
                    slots.append(mine)
                    owners.append(owner)
                if numbered:
                    number = pa.array(np.arange(at, at + rows.num_rows))
                    rows = pa.RecordBatch.from_arrays([*rows.columns, number], schema=schema)
                    at += rows.num_rows
                for part in np.unique(owner).tolist():
                    files[name][part].append([take(rows, pa.array(np.flatnonzero(owner == part)))])
        if place == 0 and slots:
            every, whose = np.concatenate(slots), np.concatenate(owners)
            order = np.argsort(every, kind="stable")
            slots, owners = [every[order]], [whose[order]]
        if numbered:
            counts.append(at)
    return files, counts


def _owners(found: Ints, slots: list[Ints], owners: list[Ints]) -> Ints:
    if not len(found):
        return np.zeros(0, np.int64)
    if not slots:
        raise ValueError("slots that nothing has")
    places = np.minimum(slots[0].searchsorted(found), len(slots[0]) - 1)
    if (slots[0][places] != found).any():
        raise ValueError("a slot that nothing has")
    return owners[0][places]


def merge(
    kind: SpillKind, state: BoxState, parts: Sequence[SpillPart], taken: int, spool: Spool, chunk_bytes: int
) -> None:
    """Put the state of the whole into one that is written before anything else is done."""
    saved = [part.snapshot() for part in parts]
    empty = BoxState()
    kind.plain.save_more(empty)
    counts = [kind.counts(each.meta, each.table_rows) for each in saved]
    offsets = [
        np.zeros(len(counts[0]), np.int64),
        *accumulate(map(np.asarray, counts)),
    ]
    state.note(**kind.meta(offsets[-1].tolist(), taken))

    boundary_us = int(min(state.meta["inputs_us"]))

    def of(name: str) -> Callable[[int], pa.RecordBatch]:
        return lambda part: kind.held(
            name, single(kind.globalise(name, saved[part].read(), offsets[part].tolist())), boundary_us
        )

    cold = any(part.box is None for part in parts)
    for name in kind.tables:
        schema = empty.tables[name].schema
        if name in kind.sorted_by:
            batches = _in_order(kind, name, of(name), len(parts), len(schema), spool, chunk_bytes)
        else:
            batches = map(of(name), range(len(parts)))
        named = _named(batches, schema)
        if cold:
            state.streams[name] = Streamed(spool, schema, named)
        else:
            state.tables[name] = pa.Table.from_batches(named, schema)


def _named(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _in_order(
    kind: SpillKind,
    name: str,
    of: Callable[[int], pa.RecordBatch],
    parts: int,
    width: int,
    spool: Spool,
    chunk_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of all parts by position (and what comes before it), one piece at a time."""
    runs: list[Run] = []
    names: Sequence[str] = ()
    for part in range(parts):
        rows = by_columns(of(part), kind.sorted_by[name])
        names = rows.schema.names
        pieces = cut_batch(rows, chunk_bytes)
        file = spool.file(rows.schema)
        try:
            file.append(pieces)
            runs.append((len(file), file))
        except StateError:
            runs.append((len(pieces), pieces))
    return merge_runs(runs, [names.index(each) for each in kind.sorted_by[name]], width)
