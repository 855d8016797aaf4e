"""What nodes say to agree on the configuration of a query: who owns its fragments, and who follows them.

    proposer ── Prepare ──> voters      may I propose the next one?
    voters ── Vote ──> proposer         yes, and that is what I have accepted; or no, and why
    proposer ── Accept ──> voters       then let it be this one
    voters ── Vote ──> proposer         it is on my disk; or no, and why
    whoever knows ── Configure ──> all  it is decided

Configurations of a query are numbered. Number n + 1 is decided once more than half of the voters *of number
n* have accepted one proposal for it; docs/standby.md tells why no other can be decided then. ``Prepare``,
``Accept`` and ``Vote`` may be lost, doubled and late; each is asked again. ``Configure`` is asked again until
a ``Reply`` answers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Names, Text

__all__ = [
    "NEVER_GIVEN",
    "Accept",
    "Ballot",
    "Configuration",
    "Configure",
    "Prepare",
    "Proposal",
    "QueryParts",
    "RecoveryMessage",
    "Replicas",
    "Vote",
]

VOTERS_MAX = 32
"""Of one query. Each change asks all of them, so a query with more than a handful gains nothing."""

SECONDARIES_MAX = 16
"""Of one fragment; its owner sends each of them all that it feeds."""

FORMER_MAX = 64
"""Nodes that have been of one fragment and are so no more."""

GUARDED_MAX = 256
"""Fragments of one query that have replicas."""

NAMES_BYTES_MAX = 24 << 10
"""Of all names in a configuration, so that a ``Vote`` with one fits into the header of a frame."""

NEVER_GIVEN = "E_PART"
"""A node was to have a part of a query, and was never given it."""

Number = Annotated[int, Meta(ge=1, le=limits.SEQ_MAX)]
Voters = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=VOTERS_MAX)]
Suspects = Annotated[tuple[Name, ...], Meta(max_length=VOTERS_MAX)]
Code = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]


class Replicas(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Who has a fragment.

    Attributes:
        epoch: of the fragment at its owner; one that takes over has a higher one.
        secondaries: follow the owner, in order of succession: each has what a successor needs.
        members: all nodes that may have it, the owner among them. One that is to be counted out, since the
            fragment was moved away from it, may follow for a moment and be none. None: the fragment was split
            or merged, and is no more.
        reads: streams that it reads of other fragments.
        streams: those that it has: what it puts out, and sources that publishers feed.
        guest: no member, and follows so that the fragment can be moved to it; empty: none does. One of
            another participant stays the guest while it owns the fragment: it never is a member, nor votes.
        former: nodes that were members or guests. Who was away meanwhile may know no other owner.
        predecessors: owners before this one, the last first, none of whose successors is known to have begun.
            Each keeps what it has until its successor says so: one that never began, and has nothing, resigns
            in favour of the last of them.
    """

    fragment: Name
    owner: Name
    epoch: Number
    secondaries: Annotated[tuple[Name, ...], Meta(max_length=SECONDARIES_MAX)] = ()
    members: Annotated[tuple[Name, ...], Meta(max_length=SECONDARIES_MAX + 1)] = ()
    reads: Names = ()
    streams: Names = ()
    guest: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    former: Annotated[tuple[Name, ...], Meta(max_length=FORMER_MAX)] = ()
    predecessors: Annotated[tuple[Name, ...], Meta(max_length=SECONDARIES_MAX + 1)] = ()

    @property
    def gone(self) -> bool:
        """It is no more, in this epoch and those before."""
        return not (self.members or self.secondaries)

    @property
    def abroad(self) -> bool:
        """A node of another participant has it, as a guest."""
        return self.owner == self.guest

    @property
    def followers(self) -> tuple[str, ...]:
        """All nodes that may follow it, its owner among them: what it is fed is sent to them."""
        return (*self.members, self.guest) if self.guest else self.members

    @property
    def holders(self) -> tuple[str, ...]:
        """All that may have it or have had it."""
        return (*self.followers, *self.former)

    def __post_init__(self) -> None:
        if self.owner in self.secondaries:
            raise ValueError(f"node {self.owner!r} owns {self.fragment!r} and follows it")
        if len(set(self.secondaries)) < len(self.secondaries):
            raise ValueError(f"a node follows {self.fragment!r} twice")
        if self.owner in self.predecessors:
            raise ValueError(f"node {self.owner!r} owns {self.fragment!r} and precedes its owner")


