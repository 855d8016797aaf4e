"""Reading by Spark's data source: what its readers do, without pyspark, which ``pyspark_medusa`` adds.

An offset is ``{"stream": ..., "row": n, "life": ...}``: rows below n were read, in this life of the reader,
which ends when the gateway forgets it. Spark keeps it in its checkpoint, and asks for the same rows again
after whatever failed; the gateway keeps them until a later batch is committed.
Objects here are copied to workers: they hold no connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.errors import DataError, LinkError, RemoteProtocolError
from medusa.query.boxes import Field, Schema
from medusa.spark.columns import arrow_out, wire
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.caller import Caller, caller
from medusa.spark.options import Options
from medusa.wire.codec import TrainCodec
from medusa.wire.messages import Data

__all__ = ["BatchReader", "Follower", "RowRange", "StreamReader", "columns_of"]

SEQ, LATE, BOUNDARY = "_seq", "_late", "_boundary"

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows that one task reads."""

    lo: int
    hi: int


def columns_of(options: Options) -> Schema:
    """The columns that are read, of the stream and of ``meta``.

    Raises:
        LinkError: the gateway doesn't answer, or there is no such stream.
        DataError: the stream has a column of that name.
    """
    return _shown(_opened(options, caller(options.endpoint)).columns, options)


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


def _opened(options: Options, gateway: Caller) -> r.Opened:
    asked = r.Open(number=0, stream=options.stream, reader=options.reader, start=options.start)
    answer, _ = gateway.ask(asked)
    found: r.Opened = _is(answer, r.Opened)
    return found


def _is(answer: r.Answer, kind: type[Any]) -> Any:
    if not isinstance(answer, kind):
        raise RemoteProtocolError(f"{type(answer).__name__} is no answer to that", code="E_FRAME")
    return answer


class _Reader:
    """What reading in batch and as a stream have in common."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def _gateway(self) -> Caller:
        return caller(self.options.endpoint)

    def _range(self, done: int = 0) -> r.Range:
        look = r.Look(number=0, stream=self.options.stream, reader=self.options.reader, done=done)
        found: r.Range = _is(self._gateway().ask(look)[0], r.Range)
        return found

    def ranges(self, lo: int, hi: int) -> list[RowRange]:
        """These rows in parts, one for each task."""
        if lo >= hi:
            return []
        of = self.options
        cut = r.Cut(number=0, stream=of.stream, reader=of.reader, lo=lo, hi=hi, nbytes=of.part_bytes)
        cuts = [row for row in _is(self._gateway().ask(cut)[0], r.Cuts).rows if lo < row < hi]
        starts = [lo, *cuts]
        return [RowRange(start, end) for start, end in zip(starts, [*cuts, hi], strict=True)]

    def rows(self, part: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows of a part, in Spark's types.

        Raises:
            LinkError: the gateway doesn't answer, or has let them go.
        """
        gateway = self._gateway()
        columns = _opened(self.options, gateway).columns
        codec = TrainCodec(columns, timed=False)
        shown = _shown(columns, self.options)
        schema = pa.schema([(field.name, wire(field.type)) for field in shown])
        at = part.lo
        while at < part.hi:
            read = r.Read(number=0, stream=self.options.stream, reader=self.options.reader, lo=at, hi=part.hi)
            answer, payload = gateway.ask(read)
            found: r.Rows = _is(answer, r.Rows)
            if not at < found.next <= part.hi or not at <= found.first:
                raise RemoteProtocolError(f"rows {found.first} to {found.next} for {at}", code="E_SEQ")
            at = found.next
            if payload is not None:
                yield self._batch(codec, schema, columns, found, payload)

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


class BatchReader(_Reader):
    """``spark.read``: the rows that the gateway has when the read is planned."""

    def parts(self) -> list[RowRange]:
        """As many tasks as ``bytesPerPartition`` says."""
        _opened(self.options, self._gateway())
        found = self._range()
        return self.ranges(found.earliest, found.latest)


class StreamReader(_Reader):
    """``spark.readStream``: one object in the driver, copies of it in the tasks."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._until: int | None = None

    def _offset(self, row: int, life: str) -> Offset:
        return {"stream": self.options.stream, "row": row, **({"life": life} if life else {})}

    def _open(self, *offsets: Mapping[str, Any]) -> r.Opened:
        """Open the stream; offsets have to be of this life of its reader.

        Raises:
            LinkError: a gateway with an empty folder, or a reader that was forgotten, begins anew: its rows
                may be others.
        """
        found = _opened(self.options, self._gateway())
        for offset in offsets:
            life = offset.get("life", "")
            if life and found.life and life != found.life:
                raise LinkError(
                    f"reader {self.options.reader!r} of {self.options.stream!r} was forgotten at the gateway "
                    "since this checkpoint was made: rows may be missing, or others under the same numbers",
                    hint="give this query a checkpointLocation of its own",
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

    def first_offset(self) -> Offset:
        """Where a query without a checkpoint begins: the oldest row that the gateway has."""
        found = self._open()
        return self._offset(found.earliest, found.life)

    def next_offset(self, start: Mapping[str, Any], rows: int | None) -> Offset:
        """Where the next micro-batch ends.

        Args:
            rows: at most so many; None: all there are.
        """
        row = self._row(start)
        found = self._open(start)
        latest = self._range(done=row).latest
        if self._until is not None:
            latest = min(latest, self._until)
        end = latest if rows is None else min(latest, row + rows)
        return self._offset(max(end, row), found.life)

    def last_offset(self) -> Offset:
        """The newest row that the gateway has."""
        found = self._open()
        return self._offset(found.latest, found.life)

    def stop_at_latest(self) -> None:
        """From now on no row is read that isn't there now."""
        _opened(self.options, self._gateway())
        self._until = self._range().latest

    def parts(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RowRange]:
        """The rows of a micro-batch, planned or replayed."""
        self._open(start, end)
        return self.ranges(self._row(start), self._row(end))

    def committed(self, end: Mapping[str, Any]) -> None:
        """Spark needs no row below any more; the gateway keeps one batch longer."""
        of = self.options
        commit = r.Commit(number=0, stream=of.stream, reader=of.reader, row=self._row(end))
        self._gateway().ask(commit)


class Follower(_Reader):
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
