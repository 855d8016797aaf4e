"""A stream into an archive, each row once, as a streaming query of Spark: ``md.spark.archive``.

Spark says which rows an epoch has, and keeps that in its checkpoint; the archive's manifest says which epochs
it has (``medusa.apps.pipeline.growing``). Whatever dies, Spark brings an epoch again, with the same rows,
until it has heard that it is done.
"""

from __future__ import annotations

import contextlib
import threading
import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.pipeline.folder import MANIFEST, Stored, open_folder
from medusa.apps.pipeline.growing import CHECKPOINT, Growing, give_up, held, next_row, reader_of
from medusa.apps.pipeline.parts import SLOT, WriteTask, write_frame
from medusa.apps.pipeline.traces import check_names, source_of
from medusa.apps.pipeline.watch import Tell, watched
from medusa.errors import DataError, MedusaError
from medusa.query.boxes import Schema, Source
from medusa.spark.data_source_reader import StreamFollower
from medusa.spark.dataframes import source as sources
from medusa.spark.dataframes.source import LATE_MARK, SEQ
from medusa.spark.exchange.gateway import Gateway
from medusa.spark.options import Options, options_from
from medusa.spark.session import refuse_connect
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medusa.query.builder import Query

__all__ = ["archive"]

EPOCH_ROWS = 1 << 20
LOOK_EVERY_S = 0.5

REST_S = 60.0
"""An epoch that takes longer is cut short where the archive shall stop."""

SETTLED_S, SETTLE_S = 0.5, 10.0
"""A reader that was just opened hears of rows a little later: so long without one, and at most so long."""


def archive(
    stream: str,
    spark: SparkSession,
    folder: str | Path,
    *,
    gateway: str | Gateway,
    trigger: Duration | None = None,
    time: str | None = None,
    unit: str | None = None,
    query: Query | None = None,
    source: str | None = None,
    period: Duration | None = None,
    start: str = "oldest",
    epoch_rows: int = EPOCH_ROWS,
    accept_loss: bool = False,
    key: str | Path | None = None,
    server_key: str | None = None,
    stop: threading.Event | None = None,
    progress: Tell | None = None,
) -> Stored:
    """Write a stream to an archive, each row once, whatever dies: called again it goes on where it was.

    Rows have ``_seq`` and ``_late`` as the stream has them. The archive can be read at any time, as far as it
    is; ``complete`` in its manifest says that the stream has ended and all of it is there.

    Args:
        stream: ``query.sink``, or a stream defined by name.
        folder: a new one, or one that was begun with this stream. Executors must reach it under the same
            path.
        gateway: its address, or a gateway of this program.
        trigger: None: take what the gateway has, and return; before, wait until no row has come for half
            a second, at most ten. ``"10s"``: look every so often, until the stream
            has ended or ``stop`` is set.
        time, unit: the column that is the rows' time, as of ``q.source``; None: rows have none, and can't be
            replayed at a speed.
        query, source: take time and unit from a source of this query instead; its columns must be the
            stream's. The query goes into the archive.
        period: cut the files of an epoch by ranges of time of this length. None: not at all.
        start: where a new archive begins: ``oldest``, ``now`` or the number of a row.
        accept_loss: go on where rows of the stream are lost: ``missing_rows`` of the manifest counts them.
        epoch_rows: the most rows of an epoch. Too small: many files; too large: an epoch that fails is long.
        key, server_key: for a gateway with keys: the secret key's file, and its public key.
        progress: called with what is done, the rows that are in the archive, and those there are.

    Returns:
        The archive as it is.

    Raises:
        DataError: the folder is taken, or was begun with something else; nothing was changed. Or a row's time
            is null, or rows of the stream are lost.
        ConfigError, LinkError: an option can't be, the gateway doesn't answer, there is no such stream; the
            session is of Spark Connect.
    """
    refuse_connect(spark, "an archive's manifest is written by its driver")
    options = {
        "endpoint": gateway.address if isinstance(gateway, Gateway) else str(gateway),
        "stream": stream,
        "meta": "true",
        "startingPosition": start,
        "maxRowsPerBatch": str(epoch_rows),
        "failOnDataLoss": "false" if accept_loss else "true",
    }
    options |= {} if key is None else {"key": str(key)}
    options |= {} if server_key is None else {"serverKey": server_key}
    options_from(options)
    if trigger is not None:
        duration_us(trigger, what="trigger", minimum_us=1000, error=DataError)
    period_us = None
    if period is not None:
        period_us = duration_us(period, what="period", minimum_us=1_000_000, error=DataError)
    with held(folder) as path:
        options["reader"] = reader_of(path, stream)
        found = options_from(options)
        follower = StreamFollower(found)
        if (path / MANIFEST).exists() and open_folder(path).manifest.complete:
            follower.forget()
            return open_folder(path)
        new = not (path / MANIFEST).exists()
        try:
            spec = _spec(found, follower.columns(), time, unit, query, source)
            if period_us is not None and spec.time is None:
                raise DataError(
                    f"{stream}: rows have no time to be cut by",
                    hint="say time=, or query=",
                    code="data.argument",
                )
        except MedusaError:
            if new:
                with contextlib.suppress(MedusaError):
                    follower.forget()
                give_up(path)
            raise
        growing = Growing.opened(
            path,
            stream=stream,
            schema=spec.schema,
            time=spec.time,
            unit=spec.unit,
            period_us=period_us,
            marks=(LATE_MARK,),
            made={"from_row": follower.state()[0]},
            query=query,
        )
        job = _Job(spark, growing, spec, options, follower, progress)
        with watched(spark, f"archiving {stream}", None):
            job.run(trigger, stop or threading.Event())
        if not job.ended():
            return open_folder(path)
        growing.complete()
        follower.forget()  # what nobody reads would hold the stream up
        return open_folder(path)


