"""Frames to bytes and back; rows to Arrow and back. Everything malformed is the peer's fault.

A frame is one or two buffers: a msgpack header (one ``Message``) and, for some messages, a
payload. The payload of ``Data`` is one Arrow record batch message. Its schema is not in it: that
was stated once in ``Attached``, and comes here as an argument. Hidden columns stand after those of
the schema: the time of each row, then the late mask.

Sending copies the columns once, into the payload. Receiving copies nothing where the payload
starts at a multiple of 8 bytes (Arrow may read 8 bytes at a time); else the payload is copied, and
counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.elements import END_US, START_US, Kind, Train
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.query.types import is_type, to_arrow
from medusa.wire import limits
from medusa.wire.column_cleaning import clean
from medusa.wire.messages import Message
from medusa.wire.messages.base import Payload
from medusa.wire.messages.links import Attached, Data, OpenPublisher
from medusa.wire.messages.tentative import TentativeRows

__all__ = [
    "TrainCodec",
    "decode_frame",
    "decode_header",
    "encode_frame",
    "late_below",
    "latest_us",
    "split",
    "without_below",
]

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgpack_decoder(Message)
_NO_UTF8 = "Invalid UTF-8 encoded string"
_ONE_LESS = tuple(bytes((max(first - 1, 0),)) for first in range(256))
"""How an array begins that has a field less than one that begins so; acknowledgements are made often."""


def encode_frame(message: Message, payload: Buffer | None = None) -> list[Buffer]:
    """The buffers of a frame; the payload itself is passed on, not copied.

    Raises:
        LocalProtocolError: larger than a peer would take.
    """
    header = _without_tail(message, _encoder.encode(message))
    if len(header) > limits.HEADER_BYTES_MAX:
        raise LocalProtocolError(
            f"a {type(message).__name__} of {len(header):,} bytes",
            hint=f"at most {limits.HEADER_BYTES_MAX:,}: fewer columns or shorter names",
            code="E_LIMIT",
        )
    if payload is None:
        return [header]
    if memoryview(payload).nbytes > limits.PAYLOAD_BYTES_MAX:
        raise LocalProtocolError(
            f"a payload of {memoryview(payload).nbytes:,} bytes",
            hint=f"at most {limits.PAYLOAD_BYTES_MAX:,}",
            code="E_LIMIT",
        )
    return [header, payload]


def _without_tail(message: Message, header: bytes) -> bytes:
    """As it is sent: see ``MessageBase.TAIL``. Such a message has fewer than 16 fields."""
    for tail in reversed(message.TAIL):
        if getattr(message, tail):
            break
        header = _ONE_LESS[header[0]] + header[1:-1]
    return header


def _array_begin(header: bytes) -> tuple[int, int]:
    """How many elements an array has, and where they begin; it has to be said in its shortest form."""
    if 0x90 <= header[0] <= 0x9F:
        return header[0] & 0x0F, 1
    count = int.from_bytes(header[1:3], "big")
    return (count, 3) if header[0] == 0xDC and count > 15 else (-1, 0)


def _is_canonical(header: bytes, ours: bytes) -> bool:
    """Whether a header is what we would write, up to fields at the end that one of two releases lacks."""
    (count, begin), (our_count, our_begin) = _array_begin(header), _array_begin(ours)
    shorter, longer = header[begin:], ours[our_begin:]
    if count > our_count:
        shorter, longer = longer, shorter
    return count not in (-1, our_count) and longer.startswith(shorter)


def decode_header(header: Buffer, *, peer: str = "") -> Message:
    """A message, checked against its struct and in the one form that we write it in: a map that names a
    field twice, or a number longer than it need be, is nothing that a peer of ours sends.

    Fields at the end that this release doesn't know are skipped; those that the peer's doesn't know have
    their defaults.

    Raises:
        RemoteProtocolError: too long (``E_LIMIT``), or no message of ours (``E_FRAME``).
    """
    nbytes = memoryview(header).nbytes
    if nbytes > limits.HEADER_BYTES_MAX:
        raise RemoteProtocolError(f"a header of {nbytes:,} bytes", peer=peer, code="E_LIMIT")
    try:
        message = _decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # As msgspec says it from 0.23 on; before, Python did: what a node says must not depend on that.
        text = _NO_UTF8 if isinstance(error, UnicodeDecodeError) else str(error)[:200]
        raise RemoteProtocolError(f"no message: {text}", peer=peer, code="E_FRAME") from None
    ours = _encoder.encode(message)
    if header != ours and header != _without_tail(message, ours) and not _is_canonical(bytes(header), ours):
        raise RemoteProtocolError("a message that is not in canonical form", peer=peer, code="E_FRAME")
    if isinstance(message, Attached | OpenPublisher):
        _check_schema(message.schema, peer)
    return message


def _check_schema(schema: Schema, peer: str) -> None:
    """Names as columns may have them, none twice; types we have."""
    names: dict[str, None] = {}
    for field in schema:
        if not 1 <= len(field.name) <= limits.NAME_CHARS_MAX or not field.name.isprintable():
            raise RemoteProtocolError(f"column name {field.name[:60]!r}", peer=peer, code="E_SCHEMA")
        if field.name in names:
            raise RemoteProtocolError(f"column {field.name!r} stands twice", peer=peer, code="E_SCHEMA")
        if not is_type(field.type):
            raise RemoteProtocolError(
                f"column {field.name!r} has type {field.type[:60]!r}", peer=peer, code="E_SCHEMA"
            )
        names[field.name] = None


def decode_frame(frames: Sequence[Buffer], *, peer: str = "") -> tuple[Message, Buffer | None]:
    """One frame as it came from the network.

    Raises:
        RemoteProtocolError: any rule broken.
    """
    if not 1 <= len(frames) <= 2:
        raise RemoteProtocolError(f"a frame of {len(frames)} parts", peer=peer, code="E_FRAME")
    message = decode_header(frames[0], peer=peer)
    if len(frames) == 1:
        if message.PAYLOAD is Payload.REQUIRED:
            raise RemoteProtocolError("the payload is missing", peer=peer, code="E_FRAME")
        return message, None
    if message.PAYLOAD is Payload.NONE:
        raise RemoteProtocolError(f"{type(message).__name__} has no payload", peer=peer, code="E_FRAME")
    nbytes = memoryview(frames[1]).nbytes
    if nbytes > limits.PAYLOAD_BYTES_MAX:
        raise RemoteProtocolError(f"a payload of {nbytes:,} bytes", peer=peer, code="E_LIMIT")
    return message, frames[1]


def split(train: Train, *, bytes_aim: int = limits.TRAIN_BYTES) -> Iterator[Train]:
    """Cut a train into pieces of about ``bytes_aim`` bytes; zero copy, in order, none empty.

    Pieces are equal in rows; where the rows differ much in size, so do they.
    """
    rows = len(train)
    nbytes = train.batch.get_total_buffer_size() if rows == 0 else train.batch.nbytes
    pieces = max(-(-nbytes // bytes_aim), -(-rows // limits.ROWS_MAX), 1)
    step = max(-(-rows // pieces), 1)
    if step >= rows:
        if rows:
            yield train
        return
    for start in range(0, rows, step):
        yield train.part(start, min(step, rows - start))


@dataclass(slots=True)
class Counters:
    """How often a payload had to be copied since it wasn't aligned."""

    copied: int = 0


