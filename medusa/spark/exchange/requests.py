"""What Spark's workers ask of a gateway, and its answers: every field with its bounds.

A request is a msgpack header, and for ``Stage`` the rows as one Arrow record batch message. Each can be
asked again: who hears no answer asks again, and what was done is not done twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.elements import START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.query.types import is_type
from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, StreamTime, Text

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_BYTES_MAX",
    "Abort",
    "Answer",
    "Commit",
    "Cut",
    "Cuts",
    "Describe",
    "Described",
    "Done",
    "Drop",
    "EpochLine",
    "LINES_MAX",
    "Failed",
    "Finish",
    "Forget",
    "Listed",
    "Listing",
    "Look",
    "Open",
    "Opened",
    "Publish",
    "Range",
    "Read",
    "ReaderLine",
    "Request",
    "Rows",
    "Seal",
    "Shape",
    "SourceLine",
    "Stage",
    "WholeAttempt",
    "decode_answer",
    "decode_request",
    "encode",
    "mark_of",
    "token_of",
]

M = TypeVar("M")

TOKENS_MAX = 20_000
"""Tasks of one epoch."""

CHUNK_BYTES, CHUNK_BYTES_MAX = 3 << 20, 7 << 19
"""Of rows that are brought or answered at once: small batches are put together up to the first, large ones
are cut to the second, which leaves room in a payload. Too small: each takes its way there and back, and what
is brought its syncs; too large: both ends hold more."""

LINES_MAX = 1000
HEADER_BYTES_MAX = 4 << 20

Reader = Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]
Token = Annotated[str, Meta(pattern=r"\Aw[0-9a-f]{16}-[0-9x]{1,19}-\d{1,9}-[0-9a-f]{16}\Z")]
Writer = Annotated[str, Meta(min_length=1, max_length=512)]
Columns = Annotated[Schema, Meta(min_length=1, max_length=limits.COLUMNS_MAX)]


class Base(MessageBase, frozen=True):
    """Number: of the request; its answer has the same."""

    number: Count


# --- reading --------------------------------------------------------------------------------------


class Open(Base, frozen=True, tag="open"):
    """Read a stream under a name, from now on; a name that is known goes on.

    Attributes:
        start: ``oldest``, ``now`` or the number of a row: where a new name begins.
        batch: for one read that comes to no checkpoint: a name that is used for nothing else is forgotten
            when nobody has asked for it for long.
    """

    stream: Name
    reader: Reader
    start: Annotated[str, Meta(pattern=r"\A(oldest|now|\d{1,18})\Z")]
    batch: bool = False


class Shape(Base, frozen=True, tag="shape"):
    """Which columns does a stream have? Nothing is kept for who asks; the answer is ``Described``."""

    stream: Name


class Opened(Base, frozen=True, tag="opened"):
    """Attributes:
    fresh: nothing was read yet, that is known, and what it began with is the ``start`` asked for.
    life: what tells this reader from one of its name before it was forgotten; empty: it is older than such.
    """

    columns: Columns
    earliest: Count
    latest: Count
    fresh: bool = False
    life: Annotated[str, Meta(max_length=64)] = ""


class Look(Base, frozen=True, tag="look"):
    """Which rows are there?

    Attributes:
        done: rows below were read, though not committed yet.
    """

    stream: Name
    reader: Reader
    done: Count = 0


class Range(Base, frozen=True, tag="range"):
    """Rows from ``earliest`` on, before ``latest``; what was there once stays until it is committed.

    Attributes:
        why: what keeps new rows away, where something does.
        full: no more is taken until some of these are read.
        ended: the stream is over: no row comes behind ``latest``.
        promised_us: no row from ``latest`` on has a time below it, but those that are late; of a stream
            without times nothing is promised.
    """

    earliest: Count
    latest: Count
    why: Text = ""
    full: bool = False
    ended: bool = False
    promised_us: StreamTime = int(START_US)


class Cut(Base, frozen=True, tag="cut"):
    """Where to cut these rows into parts of about so many bytes."""

    stream: Name
    reader: Reader
    lo: Count
    hi: Count
    nbytes: Annotated[int, Meta(ge=1, le=limits.SEQ_MAX)]


class Cuts(Base, frozen=True, tag="cuts"):
    """Rows between the first and the last at which a part begins, ascending."""

    rows: Annotated[tuple[Count, ...], Meta(max_length=TOKENS_MAX)]


class Read(Base, frozen=True, tag="read"):
    """Rows from ``lo`` on, before ``hi``: as many as fit an answer."""

    stream: Name
    reader: Reader
    lo: Count
    hi: Count


class Rows(Base, frozen=True, tag="rows"):
    """Payload: one record batch message of the stream's columns, and a bool where ``late``.

    Attributes:
        first: number of the first row; above what was asked for where rows are missing.
        rows: how many; 0: none, and no payload.
        next: the row to ask for next.
        boundary_us: no row from the first on has a time below it, but those that are late.
    """

    first: Count
    rows: Annotated[int, Meta(ge=0, le=limits.ROWS_MAX)]
    next: Count
    boundary_us: StreamTime
    late: bool = False


class Commit(Base, frozen=True, tag="commit"):
    """Rows below are read; the last batch before them stays until the next commit."""

    stream: Name
    reader: Reader
    row: Count


class Forget(Base, frozen=True, tag="forget"):
    """End a reader for good, here and at the node."""

    stream: Name
    reader: Reader


class Listing(Base, frozen=True, tag="listing"):
    """Who reads and writes here, and how far each is."""


class ReaderLine(MessageBase, frozen=True):
    """Attributes:
    known: the node has told the columns; else the numbers say nothing.
    earliest, latest: rows from the first on, before the second, are here.
    read: rows below were read; those behind wait for Spark.
    nbytes: on disk.
    full: no more is taken from the node until some are read.
    missing: rows that the node no longer had.
    gone: rows before the first that a new reader from ``oldest`` on got.
    ended: the stream is over, and all its rows are here.
    silent_s: so long nobody has asked for it, since the gateway was started.
    why: what keeps new rows away.
    """

    stream: Name
    reader: Reader
    known: bool = False
    earliest: Count = 0
    latest: Count = 0
    read: Count = 0
    nbytes: Count = 0
    full: bool = False
    missing: Count = 0
    gone: Count = 0
    ended: bool = False
    silent_s: Count = 0
    why: Text = ""


class SourceLine(MessageBase, frozen=True):
    """Attributes:
    published: rows, ever.
    waiting: of these, rows that its node hasn't taken yet.
    """

    stream: Name
    published: Count
    waiting: Count
    why: Text = ""


class EpochLine(MessageBase, frozen=True):
    """The last epoch that a writer published."""

    writer: Writer
    stream: Name
    epoch: Count


class Listed(Base, frozen=True, tag="listed"):
    """Attributes:
    writers: those that may come again, the last ones first.
    staged_bytes: of rows that no node has taken; of them ``unpublished_bytes`` of no epoch yet.
    stage_bytes, spool_bytes: how much may be, of all that is written, and of each reader.
    node_why: why the node hasn't answered since the gateway was started; empty: it has.
    """

    readers: Annotated[tuple[ReaderLine, ...], Meta(max_length=LINES_MAX)]
    sources: Annotated[tuple[SourceLine, ...], Meta(max_length=LINES_MAX)]
    writers: Annotated[tuple[EpochLine, ...], Meta(max_length=LINES_MAX)]
    staged_bytes: Count
    unpublished_bytes: Count
    stage_bytes: Count
    spool_bytes: Count
    node_why: Text = ""


# --- writing --------------------------------------------------------------------------------------


class Describe(Base, frozen=True, tag="describe"):
    """Which columns does the source have that rows are written to?"""

    stream: Name


class Described(Base, frozen=True, tag="described"):
    columns: Columns


class Stage(Base, frozen=True, tag="stage"):
    """Keep rows of an attempt of a task. Payload: a record batch message of the source's columns.

    Attributes:
        token: of the attempt: ``token_of``.
        chunk: counted from 0.
    """

    stream: Name
    token: Token
    chunk: Annotated[int, Meta(ge=0, lt=1_000_000)]
    rows: Annotated[int, Meta(ge=1, le=limits.ROWS_MAX)]


def token_of(writer: str, epoch: int | None, partition: int, attempt: str) -> str:
    """What an attempt of a task is called.

    Args:
        epoch: None: it isn't known yet.
        attempt: 16 hexadecimal digits that no other attempt has.
    """
    return f"{mark_of(writer)}-{'x' if epoch is None else epoch}-{partition}-{attempt}"


def mark_of(writer: str) -> str:
    """With which the tokens of a writer begin."""
    return f"w{hashlib.sha256(writer.encode()).hexdigest()[:16]}"


class WholeAttempt(MessageBase, frozen=True):
    """An attempt that has staged all its rows."""

    token: Token
    chunks: Annotated[int, Meta(ge=0, le=1_000_000)]
    rows: Count


class Drop(Base, frozen=True, tag="drop"):
    """Forget a source that is written to, here and at its node: its rows are numbered from 0 again.

    Attributes:
        waiting: also where rows wait for it, which are lost then.
    """

    stream: Name
    waiting: bool = False


class Finish(Base, frozen=True, tag="finish"):
    """End a source that is written to, once all that was published is at its node."""

    stream: Name


class Seal(Base, frozen=True, tag="seal"):
    """All chunks of an attempt are there: say so once they are."""

    stream: Name
    whole: WholeAttempt


class Publish(Base, frozen=True, tag="publish"):
    """The rows of these attempts belong to the stream from now on, in this order.

    Attributes:
        origin: what the epochs of the writer are counted by: one checkpoint, or one job.
        once: this writer has no other epoch and won't come again.
        run: one run of a query; a second write of it under this epoch isn't the first one again. Empty: none.
    """

    stream: Name
    writer: Writer
    origin: Annotated[str, Meta(max_length=512)]
    epoch: Count
    wholes: Annotated[tuple[WholeAttempt, ...], Meta(max_length=TOKENS_MAX)]
    once: bool = False
    run: Annotated[str, Meta(max_length=64)] = ""


class Abort(Base, frozen=True, tag="abort"):
    """Forget these attempts, unless their epoch is published."""

    writer: Writer
    epoch: Count
    tokens: Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX)]


# --- answers --------------------------------------------------------------------------------------


class Done(Base, frozen=True, tag="done"):
    """Attributes:
    fresh: it was done now; else it had been done before, and nothing was changed.
    """

    fresh: bool = True
    text: Text = ""


class Failed(Base, frozen=True, tag="failed"):
    """Nothing was done.

    Attributes:
        again: it may go well a little later.
    """

    code: Name
    text: Text
    hint: Text = ""
    again: bool = False


Request = (
    Open
    | Look
    | Cut
    | Read
    | Commit
    | Forget
    | Listing
    | Describe
    | Stage
    | Seal
    | Publish
    | Abort
    | Drop
    | Finish
    | Shape
)
Answer = Opened | Range | Cuts | Rows | Listed | Described | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgpack_decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgpack_decoder(Answer)


def encode(message: Request | Answer, payload: Buffer | None = None) -> list[Buffer]:
    """The frames of a message.

    Raises:
        LocalProtocolError: it is larger than the other side takes.
    """
    header = _encoder.encode(message)
    if len(header) > HEADER_BYTES_MAX:
        raise LocalProtocolError(
            f"a {type(message).__name__} of {len(header):,} bytes",
            hint="fewer tasks in one epoch: coalesce before writing",
            code="E_LIMIT",
        )
    return [header] if payload is None else [header, payload]


def decode_request(frames: Sequence[Buffer], peer: str = "") -> tuple[Request, Buffer | None]:
    """A request as it came.

    Raises:
        RemoteProtocolError: it breaks a rule.
    """
    message, payload = _decoded(frames, _requests, peer)
    if isinstance(message, Stage) is (payload is None):
        raise RemoteProtocolError("rows belong to `stage`, and to nothing else", peer=peer, code="E_FRAME")
    return message, payload


def decode_answer(frames: Sequence[Buffer], peer: str = "") -> tuple[Answer, Buffer | None]:
    """An answer as it came.

    Raises:
        RemoteProtocolError: it breaks a rule.
    """
    message, payload = _decoded(frames, _answers, peer)
    if (isinstance(message, Rows) and message.rows > 0) is (payload is None):
        raise RemoteProtocolError("rows belong to `rows`, and to nothing else", peer=peer, code="E_FRAME")
    if isinstance(message, Opened | Described):
        for field in message.columns:
            if not is_type(field.type) or not 1 <= len(field.name) <= limits.NAME_CHARS_MAX:
                raise RemoteProtocolError(
                    f"column {field.name[:60]!r} of type {field.type[:60]!r}", peer=peer, code="E_SCHEMA"
                )
    return message, payload


def _decoded(
    frames: Sequence[Buffer], decoder: msgspec.msgpack.Decoder[M], peer: str
) -> tuple[M, Buffer | None]:
    if not 1 <= len(frames) <= 2:
        raise RemoteProtocolError(f"a message of {len(frames)} parts", peer=peer, code="E_FRAME")
    if memoryview(frames[0]).nbytes > HEADER_BYTES_MAX:
        raise RemoteProtocolError("a header beyond the limit", peer=peer, code="E_LIMIT")
    try:
        message = decoder.decode(frames[0])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"no message: {str(error)[:200]}", peer=peer, code="E_FRAME") from None
    if len(frames) == 2 and memoryview(frames[1]).nbytes > limits.PAYLOAD_BYTES_MAX:
        raise RemoteProtocolError("a payload beyond the limit", peer=peer, code="E_LIMIT")
    return message, frames[1] if len(frames) == 2 else None
