"""A query over streaming DataFrames: ``md.spark.stream``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.elements import START_US
from medusa.engine.bounded_run import without_early
from medusa.errors import ConfigError, DataError, QueryError
from medusa.query.boxes import Graph, Schema, Sink, Source
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import check_graph, label_of
from medusa.query.ids import kind_of
from medusa.runtime.embedded.query_argument import graph_of
from medusa.spark import column_types, support
from medusa.spark.dataframes.batches import archives_of, shards_of
from medusa.spark.dataframes.compile import Compiler
from medusa.spark.dataframes.source import BOUNDARY, Archive
from medusa.spark.session import INSTALL
from medusa.spark.streaming.lateness import LATE, META, SEQ, Entered
from medusa.spark.streaming.packed import COLUMNS, Packed, read, table
from medusa.spark.streaming.spark_windows import check_native, native
from medusa.spark.streaming.stage import shown
from medusa.spark.streaming.stages import StagePlan, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from medusa.query.builder import Query
    from medusa.query.shape import StreamShape

__all__ = ["Streams", "stream"]

_ENTERED = msgpack_decoder(tuple[Entered, int, int])

_LEFT = msgpack_decoder(tuple[Schema, bool])

STORE = "spark.sql.streaming.stateStore.providerClass"


class Streams(Mapping[str, "DataFrame"]):
    """Sink -> streaming DataFrame, for ``writeStream`` in append mode.

    Each that is written is a query of Spark's own, which computes what leads to that sink.
    """

    def __init__(self, sinks: Sequence[str], streaming: _Streaming) -> None:
        self._sinks = tuple(sinks)
        self._streaming = streaming
        self._made: dict[str, DataFrame] = {}
        self._parts: _Parts | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What ``parts`` needs: over Spark Connect a function of ``foreachBatch`` runs at the server."""
        return {"_sinks": self._sinks, "_parts": self._apart()}

    def __getitem__(self, sink: str) -> DataFrame:
        if sink not in self._sinks:
            raise KeyError(f"no sink {sink!r}; there are {', '.join(self._sinks)}")
        if sink not in self._made:
            self._made[sink] = self._streaming.sink(sink)
        return self._made[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sinks)

    def __len__(self) -> int:
        return len(self._sinks)

    def __repr__(self) -> str:
        return f"Streams({', '.join(self._sinks)})"

    @property
    def together(self) -> DataFrame:
        """All sinks as one streaming DataFrame, so that one query of Spark's computes them.

        Its rows are packed: write it by ``foreachBatch``, and give the DataFrame that comes to ``parts``.
        """
        return self._streaming.together()

    def parts(self, rows: DataFrame) -> dict[str, DataFrame]:
        """Sink -> DataFrame, of a micro-batch of ``together``; persist it where there are several."""
        return {sink: self._apart().part(rows, sink) for sink in self._sinks}

    def _apart(self) -> _Parts:
        if self._parts is None:
            self._parts = self._streaming.parts()
        return self._parts

    @property
    def only(self) -> DataFrame:
        """The DataFrame of a query with one sink.

        Raises:
            QueryError: there are several.
        """
        if len(self._sinks) != 1:
            raise QueryError(f"there are {len(self)} sinks: {', '.join(self)}", code="query.sink")
        return self[self._sinks[0]]


