"""Recordings in folders, and ``md.replay``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.rows import as_int64
from medusa.engine.input.push_arguments import boundary_time_us, callback
from medusa.engine.prejudged_source import JudgedRun, check_columns, source_of
from medusa.engine.recording import Recording, part_below, read_recording, record
from medusa.engine.run.gate import RunGate
from medusa.engine.run.output import to_table
from medusa.engine.warnings import warn_dead
from medusa.errors import QueryError, StateError
from medusa.ports import Buffer
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of
from medusa.query.user_registry import check_functions
from medusa.runtime.embedded.collected import Collected
from medusa.runtime.embedded.query_argument import graph_of
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.store.folder_store import FolderStore

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["record_run", "replay", "write_recording"]

GROUP = "recording"
TRAIN_ROWS = 1 << 13
PACED_ROWS = 256
"""Rows that enter at once where time is kept: as finely as people see."""


def write_recording(path: str | os.PathLike[str], files: Mapping[str, Buffer]) -> None:
    """Store a recording, whole or not at all.

    Raises:
        StateError: the folder holds one already, is in use, or can't be written.
    """
    store = FolderStore(path)
    try:
        if GROUP in store.names():
            raise StateError(
                f"{store.where(GROUP)}: is there already",
                hint="record into another folder",
                code="state.exists",
            )
        store.write(GROUP, files)
    finally:
        store.close()


def record_run(
    gate: RunGate,
    at: str,
    start: int | str | datetime,
    end: int | str | datetime,
    path: str | os.PathLike[str],
    query: Query | None,
) -> None:
    """As ``md.Run.record``."""
    start_us = boundary_time_us(start, at, "the start of a recording", kind="connection_point")
    end_us = boundary_time_us(end, at, "the end of a recording", kind="connection_point")
    given = None if query is None else graph_of(query)
    with gate.turn():
        point = gate.fragment.connection(at)
        graph = given or part_below(gate.fragment.checked, at)
        refuse_unregistered(graph, "a recording")
        files = record(point, graph, start_us, end_us, bytes_max=gate.memory_bytes)
    write_recording(path, files)


def _read(path: str | os.PathLike[str]) -> Recording:
    store = FolderStore(path, create=False, shared=True)
    try:
        if GROUP not in store.names():
            raise StateError(
                f"{store.where('')}: holds no recording",
                hint="name the folder that was given to run.record",
                code="state.none",
            )
        return read_recording(store.read(GROUP), store.where(GROUP))
    finally:
        store.close()


def replay(
    path: str | os.PathLike[str],
    q: Query | None = None,
    *,
    speed: float | None = None,
    on: Mapping[str, Callable[[pa.Table], object]] | None = None,
    on_error: str = "dead",
    functions: Sequence[object] = (),
) -> Collected:
    """Run a query over what ``run.record`` wrote: the same rows, with what was promised between them.

    Windows that start before the recording, or had not closed at its end, don't come out: what does is
    what the run gave.

    Args:
        path: the folder.
        q: another query than the one that was recorded, with one source of the same columns.
        speed: 1.0: as fast as the rows were by their times, 10.0: ten times as fast. None: in simulated
            time, as fast as it goes.
        on: by sink, what is called with new rows as they come.
        on_error: as of ``md.start``.
        functions: those that the query names, so that their modules are surely imported.

    Returns:
        Sink -> ``pyarrow.Table``, as of ``md.collect``.

    Raises:
        StateError: no recording, or one that is damaged: names the file.
        QueryError: ``q`` doesn't hold or doesn't fit, ``on`` names no sink, or functions aren't registered.
    """
    if speed is not None and (isinstance(speed, bool) or not isinstance(speed, int | float) or not speed > 0):
        raise QueryError(
            f"replay: speed: expected a number above 0, or None, got speed={speed!r:.80}",
            hint="1.0: as fast as the rows came by their times; None: as fast as it goes",
            code="query.speed",
        )
    calls = _callbacks(on)
    recording = _read(path)
    graph = recording.graph if q is None else graph_of(q)
    source = source_of(graph)
    if q is not None:
        check_columns(source, recording.schema, "the recording")
    check_functions({label_of(box): box.functions for box in graph.boxes}, functions)
    tasks = LoopTasks()
    try:
        facts = recording.facts
        run = JudgedRun(
            graph,
            source,
            facts.from_us,
            functions={} if q is None else q.functions,
            on_error=on_error,
            tasks=tasks,
        )
        return _replayed(run, recording, speed, calls)
    finally:
        tasks.close()


def _callbacks(on: object) -> Mapping[str, Callable[[pa.Table], object]]:
    if on is None:
        return {}
    if not isinstance(on, Mapping):
        raise QueryError(
            f"replay: on: expected a dict, got {on!r:.80}", hint='on={"alarms": print}', code="query.argument"
        )
    return {sink: callback(call, f"replay: on: {sink!r:.80}") for sink, call in on.items()}


def _replayed(
    run: JudgedRun, recording: Recording, speed: float | None, on: Mapping[str, Callable[[pa.Table], object]]
) -> Collected:
    fragment = run.fragment
    for sink in on:
        fragment.sink(sink)
    came: dict[str, list[pa.Table]] = {name: [] for name in fragment.sinks}
    begun: tuple[float, int] | None = None
    for element in recording.elements(TRAIN_ROWS if speed is None else PACED_ROWS):
        if speed is not None and isinstance(element, Train) and element.times is not None:
            due_us = int(as_int64(element.times).max())
            begun = begun or (time.monotonic(), due_us)
            left_s = begun[0] + (due_us - begun[1]) / speed / 1e6 - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
        run.feed(element)
        if fragment.has_calls:
            fragment.wait()
        _hand_out(run, came, on)
    if fragment.letters.fresh is not None:
        warn_dead(fragment.letters.fresh)
    tables: dict[str, Any] = {
        name: pa.concat_tables(tables) if tables else fragment.sinks[name].nothing
        for name, tables in came.items()
    }
    return Collected(fragment.graph.name, tables, fragment.stats())


def _hand_out(
    run: JudgedRun, came: dict[str, list[pa.Table]], on: Mapping[str, Callable[[pa.Table], object]]
) -> None:
    for name, box in run.fragment.sinks.items():
        if box.held_rows:
            table = to_table(box.take(), box.schema)
            came[name].append(table)
            if name in on:
                on[name](table)
