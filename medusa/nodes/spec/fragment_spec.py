"""The spec of a fragment: what one node installs, keeps on disk and gets from another node."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import QueryError
from medusa.nodes.spec.cached_attribute import lazily
from medusa.nodes.spec.spec_limits import check_limits
from medusa.nodes.upstream_backup.decisions import decision_in
from medusa.ports import Buffer
from medusa.query.boxes import Aggregate, Graph, Sink, Source
from medusa.query.delay import DELAY_US_MAX
from medusa.query.delay_policies import PROCESS, check_policies
from medusa.query.graph import CheckedGraph, check_graph, label_of
from medusa.query.published_stream import reads_of
from medusa.query.recovery import (
    AMNESIA,
    METHODS_BY_STRENGTH,
    PASSIVE,
    PRECISE_UPSTREAM,
    STATE_BACKUP,
    UPSTREAM,
)
from medusa.query.user_registry import check_functions
from medusa.wire import limits

__all__ = [
    "Feed",
    "ForeignReader",
    "FragmentSpec",
    "SoldStream",
    "check_fragment",
    "fragment_from",
    "fragment_to",
    "guest_name",
    "is_stream_name",
    "refuse_undecided",
    "sink_of",
]

_STREAM = re.compile(r"[A-Za-z0-9_.-]+")
SPEC_BYTES_MAX = 4 << 20
NOTE_KEY_BYTES = 32
GUEST_CHARS_MAX = 190
"""With the name of the query before it, a stream has at most 255."""
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Version = Annotated[int, Meta(ge=1, le=limits.SEQ_MAX)]


class Feed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An arc that comes from another fragment: ``source`` of this one reads ``stream`` of ``node``.

    ``epoch`` is of the fragment there: with each of its moves it is one higher, and ``node`` another.
    """

    source: Name
    node: Name
    stream: Name
    epoch: Annotated[int, Meta(ge=1, le=1 << 62)] = 1


class ForeignReader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another query that reads a sink of this fragment: it gets a stream of its own, numbered from 0.

    Attributes:
        sink: that it reads.
        query: that reads.
        first: the number of its row 0 among those of the sink.
        asked: the number of the question by which it came.
        foreign: it is of another participant, and never holds this fragment up.
    """

    sink: Name
    query: Name
    first: Annotated[int, Meta(ge=0, le=1 << 62)]
    asked: Annotated[int, Meta(ge=0, le=1 << 62)]
    foreign: bool = False


class SoldStream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By what another participant reads a sink, where that is paid for.

    Attributes:
        partner: who reads, and pays.
        contract: that both have signed.
        columns: of the sink, in its order: those that leave.
        begin: the number of the first row of the reader's stream; above 0 where it read the rows before
            elsewhere.
    """

    partner: Name
    contract: Name
    columns: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=limits.COLUMNS_MAX)]
    begin: Annotated[int, Meta(ge=0, le=limits.SEQ_MAX)] = 0


class FragmentSpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """What one node runs as one unit.

    Attributes:
        node: where.
        name: ``query/first-box``; unique on its node.
        graph: its boxes; valid by itself.
        feeds: its judged sources and where they read, in the order of the graph: one each.
        entries: its other sources, which publishers feed: source id to published name.
        streams: sink id to the name under which other nodes and clients read it; also those of guests.
        readers: of those, the ones that other nodes read: sink id to the nodes.
        guests: other queries that read sinks of this one, by what stands for a sink id in ``streams``.
        sold: of those guests, the ones that pay for what they read.
        stream_version: of all its streams: replicas share a stream's name and differ in this.
        read_versions: of the streams that it reads, by source; one that isn't here has version 1.
        standby: nodes that were to stand by for it when it was deployed, in the order in which they succeed.
        backup_nodes: of those (and, once it was taken over, its own node) the ones that hold its checkpoints,
            and have it only until another is there; none but by ``STATE_BACKUP``.
        checkpoint_every_us: between two of its checkpoints; 0: as its node has it.
        method: how who stands by for it can go on (``METHODS_BY_STRENGTH``); empty: by active standby.
        method_reason: why that is another one than an output wishes for that it feeds; empty: it isn't.
        delay_us: X, the least of the outputs of its query that it feeds: by how much a failure may hold up
            what it puts out before a fork of it goes on; 0: it waits.
        delay_failure, delay_stabilization: what becomes of new rows while an input is missing, and while
            corrections come: as of those outputs that one wishes by which they show first.
        note_key: secret of those who may have it: seals what one that keeps nothing leaves with its
            neighbours. Its first owner makes it; empty: without keys nothing is sealed.
    """

    node: Name
    name: Name
    graph: Graph
    feeds: tuple[Feed, ...]
    entries: dict[str, str]
    streams: dict[str, str]
    readers: dict[str, tuple[str, ...]]
    guests: dict[str, ForeignReader] = {}
    sold: dict[str, SoldStream] = {}
    stream_version: Version = 1
    read_versions: dict[Name, Version] = {}
    standby: tuple[Name, ...] = ()
    backup_nodes: tuple[Name, ...] = ()
    checkpoint_every_us: Annotated[int, Meta(ge=0, le=limits.CHECKPOINT_EVERY_US_MAX)] = 0
    method: str = ""
    method_reason: Annotated[str, Meta(max_length=limits.TEXT_CHARS_MAX)] = ""
    delay_us: Annotated[int, Meta(ge=0, le=DELAY_US_MAX)] = 0
    delay_failure: str = PROCESS
    delay_stabilization: str = PROCESS
    note_key: Annotated[bytes, Meta(max_length=NOTE_KEY_BYTES)] = b""

    @property
    def query(self) -> str:
        return self.graph.name

    @property
    def keeps_nothing(self) -> bool:
        """Whoever succeeds its owner begins empty: recovered by amnesia."""
        return self.method == AMNESIA

    @property
    def reads_again(self) -> bool:
        """Whoever succeeds its owner begins empty at a mark: recovered by upstream backup."""
        return self.method in (UPSTREAM, PRECISE_UPSTREAM)

    @property
    def idle_standby(self) -> bool:
        """Who stands by for it computes nothing, and holds checkpoints or marks."""
        return self.reads_again or self.ships_checkpoints

    @property
    def ships_checkpoints(self) -> bool:
        """Who stands by for it holds checkpoints."""
        return self.method in (PASSIVE, STATE_BACKUP)

    @property
    def repeats(self) -> bool:
        """Of those: it gives the rows that it reads again the numbers that they had."""
        return self.method == PRECISE_UPSTREAM

    def reader_query(self, sink: str) -> str:
        """The query that reads this one's stream to another node."""
        guest = self.guests.get(sink)
        return self.query if guest is None else guest.query

    @property
    def as_deployed(self) -> FragmentSpec:
        """Without what it has learned since: of versions, and the key of its notes."""
        return msgspec.structs.replace(self, stream_version=1, read_versions={}, note_key=b"")

    @lazily
    def _checked(self) -> CheckedGraph:
        return check_fragment(self)

    def check(self) -> FragmentSpec:
        """Itself, checked; what follows from its graph is kept until ``taken``.

        Raises:
            QueryError: names what doesn't fit.
        """
        assert self._checked.graph is self.graph
        return self

    def taken(self) -> CheckedGraph:
        """What follows from its graph, kept no longer; checked now where it wasn't.

        Raises:
            QueryError: names what doesn't fit.
        """
        checked = self._checked
        vars(self).pop("_checked")
        return checked

    @lazily
    def packed(self) -> bytes:
        """As msgpack; made once, since the catalog is written whole each time."""
        return msgspec.msgpack.encode(self)

    def reads(self) -> dict[str, Feed]:
        """Of its feeds, those that read streams of other queries, by source."""
        reading = reads_of(self.graph)
        return {feed.source: feed for feed in self.feeds if feed.source in reading}


_FRAGMENTS = msgpack_decoder(FragmentSpec)


def guest_name(sink: str, participant: str, query: str, source: str) -> str:
    """What stands for a sink id where another query reads a sink: no id of a box has a point in it.

    The name of its stream is that of the query of the sink, a point and this.

    Args:
        participant: of the reader; empty: our own.
    """
    name = ".".join(part for part in (sink, participant, query, source) if part)
    if len(name) <= GUEST_CHARS_MAX:
        return name
    return f"{sink}.{blake2b(name.encode(), digest_size=16).hexdigest()}"


def is_stream_name(name: str) -> bool:
    """Whether a spec takes it as the name of a stream."""
    return len(name) <= 255 and _STREAM.fullmatch(name) is not None


def sink_of(stream: str) -> str:
    """The stream of the sink that a guest reads, by the name of its own."""
    return ".".join(stream.split(".")[:2])


def fragment_to(fragment: FragmentSpec) -> bytes:
    """As msgpack."""
    return fragment.packed


def fragment_from(data: Buffer) -> FragmentSpec:
    """Read and check a spec in full, before anything of it is used.

    Raises:
        QueryError: too large, malformed, a graph that doesn't hold or asks too much, or names that don't
            fit it.
    """
    if memoryview(data).nbytes > SPEC_BYTES_MAX:
        raise QueryError(f"a fragment of more than {SPEC_BYTES_MAX:,} bytes", code="query.limit")
    try:
        fragment = _FRAGMENTS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise QueryError(f"no spec of a fragment: {error}"[:500], code="query.codec") from None
    fragment.check()
    check_limits(fragment.graph)
    if fragment_to(fragment) != data:
        raise QueryError("a spec not in canonical form: a field twice, or spelled longer", code="E_SPEC")
    return fragment


