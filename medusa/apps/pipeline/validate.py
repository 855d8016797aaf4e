"""A query computed again over an archive, beside what the stream answered: ``md.spark.validate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medusa.apps.pipeline.compare import compared, placed
from medusa.apps.pipeline.doubts import gaps, shed_by, unmarked, why_unordered
from medusa.apps.pipeline.frames import Inputs, archives_in, inputs_of
from medusa.apps.pipeline.keys import key_of
from medusa.apps.pipeline.report import Report
from medusa.apps.pipeline.watch import Tell, watched
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema, Sink
from medusa.query.graph import check_graph
from medusa.query.types import TIMESTAMP
from medusa.spark.dataframes.batches import batch
from medusa.spark.dataframes.source import META, SEQ

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
    any_order: bool = False,
    stats: Any = None,
    shards: int | None = None,
    modules: Sequence[str] = (),
    progress: Tell | None = None,
) -> Report:
    """Compute a query over an archive with Spark, and compare with what the stream answered, row by row.

    Rows that the archive logs as late or shed take no part, as they took none in the stream. Where answers
    are numbered (``_seq``, as in an archive of a stream) and all are equal, their order is compared too.

    Args:
        archive: of each source: a folder, a Parquet file, a DataFrame, a ``pyarrow.Table``; or one folder
            with all in it.
        answers: of each sink in the same way. Sinks that aren't in it are named in the report.
        until: only windows that ended by this time (microseconds, a datetime or text): of a stream that still
            runs, whose later windows are open. The archive must reach so far. Sinks need ``window_end``.
        floats: 0: bit for bit. Where partials of a group were combined (a box split by partial, counts of
            several nodes) floats may differ in their last bits: then 1e-9, relative to values above 1.
        examples: how many pairs of differing rows the report shows of each sink.
        any_order: don't compare the order: where partials were combined, rows of a window leave by key.
        stats: of an embedded run that may have shed: ``run.stats()``, or a Parquet file of it. Rows that were
            shed and that no archive marks are told (``report.doubts``).
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
    shed = None if stats is None else shed_by(stats)
    rows = inputs_of(archive, list(query.sources), spark, what="source")
    given = inputs_of(answers, list(query.sinks), spark, what="sink")
    if not given:
        raise DataError("there are no answers to compare", code="data.archive")
    until_us = None if until is None else boundary_time_us(until, query.name, "until=", kind="query")
    doubts = [
        *gaps("source", archives_in(archive, list(query.sources), "source"), until_us),
        *gaps("sink", archives_in(answers, list(query.sinks), "sink"), until_us),
    ]
    checked = check_graph(query.graph)
    if until_us is not None:
        for sink in given:
            _refuse_without_windows(sink, checked.shapes[checked.boxes[sink].inputs[0]].schema)
    sinks = [box for box in query.graph.boxes if isinstance(box, Sink)]
    schemas = {box.id: checked.shapes[box.inputs[0]].schema for box in sinks}
    unordered = {
        sink: "it was left out"
        if any_order
        else why_unordered(
            query.graph,
            sink,
            schemas[sink],
            has={name: SEQ in df.columns for name, df in rows.items()},
            numbered=SEQ in df.columns,
            floats=floats,
        )
        for sink, df in given.items()
    }
    numbered = "" in unordered.values() and not any(
        field.name == SEQ for schema in schemas.values() for field in schema
    )
    computed = batch(
        query, spark, rows, ordered=False, numbered=numbered, shards=shards, modules=modules, extra="ignore"
    )
    found = []
    try:
        for sink, schema in schemas.items():
            if sink not in given:
                continue
            expected, came = _ended(computed[sink], until_us), _ended(given[sink], until_us)
            with watched(spark, f"comparing {sink}", progress):
                report = compared(
                    sink,
                    schema,
                    expected.drop(SEQ) if numbered else expected,
                    came,
                    key=key_of(query.graph, sink),
                    floats=floats,
                    examples=examples,
                )
            if unordered[sink] or not report.equal:
                why = unordered[sink] or "the rows differ"
                found.append(replace(report, order=why))
                continue
            with watched(spark, f"comparing the order of {sink}", progress):
                found.append(placed(report, schema, expected, came))
        with watched(spark, "counting what is logged", progress):
            logged = {name: _logged(df) for name, df in rows.items()}
    finally:
        computed.unpersist()
    marked = {name: shed for name, (_, shed) in logged.items()}
    if shed is not None:
        doubts += unmarked(query.graph, shed, marked)
    return Report(
        query=query.name,
        floats=floats,
        late={name: late for name, (late, _) in logged.items()},
        shed=marked,
        sinks=tuple(found),
        left_out=tuple(sink for sink in query.sinks if sink not in given),
        doubts=tuple(doubts),
        may_shed=shed is None and any(box.qos is not None for box in sinks),
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
