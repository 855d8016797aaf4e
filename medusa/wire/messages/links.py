"""What the two ends of a link say to each other: who is there, and the rows of streams.

A message is the header of a frame, as msgpack; columns, queries and answers travel beside it as
the frame's payload. Decoding is strict: right types, right ranges, nothing missing, nothing more.

*Row positions* (``seq``) count the rows of a stream from 0 and never restart: they are the same
after a crash. *Frames* count what was sent since an attachment. An *epoch* names an attachment of
one receiver to one stream; the receiver chooses ever larger ones, so what is still under way from
an earlier attachment is recognised.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from medusa.query.boxes import Schema
from medusa.wire import limits
from medusa.wire.messages.base import (
    Count,
    Incarnation,
    MessageBase,
    Name,
    Note,
    Payload,
    PublisherName,
    StreamTime,
    SubscriptionName,
    Text,
)

__all__ = [
    "NOW",
    "OLDEST",
    "RESUME",
    "Ack",
    "Attach",
    "Attached",
    "Boundary",
    "Data",
    "Detach",
    "Heartbeat",
    "Hello",
    "OpenPublisher",
    "Progress",
    "Refuse",
]

OLDEST = -1
"""``Attach.next_seq``: from the oldest row that is kept."""

NOW = -2
"""``Attach.next_seq``: from the next row that comes."""

RESUME = -3
"""``Attach.next_seq``: from what the sender knows to be durable with me; I have nothing any more."""

Thinned = Annotated[tuple[tuple[Name, Count], ...], Meta(max_length=limits.THINNED_MAX)]
"""Fragment and source, as ``query/box.source`` -> rows that were left out there; by the name of the stream,
all that aren't told apart."""

# --- two peers --------------------------------------------------------------------------------


class Hello(MessageBase, frozen=True, tag="hello"):
    """The first words in either direction.

    Attributes:
        version: the oldest version of the protocol that the speaker knows.
        version_most: the newest; 0: it knows one.
        node: who speaks: a node's name, or one that a client made up for itself.
        incarnation: grows with each start of ``node``; positions in memory died with the last.
        answer: the speaker wants a ``Hello`` back.
        client: the speaker is a client, not a node.
        memory: the speaker keeps nothing over its end.
        lane: 0: this connection is for control, or for all; else the one of this number for the streams
            of a node.
        striped: of such a connection: the frames of each stream go round over so many; 0: a stream keeps
            to one.
        address: where the speaker listens; empty: nowhere, or it doesn't know.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("version_most",)

    version: Count
    node: Name
    incarnation: Incarnation
    answer: bool = False
    client: bool = False
    memory: bool = False
    lane: Annotated[int, Meta(ge=0, le=limits.LANES_MAX)] = 0
    striped: Annotated[int, Meta(ge=0, le=limits.LANES_MAX)] = 0
    address: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    version_most: Count = 0

    @classmethod
    def ours(
        cls, node: str, incarnation: int, *, answer: bool = False, client: bool = False, memory: bool = False
    ) -> Hello:
        """That of a speaker of this release."""
        least, most = limits.PROTOCOL_VERSION_LEAST, limits.PROTOCOL_VERSION
        return cls(
            version=least,
            node=node,
            incarnation=incarnation,
            answer=answer,
            client=client,
            memory=memory,
            version_most=0 if most == least else most,
        )

    def common_version(self, other: Hello) -> int:
        """The newest version that both know; 0: there is none."""
        newest = min(self.version_most or self.version, other.version_most or other.version)
        return newest if newest >= max(self.version, other.version) else 0

    @property
    def versions(self) -> str:
        """In words: ``version 2``, ``versions 2 to 4``."""
        one = self.version_most <= self.version
        return f"version {self.version}" if one else f"versions {self.version} to {self.version_most}"


class Heartbeat(MessageBase, frozen=True, tag="heartbeat"):
    """I am here, and still the one who said ``Hello`` with this incarnation."""

    incarnation: Incarnation


class Refuse(MessageBase, frozen=True, tag="refuse"):
    """The receiver of this broke a rule, or can't have what it asked for.

    Attributes:
        code: with ``E_ROWS`` rows that came could not be taken, and nothing ends (a node to a publisher).
        stream: what it is about; empty: the link itself.
        epoch: of the attachment it ends; with ``E_EPOCH``, the epoch to go beyond.
    """

    code: Name
    text: Text
    hint: Text = ""
    stream: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    epoch: Count = 0


# --- one stream: receiver to sender -----------------------------------------------------------


class Attach(MessageBase, frozen=True, tag="attach"):
    """Send me this stream, from here on.

    Attributes:
        next_seq: the first row I want; ``OLDEST`` and ``NOW`` only from plain receivers, ``RESUME``
            only from others.
        durable: rows below this I never want again; at most ``next_seq``.
        granted: bytes that may be under way to me from the start.
        plain: a subscriber without a disk: what it took it never wants again, and when it is gone
            or stops reading nothing is kept for it.
        resumed: rows before ``next_seq`` came over an earlier attachment of the same receiver: a
            sender that fell back behind them will come to them again. Else a plain receiver that
            names a row beyond the end is refused (``E_SEQ``).
        name: of a named subscription of a client, never ``plain``: its rows are kept whether or not
            somebody reads.
            Where it is known and this isn't ``resumed``, ``OLDEST`` and ``NOW`` go on at the first row
            not yet acknowledged, and a row acknowledges those below it.
        known: where the name isn't known, refuse it (``E_NAME``) rather than begin it.
        note: the last that came with rows or promises of this stream.
        fragment_epoch: of the fragment that reads, where it is surely its node's; 1 once it was handed
            over to another node, 0: it isn't one of a node's.
        life: of the stream from which the rows before ``next_seq`` came, as ``Attached`` said; 0: unknown.
        configuration: number of the query's configuration by which I go; 0: I am told of none.
        tentative: send me the tentative lane too, as ``TentativeTaken`` lets you go on; not of a named
            subscription.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("configuration", "tentative")

    stream: Name
    epoch: Count
    next_seq: Annotated[int, Meta(ge=RESUME, le=limits.SEQ_MAX)]
    durable: Count
    granted: Count
    plain: bool = False
    resumed: bool = False
    name: SubscriptionName = ""
    known: bool = False
    note: Note = b""
    fragment_epoch: Count = 0
    life: Count = 0
    configuration: Count = 0
    tentative: bool = False