def stream(
    query: Query,
    spark: SparkSession,
    inputs: Mapping[str, DataFrame],
    *,
    shards: int | None = None,
    semantics: str = "medusa",
    numbered: bool = False,
    extra: str = "refuse",
    on_error: str = "dead",
    modules: Sequence[str] = (),
) -> Streams:
    """A query as structured streaming: Medusa's own operators by shard, their state held by Spark.

    The rows are those of a run that takes the same rows, late ones included, whatever the micro-batches and
    through restarts from Spark's checkpoint; those of a micro-batch come in one partition, in order.

    Args:
        inputs: for each source a streaming DataFrame with its columns, and besides: ``_seq`` (int64, unique;
            those of a micro-batch are higher than all before), and, where they are known, ``_late``,
            ``_shed`` and ``_boundary`` (timestamp: no later row that isn't late has a time below it; a row
            whose time is null is a boundary alone, and one of 9999-12-31 ends the stream).
        shards: in how many parts boxes with keys run, 1 to 256; 1: the query is one stateful step. None:
            ``spark.sql.shuffle.partitions``. Like the query itself it can't change for a checkpoint; the
            setting may.
        semantics: "medusa", or "spark": native plans of Spark, whose rule for late rows depends on
            micro-batches.
        numbered: rows have their numbers from 0 in a column ``_seq``.
        extra: "refuse" or "ignore" columns that the source hasn't.
        on_error: "dead": rows on which an expression fails are left out; "stop": the streaming query fails.
        modules: that workers import, so that functions named by the query are registered there.

    Raises:
        QueryError: a box can't run so (says why), a function isn't registered, a column is missing that a
            box needs (says which).
        DataError: a DataFrame for an unknown source, none for a known one, one that doesn't stream, or
            columns that don't fit.
        ConfigError: the session keeps no state that a step could use.
    """
    graph = support.leads_to_sinks(without_early(graph_of(query)))
    refuse_unregistered(graph, "Spark")
    support.check(graph, support.read_ports(graph))
    if extra not in ("refuse", "ignore"):
        raise DataError(f"extra must be 'refuse' or 'ignore', got {extra!r:.80}", code="data.argument")
    if on_error not in ("dead", "stop"):
        raise QueryError(f'on_error is "dead" or "stop", got {on_error!r:.80}', code="query.on_error")
    if semantics not in ("medusa", "spark"):
        raise QueryError(f'semantics is "medusa" or "spark", got {semantics!r:.80}', code="query.spark")
    shards = shards_of(spark, shards)
    archives = archives_of(query, graph, inputs, extra, live=True)
    for id in archives:
        if not inputs[id].isStreaming:
            raise DataError(
                f"source {id!r}: its DataFrame doesn't stream",
                hint="spark.readStream, or md.spark.batch(...) for what is there already",
                code="data.table",
            )
    if semantics == "spark":
        if numbered:
            raise QueryError('numbered=True needs semantics="medusa": Spark has no order', code="query.spark")
        check_native(graph)
    else:
        _check_inputs(graph, archives, numbered=numbered)
    made = _Streaming(
        spark,
        graph,
        archives,
        native=semantics == "spark",
        shards=shards,
        numbered=numbered,
        on_error=on_error,
        modules=tuple(modules),
    )
    return Streams([box.id for box in graph.boxes if isinstance(box, Sink)], made)