class QueryParts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a node has to know of a query to coordinate it, beside who has the guarded fragments.

    Attributes:
        nodes: all that have a part of it, stand by, or vote.
        streams: (stream or source, node) of fragments that nobody stands by for.
        reads: full names of the streams of other queries that it reads.
        recovered: (stream, method, fragments by which its rows come) of outputs that somebody stands by for.
    """

    nodes: Names = ()
    streams: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=limits.PLACES_MAX)] = ()
    reads: Names = ()
    recovered: Annotated[tuple[tuple[Name, Name, Names], ...], Meta(max_length=limits.PLACES_MAX)] = ()

    def names(self) -> Iterator[str]:
        """All that it names, also twice."""
        yield from (*self.nodes, *self.reads)
        for pair in self.streams:
            yield from pair
        for stream, method, fragments in self.recovered:
            yield from (stream, method, *fragments)


class Configuration(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Who does what in a query, from one change of that to the next.

    Attributes:
        number: one more with each change; the first is 1.
        voters: decide which is the next one.
        fragments: those that have replicas, or may get them.
        life: of the query: tells it from one of its name that was removed. Who deploys it takes a number that
            no query of this name has had; 0: it isn't told apart.
        parts: what whoever takes the coordinator's role over has to know; None: the role stays where it is.
        witnesses: voters that vote also where they have nothing of it: those that were named so, and who was
            asked to deploy the query.
        voters_least: so many vote at the least, as at first: of fewer, fewer may be away. 0: nobody leaves.
    """

    query: Name
    number: Number
    coordinator: Name
    voters: Voters
    fragments: Annotated[tuple[Replicas, ...], Meta(max_length=GUARDED_MAX)] = ()
    life: Count = 0
    parts: QueryParts | None = None
    witnesses: Annotated[tuple[Name, ...], Meta(max_length=VOTERS_MAX)] = ()
    voters_least: Annotated[int, Meta(ge=0, le=VOTERS_MAX)] = 0

    def __post_init__(self) -> None:
        if len(set(self.voters)) < len(self.voters):
            raise ValueError(f"a node votes on query {self.query!r} twice")
        if len({each.fragment for each in self.fragments}) < len(self.fragments):
            raise ValueError(f"a fragment of query {self.query!r} stands twice")
        if (nbytes := names_bytes(self.names())) > NAMES_BYTES_MAX:
            raise ValueError(f"a configuration with {nbytes:,} bytes of names, at most {NAMES_BYTES_MAX:,}")

    @property
    def majority(self) -> int:
        """So many voters decide."""
        return len(self.voters) // 2 + 1

    def names(self) -> Iterator[str]:
        """All that it names, also twice."""
        yield from (self.query, self.coordinator, *self.voters, *self.witnesses)
        for each in self.fragments:
            yield from (each.fragment, each.owner, *each.secondaries, *each.holders, *each.predecessors)
            yield from (*each.reads, *each.streams)
        if self.parts is not None:
            yield from self.parts.names()

    def replicas(self, fragment: str) -> Replicas | None:
        """Who has this fragment; None: it has no replicas."""
        return next((each for each in self.fragments if each.fragment == fragment), None)

    def nodes(self) -> tuple[str, ...]:
        """All that are named, each once: voters first, then coordinator, owners, those that follow or may or
        have, and who has another part."""
        having = (node for each in self.fragments for node in (each.owner, *each.secondaries, *each.holders))
        others = () if self.parts is None else self.parts.nodes
        return tuple(dict.fromkeys((*self.voters, self.coordinator, *having, *others)))


def names_bytes(names: Iterable[str]) -> int:
    """How much of ``NAMES_BYTES_MAX`` they take."""
    return sum(len(name.encode()) for name in names)


class Ballot(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One try of one node to have a configuration decided. Of two the later round goes before, then the name.

    Attributes:
        round: 0 belongs to one node alone, and is never prepared.
    """

    round: Count
    node: Name


class Proposal(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a voter has accepted, and in which ballot."""

    ballot: Ballot
    configuration: Configuration


class Configure(MessageBase, frozen=True, tag="configure"):
    """This configuration of a query is decided. From whoever knows it, to who votes or has a part of it.

    Answered once it is on disk.

    Attributes:
        request: 0 where no answer is wanted.
        since: from whoever deployed the query: the life in which the receiver was when that began, so that it
            has heard of it in none before; 0: nobody knows.

    Refused: ``E_CONFIGURATION`` (a newer one is known here, or another one of this number), ``E_QUERY``
    (another query of that name is here), ``E_REMOVED`` (that query was removed from here). ``E_PART`` refuses
    nothing: to who coordinates by it, the configuration is on disk, and some of what it says to be here was
    never installed.
    """

    request: Count
    configuration: Configuration
    since: Count = 0


class Prepare(MessageBase, frozen=True, tag="prepare"):
    """Promise that you accept nothing of an earlier ballot, and say what you have accepted.

    Attributes:
        number: of the configuration that is to come.
        suspects: nodes that the proposer hears no more, and counts out.
        lost: fragments that the proposer owns by the configuration before, and that its lost disk had.
        forgot: the proposer doesn't vote, since it may have said otherwise before: it asks to hear that.
    """

    request: Count
    query: Name
    life: Count
    number: Number
    ballot: Ballot
    suspects: Suspects = ()
    lost: Names = ()
    forgot: bool = False


class Accept(MessageBase, frozen=True, tag="accept"):
    """Accept this configuration in this ballot, unless you have promised otherwise.

    Attributes:
        suspects: as in ``Prepare``; empty for a proposal of somebody else that is brought to its end.
    """

    request: Count
    ballot: Ballot
    configuration: Configuration
    suspects: Suspects = ()


class Vote(MessageBase, frozen=True, tag="vote"):
    """The answer to ``Prepare`` and ``Accept``, once what it says is on disk.

    Attributes:
        number, ballot: what was asked about.
        code: empty: yes. Else why not, and nothing has changed: ``E_CONFIGURATION`` (not the next one here:
            ``known`` is the newest), ``E_BALLOT`` (``promised`` goes before), ``E_ALIVE`` (a suspect is heard
            here), ``E_QUERY`` (no such query here), ``E_REMOVED`` (it was removed from here), ``E_VOTER``
            (the proposer doesn't vote, or who answers).
        accepted: with a promise: what was accepted before.
        promised: the ballot that goes before.
        known: the newest configuration here.
    """

    request: Count
    query: Name
    number: Number
    ballot: Ballot
    code: Code = ""
    text: Text = ""
    accepted: Proposal | None = None
    promised: Ballot | None = None
    known: Configuration | None = None


RecoveryMessage: TypeAlias = Configure | Prepare | Accept | Vote
"""What the part of a node takes that agrees on configurations."""
