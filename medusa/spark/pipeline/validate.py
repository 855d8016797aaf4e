"""A query computed again over an archive, beside what the stream answered: ``md.spark.validate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from medusa.engine.arguments import boundary_time_us
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema, Sink
from medusa.query.graph import check_graph
from medusa.query.types import TIMESTAMP
from medusa.spark.batches import batch
from medusa.spark.pipeline.compare import compared
from medusa.spark.pipeline.frames import Inputs, inputs_of
from medusa.spark.pipeline.keys import key_of
from medusa.spark.pipeline.report import Report
from medusa.spark.pipeline.watch import Tell, watched
from medusa.spark.source import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medusa.query.builder import Query

__all__ = ["validate"]

TOLERANCE_MAX = 1e-3


def validate(
    query: Query,
    spark: SparkSession,
    *,
    archive: Inputs,
    answers: Inputs,
    until: Any = None,
    floats: float = 0.0,
    examples: int = 5,
    shards: int | None = None,
    modules: Sequence[str] = (),
    progress: Tell | None = None,
) -> Report:
    """Compute a query over an archive with Spark, and compare with what the stream answered, row by row.

    Rows that the archive logs as late or shed take no part, as they took none in the stream.

    Args:
        archive: of each source: a folder, a Parquet file, a DataFrame, a ``pyarrow.Table``; or one folder
            with all in it.
        answers: of each sink in the same way. Sinks that aren't in it are named in the report.
        until: only windows that ended by this time (microseconds, a datetime or text): of a stream that still
            runs, whose later windows are open. The archive must reach so far. Sinks need ``window_end``.
        floats: 0: bit for bit. Where partials of a group were combined (a box split by partial, counts of
            several nodes) floats may differ in their last bits: then 1e-9, relative to values above 1.
        examples: how many pairs of differing rows the report shows of each sink.
        shards, modules: as of ``md.spark.batch``.
        progress: called with a stage, tasks done, and tasks.

    Raises:
        DataError: no archive, a half-written one, other columns than the query's, a value that doesn't fit.
        QueryError: the query can't run in Spark, or not over this archive; says why.
    """
    if not 0.0 <= floats <= TOLERANCE_MAX:
        raise DataError(f"floats is from 0 to {TOLERANCE_MAX}, got {floats!r:.40}", code="data.argument")
    if type(examples) is not int or not 0 <= examples <= 1000:
        raise DataError(f"examples is from 0 to 1000, got {examples!r:.40}", code="data.argument")
    rows = inputs_of(archive, list(query.sources), spark, what="source")
    given = inputs_of(answers, list(query.sinks), spark, what="sink")
    if not given:
        raise DataError("there are no answers to compare", code="data.archive")
    checked = check_graph(query.graph)
    until_us = None if until is None else boundary_time_us(until, query.name, "until=", kind="query")
    if until_us is not None:
        for sink in given:
            _refuse_without_windows(sink, checked.shapes[checked.boxes[sink].inputs[0]].schema)
    computed = batch(query, spark, rows, ordered=False, shards=shards, modules=modules, extra="ignore")
    found = []
    try:
        for box in query.graph.boxes:
            if isinstance(box, Sink) and box.id in given:
                schema = checked.shapes[box.inputs[0]].schema
                with watched(spark, f"comparing {box.id}", progress):
                    found.append(
                        compared(
                            box.id,
                            schema,
                            _ended(computed[box.id], until_us),
                            _ended(given[box.id], until_us),
                            key=key_of(query.graph, box.id),
                            floats=floats,
                            examples=examples,
                        )
                    )
        with watched(spark, "counting what is logged", progress):
            logged = {name: _logged(df) for name, df in rows.items()}
    finally:
        computed.unpersist()
    return Report(
        query=query.name,
        floats=floats,
        late={name: late for name, (late, _) in logged.items()},
        shed={name: shed for name, (_, shed) in logged.items()},
        sinks=tuple(found),
        left_out=tuple(sink for sink in query.sinks if sink not in given),
    )


def _refuse_without_windows(sink: str, schema: Schema) -> None:
    if Field("window_end", TIMESTAMP) not in schema:
        raise DataError(
            f"sink {sink!r} has no column window_end, so nothing tells which of its rows come until then",
            hint="leave until out for it, and finish the stream first",
            code="data.argument",
        )


def _ended(df: DataFrame, until_us: int | None) -> DataFrame:
    from pyspark.sql import functions as F

    if until_us is None or "window_end" not in df.columns:  # what is missing is told later
        return df
    return df.where(F.unix_micros("window_end") <= until_us)


def _logged(df: DataFrame) -> tuple[int | None, int | None]:
    """Rows marked late, and shed; None: rows have no such mark."""
    from pyspark.sql import functions as F

    _, late, shed = META
    has = [name for name in (late, shed) if name in df.columns]
    row = df.agg(*(F.count_if(F.col(name)) for name in has)).head() if has else ()
    counts = dict(zip(has, row or (), strict=True))
    return counts.get(late), counts.get(shed)