def check_fragment(fragment: FragmentSpec) -> CheckedGraph:
    """Whether the graph holds and each of its ends is spoken for, once.

    Raises:
        QueryError: names what doesn't fit.
    """
    checked = check_graph(fragment.graph, require_sinks=True)
    refuse_undecided(fragment.graph)
    check_functions({label_of(box): box.functions for box in fragment.graph.boxes})
    label = f"fragment {fragment.name!r}"
    if fragment.name not in [f"{fragment.query}/{box.id}" for box in fragment.graph.boxes]:
        raise QueryError(f"{label}: is not called {fragment.query}/ and a box", code="query.placement")
    judged = sorted(box.id for box in fragment.graph.boxes if isinstance(box, Source) and box.judged)
    open_ = sorted(box.id for box in fragment.graph.boxes if isinstance(box, Source) and not box.judged)
    sinks = sorted(box.id for box in fragment.graph.boxes if isinstance(box, Sink))
    if sorted(feed.source for feed in fragment.feeds) != judged:
        raise QueryError(f"{label}: feeds don't name its judged sources", code="query.placement")
    if sorted(fragment.entries) != open_:
        raise QueryError(f"{label}: entries don't name its open sources", code="query.placement")
    ends = sorted([*sinks, *fragment.guests])
    if sorted(fragment.streams) != ends or not set(fragment.readers) <= set(ends):
        raise QueryError(f"{label}: streams don't name its sinks", code="query.placement")
    if not set(fragment.read_versions) <= set(judged):
        raise QueryError(f"{label}: versions of what its feeds don't name", code="query.placement")
    standby = fragment.standby
    if fragment.node in standby or len(set(standby)) != len(standby) or len(standby) > limits.STANDBY_MAX:
        raise QueryError(
            f"{label}: standby names its own node, one twice, or more than {limits.STANDBY_MAX}",
            code="query.placement",
        )
    if fragment.method and fragment.method not in METHODS_BY_STRENGTH:
        raise QueryError(f"{label}: method: {fragment.method[:80]!r} is unknown", code="query.placement")
    backups = fragment.backup_nodes
    if (bool(backups) != (fragment.method == STATE_BACKUP)) or len(set(backups)) != len(backups):
        raise QueryError(
            f"{label}: backup_nodes: expected some, each once, with method {STATE_BACKUP!r} and none with "
            f"another, got {len(backups)} with {fragment.method!r}",
            code="query.placement",
        )
    if len(backups) > limits.STANDBY_MAX:
        raise QueryError(
            f"{label}: backup_nodes: at most {limits.STANDBY_MAX}, got {len(backups)}", code="query.placement"
        )
    check_policies(fragment.delay_failure, fragment.delay_stabilization, f"{label}: delay")
    if fragment.repeats and (decision := decision_in(fragment.graph)) is not None:
        raise QueryError(
            f"{label}: can't make its output again, since {' '.join(decision)}", code="query.placement"
        )
    if 0 < fragment.checkpoint_every_us < limits.CHECKPOINT_EVERY_US_LEAST:
        raise QueryError(f"{label}: its checkpoints come too often", code="query.placement")
    if any(guest.sink not in sinks for guest in fragment.guests.values()):
        raise QueryError(f"{label}: its guests don't read its sinks", code="query.placement")
    if not set(fragment.sold) <= set(fragment.guests):
        raise QueryError(f"{label}: sells what no guest of it reads", code="query.placement")
    for names in (list(fragment.entries.values()), list(fragment.streams.values())):
        if len(set(names)) != len(names) or not all(
            name.startswith(f"{fragment.query}.") and len(name) <= 255 and _STREAM.fullmatch(name)
            for name in names
        ):
            raise QueryError(
                f"{label}: its streams are not called {fragment.query}.something, each once",
                code="query.placement",
            )
    if len({(feed.node, feed.stream) for feed in fragment.feeds}) != len(fragment.feeds):
        raise QueryError(f"{label}: reads one stream twice", code="query.placement")
    own = fragment.streams.values()
    if any(feed.node == fragment.node and feed.stream in own for feed in fragment.feeds):
        raise QueryError(f"{label}: reads a stream that it puts out", code="query.placement")
    return checked


def refuse_undecided(graph: Graph) -> None:
    """Refuse what a node would decide by its clock, and couldn't repeat, and what it can't send on.

    Raises:
        QueryError: names the box and what it has.
    """
    for box in graph.boxes:
        if isinstance(box, Source) and box.idle_us is not None and box.partition is not None:
            wrong, hint = "idle= with partition=", "publish boundaries where a stream is known to be silent"
        elif isinstance(box, Aggregate) and box.early_us is not None:
            wrong, hint = "early=", "early results stay inside a program (md.start) in this version"
        else:
            continue
        raise QueryError(
            f"{label_of(box)} has {wrong}, which nodes don't do yet", hint=hint, code="query.later"
        )
