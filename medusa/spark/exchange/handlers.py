"""Answers to Spark's workers. Nothing here waits: what isn't known yet is ``Failed(again=True)``."""

from __future__ import annotations

import functools
from collections.abc import Callable

from medusa.elements import START_US
from medusa.engine.operators.source import RowChecks
from medusa.errors import FullError, MedusaError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import Source
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.background_calls import Later
from medusa.spark.exchange.reader_log import columns_of
from medusa.spark.exchange.registry import Inlets, Outlets
from medusa.spark.exchange.staging import Staging
from medusa.wire import limits
from medusa.wire.codec import TrainCodec
from medusa.wire.messages.links import Data

__all__ = ["RequestHandler"]


class RequestHandler:
    """Answers requests; one thread."""

    def __init__(
        self,
        staging: Staging,
        inlets: Inlets,
        outlets: Outlets,
        spool_bytes: int = 0,
        node_why: Callable[[], str] = str,
    ) -> None:
        self._staging, self._inlets, self._outlets = staging, inlets, outlets
        self._spool_bytes = spool_bytes
        self._node_why = node_why
        self._answers: dict[type, Callable[..., r.Answer | tuple[r.Answer, Buffer]]] = {
            r.Open: self._open,
            r.Shape: self._shape,
            r.Look: self._look,
            r.Cut: self._cut,
            r.Read: self._read,
            r.Commit: self._commit,
            r.Forget: self._forget,
            r.Listing: self._listing,
            r.Describe: self._describe,
            r.Seal: self._seal,
            r.Publish: self._publish,
            r.Abort: self._abort,
            r.Drop: self._drop,
            r.Finish: self._finish,
        }

    def answer(self, request: r.Request, payload: Buffer | None) -> tuple[r.Answer, Buffer | None]:
        """What to say; nothing was done where that is ``Failed``."""
        try:
            if isinstance(request, r.Stage):
                assert payload is not None, "it was checked as it came"
                return self._stage(request, payload), None
            found = self._answers[type(request)](request)
        except MedusaError as error:
            again = isinstance(error, FullError | Later | StateError)
            return r.Failed(
                number=request.number,
                code=error.code[: limits.NAME_CHARS_MAX],
                text=error.message[: limits.TEXT_CHARS_MAX],
                hint=error.hint[: limits.TEXT_CHARS_MAX],
                again=again,
            ), None
        return found if isinstance(found, tuple) else (found, None)

    # --- reading ----------------------------------------------------------------------------------

    def _open(self, request: r.Open) -> r.Answer:
        inlet = self._inlets.open(request.stream, request.reader, request.start, batch=request.batch)
        with inlet.lock:
            spool = inlet.spool()
            return r.Opened(
                number=request.number,
                columns=columns_of(spool.schema),
                earliest=spool.earliest,
                latest=spool.durable_seq,
                fresh=inlet.anew and spool.read_seq == spool.earliest and request.start == inlet.begins,
                life=inlet.life,
            )

    def _shape(self, request: r.Shape) -> r.Answer:
        return r.Described(number=request.number, columns=self._inlets.columns(request.stream))

    def _look(self, request: r.Look) -> r.Answer:
        inlet = self._inlets.get(request.stream, request.reader)
        with inlet.lock:
            spool = inlet.spool()
            spool.was_read(request.done)
            inlet.wake()
            if inlet.over is not None and request.done >= spool.durable_seq:
                raise inlet.over
            return r.Range(
                number=request.number,
                earliest=spool.earliest,
                latest=spool.durable_seq,
                why=inlet.why,
                full=spool.full,
                ended=inlet.ended,
                promised_us=spool.promised_us if inlet.timed else int(START_US),
            )

    def _cut(self, request: r.Cut) -> r.Answer:
        inlet = self._inlets.get(request.stream, request.reader)
        with inlet.lock:
            rows = inlet.spool().cuts(request.lo, request.hi, request.nbytes)
        return r.Cuts(number=request.number, rows=tuple(rows))

    def _read(self, request: r.Read) -> r.Answer | tuple[r.Answer, Buffer]:
        inlet = self._inlets.get(request.stream, request.reader)
        with inlet.lock:
            spool = inlet.spool()
            piece = spool.read(request.lo, request.hi, r.CHUNK_BYTES)
        if piece.train is None:
            return r.Rows(
                number=request.number,
                first=piece.next,
                rows=0,
                next=piece.next,
                boundary_us=piece.boundary_us,
            )
        codec = TrainCodec(columns_of(spool.schema), timed=False)
        # What is too large for an answer goes with the next one.
        payload, rows, late = next(iter(codec.encode(piece.train, bytes_aim=r.CHUNK_BYTES_MAX)))
        first = piece.train.first_seq
        answer = r.Rows(
            number=request.number,
            first=first,
            rows=rows,
            next=piece.next if rows == len(piece.train) else first + rows,
            boundary_us=piece.boundary_us,
            late=late,
        )
        return answer, memoryview(payload)

    def _commit(self, request: r.Commit) -> r.Answer:
        inlet = self._inlets.get(request.stream, request.reader)
        with inlet.lock:
            fresh = inlet.spool().commit(request.row)
            inlet.wake()
        return r.Done(number=request.number, fresh=fresh)

    def _forget(self, request: r.Forget) -> r.Answer:
        return r.Done(number=request.number, fresh=self._inlets.forgotten(request.stream, request.reader))

    def _listing(self, request: r.Listing) -> r.Answer:
        known = [each for each in self._staging.writers() if not each.once]
        return r.Listed(
            number=request.number,
            readers=self._inlets.lines(),
            sources=self._outlets.lines(),
            writers=tuple(
                r.EpochLine(writer=each.writer, stream=each.stream, epoch=each.epoch)
                for each in known[: -r.LINES_MAX - 1 : -1]
            ),
            staged_bytes=self._staging.nbytes,
            unpublished_bytes=self._staging.unpublished_bytes,
            stage_bytes=self._staging.bytes_max,
            spool_bytes=self._spool_bytes,
            node_why=self._node_why()[: limits.TEXT_CHARS_MAX],
        )

    # --- writing ----------------------------------------------------------------------------------

    def _describe(self, request: r.Describe) -> r.Answer:
        return r.Described(number=request.number, columns=self._outlets.source(request.stream).schema)

    def _stage(self, request: r.Stage, payload: Buffer) -> r.Answer:
        source = self._outlets.source(request.stream)
        codec = TrainCodec(source.schema, timed=False)
        train = codec.decode(Data(stream="s", epoch=0, frame=0, seq=0, rows=request.rows), payload)
        # What the node would refuse must not get into an epoch.
        _checks(source).check(train.batch)
        fresh = self._staging.stage(request.stream, request.token, request.chunk, request.rows, payload)
        return r.Done(number=request.number, fresh=fresh)

    def _seal(self, request: r.Seal) -> r.Answer:
        return r.Done(number=request.number, fresh=self._staging.seal(request.stream, request.whole))

    def _publish(self, request: r.Publish) -> r.Answer:
        said = self._staging.publish(
            request.stream,
            request.writer,
            request.origin,
            request.epoch,
            request.wholes,
            once=request.once,
            run=request.run,
        )
        self._outlets.wake(request.stream)
        return r.Done(number=request.number, fresh=not said, text=said)

    def _abort(self, request: r.Abort) -> r.Answer:
        said = self._staging.abort(request.writer, request.epoch, request.tokens)
        return r.Done(number=request.number, fresh=not said, text=said)

    def _finish(self, request: r.Finish) -> r.Answer:
        return r.Done(number=request.number, fresh=self._outlets.finished(request.stream))

    def _drop(self, request: r.Drop) -> r.Answer:
        fresh = self._outlets.dropped(request.stream, waiting=request.waiting)
        return r.Done(number=request.number, fresh=fresh)


@functools.lru_cache(maxsize=128)
def _checks(source: Source) -> RowChecks:
    return RowChecks(source)
