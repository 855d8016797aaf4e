"""Statistics of an archive per key and period, as a table that queries read: ``md.spark.history``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.pipeline.folder import VERSION, Manifest, Stored, begin, discard
from medusa.apps.pipeline.frames import Inputs, inputs_of
from medusa.apps.pipeline.parts import SLOT, WriteTask, write_frame
from medusa.apps.pipeline.traces import source_of
from medusa.apps.pipeline.watch import Tell, watched
from medusa.errors import DataError
from medusa.query.boxes import Schema, Sink
from medusa.query.expressions import aggregates
from medusa.query.expressions.column import col
from medusa.query.graph import check_graph
from medusa.query.suggest import did_you_mean
from medusa.query.types import is_numeric
from medusa.spark.column_types import TIME
from medusa.spark.column_types import values as columns_of
from medusa.spark.dataframes.batches import batch
from medusa.spark.dataframes.source import META
from medusa.units import TIME_UNITS_US, Duration, duration_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medusa.query.builder import Query
    from medusa.query.stream.stream import Stream

__all__ = ["history"]

DAY_US = TIME_UNITS_US["d"]
EVER_US = 1 << 55
"""A window from the epoch on that is longer than any archive."""


def history(
    query: Query,
    spark: SparkSession,
    *,
    archive: Inputs,
    out: str | Path,
    by: str | Sequence[str] | Mapping[str, Any] = (),
    period: Duration | None = "1d",
    of: str | None = None,
    columns: Sequence[str] = (),
    quantiles: Sequence[float] = (),
    exact: bool = False,
    shards: int | None = None,
    modules: Sequence[str] = (),
    replace: bool = False,
    progress: Tell | None = None,
) -> Stored:
    """Count, sum, least, largest, mean and quantiles per key and period, as Parquet.

    They are Medusa's own aggregates, so a query that keeps the same live gets the same numbers. Rows that
    were late or shed are counted too where ``of`` is a source: they happened.

    Args:
        archive: of each source: a folder, a file, a DataFrame; or one folder with all in it.
        out: a new folder, or an empty one.
        by: columns, or expressions by name: ``{"net": "split_part(src, '.', 1)"}``.
        period: windows of this length, aligned to the epoch. None: one row for each key, over all time
            from 1970 on.
        of: what is counted: a source, or a sink of the query, which is then computed first. May be left
            out of a query with one source.
        columns: of numbers, to be summed up, each as ``<column>_sum``, ``_min``, ``_max``, ``_avg``.
        quantiles: 0 to 1, of these columns: ``<column>_p50``, ``_p99`` ...
        exact: quantiles are exact; else a sketch's, whose error is that of ``md.approx_quantile``.

    Returns:
        The table: ``window_start``, ``window_end`` (unless ``period`` is None), the keys, ``n``, the rest.

    Raises:
        DataError: no archive, the folder is taken, a column isn't there or no number.
        QueryError: the query can't run in Spark; a key or period that is none.
    """
    counted, stream, of_source = _counted(query, of)
    size_us = EVER_US if period is None else duration_us(period, what="period", minimum_us=1)
    keys = dict(by) if isinstance(by, Mapping) else {}
    names = [by] if isinstance(by, str) else [] if isinstance(by, Mapping) else list(by)
    counts = _aggregates(stream, columns, quantiles, exact=exact)
    windows: Any = stream.window(size_us)
    sink = "history"
    while sink in {box.id for box in counted.graph.boxes}:
        sink += "_"
    counted.sink(sink, (windows.group_by(*names, **keys) if names or keys else windows).aggregate(**counts))
    given = inputs_of(archive, list(counted.sources), spark, what="source")
    if of_source:
        given = {name: df.drop(*META[1:]) for name, df in given.items()}
    answers = batch(
        counted,
        spark,
        given,
        shards=shards,
        modules=modules,
        ordered=False,
        extra="ignore",
        assume_on_time=of_source,
    )
    told: dict[str, str | int | float | None] = {
        "of": of or counted.sources[0],
        "by": ", ".join([*names, *(f"{name}={expression}" for name, expression in keys.items())]),
        "period_us": None if period is None else size_us,
    }
    made = check_graph(counted.graph)
    schema = made.shapes[made.boxes[sink].inputs[0]].schema
    try:
        table = _Table(schema, answers[sink], None if period is None else size_us, told)
        return table.write(out, replace=replace, tell=progress)
    finally:
        answers.unpersist()


def _counted(query: Query, of: str | None) -> tuple[Query, Stream, bool]:
    """A query to be completed, the stream that is counted, and whether that is a source."""
    from medusa.query.builder import Query
    from medusa.query.stream.stream import Stream

    boxes = {box.id: box for box in query.graph.boxes}
    if of is not None and isinstance(boxes.get(of), Sink):
        same = Query.from_msgpack(query.to_msgpack())
        return same, Stream(same, boxes[of].inputs[0]), False
    if of is not None and of not in query.sources:
        known = [*query.sources, *query.sinks]
        raise DataError(
            f"query {query.name!r} has no source or sink {of!r:.80}",
            hint=did_you_mean(of, known),
            code="data.source",
        )
    spec = source_of(query, of)
    if spec.time is None:
        raise DataError(f"source {spec.id!r} has no time, so it has no periods", code="data.source")
    made = Query("history")
    columns = {field.name: field.type for field in spec.schema}
    # Without slack no row is late.
    return made, made.source(spec.id, columns, time=spec.time, unit=spec.unit), True


def _aggregates(
    stream: Stream, columns: Sequence[str], quantiles: Sequence[float], *, exact: bool
) -> dict[str, Any]:
    types = dict(stream.schema.items())
    made: dict[str, Any] = {"n": aggregates.count()}
    for name in columns:
        if name not in types:
            raise DataError(
                f"there is no column {name!r:.80} to sum up",
                hint=did_you_mean(name, types),
                code="data.column",
            )
        if not is_numeric(types[name]):
            raise DataError(
                f"column {name!r}: expected numbers, came {types[name]}",
                hint="name it in by= to count by it",
                code="data.column",
            )
        column = col(name)
        made[f"{name}_sum"] = aggregates.sum(column)
        made[f"{name}_min"] = aggregates.min(column)
        made[f"{name}_max"] = aggregates.max(column)
        made[f"{name}_avg"] = aggregates.avg(column)
        for q in quantiles:
            if not 0 <= q <= 1:
                raise DataError(f"a quantile is from 0 to 1, got {q!r:.40}", code="data.argument")
            label = f"{name}_p{100 * q:g}".replace(".", "_")
            made[label] = aggregates.quantile(column, float(q), approximate=not exact)
    if quantiles and not columns:
        raise DataError("quantiles of which columns?", hint="columns=[...], --column", code="data.argument")
    return made


class _Table:
    """Results of windows that become files."""

    def __init__(self, schema: Schema, df: DataFrame, size_us: int | None, made: dict[str, Any]) -> None:
        self._schema = schema
        self._df = df
        self._size_us = size_us
        self._made = made

    def write(self, out: str | Path, *, replace: bool, tell: Tell | None) -> Stored:
        draft = begin(out, kind="table", replace=replace, made=self._made)
        schema, df = self._placed()
        file_us = None if self._size_us is None else max(self._size_us, DAY_US)
        writing = WriteTask(folder=str(draft.path), schema=schema, period_us=file_us, numbered=False)
        try:
            with watched(self._df.sparkSession, "computing", tell):
                parts = write_frame(df, writing)
        except BaseException:
            discard(draft)
            raise
        return draft.publish(
            Manifest(
                medusa_archive=VERSION,
                kind="table",
                stream="history",
                schema=schema,
                time=None if self._size_us is None else "window_end",
                period_us=file_us,
                made=self._made,
                files=tuple(parts),
            )
        )

    def _placed(self) -> tuple[Schema, DataFrame]:
        """Columns by place, the range of time of each row, rows in order of window and key."""
        from pyspark.sql import functions as F

        df = self._df.toDF(*columns_of(self._schema))
        start, end = F.unix_micros("c0"), F.unix_micros("c1")
        if self._size_us is None:
            early = F.raise_error(
                F.lit("rows before 1970 need a period: without one, time counts from there")
            )
            df = df.where(F.when(start != 0, early.cast("boolean")).otherwise(True))
            df = df.withColumn(TIME, F.lit(None).cast("long")).withColumn(SLOT, F.lit(0).cast("long"))
            kept = self._schema[2:]
            names = columns_of(self._schema)[2:]
            df = df.select(*names, TIME, SLOT).toDF(*columns_of(kept), TIME, SLOT)
        else:
            kept = self._schema
            file_us = max(self._size_us, DAY_US)
            df = df.withColumn(TIME, end).withColumn("s", start)
            df = df.withColumn(SLOT, F.expr(f"(s - pmod(s, {file_us}L)) DIV {file_us}L")).drop("s")
        return kept, df.repartition(F.col(SLOT)).sortWithinPartitions(SLOT, *columns_of(kept))
