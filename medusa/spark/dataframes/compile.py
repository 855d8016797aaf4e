"""From the boxes of a query to steps over DataFrames.

Boxes that look at one row at a time wait (``RowFlow.chain``) until somebody needs their rows, and run
together there. A box with keys runs as the parts of a split do (``query/rewrite/split.py``): its rows are
numbered by their place in the order, go to a shard by the hash of their key, and what the shards give has the
columns by which a merge would put it in order. Any other box runs in one task that has all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from medusa.elements import START_US
from medusa.errors import QueryError
from medusa.query.boxes import (
    AggregateCall,
    Box,
    Graph,
    Input,
    KeyRouter,
    Lookup,
    OrderedMerge,
    Schema,
    Sink,
    Source,
    Table,
)
from medusa.query.boxes.windows_per_group import RowWindow
from medusa.query.codec import graph_to_msgpack
from medusa.query.expressions.expression import Column
from medusa.query.graph import CheckedGraph
from medusa.query.rewrite.key_ranges import even_cuts
from medusa.query.rewrite.split import find_split, split
from medusa.query.shape import StreamShape
from medusa.spark import column_types
from medusa.spark.column_types import BOUND, LATE, PART, TAG, TIME
from medusa.spark.dataframes.flow import Hidden, RowFlow, judged
from medusa.spark.dataframes.numbering import counted
from medusa.spark.dataframes.source import SEQ, Archive
from medusa.spark.dataframes.step import MapStep, ReleaseOrder, StepInput, run
from medusa.spark.support import Way, way_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Compiler"]


class Compiler:
    """Makes a DataFrame of every sink.

    Args:
        checked: the graph; only boxes whose rows reach a sink.

    Attributes:
        kept: DataFrames with several readers, which Spark is told to keep.
    """

    def __init__(
        self, checked: CheckedGraph, *, shards: int, on_error: str, modules: tuple[str, ...]
    ) -> None:
        self.kept: list[DataFrame] = []
        self._checked = checked
        self._shards = shards
        self._on_error = on_error
        self._modules = modules
        self._streams: dict[Input, RowFlow] = {}
        self._read: dict[int, DataFrame] = {}
        self._made_of: dict[tuple[object, ...], RowFlow] = {}
        names = {field.name for shape in checked.shapes.values() for field in shape.schema}
        self._hidden = Hidden.of(names)
        self._ids = {box.id for box in checked.graph.boxes}

    def enter(self, id: str, rows: Archive, *, ordered: bool, assume_on_time: bool) -> None:
        """Take the rows of a source."""
        from pyspark.sql import functions as F

        shape = self._checked.shapes[Input(id)]
        df, orders = rows.rows(shape, ordered=ordered, assume_on_time=assume_on_time)
        self._streams[Input(id)] = RowFlow(df, shape, shape, orders)
        if Input(id, "late") in self._checked.shapes:
            late = self._untimed(df.where(F.col(LATE)))
            shape = self._checked.shapes[Input(id, "late")]
            self._streams[Input(id, "late")] = RowFlow(late, shape, shape, orders)

    def given(self, arc: Input, df: DataFrame) -> None:
        """Take rows that were made elsewhere, by place, with ``TIME``, ``LATE`` and ``BOUND``."""
        shape = self._checked.shapes[arc]
        self._streams[arc] = RowFlow(df, shape, shape, 0)

    def run(self, ports: Mapping[str, tuple[str, ...]]) -> None:
        """Make the streams that leave boxes by these ports."""
        for box in self._checked.graph.boxes:
            if isinstance(box, Source | Sink):
                continue
            for port in ports.get(box.id, ()):
                if isinstance(box, Table) and port == "":
                    continue  # each look-up has the table beside it
                self._streams[Input(box.id, port)] = self._made(box, port)

    def sinks(self, *, ordered: bool, numbered: bool) -> dict[str, DataFrame]:
        """The rows of each sink, in order where their order is known; with their numbers, if asked for.

        Raises:
            QueryError: the order of a sink isn't known, so its rows have no numbers.
        """
        made = {}
        for box in self._checked.graph.boxes:
            if isinstance(box, Sink):
                stream = self._plain(self._streams[box.inputs[0]])
                df, names = stream.df, [field.name for field in stream.shape.schema]
                if (ordered or numbered) and stream.orders:
                    df = df.orderBy(*column_types.orders(stream.orders))
                df = df.select(*column_types.values(stream.shape.schema))
                if numbered:
                    _check_numbers(box.id, names, known=stream.orders > 0)
                    df, kept = counted(df)
                    self.kept.append(kept)
                    names = [*names, SEQ]
                made[box.id] = df.toDF(*names)
        return made

    # What is made of a box

    def _made(self, box: Box, port: str) -> RowFlow:
        inputs = [self._streams[arc] for arc in box.inputs if arc in self._streams]
        shape = self._checked.shapes[Input(box.id, port)]
        way = way_of(box, port, timed=all(stream.shape.timed for stream in inputs))
        if way is Way.ROWS:
            return inputs[0].through(box, port, shape)
        if way is Way.PASS:
            return inputs[0]
        if way is Way.ORDER:
            return self._in_order(box, inputs, shape)
        if way is Way.KEYS and self._shards > 1:
            return self._in_shards(box, port, inputs, shape)
        return self._in_one(box, port, shape)

    def _in_order(self, box: Box, inputs: list[RowFlow], shape: StreamShape) -> RowFlow:
        """A union in order of (boundary, input, position); sunion: of (time, input, position)."""
        from pyspark.sql import functions as F

        merges = box.time_dependent
        known = all(stream.orders for stream in inputs)
        most = max(stream.orders for stream in inputs) if known else 0
        frames = []
        for number, stream in enumerate(map(self._plain, inputs)):
            df = stream.df.where(~F.col(LATE)) if merges else stream.df
            bound = F.col(TIME) if merges else F.col(BOUND)
            own = [F.col(name) for name in column_types.orders(stream.orders)] if known else []
            order = [bound, F.lit(number).cast("long"), *own, *[F.lit(0).cast("long")] * (most - len(own))]
            named = [
                each.alias(name) for name, each in zip(column_types.orders(2 + most), order, strict=True)
            ]
            plain = [F.col(name) for name in (*column_types.values(shape.schema), TIME, LATE)]
            frames.append(df.select(*plain, bound.alias(BOUND), *(named if known else ())))
        df = frames[0]
        for other in frames[1:]:
            df = df.union(other)
        return RowFlow(df, shape, shape, 2 + most if known else 0)

    def _in_shards(self, box: Box, port: str, inputs: list[RowFlow], shape: StreamShape) -> RowFlow:
        given = [f"{self._fresh('in')}-{number}" for number in range(len(inputs))]
        sink = self._fresh("out")
        plain = Graph(
            name=self._checked.graph.name,
            boxes=(
                *(judged(id, stream.shape) for id, stream in zip(given, inputs, strict=True)),
                msgspec.structs.replace(box, inputs=tuple(map(Input, given))),
                Sink(id=sink, inputs=(Input(box.id, port),)),
            ),
        )
        found = find_split(split(plain, box.id, 2), box.id)
        merge = found.merges[-1]
        assert isinstance(merge, OrderedMerge), "boxes without keys run in one task"
        part, hidden = found.parts[0], self._hidden.bound if merge.arrival else None
        if isinstance(part, RowWindow):
            assert hidden is not None
            calls = (*part.aggregates, AggregateCall(hidden, "max", Column(hidden)))
            part = msgspec.structs.replace(part, aggregates=calls)
        part = msgspec.structs.replace(part, inputs=tuple(map(Input, given)))
        boxes: list[Box] = []
        lanes, frames = [], []
        for number, (id, stream, router) in enumerate(zip(given, inputs, found.routers, strict=True)):
            stream = self._numbered(stream)
            numbers = () if router.number is None else (router.number,)
            extra = (*numbers, *(() if hidden is None else (hidden,)))
            boxes.append(judged(id, stream.shape, extra))
            letter = _letter(number)
            own = ("o0",) if numbers else ()
            lane = (
                *column_types.values(stream.shape.schema, letter),
                *own,
                *(() if hidden is None else (BOUND,)),
            )
            lanes.append(StepInput(id, lane))
            frames.append(self._routed(stream, router))
        boxes += [part, Sink(id=sink, inputs=(Input(part.id, port),))]
        df = self._together(frames, [stream.shape.schema for stream in inputs], (PART,), 1)
        df = df.repartitionById(self._shards, PART)
        df = df.sortWithinPartitions(*((BOUND, TAG, "o0") if len(frames) > 1 else ("o0",)))
        release = None if merge.arrival else ReleaseOrder(merge.by, merge.positions, merge.within_us)
        kept = merge.positions if merge.arrival else ()
        return self._stepped(df, boxes, lanes, (sink,), shape, kept=kept, bound=hidden, release=release)

    def _in_one(self, box: Box, port: str, shape: StreamShape) -> RowFlow:
        """A box in one task; a look-up together with its table, which all its updates come to."""
        arcs = list(box.inputs)
        beside: list[Box] = []
        if isinstance(box, Lookup):
            table = self._checked.boxes[arcs[1].box]
            assert isinstance(table, Table), "a look-up reads a table"
            arcs = [arcs[0], *table.inputs]
            beside = [table]
        arcs = list(dict.fromkeys(arcs))
        streams = [self._streams[arc] for arc in arcs]
        given = {arc: Input(f"{self._fresh('in')}-{number}") for number, arc in enumerate(arcs)}
        boxes: list[Box] = [
            judged(given[arc].box, stream.shape) for arc, stream in zip(arcs, streams, strict=True)
        ]
        for each in (*beside, box):
            reads = tuple(given.get(arc, arc) for arc in each.inputs)
            boxes.append(msgspec.structs.replace(each, inputs=reads))
        sink = self._fresh("out")
        boxes.append(Sink(id=sink, inputs=(Input(box.id, port),)))
        most = max(stream.orders for stream in streams)
        frames = [self._plain(stream).df for stream in streams]
        schemas = [stream.shape.schema for stream in streams]
        df = self._together(frames, schemas, (), most, [stream.orders for stream in streams])
        order = column_types.orders(most)
        df = df.repartition(1)
        if most:
            df = df.sortWithinPartitions(*((BOUND, TAG, *order) if len(frames) > 1 else order))
        lanes = [
            StepInput(given[arc].box, column_types.values(schema, _letter(number)))
            for number, (arc, schema) in enumerate(zip(arcs, schemas, strict=True))
        ]
        return self._stepped(df, boxes, lanes, (sink,), shape)

    # Rows on the way to a step

    def _numbered(self, stream: RowFlow) -> RowFlow:
        """The stream, in an order that one number tells: such numbers ascend, with gaps."""
        from pyspark.sql import functions as F

        if stream.orders == 1:
            return stream
        key = ("numbered", id(stream.df), stream.way)
        if key not in self._made_of:
            plain = self._plain(stream)
            names = column_types.orders(plain.orders)
            df = plain.df.orderBy(*names).withColumn("n", F.monotonically_increasing_id()).drop(*names)
            self._made_of[key] = RowFlow(df.withColumnRenamed("n", "o0"), plain.base, plain.shape, 1)
        return self._made_of[key]

    def _plain(self, stream: RowFlow) -> RowFlow:
        """The stream after all boxes of its chain have run."""
        if not stream.chain:
            self._use(stream.df)
            return stream
        key = ("plain", id(stream.df), stream.way)
        if key not in self._made_of:
            boxes, came = stream.boxes(self._hidden, origin := self._fresh("in"))
            boxes.append(Sink(id=(sink := self._fresh("out")), inputs=(came,)))
            self._made_of[key] = self._mapped(stream, boxes, origin, (sink,))
        made = self._made_of[key]
        self._use(made.df)
        return made

    def _routed(self, stream: RowFlow, router: KeyRouter) -> DataFrame:
        """The same, with the shard of each row; that of one on whose key an expression fails is the first."""
        boxes, came = stream.boxes(self._hidden, origin := self._fresh("in"))
        cuts = even_cuts(self._shards)
        way = msgspec.structs.replace(
            router, id=self._fresh("way"), inputs=(came,), parts=self._shards, cuts=tuple(cuts), number=None
        )
        sinks = [Sink(id=f"{self._fresh('out')}-{port}", inputs=(Input(way.id, port),)) for port in way.ports]
        boxes += [way, *sinks]
        ids = tuple(sink.id for sink in sinks)
        return self._mapped(stream, boxes, origin, ids).df

    def _mapped(self, stream: RowFlow, boxes: list[Box], origin: str, sinks: tuple[str, ...]) -> RowFlow:
        kept = self._hidden.orders(stream.orders)
        lanes = [StepInput(origin, stream.lane())]
        self._use(stream.df)
        return self._stepped(
            stream.df, boxes, lanes, sinks, stream.shape, kept=kept, bound=self._hidden.bound, flows=False
        )

    def _together(
        self,
        frames: list[DataFrame],
        schemas: list[Schema],
        more: tuple[str, ...],
        most: int,
        orders: list[int] | None = None,
    ) -> DataFrame:
        """All inputs of a step as one DataFrame: a row has its own columns, null in those of the others."""
        from pyspark.sql import functions as F

        if len(frames) == 1:
            return frames[0]
        made = []
        for number, df in enumerate(frames):
            own = most if orders is None else orders[number]
            row = [F.lit(number).alias(TAG), *(F.col(name) for name in (TIME, LATE, BOUND, *more))]
            row += [
                F.col(name) if place < own else F.lit(0).cast("long").alias(name)
                for place, name in enumerate(column_types.orders(most))
            ]
            for other, schema in enumerate(schemas):
                for name, place, field in zip(
                    column_types.values(schema, _letter(other)),
                    column_types.values(schema),
                    schema,
                    strict=True,
                ):
                    type = column_types.spark_type(field.type)
                    row.append((F.col(place) if other == number else F.lit(None).cast(type)).alias(name))
            made.append(df.select(*row))
        df = made[0]
        for each in made[1:]:
            df = df.union(each)
        return df

    def _stepped(
        self,
        df: DataFrame,
        boxes: list[Box],
        lanes: list[StepInput],
        sinks: tuple[str, ...],
        shape: StreamShape,
        *,
        kept: tuple[str, ...] = (),
        bound: str | None = None,
        release: ReleaseOrder | None = None,
        flows: bool = True,
    ) -> RowFlow:
        from pyspark.sql import types

        graph = Graph(name=self._checked.graph.name, boxes=tuple(boxes))
        step = MapStep(
            graph=graph_to_msgpack(graph),
            lanes=tuple(lanes),
            sinks=sinks,
            values=tuple(field.name for field in shape.schema),
            kept=kept,
            bound=bound,
            release=release,
            flows=flows,
            on_error=self._on_error,
            modules=self._modules,
        )
        long = types.LongType()
        fields = [
            (name, column_types.spark_type(field.type))
            for name, field in zip(column_types.values(shape.schema), shape.schema, strict=True)
        ]
        fields += [(TIME, long), (LATE, types.BooleanType()), (BOUND, long)]
        fields += [(name, long) for name in column_types.orders(step.orders)]
        if len(sinks) > 1:
            fields.append((PART, types.IntegerType()))
        made = df.mapInArrow(partial(run, msgspec.msgpack.encode(step)), column_types.struct(fields))
        return RowFlow(made, shape, shape, step.orders)

    # Bits

    def _use(self, df: DataFrame) -> None:
        """A DataFrame is read; from the second time on Spark keeps it."""
        if id(df) in self._read and not any(df is each for each in self.kept):
            self.kept.append(df.persist())
        self._read[id(df)] = df  # which keeps its id

    def _untimed(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        df = df.withColumn(TIME, F.lit(None).cast("long")).withColumn(LATE, F.lit(False))
        return df.withColumn(BOUND, F.lit(int(START_US)))

    def _fresh(self, name: str) -> str:
        """An id that no box of the query has."""
        while any(id.startswith(name) for id in self._ids):
            name += "_"
        return name


def _check_numbers(sink: str, names: list[str], *, known: bool) -> None:
    if SEQ in names:
        raise QueryError(
            f"sink {sink!r} has a column {SEQ!r} already: numbered=True adds one", code="query.spark"
        )
    if not known:
        raise QueryError(
            f"sink {sink!r}: its rows have no numbers, as a source has no column {SEQ!r}",
            hint="leave numbered=True out",
            code="query.spark",
        )


def _letter(number: int) -> str:
    """The letter of the columns of an input; the first one's are those of a plain stream."""
    return "c" if number == 0 else f"c{number}_"