def _spec(
    options: Options,
    schema: Schema,
    time: str | None,
    unit: str | None,
    query: Query | None,
    source: str | None,
) -> Source:
    """The stream as a source of its columns and time."""
    from medusa.query.builder import Query as Builder

    if query is not None:
        if time is not None or unit is not None:
            raise DataError("time and query both say the time: leave one out", code="data.argument")
        known = source_of(query, source)
        if known.schema != schema:
            raise DataError(
                f"source {known.id!r} has other columns than stream {options.stream!r}",
                hint="say time= and unit= instead",
                code="data.column",
            )
        time, unit = known.time, known.unit
    q = Builder("archive")
    q.source(
        options.stream.rpartition(".")[2], {each.name: each.type for each in schema}, time=time, unit=unit
    )
    spec = next(box for box in q.graph.boxes if isinstance(box, Source))
    check_names(spec)
    return spec


@dataclass(frozen=True, slots=True)
class _Epochs:
    """What Spark calls for each epoch. It is copied to where Spark calls it, so it holds what can be."""

    growing: Growing
    spec: Source
    period_us: int | None

    def __call__(self, df: DataFrame, epoch: int) -> None:
        from pyspark.sql import functions as F

        held_to = self.growing.held_to(epoch)
        if held_to is not None:  # it is here: Spark hadn't heard of it when it died
            df = df.where(F.col(SEQ) > held_to)
        rows = sources.archive(self.spec, df, extra="refuse").checked()
        rows = rows.withColumnsRenamed({"o0": SEQ, "m_late": LATE_MARK})
        if self.period_us is None:
            rows = rows.withColumn(SLOT, F.lit(epoch).cast("long"))
        else:
            slot = F.expr(f"(t - pmod(t, {self.period_us}L)) DIV {self.period_us}L")
            rows = rows.withColumn(SLOT, slot).sortWithinPartitions(SLOT, SEQ)
        writing = WriteTask(
            folder=str(self.growing.folder),
            schema=self.spec.schema,
            period_us=self.period_us,
            marks=(LATE_MARK,),
            epoch=epoch,
        )
        self.growing.add(epoch, write_frame(rows, writing))


class _Job:
    """A streaming query that fills an archive."""

    def __init__(
        self,
        spark: SparkSession,
        growing: Growing,
        spec: Source,
        options: dict[str, str],
        follower: StreamFollower,
        tell: Tell | None,
    ) -> None:
        self._spark = spark
        self._growing = growing
        self._spec = spec
        self._options = options
        self._follower = follower
        self._tell = tell

    def run(self, trigger: Duration | None, stop: threading.Event) -> None:
        """Until all that is there is written; with a trigger, until the stream ends or it shall stop."""
        if trigger is None:
            self._follower.settle(SETTLED_S, SETTLE_S)
        read = _stream(self._spark, self._options)
        each = _Epochs(self._growing, self._spec, self._growing.manifest.period_us)
        writer = read.writeStream.foreachBatch(each).option(
            "checkpointLocation", str(self._growing.folder / CHECKPOINT)
        )
        if trigger is None:
            writer = writer.trigger(availableNow=True)
        else:
            every_ms = duration_us(trigger, error=DataError) // 1000
            writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
        query = writer.start()
        try:
            self._follow(query, stop, forever=trigger is not None)
            _rest(query)
        finally:
            query.stop()
        self._say()

    def _follow(self, query: Any, stop: threading.Event, *, forever: bool) -> None:
        while not query.awaitTermination(LOOK_EVERY_S):
            self._say()
            if stop.is_set() or (forever and self.ended()):
                return

    def _say(self) -> None:
        if self._tell is not None:
            rows, behind = self._behind()
            self._tell(f"archiving {self._options['stream']}", rows, rows + behind)

    def _behind(self) -> tuple[int, int]:
        """Rows that are in the archive, and that the gateway has besides."""
        manifest = self._growing.manifest
        earliest, latest, _ = self._follower.state()
        at = next_row(manifest)
        return manifest.rows, max(latest - (earliest if at is None else at), 0)

    def ended(self) -> bool:
        """The stream is over, and all of it is in the archive."""
        return self._follower.state()[2] and not self._behind()[1]


def _stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The stream that the gateway serves."""
    return spark.readStream.format("medusa").options(**options).load()


def _rest(query: Any) -> None:
    """Wait until no epoch is being written: one that is cut short is written again, and Spark complains."""
    end_s = clock.monotonic() + REST_S
    while query.isActive and query.status["isTriggerActive"] and clock.monotonic() < end_s:
        clock.sleep(0.02)