class TrainCodec:
    """Encodes and decodes the trains of one stream.

    Args:
        schema: of the stream, at most ``limits.COLUMNS_MAX`` columns.
        timed: rows have a hidden time.
        clean: what is sent holds nothing of our memory beside the values (null slots, padding): for
            another owner.
    """

    def __init__(self, schema: Schema, *, timed: bool, clean: bool = False) -> None:
        if not 1 <= len(schema) <= limits.COLUMNS_MAX:
            raise LocalProtocolError(
                f"a stream of {len(schema):,} columns", hint=f"1 to {limits.COLUMNS_MAX:,}", code="E_LIMIT"
            )
        self.timed = timed
        self._clean = clean
        self.schema = pa.schema([(field.name, to_arrow(field.type)) for field in schema])
        hidden = [pa.field("", _TIME, nullable=False)] if timed else []
        self._wire = {
            late: pa.schema([*self.schema, *hidden, *([pa.field("", pa.bool_(), nullable=False)] * late)])
            for late in (False, True)
        }
        self.counters = Counters()

    def encode(
        self, train: Train, *, bytes_aim: int = limits.TRAIN_BYTES
    ) -> Iterator[tuple[pa.Buffer, int, bool]]:
        """The payloads of a train, cut so that each fits a frame: (payload, rows, has a late mask).

        Args:
            bytes_aim: of a payload, about.

        Raises:
            LocalProtocolError: not of this stream's schema, or one row alone is too large.
        """
        if not train.batch.schema.equals(self.schema) or (train.times is None) is self.timed:
            raise LocalProtocolError(
                f"a train of schema {train.batch.schema}, expected {self.schema}", code="E_SCHEMA"
            )
        if 0 < len(train) <= limits.ROWS_MAX and not self._clean:
            batch = self._on_the_wire(train)
            if pa.ipc.get_record_batch_size(batch) <= bytes_aim:  # The usual case, for less.
                yield batch.serialize(), len(train), train.late is not None
                return
        for piece in split(train, bytes_aim=bytes_aim):
            yield from self._encode(piece)

    def _on_the_wire(self, train: Train) -> pa.RecordBatch:
        """With its hidden columns."""
        if train.times is None and train.late is None and not self._clean:
            return train.batch
        columns = list(train.batch.columns)
        if train.times is not None:
            columns.append(train.times)
        if train.late is not None:
            columns.append(train.late)
        if self._clean:
            columns = [clean(column) for column in columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._wire[train.late is not None])

    def _encode(self, piece: Train) -> Iterator[tuple[pa.Buffer, int, bool]]:
        batch = self._on_the_wire(piece)
        if pa.ipc.get_record_batch_size(batch) <= limits.PAYLOAD_BYTES_MAX:
            yield batch.serialize(), len(piece), piece.late is not None
            return
        if len(piece) == 1:
            raise LocalProtocolError(
                f"one row of {batch.nbytes:,} bytes",
                hint=f"a row on a link has at most {limits.PAYLOAD_BYTES_MAX:,}",
                code="E_LIMIT",
            )
        half = len(piece) // 2
        yield from self._encode(piece.part(0, half))
        yield from self._encode(piece.part(half, len(piece) - half))

    def gathered(self, payloads: Sequence[Buffer]) -> Buffer:
        """One payload with the rows of several of ours, in their order; none has a late mask."""
        schema = self._wire[False]
        batches = [pa.ipc.read_record_batch(pa.ipc.read_message(_aligned(each)), schema) for each in payloads]
        batch = pa.concat_batches(batches)
        if self._clean:
            batch = pa.RecordBatch.from_arrays([clean(column) for column in batch.columns], schema=schema)
        return memoryview(batch.serialize())

    def decode(
        self,
        message: Data | TentativeRows,
        payload: Buffer,
        *,
        peer: str = "",
        skip: int = 0,
        boundary_us: int | None = None,
    ) -> Train:
        """The rows of a frame, without its first ``skip``; zero copy where the payload is aligned.

        Args:
            boundary_us: the promise that stands; no row may lie below it (late ones excepted).

        Raises:
            RemoteProtocolError: not Arrow (``E_ARROW``), more or fewer rows than stated or allowed
                (``E_LIMIT``), a time out of range (``E_LIMIT``), a row below the boundary (``E_BOUNDARY``).
        """
        batch = self._read(message, payload, peer)
        times = batch.column(len(self.schema)) if self.timed else None
        late = batch.column(batch.num_columns - 1) if message.late else None
        for column, what in ((times, "time"), (late, "late mask")):
            if column is not None and column.null_count:
                raise RemoteProtocolError(f"a null {what}", peer=peer, code="E_ARROW")
        shown = batch
        if batch.num_columns > len(self.schema):
            shown = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
        train = Train(
            batch=shown,
            times=times,
            first_seq=message.seq,
            kind=Kind.TENTATIVE if message.tentative else Kind.STABLE,
            late=late,
        )
        if skip:
            train = train.part(skip, len(train) - skip)
        if train.times is not None:
            _check_times(train.times, train.late, boundary_us, peer)
        return train

    def _read(self, message: Data | TentativeRows, payload: Buffer, peer: str) -> pa.RecordBatch:
        if memoryview(payload).nbytes > limits.PAYLOAD_BYTES_MAX or message.rows > limits.ROWS_MAX:
            raise RemoteProtocolError("a train beyond the limits", peer=peer, code="E_LIMIT")
        buffer = _aligned(payload)
        self.counters.copied += buffer.address != pa.py_buffer(payload).address
        try:
            found = pa.ipc.read_message(buffer)
            if found.type != "record batch":
                raise RemoteProtocolError(f"an Arrow message of type {found.type}", peer=peer, code="E_ARROW")
            compressed, count = _facts(found.metadata)
            if compressed:
                raise RemoteProtocolError("a compressed train", peer=peer, code="E_LIMIT")
            expected = self._wire[message.late]
            if count != len(expected):
                raise RemoteProtocolError(
                    f"{count} columns, expected {len(expected)}", peer=peer, code="E_ARROW"
                )
            batch = pa.ipc.read_record_batch(found, expected)
            if batch.num_rows != message.rows:
                raise RemoteProtocolError(
                    f"{batch.num_rows:,} rows, the header says {message.rows:,}", peer=peer, code="E_LIMIT"
                )
            batch.validate(full=True)
        except _MALFORMED as error:
            text = str(error)[:200]
            raise RemoteProtocolError(f"not Arrow: {text}", peer=peer, code="E_ARROW") from None
        return batch


