"""The payloads of ``Traded`` and ``Booked``: read with their bounds, and written."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import ContractId, PartyName
from medusa.market.ledger.messages import LedgerMessage
from medusa.market.negotiation.messages import LoadMessage
from medusa.market.work import TaskName
from medusa.ports import Buffer
from medusa.query.boxes import Field, Schema
from medusa.wire import limits

__all__ = [
    "BookedWord",
    "ReadOn",
    "ReadsOn",
    "StreamSuggested",
    "SuggestionHeard",
    "TaskRows",
    "TaskRowsHeard",
    "encode_word",
    "read_booked",
    "read_traded",
]

Number = Annotated[int, Meta(ge=0, le=1 << 62)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class TaskRows(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="task_rows"):
    """From the owner of a task to its host: these of its rows are paid for.

    Attributes:
        negotiation: by which it was handed over.
        begin_row: those before this number had come in then.
        end_row: those from this number on come in at home; None: it is away.
    """

    contract: ContractId
    negotiation: Number
    task: TaskName
    begin_row: Number
    end_row: Number | None = None


class TaskRowsHeard(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="task_rows_heard"):
    """The answer, once it is kept.

    Attributes:
        ended: the host knows where it ended, too.
        unpaid: it has nothing of the task to be paid for, but what is receipted.
    """

    contract: ContractId
    negotiation: Number
    task: TaskName
    ended: bool = False
    unpaid: bool = False


class StreamSuggested(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="stream_suggested"):
    """From who sells a stream to a reader: read it at that participant, who has it too.

    Attributes:
        contract: by which it is read.
        stream: the reader's; ``asked``: the number of the question by which that came.
        partner: who has a replica of it.
        origin: what its sink calls the reader's row 0; below 0 where it began behind that.
    """

    contract: ContractId
    stream: Name
    asked: Number
    partner: PartyName
    origin: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class SuggestionHeard(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="suggestion_heard"):
    """The answer: it reads there no more; or why it stays."""

    contract: ContractId
    stream: Name
    asked: Number
    code: Annotated[str, Meta(max_length=64)] = ""
    text: Annotated[str, Meta(max_length=256)] = ""


class ReadOn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="read_on"):
    """To who has a replica: a query of ours reads your sink on, which it has read elsewhere so far.

    Attributes:
        contract: that sells it there.
        query, source: who reads.
        stream: the sink's; ``columns``, ``timed``: as the query has it.
        asked: the number of this question.
        origin: what the sink calls the reader's row 0.
    """

    contract: ContractId
    query: Name
    source: Name
    stream: Name
    columns: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=limits.COLUMNS_MAX)]
    timed: bool
    asked: Number
    origin: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]

    def schema(self) -> Schema:
        return tuple(Field(name, type) for name, type in self.columns)


class ReadsOn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="reads_on"):
    """The answer: rows from ``begin`` on are kept, by the reader's numbers; or why not."""

    contract: ContractId
    asked: Number
    begin: Number = 0
    code: Annotated[str, Meta(max_length=64)] = ""
    text: Annotated[str, Meta(max_length=256)] = ""


BookedWord: TypeAlias = (
    LedgerMessage | TaskRows | TaskRowsHeard | StreamSuggested | SuggestionHeard | ReadOn | ReadsOn
)

_traded: msgspec.msgpack.Decoder[LoadMessage] = msgpack_decoder(LoadMessage)
_booked: msgspec.msgpack.Decoder[BookedWord] = msgpack_decoder(BookedWord)
_encoder = msgspec.msgpack.Encoder()


def encode_word(word: LoadMessage | BookedWord) -> bytes:
    """The payload that says it."""
    return _encoder.encode(word)


def read_traded(peer: str, payload: Buffer | None) -> LoadMessage:
    """What a ``Traded`` says.

    Raises:
        RemoteProtocolError: it is too long, or none.
    """
    data = _bounded(peer, payload, limits.TRADED_BYTES_MAX)
    try:
        return _traded.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(peer, error) from None


def read_booked(peer: str, payload: Buffer | None) -> BookedWord:
    """What a ``Booked`` says.

    Raises:
        RemoteProtocolError: it is too long, or none.
    """
    data = _bounded(peer, payload, limits.BOOKED_BYTES_MAX)
    try:
        return _booked.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(peer, error) from None


def _bounded(peer: str, payload: Buffer | None, most: int) -> Buffer:
    nbytes = 0 if payload is None else memoryview(payload).nbytes
    if payload is None or nbytes > most:
        raise RemoteProtocolError(
            f"a word of the market has {nbytes:,} bytes: 1 to {most:,} are allowed", peer=peer, code="E_FRAME"
        )
    return payload


def _unreadable(peer: str, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"no word of the market: {str(error)[:200]}", peer=peer, code="E_FRAME")
