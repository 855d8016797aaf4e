"""One step of a query in Spark: a part of its graph, run by our engine over the rows of a partition.

What a step does travels to Spark's workers as msgpack, which they read and check as they would a fragment
from a link. Rows come in the order in which one instance would take them, and boundaries stand in them
(column ``BOUND``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module

import msgspec
import numpy as np
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.elements import START_US, Boundary, Train
from medusa.engine.core.rows import TIME as TIMES
from medusa.engine.core.rows import as_int64
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Schema
from medusa.query.codec import graph_from_msgpack
from medusa.spark import column_types as columns

__all__ = ["MISSING", "StepInput", "ReleaseOrder", "MapStep", "run"]

MISSING = (1 << 63) - 1
"""The position of a partner that a row hasn't: behind all."""


class StepInput(msgspec.Struct, frozen=True):
    """An input: a judged source of the graph.

    Attributes:
        columns: of the DataFrame, one for each column of the source.
    """

    source: str
    columns: tuple[str, ...]


class ReleaseOrder(msgspec.Struct, frozen=True):
    """Rows are in order of (release, ``by``, ``positions``): see ``OrderedMerge``."""

    by: tuple[str, ...]
    positions: tuple[str, ...]
    within_us: int


class MapStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of ``mapInArrow`` does.

    Attributes:
        graph: as ``graph_to_msgpack`` gives it.
        lanes: several: the column ``TAG`` says for which a row is.
        sinks: several: the number of the sink is the shard of its rows.
        values: columns of the sinks that hold values.
        kept: columns of the sinks by which rows are in order.
        bound: the column of the sinks that holds the boundary.
        release: how rows are in order otherwise; without both they are in the order in which they leave.
        flows: boundaries are sent, and the end. Boxes that look at one row at a time need none.
        modules: imported first: they register functions of users.
    """

    graph: bytes
    lanes: tuple[StepInput, ...]
    sinks: tuple[str, ...]
    values: tuple[str, ...]
    kept: tuple[str, ...] = ()
    bound: str | None = None
    release: ReleaseOrder | None = None
    flows: bool = False
    on_error: str = "dead"
    modules: tuple[str, ...] = ()

    @property
    def orders(self) -> int:
        """How many columns the order of the result has."""
        if self.release is not None:
            return 1 + len(self.release.by) + len(self.release.positions)
        return len(self.kept) if self.bound is not None else 1


_STEPS = msgpack_decoder(MapStep)


def run(encoded: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a partition through a step; what ``mapInArrow`` calls.

    Args:
        encoded: a ``MapStep`` as msgpack.

    Raises:
        QueryError: the graph doesn't hold, or names functions that no module registers.
        DataError: a value doesn't fit its column; a failed row with ``on_error="stop"``.
    """
    yield from _Running(_STEPS.decode(encoded)).run(batches)


class _Running:
    def __init__(self, step: MapStep) -> None:
        for module in step.modules:
            import_module(module)
        self._step = step
        self._fragment = Fragment(graph_from_msgpack(step.graph), on_error=step.on_error)
        self._sources = [self._fragment.source(lane.source) for lane in step.lanes]
        self._left = 0
        self._bound_us = int(START_US)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                self._feed(batch)
                yield from self._drained()
        if self._step.flows:
            self._fragment.finish()
            yield from self._drained()

    def _feed(self, batch: pa.RecordBatch) -> None:
        lanes = self._step.lanes
        tags = as_int64(batch.column(columns.TAG).cast(pa.int64())) if len(lanes) > 1 else None
        for number, (lane, box) in enumerate(zip(lanes, self._sources, strict=True)):
            rows = batch if tags is None else batch.filter(pa.array(tags == number))
            if rows.num_rows:
                train = _train(rows, lane, box.spec.schema, timed=box.spec.timed)
                self._fragment.feed(lane.source, train)
        if self._step.flows:
            # Rows are in order of it, whichever input they are for, so it holds for all of them.
            bound_us = batch.column(columns.BOUND)[batch.num_rows - 1].as_py()
            for lane, box in zip(lanes, self._sources, strict=True):
                if box.spec.timed and bound_us > START_US:
                    self._fragment.promise(lane.source, bound_us)

    def _drained(self) -> Iterator[pa.RecordBatch]:
        """What came to the sinks, as one batch: each costs Spark as much as many rows."""
        made = []
        for number, sink in enumerate(self._step.sinks):
            for element in self._fragment.drain(sink):
                if isinstance(element, Boundary):
                    self._bound_us = min(element.time_us, columns.NEVER_US)
                elif isinstance(element, Train) and len(element):
                    made.append(self._made(element, number))
        if made:
            yield made[0] if len(made) == 1 else pa.concat_batches(made)

    def _made(self, train: Train, number: int) -> pa.RecordBatch:
        step, batch, rows = self._step, train.batch, len(train)
        names = batch.schema.names
        types = {field.name: field.type for field in self._output()}
        made = [columns.arrow_out(batch.column(names.index(name)), types[name]) for name in step.values]
        times = pa.nulls(rows, pa.int64()) if train.times is None else train.times.view(pa.int64())
        late = pa.array(np.zeros(rows, np.bool_)) if train.late is None else train.late
        bound, order = self._order(train, rows)
        labels = [*columns.values(step.values), columns.TIME, columns.LATE, columns.BOUND]
        labels += columns.orders(len(order))
        made += [times, late, bound, *order]
        if len(step.sinks) > 1:
            made.append(pa.array(np.full(rows, number, np.int32)))
            labels.append(columns.PART)
        return pa.RecordBatch.from_arrays(made, labels)

    def _output(self) -> Schema:
        graph = self._fragment.checked
        sink = graph.boxes[self._step.sinks[0]]
        return graph.shapes[sink.inputs[0]].schema

    def _order(self, train: Train, rows: int) -> tuple[pa.Array, list[pa.Array]]:
        step, batch = self._step, train.batch
        if step.release is not None:
            positions = [batch.column(name) for name in step.release.positions]
            alone = np.ones(rows, np.int64) if len(positions) == 1 else np.zeros(rows, np.int64)
            for column in positions:
                if column.null_count:
                    alone[column.is_null().to_numpy(zero_copy_only=False)] = 1
            within_us = step.release.within_us
            release = as_int64(train.times) + within_us * alone
            by = [batch.column(name).view(pa.int64()) for name in step.release.by]
            numbers = [column.fill_null(MISSING) for column in positions]
            return pa.array(release - within_us), [pa.array(release), *by, *numbers]
        if step.bound is not None:
            return batch.column(step.bound), [batch.column(name) for name in step.kept]
        self._left += rows
        numbers = pa.array(np.arange(self._left - rows, self._left))
        return pa.array(np.full(rows, self._bound_us)), [numbers]


def _train(batch: pa.RecordBatch, lane: StepInput, schema: Schema, *, timed: bool) -> Train:
    made = [
        columns.arrow_in(batch.column(name), field.type, f"column {field.name!r}")
        for name, field in zip(lane.columns, schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(made, [field.name for field in schema])
    if not timed:
        return Train(batch=rows)
    late = batch.column(columns.LATE)
    return Train(
        batch=rows,
        times=batch.column(columns.TIME).view(TIMES),
        late=late if late.true_count else None,
    )
