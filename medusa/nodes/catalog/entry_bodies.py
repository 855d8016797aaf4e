"""What the entries of the catalog say, by kind. Whoever reads one written by another node checks it here."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.wire import limits

__all__ = [
    "KINDS",
    "DefinitionBody",
    "FragmentBody",
    "NodeBody",
    "QueryBody",
    "SourceBody",
    "StreamBody",
    "body_from",
    "body_to",
    "fields_of",
]

Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Names = Annotated[tuple[Name, ...], Meta(max_length=limits.PLACES_MAX)]
Word = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]
Columns = Annotated[tuple[tuple[Name, Word], ...], Meta(max_length=limits.COLUMNS_MAX)]
Number = Annotated[int, Meta(ge=0, le=limits.SEQ_MAX)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields by name."""


class NodeBody(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """A node.

    Attributes:
        address: where it listens; a wildcard where it listens at all addresses of its machine.
        server_key: its CURVE public key; empty: it has none.
        engine: what runs its fragments; empty: the node.
        cores: that this has; 0: not said.
        latency_us: what comes out comes so much later there, p50 and p99.
        kinds: of boxes that it takes; empty: all.
    """

    address: Word
    server_key: Word = ""
    participant: Word
    store: Word
    memory_bytes: Number
    engine: Word = ""
    cores: Number = 0
    latency_us: tuple[Number, Number] | None = None
    kinds: Names = ()


class FragmentBody(_Body, frozen=True):
    """A fragment: its boxes, the streams that leave it, the sources that publishers feed.

    Attributes:
        feeds: those of its boxes that stand for boxes elsewhere, whose streams they read.
        guest_of: the other participant for which it runs here; empty: for our own.
    """

    query: Name
    boxes: Names
    streams: Names
    sources: Names
    feeds: Names = ()
    guest_of: Word = ""


class StreamBody(_Body, frozen=True):
    """A stream that can be read.

    Attributes:
        window_us: of results of windows, their size and advance.
        reader: the query that alone reads it; empty: whoever may.
    """

    query: Name
    fragment: Name
    columns: Columns
    timed: bool
    window_us: tuple[Number, Number] | None = None
    reader: Word = ""


class SourceBody(_Body, frozen=True, omit_defaults=True):
    """A source that can be published into.

    Attributes:
        arrival, partition, partitions: as of the source, so that who publishes checks what it would refuse;
            without ``partitions`` where those are too many to be told.
    """

    query: Name
    fragment: Name
    columns: Columns
    time: Word | None
    unit: Word | None
    slack_us: Number | None
    arrival: Word | None = None
    partition: Word | None = None
    partitions: Annotated[tuple[bool | int | str, ...], Meta(max_length=limits.BODY_BYTES_MAX)] | None = None


class QueryBody(_Body, frozen=True):
    """A query, by the node that coordinates it.

    Attributes:
        reads: full names of the streams of other queries that it reads.
        stopped: fragments that the owners of other nodes have ended there -> those nodes.
        abroad: fragments that were put at nodes of other participants, with node, participant and boxes.
    """

    state: Word
    nodes: Names
    reads: Names = ()
    stopped: Annotated[dict[Name, Name], Meta(max_length=limits.PLACES_MAX)] = {}
    abroad: Annotated[tuple[tuple[Name, Name, Name, Names], ...], Meta(max_length=limits.PLACES_MAX)] = ()


class DefinitionBody(_Body, frozen=True):
    """A stream defined by name: what is published into ``source`` is read from ``stream``."""

    version: Number
    source: Name
    stream: Name
    columns: Columns
    time: Word | None
    unit: Word | None
    slack_us: Number | None


KINDS: dict[str, type[_Body]] = {
    "node": NodeBody,
    "query": QueryBody,
    "fragment": FragmentBody,
    "stream": StreamBody,
    "source": SourceBody,
    "definition": DefinitionBody,
}
"""Of what this version knows; others are passed on and never read."""

_READERS: dict[type[_Body], msgspec.msgpack.Decoder[Any]] = {
    kind: msgpack_decoder(kind) for kind in KINDS.values()
}

_B = TypeVar("_B", bound=_Body)


def body_to(body: _Body) -> bytes:
    """As msgpack."""
    return msgspec.msgpack.encode(body)


def body_from(data: bytes, kind: type[_B]) -> _B | None:
    """Read it; None: it is none of this kind."""
    try:
        body: _B = _READERS[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return body


def fields_of(body: _Body) -> dict[str, Any]:
    """As plain data."""
    return msgspec.structs.asdict(body)
