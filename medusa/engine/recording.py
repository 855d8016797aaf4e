"""Recordings: rows that passed a connection point, what was promised between them, and a query over them.

    manifest.json     which rows, the boundaries between them; of each file its length and CRC-32C
    manifest.crc32c   the CRC-32C of the manifest, in hex
    query.json        the query, with one source
    rows.arrow        an Arrow IPC file: the columns of the stream, ``@time`` where it has one, ``@late``

Windows that start before ``from_us`` aren't given, since rows of theirs may have come before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.core.box import show_time
from medusa.engine.core.rows import as_int64
from medusa.engine.history.history import History
from medusa.engine.history.records import full_schema, pack, unpack
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.prejudged_source import source_of
from medusa.engine.state.checkpoint import MANIFEST, seal, unseal
from medusa.engine.state.delta import read_table, write_table
from medusa.errors import DataError, QueryError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import Box, Graph, Input, Sink, Source, Table
from medusa.query.codec import graph_from_json, graph_to_json
from medusa.query.graph import CheckedGraph
from medusa.query.types import schema_to_arrow
from medusa.units import size_text

__all__ = ["Recording", "part_below", "read_recording", "record"]

QUERY, ROWS = "query.json", "rows.arrow"
KIND = "medusa-recording"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the manifest says.

    Attributes:
        point: the connection point.
        first: number that the first row had there.
        rows: how many there are.
        timed: they have a time.
        from_us: windows that start earlier aren't given.
        boundary_us: what was promised behind the last row, never more than the end that was asked for.
        boundaries: what was promised before rows: (number of the row, from the first on, time).
    """

    point: str
    first: int
    rows: int
    timed: bool
    from_us: int
    boundary_us: int
    boundaries: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that was read, every byte checked.

    Attributes:
        schema: of the stream, without its time.
    """

    graph: Graph
    facts: Facts
    rows: pa.Table
    schema: pa.Schema

    def elements(self, rows_max: int) -> Iterator[Element]:
        """The boundaries and rows in order, in trains of at most so many rows; then the last boundary."""
        before = dict(self.facts.boundaries)
        starts = sorted({0, *before})
        for start, stop in zip(starts, [*starts[1:], self.facts.rows], strict=True):
            if start in before:
                yield Boundary(before[start])
            seq = start
            for batch in self.rows.slice(start, stop - start).to_batches(max_chunksize=rows_max):
                yield unpack(batch, self.schema, timed=self.facts.timed, first=seq)
                seq += batch.num_rows
        yield Boundary(self.facts.boundary_us)


def part_below(checked: CheckedGraph, point: str) -> Graph:
    """The boxes of a query that depend on nothing but a connection point, which becomes their source.

    Raises:
        QueryError: no sink does.
    """
    shape = checked.shapes[Input(point)]
    window = None if shape.window is None else (shape.window.size_us, shape.window.advance_us)
    source = Source(id=point, schema=shape.schema, judged=True, timed=shape.timed, window_us=window)
    known = {point}
    boxes: list[Box] = []
    for box in checked.graph.boxes:
        alone = isinstance(box, Table) and not box.inputs
        arcs = [arc for arc in box.inputs if arc.box not in known or arc == Input(point, "dead")]
        if alone or (box.inputs and not arcs and box.id != point):
            known.add(box.id)
            boxes.append(box)
    read = {arc.box for box in boxes for arc in box.inputs}
    boxes = [box for box in boxes if box.inputs or box.id in read]
    if not any(isinstance(box, Sink) for box in boxes):
        raise QueryError(
            f"connection_point {point!r}: no sink depends on it alone, so there is no query to record",
            hint="record(..., query=q): one with a source of its columns",
            code="query.record",
        )
    return Graph(name=checked.graph.name, boxes=(source, *boxes))


def record(
    point: ConnectionPointBox, graph: Graph, start_us: int, end_us: int, *, bytes_max: int
) -> dict[str, Buffer]:
    """The files of a recording.

    Args:
        graph: has one source, with the columns of the connection point.
        start_us, end_us: from the first row of that time or a later one, to the last one below that
            which wasn't late. Rows between them are part of it whatever their time.

    Raises:
        DataError: no rows, or ``end_us`` isn't later.
        StateError: they are no longer all there, are too many, or can't be read.
        QueryError: the query doesn't fit.
    """
    source_of(graph, point)
    history = point.history
    assert history is not None, "runs keep histories"
    if not history.timed:
        raise QueryError(f"connection_point {point.id!r}: its stream has no time", code="query.record")
    if end_us <= start_us:
        raise DataError(
            f"record: end must be later than start, got {show_time(start_us)} to {show_time(end_us)}",
            code="data.argument",
        )
    oldest = history.oldest_seq
    if oldest and (whole_us := history.complete_from(oldest)) > start_us:
        raise StateError(
            f"connection_point {point.id!r}: rows from the start on were trimmed,"
            f" all are kept from {show_time(whole_us)} on",
            hint="a later start, or keep more",
            code="state.trimmed",
        )
    first = history.seq_at(start_us)
    stop = _end_seq(history, end_us)
    if first >= stop:
        least_us, asked = history.oldest_us, f"{show_time(start_us)} and {show_time(end_us)}"
        kept = "" if least_us is None else f"{show_time(least_us)} to {show_time(history.most_us)}"
        raise DataError(
            f"connection_point {point.id!r}: no rows came between {asked}",
            hint=f"those it has are of {kept}" if kept else "it has no rows",
            code="data.rows",
        )
    schema = full_schema(history.schema, timed=history.timed)
    batches: list[pa.RecordBatch] = []
    boundaries: list[tuple[int, int]] = []
    rows = size = 0
    for element in history.read(first):
        if isinstance(element, Boundary):
            boundaries.append((rows, element.time_us))
            continue
        assert isinstance(element, Train), "histories hold rows and boundaries"
        part = element.part(0, min(len(element), stop - first - rows))
        batches.append(pack(part, schema))
        rows += len(part)
        size += int(part.batch.nbytes)
        if size > bytes_max:
            raise StateError(
                f"these rows take more than {size_text(bytes_max)}, which is what memory= allows",
                hint="record a shorter time, or start with a larger memory=",
                code="state.record",
            )
        if rows == stop - first:
            break
    boundary_us = min(end_us, point.boundary_us)
    facts = Facts(
        point=point.id,
        first=first,
        rows=rows,
        timed=history.timed,
        from_us=history.complete_from(first),
        boundary_us=boundary_us,
        boundaries=tuple((seq, us) for seq, us in boundaries if us <= boundary_us),
    )
    files: dict[str, Buffer] = {
        QUERY: graph_to_json(graph).encode(),
        ROWS: write_table(pa.Table.from_batches(batches, schema)),
    }
    return seal(files, {"kind": KIND, "recording": asdict(facts)})


def _end_seq(history: History, end_us: int) -> int:
    """The number behind the last row of a time below ``end_us`` that wasn't late."""
    for segment, entry in reversed(list(history.records())):
        if entry.least_us < end_us:
            train = history.load(segment, entry)
            wanted = as_int64(train.times) < end_us
            if train.late is not None:
                wanted &= ~np.asarray(train.late.to_numpy(zero_copy_only=False), bool)
            found = np.flatnonzero(wanted)
            if len(found):
                return entry.first + int(found[-1]) + 1
    return 0