class _Streaming:
    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        archives: Mapping[str, Archive],
        *,
        native: bool,
        shards: int,
        numbered: bool,
        on_error: str,
        modules: tuple[str, ...],
    ) -> None:
        self._spark = spark
        self._graph = graph
        self._archives = archives
        self._shards = shards
        self._numbered = numbered
        self._on_error = on_error
        self._modules = modules
        self._whole: StagePlan | None = None
        self._native = native
        if not native and not all(
            self._in_place(self._leading_to(box.id)) for box in graph.boxes if isinstance(box, Sink)
        ):
            _check_store(spark)

    def sink(self, id: str) -> DataFrame:
        """The rows of a sink."""
        graph = self._leading_to(id)
        if self._native:
            options = {"on_error": self._on_error, "modules": self._modules}
            return native(graph, self._archives, id, options=options)
        if self._in_place(graph):
            return self._where_they_are(graph, id)
        made = self._plan(graph)
        return _Parts(made.sinks, numbered=self._numbered).part(self._packed(made), id)

    def together(self) -> DataFrame:
        """The packed rows of all sinks."""
        if self._native:
            raise QueryError('together needs semantics="medusa"', code="query.spark")
        _check_store(self._spark)
        return self._packed(self._planned())

    def parts(self) -> _Parts:
        """What takes the packed rows of all sinks apart."""
        return _Parts(self._planned().sinks, numbered=self._numbered)

    def _planned(self) -> StagePlan:
        if self._whole is None:
            self._whole = self._plan(self._graph)
        return self._whole

    def _leading_to(self, sink: str) -> Graph:
        others = {box.id for box in self._graph.boxes if isinstance(box, Sink) and box.id != sink}
        kept = tuple(box for box in self._graph.boxes if box.id not in others)
        return support.leads_to_sinks(msgspec.structs.replace(self._graph, boxes=kept))

    def _in_place(self, graph: Graph) -> bool:
        """Rows of one source, each by itself: no step has to remember anything."""
        plain = (support.Way.SOURCE, support.Way.ROWS, support.Way.PASS, support.Way.SINK)
        return (
            not self._numbered
            and sum(isinstance(box, Source) for box in graph.boxes) == 1
            and all(support.WAYS[kind_of(box)] in plain and not box.order_dependent for box in graph.boxes)
            and all(arc.port not in ("late", "dead") for box in graph.boxes for arc in box.inputs)
        )

    def _where_they_are(self, graph: Graph, sink: str) -> DataFrame:
        compiler = Compiler(check_graph(graph), shards=1, on_error=self._on_error, modules=self._modules)
        for box in graph.boxes:
            if isinstance(box, Source):
                rows = self._archives[box.id]
                rows = Archive(rows.spec, rows.df, rows.has - {SEQ})
                compiler.enter(box.id, rows, ordered=False, assume_on_time=False)
        compiler.run(support.read_ports(graph))
        return compiler.sinks(ordered=False, numbered=False)[sink]

    def _plan(self, graph: Graph) -> StagePlan:
        return plan(
            check_graph(graph),
            {id: _entered(rows) for id, rows in self._archives.items()},
            shards=self._shards,
            numbered=self._numbered,
            on_error=self._on_error,
            modules=self._modules,
        )

    def _packed(self, made: StagePlan) -> DataFrame:
        """What leaves the last step: rows for the lanes of all sinks."""
        from medusa.spark.streaming.processor import Processor

        frames = [self._entry(id, lane, made.entry) for id, lane in made.sources.items()]
        df = frames[0]
        for other in frames[1:]:
            df = df.union(other)
        for stage in made.stages:
            processor = Processor(msgspec.msgpack.encode(stage))
            df = df.groupBy("shard").transformWithStateInPandas(processor, COLUMNS, "append", "none")
        return df

    def _entry(self, id: str, lane: int, shard: int) -> DataFrame:
        rows = self._archives[id]
        spec = _entered(rows)
        encoded = msgspec.msgpack.encode((spec, lane, shard))
        names = (
            *column_types.values(rows.spec.schema),
            column_types.TIME,
            *(META[name] for name in spec.has),
        )
        return rows.timed().select(*names).mapInArrow(partial(_enter, encoded), COLUMNS)


class _Parts:
    """Rows for the lanes of sinks as they leave the last step -> rows of a sink."""

    def __init__(self, sinks: Mapping[str, tuple[int, StreamShape]], *, numbered: bool) -> None:
        self._sinks = dict(sinks)
        self._numbered = numbered

    def part(self, df: DataFrame, sink: str) -> DataFrame:
        """The rows of that sink."""
        from pyspark.sql import functions as F
        from pyspark.sql import types

        lane, shape = self._sinks[sink]
        fields: list[tuple[str, DataType]] = [
            (name, column_types.spark_type(field.type))
            for name, field in zip(column_types.values(shape.schema), shape.schema, strict=True)
        ]
        names = [field.name for field in shape.schema]
        if self._numbered:
            if SEQ in names:
                raise QueryError(
                    f"a sink has a column {SEQ!r} already: numbered=True adds one", code="query.spark"
                )
            fields.append((SEQ, types.LongType()))
            names.append(SEQ)
        encoded = msgspec.msgpack.encode((shape.schema, self._numbered))
        mine = df.where(F.col("lane") == lane).select("number", "rows")
        return mine.mapInArrow(partial(_leave, encoded), column_types.struct(fields)).toDF(*names)


