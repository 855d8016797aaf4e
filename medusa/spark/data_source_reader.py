"""Reading by Spark's data source: what its readers do, without pyspark, which ``pyspark_medusa`` adds.

An offset is ``{"stream": ..., "row": n, "life": ..., "promised": us}``: rows below n were read, in this life
of the reader, which ends when the gateway forgets it; with ``boundary``, what was promised of those from n
on. Spark keeps it in its checkpoint, and asks for the same rows again after whatever failed; the gateway
keeps them until a later batch is committed.
Objects here are copied to workers: they hold no connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import START_US
from medusa.errors import DataError, LinkError, RemoteProtocolError
from medusa.query.boxes import Field, Schema
from medusa.spark.column_types import arrow_out, wire
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.caller import GatewayConnection, caller, expected
from medusa.spark.options import READING, Options
from medusa.spark.streaming.lateness import FOREVER_US
from medusa.wire.codec import TrainCodec
from medusa.wire.messages.links import Data

__all__ = ["BatchReader", "StreamFollower", "RowRange", "StreamReader", "columns_of"]

LOGGER = logging.getLogger("medusa.spark")

SEQ, LATE, BOUNDARY = "_seq", "_late", "_boundary"

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows that one task reads.

    Attributes:
        promised_us: behind them a row that is a boundary alone; None: none.
    """

    lo: int
    hi: int
    promised_us: int | None = None


def columns_of(options: Options) -> Schema:
    """The columns that are read, of the stream and of ``meta``.

    Raises:
        LinkError: the gateway doesn't answer, or there is no such stream.
        DataError: the stream has a column of that name.
    """
    found, _ = caller(options.endpoint).ask(r.Shape(number=0, stream=options.stream))
    return _shown(expected(found, r.Described).columns, options)


def _shown(columns: Schema, options: Options) -> Schema:
    more = [(SEQ, "int64"), (LATE, "bool")] if options.meta else []
    more += [(BOUNDARY, "int64")] if options.boundary else []
    names = {field.name for field in columns}
    for name, _ in more:
        if name in names:
            raise DataError(
                f"stream {options.stream!r} has a column {name!r} of its own",
                hint="read it without the option that adds one",
                code="data.column",
            )
    return (*columns, *(Field(name, type) for name, type in more))


def _opened(options: Options, gateway: GatewayConnection, *, batch: bool = False) -> r.Opened:
    of = options
    asked = r.Open(number=0, stream=of.stream, reader=of.reader, start=of.start, batch=batch)
    return expected(gateway.ask(asked)[0], r.Opened)