def _aligned(payload: Buffer) -> pa.Buffer:
    """The same bytes where Arrow may read them."""
    buffer = pa.py_buffer(payload)
    return pa.py_buffer(bytes(payload)) if buffer.address % 8 else buffer


def _check_times(times: pa.Array, late: pa.Array | None, boundary_us: int | None, peer: str) -> None:
    """Times lie between the first and the last boundary there can be, and keep the promise."""
    import pyarrow.compute as pc  # Slow to load, and a reader or writer of Spark sees no hidden times.

    micros = times.cast(pa.int64())
    edges = pc.min_max(micros).as_py()
    if edges["min"] < START_US or edges["max"] >= END_US:
        raise RemoteProtocolError("a time beyond all boundaries", peer=peer, code="E_LIMIT")
    if boundary_us is None or edges["min"] >= boundary_us:
        return
    lowest = edges["min"] if late is None else pc.min(micros.filter(pc.invert(late))).as_py()
    if lowest is not None and lowest < boundary_us:
        raise RemoteProtocolError(
            f"a row of time {lowest} below the boundary {boundary_us}", peer=peer, code="E_BOUNDARY"
        )


def late_below(train: Train, boundary_us: int) -> tuple[Train, int]:
    """The train with its rows below a boundary counted as late, and how many of them weren't late before."""
    import pyarrow.compute as pc  # As above.

    assert train.times is not None, "a stream without time has no boundaries"
    below = pc.less(train.times.cast(pa.int64()), boundary_us)
    new = below if train.late is None else pc.and_not(below, train.late)
    if not (rows := pc.sum(new).as_py() or 0):
        return train, 0
    late = below if train.late is None else pc.or_(below, train.late)
    return msgspec.structs.replace(train, late=late), rows


