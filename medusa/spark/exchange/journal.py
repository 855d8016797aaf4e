"""What was published, by whom, and how far it went to the nodes: records of a journal, and their sum.

A record counts once it is whole in the journal: an epoch is published by one record. The journal begins with
a ``JournalSnapshot``, which says all that earlier journals said.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.engine.state.checkpoint import crc32c
from medusa.errors import LinkError, StateError
from medusa.ports import Buffer
from medusa.spark.exchange.requests import WholeAttempt

__all__ = [
    "JournalSnapshot",
    "ExchangeJournal",
    "DeliveredRecord",
    "Dropped",
    "Published",
    "Queued",
    "check_again",
    "is_damaged",
    "pack",
    "unpack",
]

ONCE_MAX = 10_000
"""Writers of one epoch that are remembered: who asks again after so many others isn't known."""

_Row = Annotated[int, Meta(ge=0)]


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A line of the journal."""


class Published(JournalRecord, frozen=True, tag="published"):
    """These rows belong to the stream, behind all that were published before."""

    stream: str
    writer: str
    origin: str
    epoch: _Row
    wholes: tuple[WholeAttempt, ...]
    once: bool = False
    run: str = ""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.wholes)


class DeliveredRecord(JournalRecord, frozen=True, tag="delivered"):
    """The node holds the rows below durably: what was staged of them may go."""

    stream: str
    row: _Row


class Dropped(JournalRecord, frozen=True, tag="dropped"):
    """The source is forgotten, with what waits for it: its rows are numbered from 0 again."""

    stream: str


class WriterLine(JournalRecord, frozen=True):
    """Attributes:
    rows: of the epoch; -1: it isn't known.
    run: that published it.
    digest: of its attempts.
    """

    writer: str
    stream: str
    origin: str
    epoch: _Row
    once: bool
    rows: int = -1
    run: str = ""
    digest: str = ""


class StreamLine(JournalRecord, frozen=True):
    """Attributes:
    first: number of the first row of ``queue``.
    """

    stream: str
    first: _Row
    queue: tuple[Published, ...]


class JournalSnapshot(JournalRecord, frozen=True, tag="balance"):
    """All of it, at the beginning of a journal."""

    writers: tuple[WriterLine, ...] = ()
    streams: tuple[StreamLine, ...] = ()


Line = JournalSnapshot | Published | DeliveredRecord | Dropped
_encoder = msgspec.msgpack.Encoder()
_BEGINNING = re.compile(rb"[\x90-\x9f][\xa0-\xbf](?:balance|published|delivered|dropped)")
"""Of what a record holds: an array with its tag."""

_decoder: msgspec.msgpack.Decoder[Line] = msgpack_decoder(Line)


def pack(line: Line) -> bytes:
    """A record: its length, its CRC-32C, msgpack."""
    data = _encoder.encode(line)
    return len(data).to_bytes(4, "little") + crc32c(data).to_bytes(4, "little") + data


def unpack(data: Buffer) -> tuple[list[Line], int]:
    """The whole records at the beginning, and where they end."""
    view = memoryview(data).cast("B")
    lines: list[Line] = []
    at = 0
    while (content := _record(view, at)) is not None:
        try:
            lines.append(_decoder.decode(content))
        except msgspec.MsgspecError as error:
            raise StateError(f"a record of another version: {error}", code="state.version") from None
        at += 8 + len(content)
    return lines, at


def _record(view: memoryview, at: int) -> memoryview | None:
    """The content of a record that is whole; however large, since a balance is as large as what it says."""
    if at < 0 or len(view) - at < 8:
        return None
    length = int.from_bytes(view[at : at + 4], "little")
    content = view[at + 8 : at + 8 + length]
    if len(content) < length or crc32c(content) != int.from_bytes(view[at + 4 : at + 8], "little"):
        return None
    return content if length else None


def is_damaged(data: Buffer, end: int) -> bool:
    """Whether there are whole records behind where ``unpack`` found their end.

    A write that was cut off leaves none: after it a journal isn't gone on with.
    """
    view = memoryview(data).cast("B")
    return any(
        _record(view, end + each.start() - 8) is not None for each in _BEGINNING.finditer(view[end:], 9)
    )


def _digest(wholes: tuple[WholeAttempt, ...]) -> str:
    """What tells these attempts from others."""
    return hashlib.sha256(" ".join(each.token for each in wholes).encode()).hexdigest()[:16]


def check_again(
    known: WriterLine, origin: str, epoch: int, wholes: tuple[WholeAttempt, ...], run: str
) -> None:
    """Refuse an epoch that was published, where this can't be the same write again.

    A query that is started again runs its last epoch again: whatever its rows are now, those count that were
    published. Two writes in one run are two; and of those that only their user numbers, who may err, more is
    looked at.

    Raises:
        LinkError: ``E_WRITER``.
    """
    rows = sum(each.rows for each in wholes)
    numbered = bool(known.origin and origin)
    why = ""
    if epoch == known.epoch and known.digest not in ("", _digest(wholes)):
        if run and run == known.run:
            why = "by an earlier write of the same batch"
        elif not numbered and known.rows != rows:
            why = f"with {known.rows:,} rows, and these are {rows:,}"
    elif epoch < known.epoch and not numbered:
        why = f"or not, before epoch {known.epoch}: only the last one is remembered"
    if why:
        raise LinkError(
            f"epoch {epoch} of {known.writer!r} was published {why}",
            hint="each write of a batch needs an option `writer` of its own, and epochs that grow; what "
            "counts from 0 again needs another `writer`",
            code="E_WRITER",
        )


@dataclass(slots=True)
class Queued:
    """An epoch that the node doesn't hold yet.

    Attributes:
        first: number of its first row among all rows that this gateway published into the stream.
    """

    first: int
    published: Published

    @property
    def end(self) -> int:
        return self.first + self.published.rows


@dataclass(slots=True)
class _Stream:
    end: int = 0
    queue: deque[Queued] = field(default_factory=deque)

    def add(self, line: Published) -> None:
        self.queue.append(Queued(self.end, line))
        self.end += line.rows

    @property
    def first(self) -> int:
        """Number of the first row that isn't known to be at the node."""
        return self.queue[0].first if self.queue else self.end


