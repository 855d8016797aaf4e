"""Queries over a stream that runs elsewhere: its rows come with their times and marks, judged already.

The one source of such a query is given the columns of a connection point. Its rows begin at some number;
times before ``from_us`` may lack rows that came earlier, so windows that start before it aren't given.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.core.rows import as_int64
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.operators.connection import ConnectionPointBox
from medusa.engine.operators.source import checked_times
from medusa.errors import DataError, QueryError
from medusa.ports import Clock, Tasks
from medusa.query.boxes import Box, Filter, Graph, Input, Source
from medusa.query.expressions.parse import parse
from medusa.query.graph import check_graph, label_of
from medusa.query.types import schema_to_arrow

__all__ = ["JudgedRun", "check_columns", "judged_graph", "source_of"]


def source_of(graph: Graph, point: ConnectionPointBox | None = None) -> Source:
    """The one source of a query over judged rows.

    Args:
        point: what it is to read.

    Raises:
        QueryError: there are several, it says how to judge rows, or it doesn't fit.
    """
    sources = [box for box in graph.boxes if isinstance(box, Source)]
    if len(sources) != 1:
        named = ", ".join(repr(box.id) for box in sources)
        raise QueryError(
            f"query {graph.name!r}: its rows come from one connection point, and it has {len(sources)}"
            f" sources: {named}",
            hint="a query of one source, with the columns of the connection point",
            code="query.attach",
        )
    source = sources[0]
    given = [
        name.removesuffix("_us")
        for name in ("slack_us", "idle_us", "ahead_us", "arrival", "partition")
        if getattr(source, name) is not None
    ]
    tapped = sorted(
        {arc.port for box in graph.boxes for arc in box.inputs if arc.box == source.id and arc.port}
    )
    if given or tapped:
        what = f"has {given[0]}=" if given else f"is read by .{tapped[0]}"
        raise QueryError(
            f"{label_of(source)} {what}, but how late rows are was judged where they entered the run",
            hint="leave it out",
            code="query.attach",
        )
    if point is not None:
        _check_fits(source, point)
    return source


def _check_fits(source: Source, point: ConnectionPointBox) -> None:
    assert point.history is not None, "runs keep histories"
    check_columns(source, point.history.schema, f"connection_point {point.id!r}")
    if source.timed and not point.history.timed:
        raise QueryError(
            f"{label_of(source)}: has a time, and the stream at connection_point {point.id!r} has none",
            hint="time=None",
            code="query.attach",
        )


def check_columns(source: Source, found: pa.Schema, where: str) -> None:
    """Raises QueryError where a source has other columns than rows that were judged elsewhere."""
    wanted = schema_to_arrow(source.schema)
    if not wanted.equals(found):
        asked, there = (
            ", ".join(f"{field.name}: {field.type}" for field in each) for each in (wanted, found)
        )
        raise QueryError(
            f"{label_of(source)}: has columns {asked}; those of {where} are {there}", code="query.attach"
        )


def judged_graph(graph: Graph, source: Source, from_us: int) -> Graph:
    """The query over rows that were judged, without windows that start before ``from_us``.

    Windows of windows, and of pairs, begin later by the length of what they are made of: so all of that is
    whole too.
    """
    judged = msgspec.structs.replace(source, judged=True, time=None, unit=None)
    taken = {box.id for box in graph.boxes}
    boxes: list[Box] = []
    instead: dict[str, str] = {}
    whole_us: dict[str, int] = {}
    for box in graph.boxes:
        moved = tuple(
            Input(instead[arc.box]) if arc.box in instead and not arc.port else arc for arc in box.inputs
        )
        boxes.append(judged if box.id == source.id else msgspec.structs.replace(box, inputs=moved))
        begin_us = max((whole_us[arc.box] for arc in box.inputs), default=from_us)
        whole_us[box.id] = begin_us + box.reach_us if from_us > START_US else from_us
        if box.results_start and from_us > START_US:
            name = _free(f"{box.id[:48]}-from", taken)
            predicate = parse(f"epoch_us(window_start) >= {begin_us}")
            boxes.append(Filter(id=name, inputs=(Input(box.id),), predicate=predicate))
            instead[box.id] = name
    made = msgspec.structs.replace(graph, boxes=tuple(boxes))
    check_graph(made, require_sinks=True)
    return made


def _free(name: str, taken: set[str]) -> str:
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name}-{count}"
    taken.add(made)
    return made


class JudgedRun:
    """The boxes of a query over judged rows.

    Args:
        graph, source: as ``source_of`` found it.
        from_us: windows that start earlier aren't given.

    Attributes:
        fragment: what runs; it keeps no log, since all that was decided is in the rows.
    """

    def __init__(
        self,
        graph: Graph,
        source: Source,
        from_us: int,
        *,
        functions: Mapping[str, object] | None = None,
        on_error: str = "dead",
        clock: Clock | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        made = judged_graph(graph, source, from_us)
        self._source = source
        self.fragment = LoggedFragment(made, functions=functions, on_error=on_error, clock=clock, tasks=tasks)
        self._box = self.fragment.sources[source.id]

    def feed(self, element: Element) -> None:
        """Take rows or a boundary.

        Raises:
            DataError: the time of the rows isn't in the column that the source names; nothing entered.
                Or a failed row with ``on_error="stop"``.
        """
        if isinstance(element, Boundary):
            if element.time_us > self._box.boundary_us and (self._source.timed or element.time_us >= END_US):
                self.fragment.promise(self._source.id, element.time_us)
            return
        assert isinstance(element, Train), "histories hold rows and boundaries"
        self.fragment.feed(self._source.id, self._fitted(element))

    def _fitted(self, train: Train) -> Train:
        if not self._source.timed:
            return Train(batch=train.batch)
        if self._source.judged:
            return train
        looked = checked_times(train.batch, self._source)
        assert looked is not None, "the source has a time"
        if not np.array_equal(as_int64(looked.array), as_int64(train.times)):
            raise DataError(
                f"{label_of(self._source)}: its column {self._source.time!r} isn't the time of the stream"
                " that it reads",
                hint="name the column that holds it, or time=None",
                code="data.time",
            )
        return Train(batch=train.batch, times=train.times, late=train.late)
