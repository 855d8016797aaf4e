"""Names of a participant, in a node's brain: the directory, what the node writes into it, who asks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Admission
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.message_table import Heard
from medusa.nodes.names.addresses import PeerAddresses
from medusa.nodes.names.advertise import AdvertisedEntries
from medusa.nodes.names.awaited_epochs import AwaitedEpochs
from medusa.nodes.names.lookup import NameLookup
from medusa.nodes.names.participant_catalog import ParticipantCatalog, Sought
from medusa.nodes.names.startup_grace import StartupGrace
from medusa.nodes.names.stream_versions import StreamVersions
from medusa.nodes.security.registry import Caller
from medusa.nodes.security.sessions import refusal_of
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.dht import DhtMessage
from medusa.wire.messages.directory import Digest, Entries, Lookup, seen_from
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Outbox

__all__ = ["NodeNames"]


class NodeNames:
    """The part of a brain that knows where things are.

    Args:
        fragments: what runs here, by name.
        count: told the code of what is refused.
        wall: the time of the node.
        moving: whether a fragment is just being moved, split or merged.
        accepting: says where the node's fragments run.
        known_before: told by whom and up to which version something is known that this node wrote, as each
            peer's first word says.
        successors: of a fragment, nodes that may have it next, as far as it is known here.
        between: makes its part in the catalog between participants, given the names of its own; None: it
            takes no part.

    Attributes:
        directory: the replicated catalog; ``find``, ``where``, ``put``, ``remove``, ``entries``.
        listing: what this node writes of itself.
        calling: at which address peers are called.
        versions: of streams that are read here, and what follows for those that leave.
        between: its part in the catalog between participants; None: it has none.
        early: what is asked by a name that may be known in a moment, as the node has just started.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        incarnation: int,
        outbox: Outbox,
        fragments: Mapping[str, FragmentHost],
        saver: CatalogWriter,
        count: Callable[[str], None],
        wall: WallClock,
        moving: Callable[[str], bool],
        accepting: Admission,
        known_before: Callable[[str, int], None] = lambda peer, version: None,
        successors: Callable[[str], Collection[str]] = lambda fragment: (),
        between: Callable[[NameLookup], ParticipantCatalog] | None = None,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._count = count
        self._known_before = known_before
        self.directory = Directory(
            settings.name, incarnation=incarnation, outbox=outbox, count=count, wall=wall.at
        )
        self.directory.load(0, catalog.runs)
        catalog.learns_from(self.directory.runs)
        self.listing = AdvertisedEntries(
            settings,
            catalog,
            self.directory,
            fragments,
            saver,
            wall=wall.at,
            abroad=self.abroad,
            accepting=accepting,
        )
        self.calling = PeerAddresses(settings.peers, outbox)
        self.versions = StreamVersions(
            catalog, self.directory, fragments, outbox=outbox, saver=saver, moving=moving
        )
        self.names = NameLookup(
            self.directory, participant=settings.participant, peers=settings.peers, successors=successors
        )
        self._awaited = AwaitedEpochs(self.names.epoch)
        self.between = None if between is None else between(self.names)
        self.early = StartupGrace(filter(self.is_ours, settings.peers))

    def listens_at(self, address: str, server_key: str) -> None:
        """Where others reach this node."""
        self.listing.listens_at(address, server_key)

    def flush(self) -> None:
        """Say what the directory has learned or written."""
        self.directory.flush()

    def is_ours(self, peer: str) -> bool:
        """Whether a node is of our participant; without keys all are."""
        security = self._settings.security
        if security is None:
            return peer in self._settings.peers
        return peer in security.peers and security.peers[peer].participant == self._settings.participant

    def abroad(self, node: str) -> str:
        """The participant of another one's node; empty: it is of ours, or nobody knows."""
        security = self._settings.security
        known = security.peers.get(node) if security is not None else None
        return "" if known is None or known.participant == self._settings.participant else known.participant

    def owners(self) -> dict[str, Any]:
        """Of ``status``: whose node this is, and whose the peers of other participants are."""
        others = {peer: whose for peer in self._settings.peers if (whose := self.abroad(peer))}
        return {"participant": self._settings.participant, "abroad": others}

    def fragments_elsewhere(self, query: str) -> Collection[str]:
        """Names of fragments of a query at other nodes of the participant, as far as they are known here."""
        entries = self.directory.entries("fragment")
        others = (each.name for each in entries if each.writer != self.directory.node)
        return {name for name in others if name.startswith(f"{query}/")}

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came or went."""
        self.calling.peer_is(now_us, peer, up=event is not LinkEvent.PEER_DOWN)
        if event is LinkEvent.PEER_DOWN:
            self.directory.peer_down(peer)
        elif self.is_ours(peer):
            self.directory.peer_up(now_us, peer)
        if self.between is not None:
            self.between.peer_event(now_us, peer, event)

    def greeted(self, heard: Heard) -> None:
        """A peer said who it is, and where it can be called."""
        assert isinstance(heard.message, Hello)
        self.calling.greeted(heard.now_us, heard.peer, heard.message)

    def told(self, heard: Heard) -> None:
        """A node of our participant said what its catalog has.

        Raises:
            RemoteProtocolError: it is malformed.
        """
        peer, message, payload = heard.peer, heard.message, heard.payload
        assert isinstance(message, Entries | Digest)
        self.directory.receive(heard.now_us, peer, message, payload)
        self._answer_awaited(heard.now_us)
        if self.early.awaits(peer):
            said = {} if payload is None or isinstance(message, Entries) else seen_from(payload)
            self._known_before(peer, said.get(self.directory.node, 0))
            self.early.told(peer, said.get(peer), self.directory.seen(peer))

    def told_between(self, heard: Heard) -> None:
        """A node said something of the catalog between participants."""
        assert isinstance(heard.message, DhtMessage)
        if self.between is None:
            self._count("E_ROLE")  # Whoever asks finds that nobody answers, and asks others.
        else:
            self.between.receive(heard.now_us, heard.peer, heard.message)

    def asked(self, heard: Heard) -> None:
        """A client asks where something is."""
        message = heard.message
        assert isinstance(message, Lookup)
        # Of what another participant has no news comes here that ends the wait: it is looked up each time.
        foreign = self.between is not None and self.between.is_foreign(message.name)
        if foreign or not self._awaited.waits(heard.now_us, heard.peer, message, heard.caller):
            self._answer(heard.now_us, heard.peer, message, heard.caller)

    def _answer_awaited(self, now_us: int) -> None:
        for each in self._awaited.take(now_us):
            self._answer(now_us, each.client, each.message, each.caller)

    def lost(self, peer: str) -> None:
        """Nothing that a client has asked is answered any more: it has gone, or lost the right to."""
        self.early.drop(peer)
        self._awaited.drop(peer)

    def _answer(self, now_us: int, peer: str, message: Lookup, caller: Caller | None) -> None:
        self.early.drop(peer, message.request)
        try:
            if self.between is not None and self.between.is_foreign(message.name):
                self.between.look_up(now_us, peer, message, caller)
                return
            self.listing.refresh(now_us)
            content = self.names.answer(message.name, message.kind, caller)
        except LinkError as error:
            if error.code == "E_STREAM" and self._waits(now_us, peer, message, caller):
                return
            self._outbox.send(peer, refusal_of(message.request, error.code, error.message, error.hint))
        else:
            self._outbox.send(peer, Reply(request=message.request), content)

    def awaits(self, peer: str) -> bool:
        """Whether a peer hasn't said yet what it has, and may."""
        return self.early.awaits(peer)

    @property
    def heard_all(self) -> bool:
        """Every peer of ours has said what it has."""
        return self.early.heard_all

    def stands(self, name: str, kind: str) -> bool:
        """Whether the catalog has something of this name and kind."""
        return self.names.stands(name, kind)

    def _waits(self, now_us: int, client: str, message: Lookup, caller: Caller | None) -> bool:
        return self.early.waits(
            now_us,
            client,
            message.request,
            stands=lambda: self.names.stands(message.name, message.kind),
            again=lambda at_us: self._answer(at_us, client, message, caller),
        )

    def seek(self, now_us: int, participant: str, stream: str, then: Sought) -> bool:
        """Look for a stream of another participant, among what it has published; False: it is of ours."""
        if participant != self._settings.participant and self.between is not None:
            self.between.seek(now_us, participant, stream, then)
        return participant != self._settings.participant

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        self.early.tick(now_us, self.directory.changes)
        self._answer_awaited(now_us)
        self.versions.tick(now_us)
        self.listing.tick(now_us)
        self.calling.tick(now_us, self.names.address_of)
        self.directory.tick(now_us)
        if self.between is not None:
            self.between.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work that can't wait."""
        times = [self.directory.wake_at_us(), self.early.wake_at_us(), self._awaited.wake_at_us()]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def stop(self, now_us: int) -> None:
        """The node ends."""
        if self.between is not None:
            self.between.stop(now_us)

    def written(self, now_us: int) -> None:
        """The catalog is on disk as it is, or a write failed."""
        self.versions.written(now_us)
        self.listing.refresh(now_us)
        self._answer_awaited(now_us)
