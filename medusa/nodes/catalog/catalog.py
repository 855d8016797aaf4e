"""What a node has installed, what it coordinates, and where names lead. Kept as one small file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import msgspec

from medusa.automaton import next_state
from medusa.decoders import msgpack_decoder
from medusa.errors import LinkError, RemoteProtocolError, StateError
from medusa.nodes.catalog.birth import Birth
from medusa.nodes.catalog.deployment_automaton import DEPLOYMENT, DeploymentEvent, DeploymentState
from medusa.nodes.catalog.in_doubt import InDoubt
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.catalog.kept_definitions import RemoteKept
from medusa.nodes.catalog.kept_market import KeptMarket
from medusa.nodes.catalog.kept_moves import Ownership
from medusa.nodes.catalog.kept_permits import KeptPermits
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.codec import graph_to_msgpack
from medusa.query.suggest import did_you_mean
from medusa.wire.messages.directory import EntryRun, check_run

__all__ = ["CATALOG", "Catalog", "CrossQueryRead", "Deployment", "ForwardingAddress", "PendingReplacement"]

CATALOG = "catalog"
VERSION = 1

DEPLOYING, RUNNING, REMOVING = (
    DeploymentState.DEPLOYING.value,
    DeploymentState.RUNNING.value,
    DeploymentState.REMOVING.value,
)
ENDED = "ended"

LIVES_MAX = 100
"""Of queries of one name that are remembered as removed. A node that was away for more of them brings the
configuration of one back when it comes, and what it has of it."""

REMOVED_MAX = 1000
"""Names of removed queries that are remembered. A part that was being moved asks within seconds of its node's
start; one that asks after so many removals stays, and its node says so."""

T = TypeVar("T")


class Deployment(msgspec.Struct, kw_only=True):
    """A query that this node took from a client and spread over nodes.

    Attributes:
        state: of ``DeploymentState``; only ``step`` changes it.
        client, request: who asked, so that the same question is answered once.
        streams: (stream, node) for each stream and each source that clients can use.
        forgetful: (node, fragment, spec) of nodes that forget what they run.
        defined: of a stream defined by name, the version of the definition; 0: another query.
        definition: its graph, in canonical form: it stands here wherever its fragment is.
        reads: full names of the streams of other queries that it reads.
        stopped: (fragment, node) of parts that the owners of those nodes have ended there.
        ended: (fragment, node, code, why, when) of parts that took more than they may there.
        abroad: (fragment, node, participant, boxes) of those that were put at nodes of other participants.
        began: the first request of the attempt to deploy it, which may have to be undone; 0: it has run.
        idle: of ``nodes`` those that were given nothing to run: they stand by, or vote on who takes over.
        recovered: (stream, method, fragments by which its rows come) of outputs that somebody stands by for.
        life: of the configuration of a query that is being removed; 0: it had none.
        lets_go: its removal doesn't wait for nodes that are away.
        refused: nodes that have refused all of it: its removal waits for none of them that is away.
        taken_over: another node deployed it, and lost the coordinator's role to this one.
    """

    query: str
    nodes: tuple[str, ...]
    state: str
    client: str
    request: int
    streams: tuple[tuple[str, str], ...]
    forgetful: tuple[tuple[str, str, bytes], ...] = ()
    defined: int = 0
    definition: bytes = b""
    reads: tuple[str, ...] = ()
    stopped: tuple[tuple[str, str], ...] = ()
    abroad: tuple[tuple[str, str, str, tuple[str, ...]], ...] = ()
    ended: tuple[tuple[str, str, str, str, int], ...] = ()
    began: int = 0
    idle: tuple[str, ...] = ()
    recovered: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    life: int = 0
    lets_go: bool = False
    refused: tuple[str, ...] = ()
    taken_over: bool = False

    @property
    def shown(self) -> str:
        """Its state as users see it: ``ended`` where it runs and a part of it took more than it may."""
        return ENDED if self.ended and self.state == RUNNING else self.state

    def stands_at(self, places: Mapping[str, str]) -> None:
        """These of its streams and sources are at these nodes now, which have a part from then on."""
        self.nodes = tuple(dict.fromkeys((*self.nodes, *places.values())))
        self.streams = tuple((name, places.get(name, node)) for name, node in self.streams)

    def has_part_at(self, node: str, streams: Sequence[str]) -> None:
        """A part is at this node now, and so are these streams and sources."""
        if node not in self.nodes:
            self.nodes += (node,)
        if streams:
            places = (each for each in self.streams if each[0] not in streams)
            self.streams = (*places, *((name, node) for name in streams))

    def lent(self, fragment: str, place: tuple[str, str] | None) -> bool:
        """A fragment is at this node of that participant now; None: at home. Whether that is news."""
        others = tuple(each for each in self.abroad if each[0] != fragment)
        own = () if place is None else ((fragment, *place, (fragment.partition("/")[2],)),)
        before, self.abroad = self.abroad, (*others, *own)
        return before != self.abroad

    def has_streams(self, streams: tuple[tuple[str, str], ...]) -> None:
        """These are its streams and sources that clients can use, and where."""
        self.streams = streams

    def recovers(self, ways: tuple[tuple[str, str, tuple[str, ...]], ...]) -> None:
        """By these fragments the rows of its guarded outputs come."""
        self.recovered = ways

    def is_of_life(self, life: int) -> None:
        """The configuration of the query that is being removed has this number."""
        self.life = life

    def reaches(self, nodes: Iterable[str], *, lets_go: bool) -> None:
        """Its removal is for these nodes too.

        Args:
            lets_go: it waits for none that is away.
        """
        self.nodes = tuple(dict.fromkeys((*self.nodes, *nodes)))
        self.lets_go = lets_go

    def has_no_part_at(self, node: str) -> None:
        """It has refused all that it was to have of it."""
        self.refused = (*self.refused, node)

    def part_ended(self, part: tuple[str, str], code: str, why: str, at_us: int) -> None:
        """A fragment at a node took more than it may there.

        Args:
            at_us: when, since the Unix epoch; 0: the node didn't know the time.
        """
        self.ended += ((*part, code, why, at_us),)

    def part_stopped(self, part: tuple[str, str]) -> None:
        """A fragment at a node was ended by that node's owner."""
        self.stopped += (part,)

    def install_again_at(self, node: str, fragment: str, spec: bytes) -> None:
        """A node that forgets what it runs has a fragment: when it has restarted, it is to have that anew."""
        if (node, fragment, spec) not in self.forgetful:
            self.forgetful += ((node, fragment, spec),)

    def step(self, event: DeploymentEvent) -> None:
        """Take a step of the automaton."""
        state = DeploymentState(self.state)
        self.state = next_state(DEPLOYMENT, state, event, of=f"query {self.query!r}").value
        if event in (DeploymentEvent.INSTALLED, DeploymentEvent.REMOVE):
            self.began = 0  # Of a removal: all of it is to go, and parts that moved came by no request.


class ForwardingAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fragment is that was here.

    Attributes:
        epoch: of the fragment there.
        names: its streams and sources.
        untold: (stream, node) of readers that haven't said yet that they know.
    """

    query: str
    node: str
    epoch: int
    names: tuple[str, ...]
    untold: tuple[tuple[str, str], ...] = ()


class CrossQueryRead(msgspec.Struct, frozen=True, kw_only=True):
    """Who may keep rows of a stream for a query of ours that reads it: given back when no fragment does.

    Attributes:
        asked: the number of the question by which it came: the sender's ``ForeignReader`` has the same.
        begin: the first row that came from there; those before it came from another participant.
    """

    node: str
    query: str
    asked: int = 0
    begin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReplacement:
    """Fragments that take the place of others once the disk says so.

    Attributes:
        epoch: of all of them.
    """

    gone: tuple[str, ...]
    made: tuple[FragmentSpec, ...]
    epoch: int

    def fragments(self, now: dict[str, FragmentSpec]) -> dict[str, FragmentSpec]:
        """Those that will be, of those that are."""
        kept = {name: each for name, each in now.items() if name not in self.gone}
        return kept | {each.name: each for each in self.made}

    def installed(self, now: dict[str, int]) -> dict[str, int]:
        """By which requests they came: those that are made came by none."""
        return {
            name: request for name, request in now.items() if name not in {each.name for each in self.made}
        }

    def left(self, now: dict[str, ForwardingAddress]) -> dict[str, ForwardingAddress]:
        """One that comes back hasn't left."""
        return {name: left for name, left in now.items() if name not in {each.name for each in self.made}}

    def ownership(self, now: Ownership) -> Ownership:
        """Who owns what then."""
        epochs = {name: epoch for name, epoch in now.epochs.items() if name not in self.gone}
        made = [each.name for each in self.made]
        epochs |= dict.fromkeys(made, self.epoch)
        return msgspec.structs.replace(now, epochs=epochs, replaced=now.replaced_by(self.gone, made))


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    node: str
    fragments: tuple[FragmentSpec, ...]
    owners: dict[str, str]
    installed: dict[str, int] = {}
    deployments: tuple[Deployment, ...]
    statements: dict[str, tuple[bytes, ...]] = {}
    runs: tuple[EntryRun, ...] = ()
    expected: dict[str, dict[str, str]] = {}
    awaited: dict[str, dict[str, int]] = {}
    left: dict[str, ForwardingAddress] = {}
    ownership: Ownership = msgspec.field(default_factory=Ownership)
    remote: RemoteKept = msgspec.field(default_factory=RemoteKept)
    reading: dict[str, CrossQueryRead] = {}
    removed: tuple[str, ...] = ()
    in_doubt: InDoubt = msgspec.field(default_factory=InDoubt)
    configurations: dict[str, KeptConfiguration] = {}
    buried: dict[str, tuple[int, ...]] = {}
    birth: Birth = Birth()
    permits: KeptPermits | msgspec.UnsetType = msgspec.UNSET
    market: KeptMarket | msgspec.UnsetType = msgspec.UNSET