def _enter(encoded: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a source on their way to the first step; what ``mapInArrow`` calls."""
    spec, lane, shard = _ENTERED.decode(encoded)
    for batch in batches:
        if batch.num_rows:
            rows = spec.pack(batch).serialize().to_pybytes()
            yield table([Packed(0, shard, lane, 0, int(START_US), rows)])


def _leave(encoded: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a sink from the last step; what ``mapInArrow`` calls."""
    schema, numbered = _LEFT.decode(encoded)
    for rows in _in_order(batches):
        yield read(rows, shown(schema, numbered=numbered))


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Packed rows by their numbers, which are 0, 1, 2 ... in a micro-batch.

    Between two steps Spark sorts by the group alone, and a sort that spills may swap what is equal. A number
    that has been begins another micro-batch.
    """
    waiting: dict[int, bytes] = {}
    following = 0
    for batch in batches:
        for number, rows in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if number < following or number in waiting:
                yield from (waiting[each] for each in sorted(waiting))
                waiting, following = {}, 0
            waiting[number] = rows.as_py()
            while following in waiting:
                yield waiting.pop(following)
                following += 1
    yield from (waiting[each] for each in sorted(waiting))


def _entered(rows: Archive) -> Entered:
    spec = rows.spec
    return Entered(
        source=spec.id,
        fields=tuple((field.name, field.type) for field in spec.schema),
        time=spec.time,
        unit=spec.unit,
        slack_us=spec.slack_us,
        has=tuple(name for name in META if name in rows.has),
    )


def _check_inputs(graph: Graph, archives: Mapping[str, Archive], *, numbered: bool) -> None:
    """Refuse inputs that don't tell what a box depends on.

    Raises:
        QueryError: names the box, the source and the column.
    """
    for box in graph.boxes:
        needed = support.above(graph, {box.id}) & set(archives)
        if not box.order_dependent and not (numbered and isinstance(box, Sink)):
            needed = {arc.box for arc in box.inputs if arc.port == "late"}
        for id in sorted(needed):
            rows = archives[id]
            if not rows.has_order:
                raise QueryError(
                    f"{label_of(box)} depends on the order of the rows of source {id!r}, whose DataFrame"
                    f" has no column {SEQ!r}",
                    hint=f"keep {SEQ}, the position of a row at its source",
                    code="query.spark",
                )
            _check_clocks(rows)


def _check_clocks(rows: Archive) -> None:
    if {LATE, BOUNDARY} <= rows.has:
        return
    for name, value in (("partition", rows.spec.partition), ("idle", rows.spec.idle_us)):
        if value is not None:
            raise QueryError(
                f"source {rows.spec.id!r}: with {name}= more than its rows decides how far it is",
                hint=f"keep the columns {LATE} and {BOUNDARY}, which say what the source decided",
                code="query.spark",
            )


def _check_store(spark: SparkSession) -> None:
    store = spark.conf.get(STORE) or ""
    if not store.endswith("RocksDBStateStoreProvider"):
        came = store.rpartition(".")[2] or "not set"
        raise ConfigError(
            f"stateful steps need Spark's RocksDB store, and {STORE} is {came}",
            hint="md.spark.session() sets it; in a session of yours: spark.conf.set"
            f'("{STORE}", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")',
            code="spark.store",
        )
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise ConfigError(
            "Spark's stateful steps need protobuf, which isn't installed",
            hint=INSTALL,
            code="spark.missing",
        )
