"""A query over bounded input: all sources at once, merged by time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from medusa._native import Times
from medusa.engine.core.rows import as_int64
from medusa.engine.fragment import TRAIN_ROWS_MAX, Fragment
from medusa.engine.input.ingest import normalise, times_of
from medusa.engine.operators.lateness import judge_of
from medusa.engine.operators.source import SourceBox, rows_ahead
from medusa.engine.run.output import to_table
from medusa.engine.warnings import warn_dead, warn_late
from medusa.errors import DataError
from medusa.ports import Tasks, Workers
from medusa.query.boxes import Aggregate, Graph, Source
from medusa.query.suggest import did_you_mean

__all__ = [
    "SourcePart",
    "measured_slack",
    "measured_slack_us",
    "merged",
    "run_bounded",
    "with_slack",
    "without_early",
]


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Some consecutive rows of a source, not cut further than they came.

    Attributes:
        looked: the times, once a source has looked at them.
    """

    batch: pa.RecordBatch
    times: pa.Array | None
    looked: Times | None = None


def run_bounded(
    graph: Graph,
    tables: Mapping[str, Any],
    *,
    functions: Mapping[str, object] | None = None,
    tasks: Tasks | None = None,
    workers: Workers | None = None,
) -> tuple[dict[str, pa.Table], pa.Table]:
    """Feed every source to its end.

    Args:
        functions: of users, by box, where they aren't registered.
        tasks: runs async functions.
        workers: run copies of boxes over disjoint keys.

    Returns:
        (sink -> rows, stats).

    Raises:
        DataError: rows for an unknown source, none for a known one, or rows that don't fit.
    """
    specs = [box for box in graph.boxes if isinstance(box, Source)]
    _check_names(graph.name, [spec.id for spec in specs], tables)
    inputs: dict[str, list[SourcePart]] = {}
    measured: dict[str, int] = {}
    for spec in specs:
        batches = normalise(tables[spec.id], spec.schema, source=spec.id)
        inputs[spec.id] = [SourcePart(batch, times_of(batch, spec)) for batch in batches]
        if spec.time is not None and spec.slack_us is None:
            measured[spec.id] = measured_slack(spec, inputs[spec.id])
    fragment = Fragment(
        without_early(with_slack(graph, measured)),
        sink_times=False,
        functions=functions,
        tasks=tasks,
        workers=workers,
    )
    for name, parts in inputs.items():
        looked = fragment.check_rows(name, [part.batch for part in parts])
        inputs[name] = [replace(part, looked=each) for part, each in zip(parts, looked, strict=True)]
    for name, part in merged(inputs):
        fragment.push_rows(name, [part.batch], [part.looked])
    fragment.finish()
    _warn(fragment)
    outputs = {name: to_table(fragment.drain(name), sink.schema) for name, sink in fragment.sinks.items()}
    return outputs, fragment.stats()


def _check_names(query: str, sources: list[str], tables: Mapping[str, Any]) -> None:
    for name in tables:
        if name not in sources:
            raise DataError(
                f"query {query!r} has no source {name!r}",
                hint=did_you_mean(name, sources),
                code="data.source",
            )
    for name in sources:
        if name not in tables:
            raise DataError(
                f"query {query!r}: no rows for source {name!r}",
                hint=f"collect(q, {name}=table)",
                code="data.source",
            )


def measured_slack(spec: Source, parts: Sequence[SourcePart]) -> int:
    """The least slack with which no row of a source is late, by partitions where there are any."""
    SourceBox(spec).check_arrival(None)
    timed = [(part.batch, part.times) for part in parts if part.times is not None]
    if spec.ahead_us is not None:
        kept = [(b, t, pa.array(~rows_ahead(b, t, spec, None))) for b, t in timed]
        timed = [(b.filter(keep), t.filter(keep)) for b, t, keep in kept]
    if spec.partition is None:
        return measured_slack_us(times for _, times in timed if len(times))
    # Every limit is lower by the slack than without: so without, rows are late by the slack they need.
    judge = judge_of(msgspec.structs.replace(spec, slack_us=0))
    return max((judge.judge(batch, Times(times), None)[1] for batch, times in timed), default=0)


def without_early(graph: Graph) -> Graph:
    """Early results are for those who wait."""
    boxes = [
        msgspec.structs.replace(box, early_us=None) if isinstance(box, Aggregate) else box
        for box in graph.boxes
    ]
    return msgspec.structs.replace(graph, boxes=tuple(boxes))


def measured_slack_us(times: Iterable[pa.Array]) -> int:
    """The least slack with which no row is late: how far a row falls behind an earlier one."""
    worst, highest = 0, None
    for array in times:
        numbers = as_int64(array)
        for start in range(0, len(numbers), TRAIN_ROWS_MAX):
            part = numbers[start : start + TRAIN_ROWS_MAX]
            if highest is None:
                highest = int(part[0])
            peaks = np.maximum.accumulate(part)
            np.maximum(peaks, highest, out=peaks)
            highest = int(peaks[-1])
            peaks -= part
            worst = max(worst, int(peaks.max()))
    return worst


def with_slack(graph: Graph, measured: Mapping[str, int]) -> Graph:
    """The graph, with the slack of these sources."""
    boxes = [
        msgspec.structs.replace(box, slack_us=measured[box.id]) if box.id in measured else box
        for box in graph.boxes
    ]
    return msgspec.structs.replace(graph, boxes=tuple(boxes))


def merged(inputs: Mapping[str, Iterable[SourcePart]]) -> Iterator[tuple[str, SourcePart]]:
    """The rows of all sources in slices, each slice by the largest time up to its first row."""
    if len(inputs) == 1:
        ((name, parts),) = inputs.items()
        yield from ((name, part) for part in parts)
        return
    slices = [_slices(place, name, parts) for place, (name, parts) in enumerate(inputs.items())]
    for _, _, name, part in heapq.merge(*slices, key=lambda each: each[:2]):
        yield name, part


def _slices(place: int, name: str, parts: Iterable[SourcePart]) -> Iterator[tuple[int, int, str, SourcePart]]:
    highest = -(1 << 63)
    for part in parts:
        for start in range(0, part.batch.num_rows, TRAIN_ROWS_MAX):
            times = None if part.times is None else part.times.slice(start, TRAIN_ROWS_MAX)
            looked = None if part.looked is None else part.looked.part(start, TRAIN_ROWS_MAX)
            if times is not None:
                numbers = as_int64(times)
                key = max(highest, int(numbers[0]))
                extent = None if looked is None else looked.extent
                highest = max(highest, int(numbers.max()) if extent is None else extent[1])
            else:
                key = highest
            yield key, place, name, SourcePart(part.batch.slice(start, TRAIN_ROWS_MAX), times, looked)


def _warn(fragment: Fragment) -> None:
    for name in sorted(fragment.sources_read_in_time()):
        if fragment.source(name).late:
            warn_late(fragment.source(name))
    if fragment.letters.fresh is not None:
        warn_dead(fragment.letters.fresh)
