"""Writing by Spark's data source: what its writers do, without pyspark, which ``pyspark_medusa`` adds.

A task stages its rows at the gateway under a token; the driver publishes the tokens of an epoch at once. A
task or an epoch that comes again changes nothing. Objects here are copied to workers: they hold no
connection.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from medusa.elements import Train
from medusa.errors import DataError, LocalProtocolError
from medusa.query.boxes import Field, Schema
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal, to_arrow
from medusa.spark.column_types import arrow_in, wire
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.attempts import RUN_DIGITS
from medusa.spark.exchange.caller import GatewayConnection, caller, expected
from medusa.spark.options import WRITING, Options
from medusa.wire.codec import TrainCodec

__all__ = ["Staged", "StreamWriter", "TableWriter", "check_columns", "columns_to"]

LOGGER = logging.getLogger("medusa.spark")

RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What Spark calls a run of a query. Another name of a job group is the user's, perhaps always the same."""

WIDENS = {
    "int16": ("int8",),
    "int32": ("int8", "int16"),
    "int64": ("int8", "int16", "int32"),
    "float64": ("float32",),
}


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task tells the driver.

    Attributes:
        writer, origin: as the task knew them.
        run: of the query whose function writes a table; empty: there is none.
    """

    token: str
    chunks: int
    rows: int
    writer: str
    origin: str
    run: str = ""


def columns_to(options: Options) -> Schema:
    """The columns of the source that is written to.

    Raises:
        LinkError: the gateway doesn't answer, or there is no such source.
    """
    answer, _ = caller(options.endpoint).ask(r.Describe(number=0, stream=options.stream))
    return expected(answer, r.Described).columns


def check_columns(came: pa.Schema, columns: Schema, stream: str) -> None:
    """Whether rows of these columns can be cast to those of a source without changing a value.

    Raises:
        DataError: a column is missing, extra, repeated, or of a type whose values might not fit.
    """
    who = f"source {stream!r}"
    names = [field.name for field in columns]
    for name in came.names:
        if name not in names:
            raise DataError(
                f"{who} has no column {name!r}", hint=did_you_mean(name, names), code="data.column"
            )
    for field in columns:
        if (count := came.names.count(field.name)) != 1:
            said = f"column {field.name!r} is missing" if not count else f"column {field.name!r} stands twice"
            raise DataError(f"{who}: {said}", hint=did_you_mean(field.name, came.names), code="data.column")
        if not _fits(came.field(field.name).type, field.type):
            raise DataError(
                f"{who}: column {field.name!r}: expected {wire(field.type)} for {field.type}, "
                f"came {came.field(field.name).type}",
                hint="cast it before it is written",
                code="data.type",
            )


def _fits(came: pa.DataType, type: str) -> bool:
    if pa.types.is_dictionary(came):
        came = came.value_type
    if came.equals(wire(type)) or came.equals(to_arrow(type)):
        return True
    if type == TIMESTAMP:
        return bool(pa.types.is_timestamp(came)) and came.unit == "us" and came.tz is not None
    if type == DURATION:
        return bool(pa.types.is_duration(came)) and came.unit == "us"
    if type == "utf8":
        return bool(pa.types.is_string(came) or pa.types.is_large_string(came))
    if type == "binary":
        return bool(pa.types.is_binary(came) or pa.types.is_large_binary(came))
    if is_decimal(type) and pa.types.is_decimal(came):
        (precision, scale), (p, s) = decimal_parts(type), (came.precision, came.scale)
        return bool(s <= scale and p - s <= precision - scale)
    return str(came) in [str(to_arrow(each)) for each in WIDENS.get(type, ())]


class _Writer:
    """What writing in batch and as a stream have in common."""

    def __init__(self, options: Options) -> None:
        self.options = options.only(WRITING, "writing")
        # Tasks get a copy: so the gateway knows which attempts are of one run of the driver.
        self._run = secrets.token_hex(RUN_DIGITS // 2)

    def _gateway(self) -> GatewayConnection:
        return caller(self.options.endpoint)

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        writer: str,
        origin: str,
        epoch: int | None,
        partition: int,
    ) -> Staged:
        """Bring the rows of a task to the gateway's disk; nobody sees them yet.

        Raises:
            DataError: they don't fit the source; names column, expected, came.
            LinkError: the gateway doesn't answer, or is full for too long.
        """
        gateway, stream = self._gateway(), self.options.stream
        columns = columns_to(self.options)
        # No two attempts are called alike, whatever ran here before: what is left of one is never another's.
        token = r.token_of(writer, epoch, partition, self._run + secrets.token_hex(8 - RUN_DIGITS // 2))
        codec = TrainCodec(columns, timed=False)
        chunks = total = 0
        try:
            for batch in _gathered(_cast(batch, columns, stream) for batch in batches):
                for payload, rows in _pieces(codec, batch, stream):
                    staged = r.Stage(number=0, stream=stream, token=token, chunk=chunks, rows=rows)
                    gateway.ask(staged, memoryview(payload))
                    chunks += 1
                    total += rows
            whole = r.WholeAttempt(token=token, chunks=chunks, rows=total)
            gateway.ask(r.Seal(number=0, stream=stream, whole=whole))
        except Exception as error:
            self._take_back(writer, token, chunks, error)
            raise
        return Staged(token, chunks, total, writer, origin)

    def _take_back(self, writer: str, token: str, chunks: int, error: Exception) -> None:
        """Nobody will ask for what a failed attempt has staged: it needn't wait there for its age."""
        if not chunks or getattr(error, "code", "") == "link.timeout":
            return  # Nothing is there, or nobody: the gateway forgets it by itself later.
        with contextlib.suppress(Exception):
            self._gateway().ask(r.Abort(number=0, writer=writer, epoch=0, tokens=(token,)))

    def _publish(
        self, messages: Sequence[Staged], *, writer: str, origin: str, epoch: int, once: bool, run: str = ""
    ) -> r.Done:
        wholes = tuple(
            r.WholeAttempt(token=each.token, chunks=each.chunks, rows=each.rows) for each in messages
        )
        answer, _ = self._gateway().ask(
            r.Publish(
                number=0,
                stream=self.options.stream,
                writer=writer,
                origin=origin,
                epoch=epoch,
                wholes=wholes,
                once=once,
                run=run,
            )
        )
        return expected(answer, r.Done)

    def _abort(self, messages: Sequence[Staged | None], epoch: int) -> None:
        said = [each for each in messages if each is not None]
        if said:  # Else nothing is there to be forgotten, and perhaps nobody who would hear it.
            tokens = tuple(each.token for each in said)
            self._gateway().ask(r.Abort(number=0, writer=said[0].writer, epoch=epoch, tokens=tokens))