def read_recording(group: Mapping[str, Buffer], where: str) -> Recording:
    """What ``record`` wrote.

    Args:
        where: its folder, as a person would look for it.

    Raises:
        StateError: it is damaged, or no recording; names the file.
    """
    manifest, files = unseal(group, where)
    if manifest.get("kind") != KIND or set(files) != {QUERY, ROWS}:
        raise StateError(f"{where}/{MANIFEST}: not the manifest of a recording", code="state.corrupt")
    try:
        facts = _facts(manifest["recording"])
    except (KeyError, TypeError, ValueError):
        raise StateError(
            f"{where}/{MANIFEST}: not the manifest of a recording", code="state.corrupt"
        ) from None
    try:
        graph = graph_from_json(bytes(files[QUERY]))
        schema = schema_to_arrow(source_of(graph).schema)
    except QueryError as error:
        raise StateError(f"{where}/{QUERY}: the query can't be read: {error}", code="state.corrupt") from None
    try:
        rows = read_table(files[ROWS])
        rows.validate(full=True)
        whole = full_schema(schema, timed=facts.timed)
        hidden = rows.columns[len(schema) :]
        if not rows.schema.equals(whole) or rows.num_rows != facts.rows or any(c.null_count for c in hidden):
            raise ValueError("not the rows of this recording")
    except (ValueError, OSError, MemoryError, OverflowError, pa.ArrowException) as error:
        raise StateError(f"{where}/{ROWS}: can't be read: {error}", code="state.corrupt") from None
    return Recording(graph, facts, rows, schema)


def _facts(found: Any) -> Facts:
    if set(found) != {field.name for field in fields(Facts)}:
        raise ValueError
    numbers = [found[name] for name in ("first", "rows", "from_us", "boundary_us")]
    boundaries = tuple((seq, us) for seq, us in found["boundaries"])
    flat = [number for pair in boundaries for number in pair]
    if any(type(number) is not int for number in (*numbers, *flat)) or type(found["timed"]) is not bool:
        raise TypeError
    times = [us for _, us in boundaries]
    in_range = all(START_US <= us <= END_US for us in (*times, found["from_us"], found["boundary_us"]))
    if not in_range or found["rows"] < 1 or found["first"] < 0 or times != sorted(times):
        raise ValueError
    if not isinstance(found["point"], str) or any(not 0 <= seq < found["rows"] for seq, _ in boundaries):
        raise ValueError
    return Facts(**{**found, "boundaries": boundaries})
