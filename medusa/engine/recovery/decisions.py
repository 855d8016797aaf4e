"""Decisions: what a run decides outside its data, as entries of a log, and the bytes of a log.

Rows that entered as they came, explicit boundaries, idle sources that were moved on, what async
functions gave, and how much was left out under overload: given these, in this order, a fragment does
again what it did. An entry says what entered and what the async boxes released while the fragment ran to
quiescence on it.

A log is a sequence of records: length, CRC-32C of the payload, payload; a payload is a list of
entries in MessagePack. A reader stops at the first record that isn't whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from medusa._native import crc32c
from medusa.decoders import msgpack_decoder
from medusa.elements import END_US, START_US
from medusa.ports import Buffer

__all__ = [
    "AnswersReleased",
    "Batch",
    "CallAnswer",
    "Entry",
    "Lifts",
    "Promise",
    "Released",
    "Rest",
    "RowsEntered",
    "Sheds",
    "framed",
    "is_framed",
    "pack",
    "unpack",
    "whole_records",
]

Record = TypeVar("Record")

RECORD_MAX = 1 << 30
"""Bytes of a payload."""

_HEAD = 8


class CallAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What became of some rows of a call of an async function.

    Attributes:
        first, rows: which rows of its train.
        error: why the row is dead; empty where there is output.
        output: the record batch, as an Arrow IPC message.
        index: int64 each: the row that caused each output row, counted from ``first``; None: one by one.
    """

    first: int
    rows: int
    error: str = ""
    output: bytes | None = None
    index: bytes | None = None


class Released(msgspec.Struct, frozen=True, array_like=True):
    """What an async box sent on: the answers of its oldest calls, one after the other."""

    box: str
    calls: tuple[tuple[CallAnswer, ...], ...]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    pass


class RowsEntered(_Entry, frozen=True, tag=1):
    """Rows of a source entered, up to number ``stop`` of its rows; as one train, where a run needs that."""

    source: str
    stop: int
    arrival_us: int | None = None
    released: tuple[Released, ...] = ()


class Promise(_Entry, frozen=True, tag=2):
    """An explicit boundary of a source, after so many of its rows."""

    source: str
    at: int
    time_us: int
    released: tuple[Released, ...] = ()


class Lifts(_Entry, frozen=True, tag=3):
    """Idle sources, each after so many rows, took boundaries (the last number) for which boxes asked."""

    sources: tuple[tuple[str, int, int], ...]
    released: tuple[Released, ...] = ()


class Rest(_Entry, frozen=True, tag=4):
    """Idle partitions of a source, by their numbers, let go of the others after so many rows."""

    source: str
    at: int
    parts: tuple[int, ...]
    released: tuple[Released, ...] = ()


class AnswersReleased(_Entry, frozen=True, tag=5):
    """Nothing entered; async boxes sent on what had ended by then."""

    released: tuple[Released, ...]


class Sheds(_Entry, frozen=True, tag=6):
    """How much is left out from now on at places, by their keys; of each source that leads to some, after so
    many of its rows.
    """

    sources: tuple[tuple[str, int, dict[str, float]], ...]
    released: tuple[Released, ...] = ()


Entry = RowsEntered | Promise | Lifts | Rest | AnswersReleased | Sheds


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a record.

    Attributes:
        carried: the entries stand in an earlier log too: they count where reading begins with this one.
    """

    carried: bool
    entries: tuple[Entry, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgpack_decoder(Batch)


def pack(entries: Sequence[Entry], *, carried: bool = False) -> bytes:
    """Entries as one record."""
    return framed(_encoder.encode(Batch(carried, tuple(entries))))


def framed(payload: bytes) -> bytes:
    """A payload as one record."""
    return len(payload).to_bytes(4, "little") + crc32c(payload).to_bytes(4, "little") + payload


def _frames(data: Buffer) -> Iterator[tuple[memoryview, int]]:
    """The payloads of the records that are whole, and where each record ends."""
    view = memoryview(data).cast("B")
    at = 0
    while at + _HEAD <= len(view):
        size = int.from_bytes(view[at : at + 4], "little")
        start, end = at + _HEAD, at + _HEAD + size
        if not 0 < size <= RECORD_MAX or end > len(view):
            return
        if crc32c(view[start:end]) != int.from_bytes(view[at + 4 : start], "little"):
            return
        yield view[start:end], end
        at = end


def is_framed(data: memoryview) -> bool:
    """Whether bytes begin with a record that is whole."""
    return next(_frames(data), None) is not None


def is_torn(data: Buffer) -> bool:
    """Whether what follows the whole records can be a record of which the end wasn't written."""
    view = memoryview(data).cast("B")
    return len(view) < _HEAD or len(view) < _HEAD + int.from_bytes(view[:4], "little") <= _HEAD + RECORD_MAX


def whole_records(
    data: Buffer, decode: Callable[[memoryview], Record], possible: Callable[[Record], bool]
) -> tuple[list[Record], int]:
    """The whole records of a log, and the bytes that they take: what is beyond is no record."""
    found: list[Record] = []
    length = 0
    for payload, end in _frames(data):
        try:
            record = decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            break
        if not possible(record):
            break
        found.append(record)
        length = end
    return found, length


def unpack(data: Buffer) -> tuple[list[Batch], int]:
    """As ``whole_records``, of a run in a program."""
    return whole_records(data, _decoder.decode, lambda batch: all(map(_possible, batch.entries)))


def _possible(entry: Entry) -> bool:
    """Whether the numbers of an entry can be; names are looked at where they are used."""
    if isinstance(entry, RowsEntered):
        return entry.stop > 0
    if isinstance(entry, Promise):
        return entry.at >= 0 and START_US < entry.time_us <= END_US
    if isinstance(entry, Lifts):
        return all(at >= 0 and START_US < time_us < END_US for _, at, time_us in entry.sources)
    if isinstance(entry, Sheds):
        shares = [share for _, _, each in entry.sources for share in each.values()]
        return all(at >= 0 for _, at, _ in entry.sources) and all(0 <= share <= 2 for share in shares)
    if isinstance(entry, Rest):
        return entry.at >= 0 and all(part >= 0 for part in entry.parts)
    return bool(entry.released)
