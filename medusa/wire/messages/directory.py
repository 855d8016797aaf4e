"""What the nodes of one participant say to each other of their catalog, and what clients ask of it.

The payloads are msgpack too, decoded as strictly as headers: ``runs_from`` and ``seen_from``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Payload

__all__ = [
    "ALL",
    "NEWS",
    "US",
    "CatalogEntry",
    "Define",
    "Digest",
    "Entries",
    "EntryRun",
    "Lookup",
    "Seen",
    "check_run",
    "runs_from",
    "runs_to",
    "seen_from",
    "seen_to",
]

US, NEWS, ALL = range(3)
"""Of which nodes a ``Digest`` says what was seen of them: of the two, of those of which there was news
since the last time, of all."""

Looked = Annotated[str, Meta(min_length=1, max_length=64)]
"""Of a node, only compared with names that are known: a thousand of them are read in one message. Those of
writers, and kinds, are checked by ``check_run``, which knows those that it saw before."""


class CatalogEntry(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """One line of the catalog, as the node that wrote it says.

    Attributes:
        epoch: of what it is about: whoever takes it over writes a higher one. Of a node: the period in which
            it wrote this (``nodes.clock.expiry``).
        version: all that one node writes is numbered, and what it writes later has a larger number.
        body: msgpack; the directory doesn't look into it.
        gone: there is no such thing any more.
        stream_version: replicas of one stream share its name and differ in this.
    """

    kind: Looked
    name: Name
    writer: Looked
    epoch: Count
    version: Count
    body: Annotated[bytes, Meta(max_length=limits.BODY_BYTES_MAX)] = b""
    gone: bool = False
    stream_version: Count = 1


class EntryRun(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """All that one node has written with versions in (``after``, ``upto``] and that still stands.

    Attributes:
        since: what it wrote with a smaller version, in earlier lives, stands no more.
        entries: by version, ascending.
    """

    writer: Looked
    since: Count
    after: Count
    upto: Count
    entries: Annotated[tuple[CatalogEntry, ...], Meta(max_length=limits.ENTRIES_MAX)]


class Entries(MessageBase, frozen=True, tag="entries"):
    """News of the catalog, to a node of the same participant. Payload: runs, as msgpack.

    Attributes:
        more: there is more; answer with a ``Digest``.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    more: bool = False


class Digest(MessageBase, frozen=True, tag="digest"):
    """So much of the catalog I have seen. Payload, where there is one: of some nodes the last version.

    Attributes:
        digest: a hash over all: where it is yours too, nothing is to be said.
        answer: say what you have seen that I may not have, if it is another.
        covers: which nodes the payload names: 0 us two, and those of which I lack something; 1 also those of
            which I had news since I last told you; 2 all of which I know anything.
    """

    PAYLOAD: ClassVar[Payload] = Payload.OPTIONAL

    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]
    answer: bool = False
    covers: Annotated[int, Meta(ge=US, le=ALL)] = US


class Lookup(MessageBase, frozen=True, tag="lookup"):
    """From a client: where is this?

    Attributes:
        name: of a stream, source, fragment, query, node or definition; empty: list all of a kind.
        kind: what it is; empty: whatever bears the name.
        above: of one whose node the client has lost: the epoch in which that had it. The answer comes once it
            is in a higher one, or after a second; an earlier release answers at once. 0: at once.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("above",)

    request: Count
    name: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    kind: Annotated[str, Meta(max_length=32)] = ""
    above: Count = 0


class Define(MessageBase, frozen=True, tag="define"):
    """From a client: let there be this stream. Payload: a query of one source and one sink, as msgpack."""

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count


Seen: TypeAlias = dict[str, int]
"""Node -> the version up to which all that it wrote is known."""

_Runs = Annotated[tuple[EntryRun, ...], Meta(max_length=limits.WRITERS_MAX)]
_Seen = Annotated[tuple[tuple[Looked, Count], ...], Meta(max_length=limits.WRITERS_MAX)]
_encoder = msgspec.msgpack.Encoder()
_runs: msgspec.msgpack.Decoder[tuple[EntryRun, ...]] = msgpack_decoder(_Runs)
_seen: msgspec.msgpack.Decoder[tuple[tuple[str, int], ...]] = msgpack_decoder(_Seen)
_T = TypeVar("_T")


def runs_to(runs: tuple[EntryRun, ...]) -> bytes:
    """As msgpack."""
    return _encoder.encode(runs)


def seen_to(seen: Seen) -> bytes:
    """As msgpack."""
    return _encoder.encode(tuple(seen.items()))


def runs_from(data: Buffer) -> tuple[EntryRun, ...]:
    """Read runs; each holds what it says.

    Raises:
        RemoteProtocolError: malformed, or a run that isn't one (``E_MESSAGE``), or too much (``E_LIMIT``).
    """
    runs = _decoded(_runs, data)
    for run in runs:
        check_run(run)
    return runs


@lru_cache(maxsize=2 * limits.WRITERS_MAX)
def _is_node(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9_-]{1,64}", name) is not None


@lru_cache(maxsize=256)
def _is_kind(name: str) -> bool:
    return re.fullmatch(r"[a-z]{1,32}", name) is not None


def check_run(run: EntryRun) -> None:
    """Whether a run is one: of one writer, ascending, between its bounds.

    Raises:
        RemoteProtocolError: no (``E_MESSAGE``).
    """
    if not _is_node(run.writer):
        raise RemoteProtocolError(f"no node is called {run.writer!r}", code="E_MESSAGE")
    before = run.after
    for entry in run.entries:
        if not _is_kind(entry.kind):
            raise RemoteProtocolError(f"no kind of an entry is called {entry.kind!r}", code="E_MESSAGE")
        if entry.writer != run.writer or not before < entry.version <= run.upto:
            raise RemoteProtocolError(f"a run of {run.writer!r} that isn't one", code="E_MESSAGE")
        if not entry.name.isprintable():
            raise RemoteProtocolError(f"an entry is called {entry.name[:60]!r}", code="E_MESSAGE")
        before = entry.version
    if run.upto < run.after:
        raise RemoteProtocolError(f"a run of {run.writer!r} that isn't one", code="E_MESSAGE")


def seen_from(data: Buffer) -> Seen:
    """Read what somebody has seen.

    Raises:
        RemoteProtocolError: malformed, or a node twice (``E_MESSAGE``), or too much (``E_LIMIT``).
    """
    pairs = _decoded(_seen, data)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RemoteProtocolError("a node stands twice in a digest", code="E_MESSAGE")
    return found


def _decoded(decoder: msgspec.msgpack.Decoder[_T], data: Buffer) -> _T:
    if memoryview(data).nbytes > limits.RUNS_BYTES_MAX:
        raise RemoteProtocolError(f"{memoryview(data).nbytes:,} bytes of a catalog", code="E_LIMIT")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"no news of a catalog: {str(error)[:200]}", code="E_MESSAGE") from None
