"""A query over DataFrames: ``md.spark.batch``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.engine.bounded_run import without_early
from medusa.errors import DataError, QueryError
from medusa.query.boxes import Graph, Source
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import check_graph, label_of
from medusa.query.suggest import did_you_mean
from medusa.runtime.embedded.query_argument import graph_of
from medusa.spark import support
from medusa.spark.dataframes.compile import Compiler
from medusa.spark.dataframes.source import BOUNDARY, META, Archive, archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medusa.query.builder import Query

__all__ = ["SHARDS_MAX", "Answers", "archives_of", "batch", "shards_of"]

SHARDS_MAX = 256


class Answers(Mapping[str, "DataFrame"]):
    """Sink -> DataFrame, nothing of which has run yet.

    Streams with several readers are kept by Spark once they were computed, until ``unpersist``.
    """

    def __init__(self, frames: dict[str, DataFrame], kept: list[DataFrame]) -> None:
        self._frames = frames
        self._kept = kept

    def __getitem__(self, sink: str) -> DataFrame:
        try:
            return self._frames[sink]
        except KeyError:
            raise KeyError(f"no sink {sink!r}; there are {', '.join(self._frames)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Answers({', '.join(self._frames)})"

    @property
    def only(self) -> DataFrame:
        """The DataFrame of a query with one sink.

        Raises:
            QueryError: there are several.
        """
        if len(self._frames) != 1:
            raise QueryError(
                f"there are {len(self._frames)} sinks: {', '.join(self._frames)}", code="query.sink"
            )
        return next(iter(self._frames.values()))

    def unpersist(self) -> None:
        """Let go of what Spark keeps for these DataFrames; they can be computed again."""
        for frame in self._kept:
            frame.unpersist()


def batch(
    query: Query,
    spark: SparkSession,
    inputs: Mapping[str, DataFrame],
    *,
    shards: int | None = None,
    assume_on_time: bool = False,
    ordered: bool = True,
    numbered: bool = False,
    extra: str = "refuse",
    on_error: str = "dead",
    modules: Sequence[str] = (),
) -> Answers:
    """The answers of a query over bounded input, computed by Spark.

    Medusa's own operators run in Spark's Python workers, over shards of the keys, so the rows are those of
    ``md.collect``: the same, in the same order, bit for bit (docs/spark.md says which boxes run how, and
    where a union's order is Spark's own).

    Args:
        inputs: for each source a DataFrame with its columns, and besides, where they are known: ``_seq``
            (int64, unique: the position at the source), ``_late`` (whether the row was late), ``_shed`` (the
            row was shed; it is left out), ``_boundary`` (rows with it and without a time are left out).
            Without ``_late``, lateness is judged by the source's ``slack``; a source without one lets no row
            be late.
        shards: in how many parts boxes with keys run, 1 to 256; None: ``spark.sql.shuffle.partitions``.
        assume_on_time: inputs without ``_seq`` count as in order of time (equal times: any order), none late.
        ordered: DataFrames are sorted as the rows leave; False: they come in any order, and sooner.
        numbered: rows have their numbers from 0 in a column ``_seq``, and can be another query's input.
        extra: "refuse" or "ignore" columns that the source hasn't.
        on_error: "dead": rows on which an expression fails are left out; "stop": the job fails.
        modules: that workers import, so that functions named by the query are registered there.

    Returns:
        Sink -> DataFrame. Nothing has run: what is wrong with values is said by the action.

    Raises:
        QueryError: a box can't run so (says why), a function isn't registered, ``_seq`` or ``_late`` is
            missing where a box needs it (says which).
        DataError: a DataFrame for an unknown source, none for a known one, or columns that don't fit.
    """
    graph = support.leads_to_sinks(without_early(graph_of(query)))
    refuse_unregistered(graph, "Spark")
    ports = support.read_ports(graph)
    support.check(graph, ports)
    if extra not in ("refuse", "ignore"):
        raise DataError(f"extra must be 'refuse' or 'ignore', got {extra!r:.80}", code="data.argument")
    if on_error not in ("dead", "stop"):
        raise QueryError(f'on_error is "dead" or "stop", got {on_error!r:.80}', code="query.on_error")
    shards = shards_of(spark, shards)
    archives = archives_of(query, graph, inputs, extra, live=True)
    _refuse_boundaries(archives)
    ordered_sources = _ordered(graph, archives, assume_on_time=assume_on_time)
    compiler = Compiler(
        check_graph(graph),
        shards=shards,
        on_error=on_error,
        modules=tuple(modules),
    )
    for id, each in archives.items():
        compiler.enter(id, each, ordered=id in ordered_sources, assume_on_time=assume_on_time)
    compiler.run(ports)
    return Answers(compiler.sinks(ordered=ordered, numbered=numbered), compiler.kept)


def shards_of(spark: SparkSession, shards: int | None) -> int:
    """In how many parts boxes with keys run.

    Raises:
        QueryError: more than there may be, or no number.
    """
    if shards is None:
        return max(1, min(SHARDS_MAX, int(spark.conf.get("spark.sql.shuffle.partitions") or 1)))
    if type(shards) is not int or not 1 <= shards <= SHARDS_MAX:
        raise QueryError(f"shards is from 1 to {SHARDS_MAX}, got {shards!r:.40}", code="query.spark")
    return shards


def archives_of(
    query: Query, graph: Graph, inputs: Mapping[str, Any], extra: str, *, live: bool = False
) -> dict[str, Archive]:
    """The DataFrames of the sources, their columns checked.

    Raises:
        DataError: one for an unknown source, none for a known one, or columns that don't fit.
    """
    known = list(query.sources)
    for name in inputs:
        if name not in known:
            raise DataError(
                f"query {graph.name!r} has no source {name!r}",
                hint=did_you_mean(name, known),
                code="data.source",
            )
    made = {}
    for box in graph.boxes:
        if isinstance(box, Source):
            if box.id not in inputs:
                raise DataError(
                    f"query {graph.name!r}: no rows for source {box.id!r}",
                    hint=f'batch(query, spark, {{"{box.id}": df}})',
                    code="data.source",
                )
            if not hasattr(inputs[box.id], "mapInArrow"):
                came = type(inputs[box.id]).__name__
                raise DataError(
                    f"source {box.id!r}: expected a Spark DataFrame, got {came}",
                    hint="spark.createDataFrame(table)",
                    code="data.table",
                )
            made[box.id] = archive(box, inputs[box.id], extra=extra, live=live)
    return made


def _ordered(graph: Graph, archives: Mapping[str, Archive], *, assume_on_time: bool) -> set[str]:
    """The sources on whose order, or late rows, some box depends.

    Raises:
        QueryError: one of them has no ``_seq``, or nothing tells which of its rows were late.
    """
    seq, late, _ = META
    found: set[str] = set()
    for box in graph.boxes:
        needed = support.above(graph, {box.id}) & set(archives) if box.order_dependent else set()
        lates = {arc.box for arc in box.inputs if arc.port == "late" and arc.box in archives}
        for id in sorted(needed | lates):
            each, who = archives[id], label_of(box)
            if not each.has_order and not (assume_on_time and each.spec.time is not None):
                what = "reads the late rows of" if id in lates else "depends on the order of the rows of"
                hint = f"keep {seq}, the position of a row at its source"
                if each.spec.time is not None:
                    hint += ", or say assume_on_time=True: rows are in order of time then, and none is late"
                raise QueryError(
                    f"{who} {what} source {id!r}, whose DataFrame has no column {seq!r}",
                    hint=hint,
                    code="query.spark",
                )
            judges = each.spec.slack_us is not None  # else it is measured, and nothing is late
            if judges and late not in each.has and not assume_on_time:
                _refuse_clocks(each.spec)
        found |= needed | lates
    for box in graph.boxes:  # a union is in order where all that come to it are
        reached = support.above(graph, {box.id}) & set(archives)
        if support.way_of(box, "", timed=True) is support.Way.ORDER and all(
            archives[id].has_order for id in reached
        ):
            found |= reached
    return found


def _refuse_boundaries(archives: Mapping[str, Archive]) -> None:
    """Where boundaries came with the rows, they too decided which were late."""
    for id, each in archives.items():
        if BOUNDARY in each.has and META[1] not in each.has and each.spec.time is not None:
            raise QueryError(
                f"source {id!r}: its DataFrame has a column {BOUNDARY!r}, but no {META[1]!r}",
                hint=f"keep {META[1]}, or leave {BOUNDARY} out: then the slack alone says who is late",
                code="query.spark",
            )


def _refuse_clocks(spec: Source) -> None:
    for name, value in (("partition", spec.partition), ("idle", spec.idle_us)):
        if value is not None:
            why = {
                "partition": "judges lateness apart for each value",
                "idle": "lets a clock move its boundary",
            }[name]
            raise QueryError(
                f"source {spec.id!r}: {name}= {why}, which Spark can't do again over an archive",
                hint="keep the column _late, which says what the source decided, or say assume_on_time=True",
                code="query.spark",
            )