def without_below(train: Train, boundary_us: int) -> tuple[Train, int]:
    """The train without its rows below a boundary but those that were late before, and how many went."""
    import pyarrow.compute as pc  # As above.

    assert train.times is not None, "a stream without time has no boundaries"
    stays = pc.greater_equal(train.times.cast(pa.int64()), boundary_us)
    if train.late is not None:
        stays = pc.or_(stays, train.late)
    if not (gone := len(train) - (pc.sum(stays).as_py() or 0)):
        return train, 0
    return (
        msgspec.structs.replace(
            train,
            batch=train.batch.filter(stays),
            times=train.times.filter(stays),
            late=None if train.late is None else train.late.filter(stays),
            extent=None,
        ),
        gone,
    )


def latest_us(train: Train) -> int:
    """The time of its latest row."""
    import pyarrow.compute as pc  # As above.

    assert train.times is not None, "a stream without time has no latest row"
    return int(pc.max(train.times.cast(pa.int64())).as_py())


def _facts(metadata: Buffer) -> tuple[bool, int]:
    """Whether a record batch message says that its buffers are compressed, and how many columns it brings.

    To read compressed ones would allocate what they claim. Of columns, none of ours being nested, Arrow reads
    as many as it needs and passes over more. Arrow has verified the flatbuffer; the walk is message ->
    field 2 (header) -> fields 3 (compression) and 1 (columns, a vector), where a table begins with the
    distance back to its vtable, and the vtable lists the fields' places after two sizes.
    """
    data = memoryview(metadata)
    (message,) = _INT(data, 0)
    header = message + _field(data, message, 2)
    header += _INT(data, header)[0]
    place = _field(data, header, 1)
    vector = header + place
    count = _INT(data, vector + _INT(data, vector)[0])[0] if place else 0
    return _field(data, header, 3) != 0, count


def _field(data: memoryview, table: int, number: int) -> int:
    """Where the field stands, from the table on; 0 where it is left out."""
    vtable = table - _INT(data, table)[0]
    at = 4 + 2 * number
    if at >= _SHORT(data, vtable)[0]:
        return 0
    place: int = _SHORT(data, vtable + at)[0]
    return place


_INT = struct.Struct("<i").unpack_from
_SHORT = struct.Struct("<H").unpack_from
_MALFORMED = (
    pa.ArrowException,
    OSError,
    ValueError,
    IndexError,
    NotImplementedError,
    EOFError,
    struct.error,
)
_TIME = pa.timestamp("us", tz="UTC")