class _Reader:
    """What reading in batch and as a stream have in common."""

    batch = False

    def __init__(self, options: Options) -> None:
        self.options = options.only(READING, "reading")

    def _gateway(self) -> GatewayConnection:
        return caller(self.options.endpoint)

    def _range(self, done: int = 0) -> r.Range:
        look = r.Look(number=0, stream=self.options.stream, reader=self.options.reader, done=done)
        return expected(self._gateway().ask(look)[0], r.Range)

    def _first(self, found: r.Opened) -> int:
        """The row that ``startingPosition`` says.

        Raises:
            LinkError: it is gone, or there is none of that number yet.
        """
        start = self.options.start
        if start == "now":
            return found.earliest if found.fresh else found.latest
        if start == "oldest":
            if found.earliest and (found.fresh or not self.batch):
                LOGGER.warning(
                    "%r: reader %r begins with row %d: the rows before it are gone. Start every reader (or "
                    "archive) before the first one reads on",
                    self.options.stream,
                    self.options.reader,
                    found.earliest,
                )
            return found.earliest
        row = int(start)
        if row > found.latest:
            raise LinkError(
                f"startingPosition {row} is beyond the end of {self.options.stream!r}: its next row is "
                f"{found.latest}",
                code="E_SEQ",
            )
        if row < found.earliest and self.options.fail_on_loss:
            raise LinkError(
                f"startingPosition {row}: rows of {self.options.stream!r} below {found.earliest} are not "
                f"kept for reader {self.options.reader!r}",
                hint="failOnDataLoss=false begins with the oldest; another reader begins where the node does",
                code="E_GONE",
            )
        return max(row, found.earliest)

    def ranges(self, lo: int, hi: int, earliest: int = 0) -> list[RowRange]:
        """These rows in parts, one for each task.

        Args:
            earliest: the first that is there; those before it are passed over where that is accepted.
        """
        if not self.options.fail_on_loss:
            lo = max(lo, earliest)
        if lo >= hi:
            return []
        of = self.options
        cut = r.Cut(number=0, stream=of.stream, reader=of.reader, lo=lo, hi=hi, nbytes=of.part_bytes)
        cuts = [row for row in expected(self._gateway().ask(cut)[0], r.Cuts).rows if lo < row < hi]
        starts = [lo, *cuts]
        return [RowRange(start, end) for start, end in zip(starts, [*cuts, hi], strict=True)]

    def rows(self, part: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows of a part, in Spark's types.

        Raises:
            LinkError: the gateway doesn't answer, or has let them go.
            DataError: some are lost, and that isn't accepted.
        """
        gateway = self._gateway()
        columns = _opened(self.options, gateway, batch=self.batch).columns
        codec = TrainCodec(columns, timed=False)
        shown = _shown(columns, self.options)
        schema = pa.schema([(field.name, wire(field.type)) for field in shown])
        at = part.lo
        while at < part.hi:
            read = r.Read(number=0, stream=self.options.stream, reader=self.options.reader, lo=at, hi=part.hi)
            answer, payload = gateway.ask(read)
            found = expected(answer, r.Rows)
            if not at < found.next <= part.hi or not at <= found.first <= found.next:
                raise RemoteProtocolError(f"rows {found.first} to {found.next} for {at}", code="E_SEQ")
            if found.first > at and self.options.fail_on_loss:
                raise self._lost(at, found.first)
            at = found.next
            if payload is not None:
                yield self._batch(codec, schema, columns, found, payload)
        if part.promised_us is not None:
            yield _alone(schema, part.hi, part.promised_us)

    def _lost(self, lo: int, hi: int) -> DataError:
        return DataError(
            f"{hi - lo:,} rows of {self.options.stream!r} are lost, from {lo} on: the node no longer had "
            "them when the gateway asked",
            hint="the option failOnDataLoss=false goes on without them; a larger retention, or at_limit "
            "spill or slow, keeps them",
            code="data.lost",
        )

    def _batch(
        self, codec: TrainCodec, schema: pa.Schema, columns: Schema, found: r.Rows, payload: Any
    ) -> pa.RecordBatch:
        message = Data(stream="s", epoch=0, frame=0, seq=found.first, rows=found.rows, late=found.late)
        train = codec.decode(message, payload, peer=self.options.endpoint.address)
        made = [
            arrow_out(array, field.type) for array, field in zip(train.batch.columns, columns, strict=True)
        ]
        if self.options.meta:
            made.append(pa.array(np.arange(found.first, found.first + found.rows, dtype=np.int64)))
            made.append(pa.array(np.zeros(found.rows, bool)) if train.late is None else train.late)
        if self.options.boundary:
            made.append(pa.array(np.full(found.rows, found.boundary_us, dtype=np.int64)))
        return pa.RecordBatch.from_arrays(made, schema=schema)


def _alone(schema: pa.Schema, row: int, promised_us: int) -> pa.RecordBatch:
    """A row that is a boundary alone: behind the last row, whose number it has; the rest is null."""
    made = {SEQ: row - 1, BOUNDARY: promised_us}
    columns = [pa.array([made.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchReader(_Reader):
    """``spark.read``: the rows that the gateway has when the read is planned."""

    batch = True

    def parts(self) -> list[RowRange]:
        """As many tasks as ``bytesPerPartition`` says.

        Raises:
            LinkError: there are more rows than the gateway keeps at once, and that isn't accepted.
        """
        of = self.options
        opened = _opened(of, self._gateway(), batch=True)
        found = self._range()
        if found.full and of.fail_on_loss:
            raise LinkError(
                f"the gateway is full of rows of {of.stream!r} for reader {of.reader!r}: those from "
                f"{found.latest} on are not here",
                hint="read them as a stream (availableNow), or give the gateway a larger spool; "
                "failOnDataLoss=false reads what is here",
                code="E_FULL",
            )
        if found.why:
            LOGGER.warning("%r: rows from %d on are not here: %s", of.stream, found.latest, found.why)
        return self.ranges(min(self._first(opened), found.latest), found.latest, found.earliest)


class StreamReader(_Reader):
    """``spark.readStream``: one object in the driver, copies of it in the tasks."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._until: tuple[int, int] | None = None

    def _offset(self, row: int, promised_us: int, life: str) -> Offset:
        made: Offset = {"stream": self.options.stream, "row": row}
        made |= {"life": life} if life else {}
        return made | ({"promised": promised_us} if promised_us > START_US else {})

    def _open(self, *offsets: Mapping[str, Any]) -> r.Opened:
        """Open the stream; offsets have to be of this life of its reader, unless losses are accepted.

        Raises:
            LinkError: a gateway with an empty folder, or a reader that was forgotten, begins anew: its rows
                may be others.
        """
        found = _opened(self.options, self._gateway())
        if self.options.fail_on_loss and not all(_of_life(offset, found) for offset in offsets):
            raise LinkError(
                f"reader {self.options.reader!r} of {self.options.stream!r} was forgotten at the gateway "
                "since this checkpoint was made: rows may be missing, or others under the same numbers",
                hint="give this query a checkpointLocation of its own; or failOnDataLoss=false goes on with "
                "the oldest that is here",
                code="E_ANEW",
            )
        return found

    def _row(self, offset: Mapping[str, Any]) -> int:
        """The row of an offset from Spark's checkpoint.

        Raises:
            DataError: it is of another stream, or none of ours.
        """
        row, stream = offset.get("row"), offset.get("stream")
        if type(row) is not int or row < 0:
            raise DataError(f"offset {dict(offset)!r:.200} isn't of format('medusa')", code="spark.offset")
        if stream != self.options.stream:
            raise DataError(
                f"the checkpoint is of stream {stream!r}, and {self.options.stream!r} is read",
                hint="give this query a checkpointLocation of its own",
                code="spark.offset",
            )
        return row

    def _promised(self, found: r.Range) -> int:
        return min(found.promised_us, FOREVER_US) if self.options.boundary else int(START_US)

    def first_offset(self) -> Offset:
        """Where a query without a checkpoint begins: by ``startingPosition``, of what the gateway has."""
        found = self._open()
        return self._offset(self._first(found), int(START_US), found.life)

    def next_offset(self, start: Mapping[str, Any], rows: int | None) -> Offset:
        """Where the next micro-batch ends.

        Args:
            rows: at most so many; None: all there are.

        Raises:
            LinkError: rows behind ``start`` are lost (``E_ANEW``, ``E_SEQ``).
        """
        row = self._row(start)
        opened = self._open(start)  # A gateway with an empty folder begins it anew.
        if not _of_life(start, opened):
            row = opened.earliest
        found = self._range(done=row)
        if row > found.latest and self.options.fail_on_loss:
            raise LinkError(
                f"the checkpoint is at row {row} of {self.options.stream!r}, whose next is {found.latest}",
                hint="the gateway's folder is older than Spark's checkpoint, or of another stream",
                code="E_SEQ",
            )
        latest, promised_us = self._until or (found.latest, self._promised(found))
        end = max(latest if rows is None else min(latest, row + rows), row)
        before_us = _promise_of(start)
        # What was promised of the rows from ``latest`` on says nothing of those before.
        promised_us = max(promised_us, before_us) if end == latest else before_us
        return self._offset(end, promised_us, opened.life)

    def last_offset(self) -> Offset:
        """The newest row that the gateway has."""
        opened, found = self._open(), self._range()
        return self._offset(found.latest, self._promised(found), opened.life)

    def stop_at_latest(self) -> None:
        """From now on no row is read that isn't there now."""
        _opened(self.options, self._gateway())
        found = self._range()
        self._until = found.latest, self._promised(found)

    def parts(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RowRange]:
        """The rows of a micro-batch, planned or replayed."""
        lo, hi = self._row(start), self._row(end)
        opened = self._open(start, end)
        if not _of_life(end, opened):
            return []  # Nobody has them any more, which is accepted.
        if not _of_life(start, opened):
            lo = opened.earliest
        found = self.ranges(lo, hi, opened.earliest)
        promised_us = _promise_of(end)
        if self.options.boundary and promised_us > _promise_of(start):
            found.append(RowRange(hi, hi, promised_us))
        return found

    def committed(self, end: Mapping[str, Any]) -> None:
        """Spark needs no row below any more; the gateway keeps one batch longer."""
        of, row = self.options, self._row(end)
        if _of_life(end, self._open(end)):
            self._gateway().ask(r.Commit(number=0, stream=of.stream, reader=of.reader, row=row))


def _of_life(offset: Mapping[str, Any], opened: r.Opened) -> bool:
    """Whether an offset is of this life of the reader, as far as both say."""
    life = offset.get("life", "")
    return not life or not opened.life or life == opened.life


def _promise_of(offset: Mapping[str, Any]) -> int:
    found = offset.get("promised", int(START_US))
    if type(found) is not int:
        raise DataError(f"offset {dict(offset)!r:.200} isn't of format('medusa')", code="spark.offset")
    return found


class StreamFollower(_Reader):
    """How far a stream is, for one who reads it by a query of Spark."""

    def columns(self) -> Schema:
        """The stream's own. From now on the gateway keeps its rows for this reader."""
        return _opened(self.options, self._gateway()).columns

    def state(self) -> tuple[int, int, bool]:
        """The oldest row that is there, the number of the next that will come, whether none will."""
        found = self._range()
        return found.earliest, found.latest, found.ended

    def settle(self, quiet_s: float, most_s: float) -> None:
        """Wait until no row has come for a while, or none will, or for the most that is waited."""
        end_s = time.monotonic() + most_s
        latest, since_s = -1, 0.0
        while (now_s := time.monotonic()) < end_s:
            _, there, ended = self.state()
            if there != latest:
                latest, since_s = there, now_s
            if ended or now_s - since_s >= quiet_s:
                return
            time.sleep(quiet_s / 10)

    def forget(self) -> None:
        """End the reader for good, at the gateway and the node."""
        of = self.options
        self._gateway().ask(r.Forget(number=0, stream=of.stream, reader=of.reader))
