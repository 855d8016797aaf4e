"""Published rows on their way into a stream: each once, whatever dies.

The node numbers what it has taken under the gateway's name (``Port``), and the books number what was
published: the same numbers. So after any death the node says from which row on to send.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from medusa.errors import DataError, LinkError, MedusaError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.spark.exchange.staging import Staging
from medusa.wire.codec import TrainCodec
from medusa.wire.messages.links import Data

__all__ = ["Port", "deliver", "rows_from"]

FLUSH = "50ms"


class Port(Protocol):
    """A named durable publisher: rows that it takes are numbered from 0, under its name.

    Attributes:
        next_row: the number of the row that is to be published next.
        durable_row: the node holds the rows below durably.
    """

    @property
    def next_row(self) -> int: ...

    @property
    def durable_row(self) -> int: ...

    def publish(self, data: pa.RecordBatch) -> None:
        """Send rows; they are durable once ``flush`` has returned."""

    def check(self) -> None:
        """What the node has said against it so far.

        Raises:
            DataError: it refused rows, and counts them all the same (``E_ROWS``); said once.
            LinkError: it refused all of it.
        """

    def finish(self) -> None:
        """No more rows come under this name; durable once ``flush`` has returned."""

    def flush(self, timeout: str) -> None:
        """Wait until the node holds all of them durably.

        Raises:
            LinkError: not in time: ``link.timeout``; or it refused.
            DataError: as ``check``.
        """


def deliver(staging: Staging, stream: str, schema: Schema, port: Port, flush_rows: int = 1 << 20) -> int:
    """Send what is published and not sent yet, and forget what the node holds.

    It waits ``FLUSH`` for the node: a checkpoint may be far, and the next epoch needn't wait for it. Call it
    again while ``port.durable_row`` is below ``port.next_row``.

    Returns:
        how many rows were sent.

    Raises:
        DataError: the node has more rows than were published, or fewer than were forgotten here; or it
            refused some (``E_ROWS``), which it counts like those that it takes: nothing is forgotten here.
        LinkError: the node went away, or refused: open the port anew.
        StateError: the disk.
    """
    codec = TrainCodec(schema, timed=False)
    row = port.next_row
    _forget(staging, stream, port)
    first, queue = staging.pending(stream)
    if row < first:
        raise DataError(
            f"{stream!r}: the node wants row {row} of this gateway, and rows below {first} were durable "
            "there and are forgotten here",
            hint="the source was deployed anew, or its node lost its disk: `medusa gateway forget --source` "
            "begins anew there; what is lost Spark publishes again under another writer",
            code="data.lost",
        )
    sent = since = 0
    for queued in queue:
        at = queued.first
        if queued.end <= row:
            continue  # It is on its way.
        for rows, read, where in staging.rows_of(queued):
            if at + rows > row:
                batch = rows_from(codec, rows, read(), where)
                part = batch.slice(max(row - at, 0))
                port.publish(part)
                sent += part.num_rows
                since += part.num_rows
                row = at + rows
            at += rows
        if since >= flush_rows:
            _forget_held(staging, stream, port)
            since = 0
    if port.durable_row < port.next_row:
        _forget_held(staging, stream, port)
    return sent


def _forget_held(staging: Staging, stream: str, port: Port) -> None:
    try:
        port.flush(FLUSH)
    except LinkError as error:
        if error.code != "link.timeout":
            raise
    _forget(staging, stream, port)


def _forget(staging: Staging, stream: str, port: Port) -> None:
    row = port.durable_row
    port.check()  # Of what it refused it says so before that is durable.
    staging.delivered(stream, row)


def rows_from(codec: TrainCodec, rows: int, payload: Buffer, where: str) -> pa.RecordBatch:
    """The rows of a chunk.

    Raises:
        StateError: they aren't of these columns.
    """
    message = Data(stream="s", epoch=0, frame=0, seq=0, rows=rows)
    try:
        return codec.decode(message, payload).batch
    except MedusaError as error:
        raise StateError(
            f"{where}: {error.message}",
            hint="the source was defined anew with other columns than these rows were staged for",
            code="state.columns",
        ) from None