_SAVED = msgpack_decoder(_Saved)


class Catalog:
    """Names of one node.

    Attributes:
        fragments: installed here, by name.
        owners: query -> the node that coordinates it.
        installed: fragment -> the request of that node by which it came; nothing: it came in another way, or
            an earlier version didn't keep it.
        deployments: coordinated here, by query.
        statements: what participants have declared, by signer and subject; the registry keeps it.
        runs: what was found on disk of the directory; ``learned`` gives what it knows now.
        expected: stream -> who will read it when a fragment has moved there -> who reads it now.
        awaited: the same -> the epoch of the fragment there; 0 or nothing: an earlier version didn't keep it.
        left: where fragments are that were here, by name (``nodes.migration.rerouting``).
        ownership: of those that go, or came (``nodes.migration.outgoing``).
        reading: streams of other queries' sinks that were asked for here
        (``nodes.deploy.cross_query_reads``).
        removed: queries that were removed from here, the newest last: parts that were on their way go, too.
        in_doubt: what the disk lost, so that nobody here knows whether it is ours
        (``nodes.repair.resolution``).
        configurations: of queries with replicas, and what was promised for the next one
        (``nodes.agreement.agreement``).
        buried: query -> the lives of its last configurations, which were removed, the newest last.
        birth: how it began.
        permits: what may run at other participants', and of theirs here (``nodes.abroad.permits``).
        market: what runs where by contracts, and what is owed (``nodes.market.node_market``).
        becoming: what is written as if it were so already: if the write fails nothing has been.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.fragments: dict[str, FragmentSpec] = {}
        self.owners: dict[str, str] = {}
        self.installed: dict[str, int] = {}
        self.deployments: dict[str, Deployment] = {}
        self.statements: dict[str, tuple[bytes, ...]] = {}
        self.runs: tuple[EntryRun, ...] = ()
        self.learned: Callable[[], tuple[EntryRun, ...]] = lambda: self.runs
        self.expected: dict[str, dict[str, str]] = {}
        self.awaited: dict[str, dict[str, int]] = {}
        self.left: dict[str, ForwardingAddress] = {}
        self.ownership = Ownership()
        self.remote = RemoteKept()
        self.reading: dict[str, CrossQueryRead] = {}
        self.removed: tuple[str, ...] = ()
        self.in_doubt = InDoubt()
        self.configurations: dict[str, KeptConfiguration] = {}
        self.buried: dict[str, tuple[int, ...]] = {}
        self.birth = Birth()
        self.permits = KeptPermits()
        self.market = KeptMarket()
        self.becoming: list[PendingReplacement] = []

    def add(self, fragment: FragmentSpec, owner: str, request: int = 0) -> None:
        self.fragments[fragment.name] = fragment
        self.ownership.begins_with(fragment.name)
        self.owners[fragment.query] = owner
        self.installed.pop(fragment.name, None)
        if request:
            self.installed[fragment.name] = request

    def installed_by(self, fragment: str) -> int:
        """The request of its coordinator by which it came; 0: none, or that isn't known any more."""
        return self.installed.get(fragment, 0)

    def deployment(self, query: str) -> Deployment | None:
        """The query as this node coordinates it; None: it doesn't."""
        return self.deployments.get(query)

    def configuration(self, query: str) -> KeptConfiguration | None:
        """What is known here of who has the query's guarded fragments; None: nothing."""
        return self.configurations.get(query)

    def coordinator_of(self, query: str, unknown: str = "") -> str:
        """The node that coordinates a query with fragments here, else ``unknown``."""
        return self.owners.get(query, unknown)

    def held(self, fragment: str, query: str) -> tuple[str, int]:
        """The coordinator of a fragment of ours and its epoch; 0: it isn't ours, or not yet."""
        epoch = self.ownership.surely(fragment) if fragment in self.fragments else 0
        return self.owners.get(query, ""), epoch

    def expect(self, stream: str, reader: str, like: str, epoch: int) -> None:
        """``reader`` will read a stream of ours in place of ``like``, with its fragment in this epoch."""
        self.expected.setdefault(stream, {})[reader] = like
        self.awaited.setdefault(stream, {})[reader] = epoch

    def expects_only(self, stream: str, readers: Collection[str] = ()) -> None:
        """Of those that were to read a stream these still are."""
        _keep(self.expected, stream, readers)
        _keep(self.awaited, stream, readers)

    def awaited_in(self, stream: str, reader: str) -> int:
        """The epoch of the fragment with which a node is to read a stream of ours; 0: it isn't expected."""
        return self.awaited.get(stream, {}).get(reader, 0)

    def came_by(self, query: str, requests: range) -> list[str]:
        """The fragments of a query that these requests have installed."""
        of = [name for name, fragment in self.fragments.items() if fragment.query == query]
        return [name for name in of if self.installed.get(name) in requests]

    def is_removed(self, query: str) -> bool:
        """Whether a query was removed from here, or is being; not one whose deployment is undone."""
        known = self.deployments.get(query)
        return query in self.removed if known is None else known.state == REMOVING and not known.began

    def bury(self, query: str) -> bool:
        """Forget its configuration; whether there was one. What is late of it never makes it anew."""
        kept = self.configurations.pop(query, None)
        self.ownership.forget_standing_by(query)
        if kept is not None:
            self.is_over(query, kept.current.life)
        return kept is not None

    def is_over(self, query: str, life: int) -> None:
        """This life of a query was removed, also where its configuration has never been heard of here: what
        is late of it, and would be the first word, says nothing."""
        if life and not self.is_buried(query, life):
            before = self.buried.pop(query, ())
            self.buried[query] = (*before, life)[-LIVES_MAX:]
            if len(self.buried) > REMOVED_MAX:
                del self.buried[next(iter(self.buried))]

    def begins(self, life: int) -> None:
        """There was nothing on disk before this life."""
        self.birth = Birth(life=life)

    def begins_anew(self, life: int) -> None:
        """The disk was lost, as an operator says: what was here is in doubt until peers have said it."""
        if not self.birth.rebuilt:
            self.birth = msgspec.structs.replace(self.birth, life=self.birth.life or life, rebuilt=True)
            self.in_doubt.begin()

    def has_forgotten(self) -> bool:
        """Peers know earlier lives of this node, which its disk doesn't: what it knows of configurations may
        be less than it has said. Whether that is news."""
        if self.birth.forgot:
            return False
        self.birth = msgspec.structs.replace(self.birth, lost=True)
        self._forget_votes()
        return True

    def accept(self, life: int) -> None:
        """The older catalog counts, by an operator's word. What was promised by the lost one nobody here
        knows, also of queries that this one doesn't name.

        Args:
            life: of the node, in which this is done.
        """
        self.in_doubt.accept(life)
        self._forget_votes()

    def _forget_votes(self) -> None:
        for query, kept in self.configurations.items():
            self.configurations[query] = msgspec.structs.replace(kept, forgot=True)

    @property
    def is_whole(self) -> bool:
        """Nothing that this node has ever written down was lost, as far as it knows."""
        return not (self.in_doubt or self.in_doubt.ever or self.birth.forgot)

    @property
    def may_not_vote(self) -> bool:
        """What this node promised may be in the newest catalog, which it lost. Where its whole disk was lost
        each query says for itself whether it votes: for that its voters count, and no other peer."""
        return bool(self.in_doubt.newest) and not self.birth.rebuilt

    def may_have_voted(self, since: int) -> bool:
        """Whether what this node has lost may have said that it voted on a query which it doesn't know.

        Args:
            since: the life of this node in which the query was deployed; 0: that isn't known.
        """
        lost_until = max(self.birth.life if self.birth.forgot else 0, self.in_doubt.accepted_in)
        lost = self.birth.forgot or self.in_doubt.accepted_in > 0
        return lost and not 0 < lost_until <= since

    @property
    def asks_for_its_votes(self) -> bool:
        """Whether an operator has said that what was lost stays lost: what it had said of queries others are
        asked then."""
        return self.birth.rebuilt or (self.in_doubt.accepted_in > 0 and not self.may_not_vote)

    def never_owned(self, fragment: str, epoch: int) -> bool:
        """Whether it is certain that this node hasn't begun with a fragment in this epoch, so that it has
        shown nothing: it stood by for an earlier owner, and what it begins with it writes down before."""
        return self.is_whole and self.ownership.stood_by.get(fragment, epoch) < epoch

    def stands_by(self, fragment: str, epoch: int) -> bool:
        """This node stands by for a fragment in this epoch; whether that is news."""
        before, self.ownership.stood_by[fragment] = self.ownership.stood_by.get(fragment), epoch
        return before != epoch

    def is_buried(self, query: str, life: int) -> bool:
        """Whether this life of a query was removed, as far as is known here."""
        return life in self.buried.get(query, ())

    def hand_over(self, query: str) -> Deployment:
        """Another node coordinates a deployment of ours from now on; what is known of it."""
        return self.deployments.pop(query)

    def undeployed(self, query: str) -> None:
        """A deployment of ours is over; one that was undone removed nothing that was there before."""
        deployment = self.deployments.pop(query)
        deployment.step(DeploymentEvent.FORGOTTEN)
        if not deployment.began:
            others = tuple(each for each in self.removed if each != query)
            self.removed = (*others, query)[-REMOVED_MAX:]

    def reads_no_more(self, stream: str) -> None:
        """Its owner has answered that it is read by nobody here."""
        self.reading.pop(stream, None)

    def epoch(self, fragment: str) -> int:
        """In which a fragment is, or was last, this node's."""
        return self.ownership.epoch(fragment)

    def may_hide(self, stream: str) -> bool:
        """What the disk has lost may name it, and nothing else says where it is."""
        return self.in_doubt.hides(stream) and self.place(stream) is None

    def keep_market(self, kept: KeptMarket) -> None:
        """This is to outlive the process."""
        self.market = kept

    def learns_from(self, runs: Callable[[], tuple[EntryRun, ...]]) -> None:
        """What is written of the directory is what this says then."""
        self.learned = runs

    def end_move(self, fragment: str) -> None:
        """It isn't moved from here any more."""
        self.ownership.end_move(fragment)

    def is_elsewhere(self, fragment: str, node: str, epoch: int) -> None:
        """A fragment in doubt is another node's in this epoch: it isn't here, and who asks is told where."""
        spec = self.in_doubt.settle(fragment).spec
        self.ownership.is_elsewhere(fragment)
        names = (*spec.streams.values(), *spec.entries.values())
        self.left[fragment] = ForwardingAddress(query=spec.query, node=node, epoch=epoch, names=names)

    def reads_in_doubt(self) -> set[str]:
        """Streams that fragments in doubt read: those may be ours again."""
        return {feed.stream for each in self.in_doubt.fragments.values() for feed in each.spec.feeds}

    def is_here_again(self, fragment: str) -> None:
        """Nobody is sent elsewhere for it."""
        self.left.pop(fragment, None)

    def becomes(self, pending: PendingReplacement) -> None:
        """Fragments will have replaced others once the catalog is on disk."""
        self.becoming.append(pending)

    def has_become(self, pending: PendingReplacement) -> None:
        """They have, or never will."""
        self.becoming.remove(pending)

    def remove(self, query: str, only: Collection[str] | None = None, *, undoes: bool = False) -> list[str]:
        """Forget the fragments of a query, or only these of them; their names.

        Args:
            undoes: they had just come: where others of the query have gone stays known.
        """
        of = [name for name, fragment in self.fragments.items() if fragment.query == query]
        gone = [name for name in of if only is None or name in only]
        for name in gone:
            for stream in self.fragments.pop(name).streams.values():
                self.expects_only(stream)
            self.remote.end_made(name)
            self.installed.pop(name, None)
        if only is None or gone == of:
            self.owners.pop(query, None)
            if not undoes:
                self.left = {name: left for name, left in self.left.items() if left.query != query}
        return gone

    # --- names --------------------------------------------------------------------------------

    def entry(self, name: str) -> tuple[str, str]:
        """(fragment, source) that publishers of ``name`` feed.

        Raises:
            LinkError: not here; with the node where it is, or the nearest name.
        """
        for fragment in self.fragments.values():
            for source, published in fragment.entries.items():
                if published == name:
                    return fragment.name, source
        raise self._unknown("source", name, self.entry_names())

    def sink(self, name: str) -> tuple[str, str]:
        """(fragment, sink) that feeds the stream ``name``.

        Raises:
            LinkError: as ``entry``.
        """
        for fragment in self.fragments.values():
            for sink, stream in fragment.streams.items():
                if stream == name:
                    return fragment.name, sink
        raise self._unknown("stream", name, self.stream_names())

    def has_name(self, name: str) -> bool:
        """Whether a stream or source of this name is here."""
        specs = self.fragments.values()
        return any(name in (*spec.streams.values(), *spec.entries.values()) for spec in specs)

    def entry_names(self) -> list[str]:
        """Sources here that publishers can feed."""
        return [name for fragment in self.fragments.values() for name in fragment.entries.values()]

    def stream_names(self) -> list[str]:
        """Streams here that can be read; those that a query reads by itself aren't named."""
        specs = self.fragments.values()
        return [name for spec in specs for id, name in spec.streams.items() if id not in spec.guests]

    def elsewhere(self) -> dict[str, tuple[str, ...]]:
        """Streams and sources of queries that we coordinate, and the other nodes that have them."""
        found: dict[str, dict[str, None]] = {}
        for deployment in self.deployments.values():
            for stream, node in deployment.streams:
                if node != self.node:
                    found.setdefault(stream, {})[node] = None
        return {stream: tuple(nodes) for stream, nodes in found.items()}

    def place(self, name: str) -> ForwardingAddress | None:
        """Where the fragment is that has this stream or source, if it was here."""
        places = [left for left in self.left.values() if name in left.names]
        return max(places, key=lambda left: left.epoch, default=None)

    def _lost_part_of(self, query: str) -> bool:
        """Whether this node may have had some of a query on a disk that is lost: others have it, or will."""
        kept = self.configurations.get(query) if self.birth.forgot else None
        return kept is not None and any(
            not each.gone and self.node in each.members and each.fragment not in self.fragments
            for each in kept.current.fragments
        )

    def _unknown(self, what: str, name: str, here: Iterable[str]) -> LinkError:
        if (left := self.place(name)) is not None:
            text = f"{what} {name[:100]!r} was moved from node {self.node!r} to {left.node!r}"
            return LinkError(text, hint=f"connect to node {left.node!r}", code="E_MOVED")
        stopped = next((f for f, each in self.remote.stopped.items() if name in each.names), "")
        if stopped:
            part = self.remote.stopped[stopped]
            why = part.why or f"{stopped!r} was stopped by the owner of node {self.node!r}"
            hint = f"undeploy {part.query}, and deploy it again so that it takes less" if part.code else ""
            text = f"{what} {name[:100]!r} is no more: {why}"
            return LinkError(text, hint=hint, code=part.code or "E_REMOVED")
        if self._lost_part_of(name.partition(".")[0]):
            text = f"{what} {name[:100]!r} may have been on the lost disk of node {self.node!r}"
            return LinkError(text, hint="another node has what was there, or takes it over", code="E_MOVED")
        elsewhere = self.elsewhere().get(name)
        if elsewhere:
            nodes = " and ".join(repr(node) for node in elsewhere)
            return LinkError(
                f"{what} {name[:100]!r} is not at node {self.node!r} but at {nodes}",
                hint="connect to that node",
                code="E_STREAM",
            )
        return LinkError(
            f"node {self.node!r} has no {what} {name[:100]!r}",
            hint=did_you_mean(name, here) or "nothing is deployed here",
            code="E_STREAM",
        )

    # --- file ---------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        fragments, left, ownership = self.fragments, self.left, self.ownership
        installed = self.installed
        for each in self.becoming:
            fragments, left = each.fragments(fragments), each.left(left)
            ownership, installed = each.ownership(ownership), each.installed(installed)
        saved = _Saved(
            version=VERSION,
            node=self.node,
            fragments=cast(tuple[FragmentSpec, ...], tuple(map(_packed, fragments.values()))),
            owners=dict(self.owners),
            installed={name: request for name, request in installed.items() if name in fragments},
            deployments=tuple(self.deployments.values()),
            statements=dict(self.statements),
            runs=self.learned(),
            expected={stream: dict(follows) for stream, follows in self.expected.items()},
            awaited={stream: dict(epochs) for stream, epochs in self.awaited.items()},
            left=dict(left),
            ownership=ownership,
            remote=self.remote.packed(),
            reading=dict(self.reading),
            removed=self.removed,
            in_doubt=self.in_doubt,
            configurations=dict(self.configurations),
            buried=dict(self.buried),
            birth=self.birth,
            permits=msgspec.UNSET if self.permits.empty else self.permits,
            market=msgspec.UNSET if self.market == KeptMarket() else self.market,
        )
        return msgspec.msgpack.encode(saved)

    @classmethod
    def from_bytes(cls, data: Buffer, *, node: str, where: str) -> Catalog:
        """Read it back.

        Raises:
            StateError: damaged, of another version, or of another node.
        """
        try:
            saved = _SAVED.decode(data)
            for run in saved.runs:
                check_run(run)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RemoteProtocolError) as error:
            raise StateError(f"{where} is damaged: {error}", code="state.catalog") from None
        if saved.version != VERSION:
            raise StateError(f"{where} has version {saved.version}, not {VERSION}", code="state.version")
        if saved.node != node:
            raise StateError(
                f"{where} belongs to node {saved.node!r}, this is {node!r}",
                hint="give each node a data folder of its own",
                code="state.node",
            )
        made = cls(node)
        made.fragments = {fragment.name: fragment for fragment in saved.fragments}
        made.owners, made.installed = saved.owners, saved.installed
        made.deployments = {each.query: each for each in saved.deployments}
        for each in saved.deployments:  # Earlier versions kept it with the fragment alone.
            first = made.fragments.get(f"{each.query}/in")
            if each.defined and not each.definition and first is not None:
                each.definition = graph_to_msgpack(first.graph)
        made.statements = saved.statements
        made.runs = saved.runs
        made.expected, made.awaited, made.left = saved.expected, saved.awaited, saved.left
        made.ownership = saved.ownership
        made.remote = saved.remote
        made.reading = saved.reading
        made.removed, made.in_doubt = saved.removed, saved.in_doubt
        made.configurations, made.buried = saved.configurations, saved.buried
        made.birth = saved.birth
        if saved.permits is not msgspec.UNSET:
            made.permits = saved.permits
        if saved.market is not msgspec.UNSET:
            made.market = saved.market
        return made


def _packed(fragment: FragmentSpec) -> msgspec.Raw:
    """What it is encoded to, so that a large one isn't encoded for every change of the catalog."""
    return msgspec.Raw(fragment.packed)


def _keep(known: dict[str, dict[str, T]], stream: str, readers: Collection[str]) -> None:
    left = {reader: what for reader, what in known.pop(stream, {}).items() if reader in readers}
    if left:
        known[stream] = left
