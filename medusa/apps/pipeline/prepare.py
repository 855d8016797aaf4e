"""Archives made of a workload at any size, or of a trace of one's own: ``md.spark.prepare``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from medusa.apps.pipeline.folder import VERSION, ArchiveFile, Draft, Manifest, Stored, begin, discard
from medusa.apps.pipeline.parts import SLOT, RowChunk, WriteTask, made_frame, write_frame
from medusa.apps.pipeline.traces import Trace, source_of, trace
from medusa.apps.pipeline.watch import Tell, watched
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.types import to_arrow
from medusa.spark import column_types
from medusa.spark.column_types import TIME
from medusa.spark.dataframes.source import SEQ
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medusa.query.builder import Query

__all__ = ["FILES_MAX", "Workload", "prepare"]

FILES_MAX = 50_000
"""Ranges of time of one archive; each is a file, and a line of the manifest."""
PERIODS_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400)
ROWS_AIM = 1 << 20
"""Rows of a range of time, where nobody says how long it is."""


class Workload(Protocol):
    """Rows that workers make, in parts; see ``medusa.apps.workloads.scaled``.

    Attributes:
        source: of ``query()``, whose rows they are.
        ordered: parts come one after the other in the order of the rows, which have their positions. Else
            rows go in order of (time, part, position in the part).
        period_us: the range of time of a file, unless another is asked for; of one that is ordered, no part
            reaches over the end of one.
        made: what it is made of, for the manifest.
    """

    source: str
    ordered: bool
    period_us: int

    @property
    def made(self) -> dict[str, str | int | float | None]: ...

    @property
    def parts(self) -> int: ...

    def query(self) -> Query: ...

    def part(self, number: int) -> Iterator[RowChunk]: ...


def prepare(
    what: Workload | str | Path | DataFrame,
    spark: SparkSession,
    folder: str | Path,
    *,
    schema: Any = None,
    time: str | None = "ts",
    unit: str | None = None,
    query: Query | None = None,
    source: str | None = None,
    stream: str | None = None,
    order: str = "time",
    period: Duration | None = None,
    replace: bool = False,
    progress: Tell | None = None,
) -> Stored:
    """Make an archive: partitioned Parquet with positions, and a manifest that is written last.

    Args:
        what: a workload (``medusa.apps.workloads.scaled``), a CSV (with a line of names) or Parquet file, a
        folder
            of such, or a DataFrame.
        folder: a new one, or an empty one. Executors must reach it under the same path.
        schema: columns and types of a trace; what doesn't fit them is refused, never made null, and columns
            that it doesn't name are left out. None: those of ``query``'s source, or of a Parquet file.
        time, unit: of a trace with ``schema``, as of ``q.source``.
        query, source: take schema and time from a source of this query; ``source`` where it has several.
        stream: the name in the manifest; by default the source's, or the file's.
        order: "time": positions go by time, rows of equal times by their place in the files, so no row is
            late. "file": they go by file (in order of path) and place in it; lateness is then the query's to
            judge.
        period: the range of time of a file. None: what gives about a million rows each, a second to a day.
        replace: an archive that is there already, whole or half-written, goes first.
        progress: called with a stage, tasks done, and tasks.

    Returns:
        The archive, whole.

    Raises:
        DataError: the folder is taken, a column is missing, the order or period is none; nothing was
            written. Or a value doesn't fit its type: the folder is then known as half-written.
        QueryError: a type or name that no source has.
    """
    if hasattr(what, "part") and hasattr(what, "ordered"):
        return _workload(what, spark, folder, period, replace, progress)  # type: ignore[arg-type]
    given = trace(
        what,
        spark,
        schema=schema,
        time=time,
        unit=unit,
        query=query,
        source=source,
        stream=stream,
        order=order,
    )
    period_us = None if period is None else _period(period)
    draft = begin(folder, replace=replace, made=given.made)
    job = _Job(spark, draft, given.spec, period_us, progress, query)
    return job.run(lambda: job.sorted(given), given.made)


def _workload(
    workload: Workload,
    spark: SparkSession,
    folder: str | Path,
    period: Duration | None,
    replace: bool,
    progress: Tell | None,
) -> Stored:
    spec = source_of(workload.query(), workload.source)
    period_us = workload.period_us if period is None else _period(period)
    if workload.ordered and period_us % workload.period_us:
        raise DataError(
            f"period: expected a multiple of {workload.period_us // 1_000_000} s for this workload",
            code="data.argument",
        )
    draft = begin(folder, replace=replace, made=workload.made)
    job = _Job(spark, draft, spec, period_us, progress, workload.query())
    if workload.ordered:
        return job.run(lambda: job.ordered(workload), workload.made)
    return job.run(lambda: job.generated(workload), workload.made)


def _period(period: Duration) -> int:
    return duration_us(period, what="period", minimum_us=1_000_000, error=DataError)


class _Job:
    """One archive that is being made."""

    def __init__(
        self,
        spark: SparkSession,
        draft: Draft,
        spec: Source,
        period_us: int | None,
        tell: Tell | None,
        query: Query | None,
    ) -> None:
        self._query = query
        self._spark = spark
        self._draft = draft
        self._spec = spec
        self._period_us = period_us
        self._tell = tell

    def run(self, write: Callable[[], list[ArchiveFile]], made: Mapping[str, Any]) -> Stored:
        try:
            parts = write()
        except BaseException:
            discard(self._draft)
            raise
        spec = self._spec
        return self._draft.publish(
            Manifest(
                medusa_archive=VERSION,
                kind="archive",
                stream=spec.id,
                schema=spec.schema,
                time=spec.time,
                unit=spec.unit,
                period_us=self._period_us,
                made=dict(made),
                files=tuple(parts),
            ),
            self._query,
        )

    def _writing(self, **more: Any) -> WriteTask:
        return WriteTask(
            folder=str(self._draft.path), schema=self._spec.schema, period_us=self._period_us, **more
        )

    # Workloads

    def ordered(self, workload: Workload) -> list[ArchiveFile]:
        """Workers write what they make: nothing is sorted."""
        with watched(self._spark, "writing", self._tell):
            return made_frame(self._spark, workload.part, workload.parts, self._writing())

    def generated(self, workload: Workload) -> list[ArchiveFile]:
        """Workers make the rows, which are then sorted; Spark keeps them, as making takes longest."""
        from pyspark import StorageLevel
        from pyspark.sql import types

        spec = self._spec
        fields = [
            (f"c{place}", column_types.spark_type(field.type)) for place, field in enumerate(spec.schema)
        ]
        fields += [(name, types.LongType()) for name in (TIME, "o0", "o1")]
        numbers = self._spark.range(0, workload.parts, 1, workload.parts)
        names = [(field.name, field.type) for field in spec.schema]
        df = numbers.mapInArrow(partial(_generate, workload.part, names), column_types.struct(fields))
        df = df.persist(StorageLevel.DISK_ONLY)
        try:
            with watched(self._spark, "making", self._tell):
                df.count()
            return self.sorted(Trace(spec, df, ("o0", "o1"), numbered=False, made={}))
        finally:
            df.unpersist()

    # Sorted

    def sorted(self, given: Trace) -> list[ArchiveFile]:
        """Rows get to their range of time, and there in order."""
        from pyspark.sql import functions as F

        df = given.df
        if given.spec.time is None:
            self._period_us = None
            df = df.withColumn(SLOT, F.shiftright(SEQ, 22))
        else:
            if self._period_us is None:
                self._period_us = self._chosen(df)
            df = df.withColumn(SLOT, F.expr(f"(t - pmod(t, {self._period_us}L)) DIV {self._period_us}L"))
        with watched(self._spark, "counting", self._tell):
            counts = {
                row[SLOT]: row["count"] for row in df.groupBy(SLOT).count().limit(FILES_MAX + 1).collect()
            }
        if len(counts) > FILES_MAX:
            raise DataError(
                f"more than {FILES_MAX:,} ranges of time", hint="say a longer period", code="data.argument"
            )
        bases, first = {}, 0
        for slot in sorted(counts):
            bases[slot] = first
            first += counts[slot]
        order = [SEQ] if given.numbered else [TIME, *given.order]
        tasks = max(1, min(len(counts), 4 * self._spark_tasks()))
        df = df.repartition(tasks, SLOT).sortWithinPartitions(SLOT, *order)
        with watched(self._spark, "writing", self._tell):
            return write_frame(df, self._writing(bases=None if given.numbered else bases))

    def _spark_tasks(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 2)

    def _chosen(self, df: DataFrame) -> int:
        """A period that gives about ``ROWS_AIM`` rows for each range."""
        from pyspark.sql import functions as F

        with watched(self._spark, "looking", self._tell):
            low, high, rows = df.agg(F.min(TIME), F.max(TIME), F.count("*")).head()
        wanted_s = 1 if not rows else (high - low) / 1e6 * ROWS_AIM / rows
        return next((each for each in PERIODS_S if each >= wanted_s), PERIODS_S[-1]) * 1_000_000


def _generate(
    make: Callable[[int], Iterator[RowChunk]], names: list[tuple[str, str]], batches: Any
) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` calls: the rows of parts, with their time and place."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for chunk in make(number):
                own = [
                    column_types.arrow_out(chunk.rows.column(name).cast(to_arrow(type)), type)
                    for name, type in names
                ]
                parts = pa.array([number] * chunk.rows.num_rows, pa.int64())
                arrays = [*own, pa.array(chunk.times_us), parts, pa.array(chunk.seq)]
                labels = [f"c{place}" for place in range(len(own))]
                yield pa.RecordBatch.from_arrays(arrays, [*labels, TIME, "o0", "o1"])
