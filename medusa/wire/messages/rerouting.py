"""What nodes say when a fragment moves, or begins to read: to those it reads from, and to those that read it.

    owner ── Expect ──> upstream:    keep rows for the target too, from where I hold durably
    owner ── Follow ──> downstream:  could you read my stream there?
    owner ── Placed ──> coordinator: the target may have the query: undeploy it there too
    owner ── Moved ──> downstream:   my stream comes from the target now
    reader ── Read ──> upstream:     a query of mine reads your sink

Each is asked again until it is answered by a ``Reply``; asked twice it changes nothing more. The numbers
of one node's questions about one stream grow, over its lives too: a question below the newest one heard
is left over from an earlier attempt and changes nothing. Who gives up an attempt says ``Unexpect``
wherever it had said ``Expect``, also where that was refused.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from medusa.query.boxes import Schema
from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Names

__all__ = ["DivertMessage", "Expect", "Follow", "Moved", "Placed", "Read", "Release", "Unexpect"]

Epoch = Annotated[int, Meta(ge=1, le=limits.SEQ_MAX)]


class Expect(MessageBase, frozen=True, tag="expect"):
    """Keep the rows of this stream for another reader too, from where I hold it durably.

    From the node whose fragment reads it. Answered once that is on disk; then the reader may attach. Its
    first attachment says that it has taken the fragment: the one it follows is released.

    Attributes:
        like: who reads now: the sender of this.
        reader: who will.
        epoch: that the fragment will have there.

    Refused: ``E_STREAM`` (not here), ``E_MOVED`` (it was here), ``E_READER`` (not the reader), ``E_MOVE``
    (the other one reads it for another fragment), ``E_PEER`` (the other one is no peer of ours), ``E_BUSY``
    (what puts it out is being moved itself, or an earlier attempt isn't over), ``E_STORE`` (no disk).
    """

    request: Count
    query: Name
    stream: Name
    like: Name
    reader: Name
    epoch: Epoch


class Unexpect(MessageBase, frozen=True, tag="unexpect"):
    """The attempt is given up: keep nothing more for this reader, which never attached."""

    request: Count
    query: Name
    stream: Name
    reader: Name


class Release(MessageBase, frozen=True, tag="release"):
    """This reader reads the stream no more: keep nothing more for it. From itself, or from who follows it."""

    request: Count
    query: Name
    stream: Name
    reader: Name


class Follow(MessageBase, frozen=True, tag="follow"):
    """Could you read this stream of mine from that node? Nothing changes.

    Refused: ``E_PEER`` (it is no peer of ours), ``E_BUSY`` (what reads it is being moved itself),
    ``E_STORE`` (no disk).
    """

    request: Count
    query: Name
    stream: Name
    node: Name


class Moved(MessageBase, frozen=True, tag="moved"):
    """The stream comes from another node from now on: go on there at your row.

    Only from the node that it comes from. Answered once the reader's catalog says so.

    Attributes:
        request: 0 where no answer is wanted.
        epoch: of the fragment there. One that isn't above the reader's is late, and changes nothing.

    Refused: ``E_SENDER`` (the stream doesn't come from who says this), ``E_PEER``, ``E_BUSY``.
    """

    request: Count
    stream: Name
    node: Name
    epoch: Epoch


class Placed(MessageBase, frozen=True, tag="placed"):
    """To the node that deployed a query: that node has a part of it, or may have in a moment.

    Said before the target is sent anything, and by the target when it has taken the fragment.

    Attributes:
        streams: those that are there from now on; empty: none yet.

    Refused: ``E_REMOVED`` (it was removed: forget its parts), ``E_QUERY`` (not known, or forgotten),
    ``E_BUSY`` (not deployed yet),
    ``E_READER`` (who says it has no part of it), ``E_PEER`` (that node can't be reached from here),
    ``E_STORE`` (no disk, so nobody knows whether the query is there).
    """

    request: Count
    query: Name
    fragment: Name
    node: Name
    streams: Names = ()


class Read(MessageBase, frozen=True, tag="read"):
    """A query of ours reads a sink of yours: keep for us what comes out of it from now on.

    From the node where its source will stand. Answered once that is on disk. The rows are a stream of their
    own, numbered from 0 (``nodes.spec.fragment_spec.guest_name``), until the reader says ``Release``. Asked
    again under another number it begins anew.

    Attributes:
        query, source: who reads.
        stream: the sink's.
        schema, timed: as the query has it.

    Refused: ``E_STREAM`` (not here, or no sink's), ``E_MOVED`` (it was here), ``E_SCHEMA`` (other columns),
    ``E_NO_CONTRACT`` (it isn't offered to this participant), ``E_BUSY`` (it is being moved), ``E_STORE`` (no
    disk), ``E_LIMIT`` (too many read it).
    """

    request: Count
    query: Name
    source: Name
    stream: Name
    schema: Annotated[Schema, Meta(max_length=limits.COLUMNS_MAX)]
    timed: bool


DivertMessage: TypeAlias = Expect | Unexpect | Release | Follow | Moved | Placed | Read