class ExchangeJournal:
    """What the records come to. No IO."""

    def __init__(self) -> None:
        self._writers: dict[str, WriterLine] = {}
        self._streams: dict[str, _Stream] = {}

    def add(self, line: Line) -> list[WholeAttempt]:
        """Take a record.

        Returns:
            what was staged and isn't needed any more.
        """
        match line:
            case JournalSnapshot():
                self._writers = {each.writer: each for each in line.writers}
                self._streams = {}
                for each in line.streams:
                    self._streams[each.stream] = _Stream(each.first)
                    for one in each.queue:
                        self._queue(one)
                return []
            case Published():
                self._queue(line)
                self._writers.pop(line.writer, None)
                self._writers[line.writer] = WriterLine(
                    writer=line.writer,
                    stream=line.stream,
                    origin=line.origin,
                    epoch=line.epoch,
                    once=line.once,
                    rows=line.rows,
                    run=line.run,
                    digest=_digest(line.wholes),
                )
                self._forget()
                return []
            case DeliveredRecord():
                return self._delivered(line)
            case Dropped():
                gone = self._streams.pop(line.stream, None) or _Stream()
                return [whole for one in gone.queue for whole in one.published.wholes]

    def _queue(self, line: Published) -> None:
        stream = self._streams.setdefault(line.stream, _Stream())
        if line.rows:
            stream.add(line)

    def _forget(self) -> None:
        once = [name for name, each in self._writers.items() if each.once]
        for name in once[: max(len(once) - ONCE_MAX, 0)]:
            del self._writers[name]

    def _delivered(self, line: DeliveredRecord) -> list[WholeAttempt]:
        gone: list[WholeAttempt] = []
        queue = self._streams.setdefault(line.stream, _Stream()).queue
        while queue and queue[0].end <= line.row:
            gone += queue.popleft().published.wholes
        return gone

    def balance(self) -> JournalSnapshot:
        """All of it as a record."""
        return JournalSnapshot(
            writers=tuple(self._writers.values()),
            streams=tuple(
                StreamLine(
                    stream=name,
                    first=each.first,
                    queue=tuple(one.published for one in each.queue),
                )
                for name, each in self._streams.items()
            ),
        )

    # --- questions --------------------------------------------------------------------------------

    def writer(self, name: str) -> WriterLine | None:
        """The last that this writer published."""
        return self._writers.get(name)

    def writers(self) -> list[WriterLine]:
        """The last of each that is remembered."""
        return list(self._writers.values())

    def streams(self) -> list[str]:
        """Those that something was published into."""
        return list(self._streams)

    def end(self, stream: str) -> int:
        """How many rows were published into it, ever."""
        return self._streams[stream].end if stream in self._streams else 0

    def first(self, stream: str) -> int:
        """Rows below are at the node."""
        return self._streams[stream].first if stream in self._streams else 0

    def waiting(self, stream: str) -> int:
        """How many rows aren't known to be at the node."""
        return self.end(stream) - self.first(stream)

    def queue(self, stream: str) -> tuple[Queued, ...]:
        """What isn't known to be at the node, in order."""
        return tuple(self._streams[stream].queue) if stream in self._streams else ()

    def tokens(self) -> Iterator[str]:
        """Of all attempts that are published and still needed."""
        for stream in self._streams.values():
            for queued in stream.queue:
                for whole in queued.published.wholes:
                    yield whole.token
