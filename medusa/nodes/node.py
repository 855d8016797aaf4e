"""One node's mind: who is there, what is asked, and which part of the mind it concerns. No IO.

The brain decides nothing about a protocol. A ``Session`` knows whether a peer is there, a ``Hosted`` runs a
fragment and its links, the ``Commands`` install and remove fragments, the ``Catalog`` knows names. The
brain brings each message to the one it is for, and checks that its sender may say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_definitions import kept_for
from medusa.nodes.catalog.persistence import Saver
from medusa.nodes.clock.wall_clock import Wall
from medusa.nodes.commands import Commands
from medusa.nodes.config.settings import Settings, link_settings, stream_link
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import Security
from medusa.nodes.diskless.host import VolatileHosted
from medusa.nodes.diskless.sealed_cuts import Seal
from medusa.nodes.driven import Driven
from medusa.nodes.fragment.checkpointing import Saved
from medusa.nodes.fragment.host import Hosted
from medusa.nodes.lanes import Lanes
from medusa.nodes.migration.standby import Shadow
from medusa.nodes.security.guard import Guard, may_say
from medusa.nodes.security.registry import Caller
from medusa.nodes.security.sessions import check_caller, makes_room
from medusa.nodes.spec.fragment_spec import Fragment
from medusa.nodes.streams import Streams
from medusa.ports import Buffer, Verify
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.session import SESSION, PeerState, Session, SessionSettings
from medusa.wire.messages.links_and_commands import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Declare,
    Detach,
    Heartbeat,
    Hello,
    Message,
    Offer,
    Progress,
    Refuse,
)
from medusa.wire.outbox import Cut, Outbox, Owned, WakeAt
from medusa.wire.status import plain

__all__ = ["Brain"]


class Brain(Driven):
    """The mind of one node.

    Args:
        settings: its configuration.
        incarnation: larger than in any earlier life of this node.
        catalog: what was found on disk; None: nothing.
        saved: the newest checkpoint of each fragment that has one.
        first_token: larger than any token of an earlier life.
        verify: checks signatures; needed where the settings have keys.
        certificate: a signed statement about our own key, said to peers; empty: none.
        note_key: secret; seals what a node without a disk leaves with its neighbours.
        session: when a peer counts as silent.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        incarnation: int,
        catalog: Catalog | None = None,
        saved: Mapping[str, Saved] | None = None,
        first_token: int = 1,
        verify: Verify | None = None,
        certificate: bytes = b"",
        note_key: bytes = b"",
        session: SessionSettings = SESSION,
    ) -> None:
        self.outbox = Outbox()
        self.settings = settings
        self.catalog = catalog or Catalog(settings.name)
        self.incarnation = incarnation
        self.refusals: dict[str, int] = {}
        """Messages that broke a rule, or that their sender may not say, by code."""
        self._link = link_settings(settings.limits)
        self._token = first_token - 1
        self._patience = session
        self._me = Hello.ours(settings.name, incarnation, memory=settings.store == "memory")
        self.sessions = {peer: self._session(peer, calls=True) for peer in settings.peers}
        self.clients: dict[str, int] = {}
        """Clients we know -> since when they are silent (0: they are there)."""
        self._stopping = False
        self._early = {}
        self._forgets = settings.store == "memory"
        self._seal = Seal(note_key)
        self.wall = Wall()
        self._now_us = self._started_us = 0
        self._saver = Saver(self.catalog, outbox=self.outbox, next_token=self._next_token)
        self.guard: Guard | None = None
        """Keys and rules; None: who reaches us, on this machine alone, may do everything."""
        if settings.security is not None:
            self.guard = Guard(
                settings,
                self.catalog,
                outbox=self.outbox,
                saver=self._saver,
                verify=verify,
                certificate=certificate,
                wall=self.wall,
                count=self._count,
            )
        self.commands = Commands(
            settings,
            self.catalog,
            outbox=self.outbox,
            host=self._host,
            incarnation=incarnation,
            saver=self._saver,
            refusals=self.refusals,
            count=self._count,
            next_token=self._next_token,
            owned=self._owned,
        )
        self.commands.remotes.wall = self.wall
        self.commands.naming.keep_time(self.wall)
        self.commands.remotes.revoking.peers = self.commands.remotes.stopping.peers = self.commands.peers
        if self.guard is not None:
            self.commands.diverting.whose = self.guard.registry.owner
            self.guard.kept_for = partial(kept_for, self.catalog.remote)
        self.commands.coordinator.abroad = self.commands.naming.abroad
        self.fragments = self.commands.fragments
        self.lanes = Lanes(self._me, settings, self.fragments)
        self.streams = Streams(
            settings, self.catalog, self.commands, self.clients, outbox=self.outbox, count=self._count
        )
        self.commands.resolving.begin(saved or {}, self.guard)

    def _session(self, peer: str, *, calls: bool) -> Session:
        return Session(self._me, peer, outbox=self.outbox, settings=self._patience, calls=calls)

    def _host(
        self,
        spec: Fragment,
        saved: Saved | None = None,
        owner: str = "",
        make: Callable[..., Hosted] = Hosted,
    ) -> Hosted:
        node = self.catalog.owners.get(spec.query) or owner or self.settings.name
        whose = self.commands.diverting.participant_of(node) or self.settings.participant
        self.outbox.append(Owned(query=spec.query, owner=whose))
        make = partial(Shadow, owner=owner) if owner else make
        if self._forgets:
            make = partial(VolatileHosted, seal=self._seal, now_us=self._now_us, born_us=self._started_us)
        hosted = make(
            spec,
            incarnation=self.incarnation,
            outbox=self.outbox,
            link=self._link,
            link_of=partial(stream_link, self.settings),
            checkpoint_every_us=self.settings.limits.checkpoint_every_us,
            next_token=self._next_token,
            wall=self.wall,
            clean=self.guard is not None,  # With keys, who reads may be another owner.
            saved=saved,
        )
        hosted.epoch = partial(self.catalog.ownership.surely, spec.name)
        hosted.held = partial(self.catalog.held, spec.name, spec.query)
        for output in hosted.outputs.values() if not self._forgets else ():
            output.begun(self.catalog.installed.get(spec.name, 0))
        for peer in (self.settings.name, *self.sessions):
            if self._is_up(peer):
                hosted.peer_event(self._now_us, peer, LinkEvent.PEER_UP)
        return hosted

    def _owned(self, now_us: int, hosted: Hosted) -> None:
        """What followed another node's fragment is ours now."""
        assert isinstance(hosted, Shadow)
        hosted.own(now_us)
        for peer in (self.settings.name, *self.sessions):
            if self._is_up(peer):
                hosted.peer_event(now_us, peer, LinkEvent.PEER_UP)

    def _is_up(self, peer: str) -> bool:
        return peer == self.settings.name or self.sessions[peer].state is PeerState.UP

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    # --- life -----------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """Begin: call the peers, go on with what was installed, undo what was half deployed."""
        self._started_us = now_us
        if self.guard is not None:
            self.guard.start()
        for hosted in self.fragments.values():
            hosted.begin(now_us)
        self.streams.start(now_us)
        self.commands.start(now_us)
        self.tick(now_us)

    def stop(self, now_us: int) -> None:
        """Begin to end: take nothing new, write last checkpoints. ``stopped`` says when it is done."""
        self._stopping = True
        self.commands.sliding.stop(now_us)
        self.commands.naming.stop(now_us)
        for hosted in self.fragments.values():
            hosted.stop(now_us)

    @property
    def stopped(self) -> bool:
        """After ``stop``: all that happened is on disk."""
        return self._stopping and all(hosted.at_rest for hosted in self.fragments.values())

    @property
    def saved(self) -> bool:
        """The catalog is on disk as it is."""
        return self._saver.idle

    # --- what the driver brings -------------------------------------------------------------------

    def listens_at(self, address: str, server_key: str) -> None:
        """Where others reach this node; told before it begins."""
        self.commands.naming.listing.listens_at(address, server_key)
        for session in self.sessions.values():
            session.address = address

    def admit(self, hello: Hello, *, key: str = "") -> None:
        """Whether who calls us so may do that; before its first message is received.

        Args:
            key: that the transport authenticated; empty: it knows none.

        Raises:
            RemoteProtocolError: no peer of ours, a client under the name of a node, or another's key.
        """
        try:
            if self.guard is not None:  # Who isn't let in throws nobody out.
                self.guard.registry.caller(hello.node, key, client=hello.client)
            same = self.guard.bound(key) if self.guard is not None else ()
            if hello.client and (gone := makes_room(self._now_us, hello.node, self.clients, same)):
                self._forget(gone)
            check_caller(hello, self.settings, self.clients)
            self.lanes.admit(hello)  # Only who it is may say how its streams come.
            if self.guard is not None:
                self.guard.admit(hello.node, key, client=hello.client)
        except RemoteProtocolError as error:
            self._count(error.code)
            raise

    def receive(
        self,
        now_us: int,
        peer: str,
        message: Message,
        payload: Buffer | None = None,
        *,
        key: str = "",
        lane: int = 0,
    ) -> None:
        """Take one message of a peer that was admitted.

        Args:
            key: that the transport authenticated for this message; empty: it knows none.
            lane: of the connection that brought it; one for streams (1 and up) says nothing of whether
                the peer is there.

        Raises:
            RemoteProtocolError: it broke a rule that concerns the whole link: end it.
        """
        caller: Caller | None = None
        if self.guard is not None:
            try:
                caller = self.guard.caller(peer, key)
            except RemoteProtocolError as error:
                self._count(error.code)
                raise
        if peer not in self.sessions:
            if not (isinstance(message, Hello) and message.client):
                self._count("E_STALE")  # Left over from a client that we have forgotten.
                return
            self.sessions[peer] = self._session(peer, calls=False)
            self.clients[peer] = now_us  # Silent until it is up: what it says may not hold.
        self._now_us = now_us
        try:
            if lane == 0:
                self._spread(now_us, peer, self.sessions[peer].receive(now_us, message))
            if may_say(self.guard, peer, caller, message, client=peer in self.clients):
                self._dispatch(now_us, peer, lane, message, payload, caller)
        except RemoteProtocolError as error:
            self._count(error.code)
            raise
        finally:
            self._wake(now_us)

    def own(self, now_us: int, message: Message, payload: Buffer | None) -> None:
        """Take a message that this node has sent to itself: two fragments of a query are neighbours here.

        Raises:
            RemoteProtocolError: it broke a rule.
        """
        self._now_us = now_us
        try:
            self._dispatch(now_us, self.settings.name, 0, message, payload, None)
        finally:
            self._wake(now_us)

    def _count(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def _dispatch(
        self,
        now_us: int,
        peer: str,
        lane: int,
        message: Message,
        payload: Buffer | None,
        caller: Caller | None,
    ) -> None:
        match message:
            case Hello():
                self.commands.naming.calling.greeted(now_us, peer, message)
            case Heartbeat():
                pass
            case Attach() | Ack() | Detach():
                self.streams.from_reader(now_us, peer, message, caller)
            case Attached() | Data() | Boundary() | Progress():
                if not self.lanes.receive(now_us, peer, lane, message, payload):
                    self.streams.unwanted(now_us, peer, message)
            case Refuse():
                self.streams.refused(now_us, peer, message)
            case Offer():
                self.streams.offer(now_us, peer, message, caller)
            case Declare():
                self._declare(now_us, peer, message)
            case _:
                is_client = peer in self.clients
                self.commands.receive(now_us, peer, message, payload, client=is_client, caller=caller)

    def lost(self, now_us: int, peer: str) -> None:
        """The connection to a peer broke."""
        self.commands.lost(peer)
        if peer in self.sessions:
            self._spread(now_us, peer, self.sessions[peer].lost())
            self._wake(now_us)

    def lane_changed(self, now_us: int, peer: str, lane: int, *, up: bool) -> None:
        """A connection for streams to a peer broke, or stands and was introduced."""
        self.lanes.changed(now_us, peer, lane, flowing=up and self._is_up(peer))
        self._wake(now_us)

    def _spread(self, now_us: int, peer: str, event: LinkEvent | None) -> None:
        if event is None:
            return
        if peer in self.clients:
            self.clients[peer] = now_us if event is LinkEvent.PEER_DOWN else 0
        else:
            self.commands.peers[peer] = "silent" if event is LinkEvent.PEER_DOWN else "up"
            self.outbox.report("info", event.value, peer=peer)
            self.commands.naming.peer_event(now_us, peer, event)
            if event is not LinkEvent.PEER_DOWN:
                self.commands.coordinator.came_up(now_us, peer, forgets=self.sessions[peer].forgets)
            if self.guard is not None and event is not LinkEvent.PEER_DOWN:
                self.guard.came_up(peer)
        for hosted in self.fragments.values():
            hosted.peer_event(now_us, peer, event)
        if peer not in self.clients:
            self.commands.sliding.peer_event(now_us, peer, event)

    # --- keys ---------------------------------------------------------------------------------------

    def clock_is(self, now_us: int, wall_us: int) -> None:
        """What time it is, in microseconds since the Unix epoch: for what expires, and what arrives."""
        self.wall.told(now_us, wall_us)

    def configure(
        self, now_us: int, security: Security, offers: Mapping[str, OfferRules] | None = None
    ) -> None:
        """Keys and rules are these now: who counts no more is cut off, who may do other things begins anew.

        Args:
            offers: to other participants; None: as before. What runs goes on.

        Raises:
            LocalProtocolError: this node has no keys.
        """
        if self.guard is None:
            raise LocalProtocolError("a node gets keys when it starts, or never")
        if offers is not None:
            self.commands.remotes.offers = offers
        for peer in self.guard.configure(security):
            self.outbox.append(Cut(peer=peer))
            self.lost(now_us, peer)
        self._cut_off(now_us)
        self._wake(now_us)

    def door_is(self, counts: Mapping[str, int]) -> None:
        """What the transport counted of callers, for ``status``."""
        self.commands.door = counts

    def server_keys(self) -> dict[str, tuple[str, ...]]:
        """Peer -> keys under which it is called now, the newest first; without keys empty."""
        if self.guard is None:
            return {}
        return {peer: self.guard.registry.keys_of(peer) for peer in self.settings.peers}

    def _declare(self, now_us: int, peer: str, message: Declare) -> None:
        if self.guard is None:
            text = f"node {self.settings.name!r} has no keys, so nobody's statements count here"
            raise RemoteProtocolError(text, peer=peer, code="E_ROLE")
        self.guard.declare(now_us, peer, message)
        self._cut_off(now_us)

    def _cut_off(self, now_us: int) -> None:
        """End the links of callers whose keys count no more."""
        for peer in self.guard.to_cut() if self.guard is not None else ():
            self.lost(now_us, peer)
            if peer in self.clients:
                del self.sessions[peer], self.clients[peer]

    # --- the engine ---------------------------------------------------------------------------------

    def status(self, now_us: int) -> dict[str, Any]:
        """What ``medusa status`` shows."""
        return plain(self.commands.status(now_us))

    def persisted(self, now_us: int, token: int, ok: bool, why: str = "") -> None:
        """A ``Persist`` is durable, or failed."""
        if self._saver.written(now_us, token, ok, why):
            self.commands.sliding.splits.tick(now_us)  # What is there from now on is listed too.
            self.commands.naming.written(now_us)
            if self.guard is not None:
                self.guard.written([peer for peer in self.settings.peers if self._is_up(peer)])
        elif not any(hosted.persisted(now_us, token, ok, why) for hosted in self.fragments.values()):
            self.commands.sliding.persisted(now_us, token, ok, why)
        self.commands.sliding.tick(now_us)
        self._wake(now_us)

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        self._now_us = now_us
        self._tell_early(now_us)
        for peer, session in list(self.sessions.items()):
            self._spread(now_us, peer, session.tick(now_us))
        for peer, silent_us in list(self.clients.items()):
            if silent_us and now_us - silent_us >= self._link.idle_us:
                self._forget(peer)
        for hosted in self.fragments.values():
            hosted.tick(now_us)
        self._saver.tick(now_us)
        if self.guard is not None:
            self.guard.tick(now_us)
            self._cut_off(now_us)
        self.commands.tick(now_us)
        self._wake(now_us)

    def _forget(self, client: str) -> None:
        # Its positions stay with the fragments; should it come back it says Hello again.
        del self.sessions[client], self.clients[client]
        if self.guard is not None:
            self.guard.forget(client)
        self.outbox.append(Cut(peer=client))

    def _wake(self, now_us: int) -> None:
        self.commands.naming.directory.flush()
        times = [session.wake_at_us(now_us) for session in self.sessions.values()]
        times += [hosted.wake_at_us() for hosted in self.fragments.values()]
        times += [self._saver.wake_at_us(), self.commands.wake_at_us(now_us)]
        times += [silent_us + self._link.idle_us for silent_us in self.clients.values() if silent_us]
        self.outbox.append(WakeAt(at_us=min((t for t in times if t is not None), default=now_us + 1_000_000)))