class StreamWriter(_Writer):
    """``df.writeStream``: an epoch is a micro-batch.

    Whose epochs they are, the query says: its id lies in the checkpoint, so a new checkpoint, which counts
    from 0 again, is another writer. With the option ``writer`` that is its name, and the id what it is
    held to: with another checkpoint it is refused, rather than taken for what was published before.
    """

    def task(
        self, batches: Iterable[pa.RecordBatch], *, query: str, epoch: int | None, partition: int
    ) -> Staged:
        """What a task does.

        Args:
            query: the id of Spark's query.
            epoch: of the micro-batch; None: Spark didn't say.
        """
        if not query and not self.options.writer:
            raise DataError(
                "Spark doesn't say which query this is",
                hint='.option("writer", "a name that goes with the checkpoint")',
                code="spark.query",
            )
        writer = self.options.writer or f"query/{query}"
        return self.stage(batches, writer=writer, origin=query, epoch=epoch, partition=partition)

    def publish(self, messages: Sequence[Staged | None], epoch: int) -> bool:
        """What the driver does when all tasks are done.

        Returns:
            False: the epoch was published before.
        """
        said = [each for each in messages if each is not None]
        if not said:
            return False  # A batch without tasks has no rows.
        first = said[0]
        return self._publish(said, writer=first.writer, origin=first.origin, epoch=epoch, once=False).fresh

    def give_up(self, messages: Sequence[Staged | None], epoch: int) -> None:
        """What the driver does when something failed; Spark says so also of an epoch that is published."""
        self._abort(messages, epoch)


class TableWriter(_Writer):
    """``df.write``: one epoch. Made in the driver; its copies in the tasks have the same writer.

    With the options ``writer`` and ``epoch`` writing again is no harm, as in ``foreachBatch``: then the
    epochs are held to the query whose function it is. A second write of its batch is refused.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.once = not options.writer
        self.writer = options.writer or f"job/{secrets.token_hex(16)}"
        self.epoch = options.epoch or 0

    def task(
        self, batches: Iterable[pa.RecordBatch], *, partition: int, query: str = "", group: str = ""
    ) -> Staged:
        """What a task does.

        Args:
            query: the id of Spark's query, where this is written by a function of one.
            group: of Spark's jobs: a query's own is the id of this run of it.
        """
        staged = self.stage(batches, writer=self.writer, origin=query, epoch=self.epoch, partition=partition)
        return replace(staged, run=group if query and RUN.fullmatch(group) else "")

    def publish(self, messages: Sequence[Staged | None]) -> bool:
        """What the driver does when all tasks are done.

        Returns:
            False: it was published before; the log says so.

        Raises:
            LinkError: what was published under this writer and epoch is another write (``E_WRITER``).
        """
        said = [each for each in messages if each is not None]
        origin, run = (said[0].origin, said[0].run) if said else ("", "")
        done = self._publish(
            said, writer=self.writer, origin=origin, epoch=self.epoch, once=self.once, run=run
        )
        if not done.fresh:
            LOGGER.warning("%r: these rows are not added: %s", self.options.stream, done.text)
        return done.fresh

    def give_up(self, messages: Sequence[Staged | None]) -> None:
        """What the driver does when something failed."""
        self._abort(messages, self.epoch)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about ``requests.CHUNK_BYTES``, or larger ones as they came."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += int(batch.nbytes)
        if size >= r.CHUNK_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def _cast(batch: pa.RecordBatch, columns: Schema, stream: str) -> pa.RecordBatch:
    """A batch as the source declares it."""
    check_columns(batch.schema, columns, stream)
    return pa.RecordBatch.from_arrays(
        [_column(batch.column(field.name), field, stream) for field in columns],
        schema=pa.schema([(field.name, to_arrow(field.type)) for field in columns]),
    )


def _column(array: pa.Array, field: Field, stream: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return arrow_in(array, field.type, f"source {stream!r}: column {field.name!r}")


def _pieces(codec: TrainCodec, batch: pa.RecordBatch, stream: str) -> Iterator[tuple[Any, int]]:
    try:
        for payload, rows, _ in codec.encode(Train(batch=batch), bytes_aim=r.CHUNK_BYTES_MAX):
            yield payload, rows
    except LocalProtocolError as error:
        raise DataError(f"source {stream!r}: {error.message}", hint=error.hint, code="data.size") from None