class Ack(MessageBase, frozen=True, tag="ack"):
    """What I have, what I hold durably, and how far you may go. All counts only grow.

    Attributes:
        frames: frames received in this epoch, the ``Attached`` included.
        received: the next row I expect.
        durable: rows below this, and what came of them, survive my crash.
        granted: bytes you may send in this epoch, counted from its start.
        note: keep this with ``durable`` and give it back when I ask to ``RESUME``.
        configuration: as in ``Attach``.
        shed: so many of your rows I have left out under overload, since the first.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("configuration", "shed")

    stream: Name
    epoch: Count
    frames: Count
    received: Count
    durable: Count
    granted: Count
    note: Note = b""
    configuration: Count = 0
    shed: Count = 0


class Detach(MessageBase, frozen=True, tag="detach"):
    """I don't want this stream any more; keep nothing for me. Of a named subscription: I read no more,
    keep its rows; ``Forget`` ends it."""

    stream: Name
    epoch: Count


# --- one stream: sender to receiver -----------------------------------------------------------


class OpenPublisher(MessageBase, frozen=True, tag="offer"):
    """I have rows for this stream of yours: attach to me (a client that publishes).

    Attributes:
        name: of a named publisher: whose rows are numbered on under it, by whichever client. The first
            ``Attach`` says from where; who opens it later takes it over.
        resumed: of a named publisher: this client was attached under the name before, and takes over
            nothing. Refused (``E_TAKEN``) where another one has it now.
    """

    stream: Name
    schema: Annotated[Schema, Meta(max_length=limits.COLUMNS_MAX)]
    name: PublisherName = ""
    resumed: bool = False


class Attached(MessageBase, frozen=True, tag="attached"):
    """Frame 0 of an attachment: what follows.

    Attributes:
        next_seq: the first row that will come; where it is larger than the one asked for, the rows
            between are lost, exactly so many.
        boundary_us: the promise that stands at ``next_seq``.
        schema: of the stream, the hidden time column left out.
        timed: rows have a hidden time.
        lost: of a named subscription that goes on: so many rows before ``next_seq`` were neither
            acknowledged nor kept.
        note: to ``RESUME``: what was left with us.
        stream_version: replicas of a stream share its name and differ in this.
        life: which time the stream was begun with row 0: its sender may have lost what it had; 0: unknown.
        configuration: as in ``Attach``.
        skipped: so many of the numbers before ``next_seq``, from the one asked for on, belong to no row: who
            puts the stream out has changed, and rows come again under higher ones.
        tentative: the tentative lane comes too, and begins with how the stream is: the number after the last
            row, and the last promise, that there are now; None: it doesn't come.
        thinned: as in ``Boundary``.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("configuration", "skipped", "tentative", "thinned")

    stream: Name
    epoch: Count
    next_seq: Count
    boundary_us: StreamTime
    schema: Annotated[Schema, Meta(max_length=limits.COLUMNS_MAX)]
    timed: bool
    lost: Count = 0
    note: Note = b""
    stream_version: Count = 1
    life: Count = 0
    configuration: Count = 0
    skipped: Count = 0
    tentative: tuple[Count, StreamTime] | None = None
    thinned: Thinned = ()


class Data(MessageBase, frozen=True, tag="data"):
    """A train. Payload: one Arrow record batch message without schema.

    Attributes:
        frame: its number in this epoch.
        seq: position of its first row; it may lie below the row wanted, where a train is resent.
        rows: how many.
        tentative: kind of the rows.
        late: a hidden bool column says which rows came too late at their source.
        note: keep the last one and give it back when you attach.
        thinned: as in ``Boundary``.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED
    TAIL: ClassVar[tuple[str, ...]] = ("thinned",)

    stream: Name
    epoch: Count
    frame: Count
    seq: Count
    rows: Annotated[int, Meta(ge=1, le=limits.ROWS_MAX)]
    tentative: bool = False
    late: bool = False
    note: Note = b""
    thinned: Thinned = ()


class Boundary(MessageBase, frozen=True, tag="boundary"):
    """No row at or after position ``seq`` has a time below ``time_us``.

    Attributes:
        note: as in ``Data``.
        thinned: where rows were left out above this stream under overload, and how many, where that has
            changed since the last frame: all of it. Counts only grow. In no order with the rows.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("thinned",)

    stream: Name
    epoch: Count
    frame: Count
    seq: Count
    time_us: StreamTime
    note: Note = b""
    thinned: Thinned = ()


class Progress(MessageBase, frozen=True, tag="progress"):
    """Sent while something is not yet acknowledged: reveals lost frames, asks for an ``Ack``.

    Attributes:
        frames: sent in this epoch so far, the ``Attached`` included.
        pressed: what is kept for you has passed half its bound: make it durable soon.
    """

    stream: Name
    epoch: Count
    frames: Count
    pressed: bool = False
