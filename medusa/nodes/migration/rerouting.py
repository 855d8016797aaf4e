"""A fragment moves: what the nodes do that it reads from, and those that read it. No IO.

    upstream     readers {owner} ── Expect ──> {owner, target} ── target attaches ──> {target}
                       ^─────────── Unexpect ───────┘
    downstream   reads from owner ── Moved ──> reads from target, from the row that it wants next
    owner        left: asks its readers until each has said that its catalog names the target

Whatever dies, each is in the catalog before it is answered, and done again when it is asked for again.
Upstream, rows are kept for the target from where the owner held them durably, and nothing is let go
before the target is there. Downstream, positions and counts stay as they are: the rows of a stream have
the same numbers wherever it comes from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import RUNNING, Catalog, CrossQueryRead, ForwardingAddress
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.deploy.foreign_readers import ForeignReaders
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.link_teardown import close_links, tell_clients
from medusa.nodes.migration.upstream_search import UpstreamSearch
from medusa.nodes.names.names import NodeNames
from medusa.nodes.requests import Requests
from medusa.nodes.security.registry import Refusal
from medusa.nodes.security.sessions import say_no
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec, SoldStream
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.rerouting import (
    DivertMessage,
    Expect,
    Follow,
    Moved,
    Placed,
    Read,
    Release,
    Unexpect,
)
from medusa.wire.outbox import Outbox

__all__ = ["Rerouting"]

ASKED = 1 << 56
"""The numbers of our questions begin here, plus 2^20 for each life: apart from the coordinator's."""

HEARD_MAX = 10_000
"""Streams and nodes of which the last question is remembered; a word is late by seconds at most."""

UNTOLD = ("E_PEER", "E_BUSY")
"""After these refusals a reader is asked again; after others it doesn't read the stream from us."""


@dataclass(frozen=True, slots=True)
class _Question:
    fragment: str
    message: Moved


class Rerouting:
    """The neighbours' side of moves, at one node.

    Args:
        fragments: what runs here, by name; those of the brain, as they come and go.
        incarnation: of this node.
        saver: makes the catalog durable.
        is_up: whether a node is there; our own is.
        count: told the code of each refusal.
        moving: whether a fragment of ours is just being moved away.
        gives_way: whether that has only begun: of both ends of a stream the sender goes first.
        whose: the participant of a peer; without keys all are ours.
        offers: to other participants, by name.
        sold: as of ``ForeignReaders``.
        naming: where the stream of a sender is looked for that is lost.

    Attributes:
        seeking: looks for the stream of a sender that is lost.
        guests: queries that read sinks of others here.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        *,
        incarnation: int,
        outbox: Outbox,
        saver: CatalogWriter,
        is_up: Callable[[str], bool],
        count: Callable[[str], None],
        moving: Callable[[str], bool],
        gives_way: Callable[[str], bool],
        whose: Callable[[str], str | None],
        offers: Callable[[str], OfferRules | None],
        sold: Callable[[str, str, tuple[str, ...]], SoldStream | None],
        naming: NodeNames,
    ) -> None:
        self.moving, self.gives_way, self.whose = moving, gives_way, whose
        self._settings = settings
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._is_up = is_up
        self._count = count
        self.guests = ForeignReaders(
            settings, catalog, fragments, outbox, moving=moving, offers=offers, sold=sold
        )
        self.seeking = UpstreamSearch(
            fragments,
            is_up=is_up,
            follow=self._follow,
            whose=self.participant_of,
            ours=settings.participant,
            directory=naming.directory,
            abroad=naming.seek,
        )
        self._request = ASKED + (incarnation << 20)
        self._questions: Requests[_Question] = Requests()
        self._heard: dict[tuple[str, str], int] = {}
        """What it is about, and who asked -> the number of its last question. What was under way to an
        earlier life of ours never reaches this one."""

    def number(self) -> int:
        """Of a question of ours to another node, also of one that somebody else here asks."""
        self._request += 1
        return self._request

    # --- for who moves fragments ------------------------------------------------------------------

    def busy(self, fragment: FragmentSpec) -> str:
        """Why a fragment of ours can't be moved just now: a reader of it is moving; empty: it can."""
        for stream in fragment.streams.values():
            for reader, like in self._catalog.expected.get(stream, {}).items():
                return f"what reads stream {stream!r} is being moved from {like!r} to {reader!r}"
        return ""

    def left(self, now_us: int, hosted: FragmentHost, node: str, epoch: int) -> int:
        """A fragment that was here runs at another node: tell who reads it and who publishes into it.

        The catalog forgets it and keeps where it is; the rest of the node is the caller's to clear. Nodes are
        told again until they answer, also after a restart; who attaches later is told then. Returns the token
        of the catalog that says so.

        Args:
            epoch: of the fragment there.
        """
        spec = hosted.spec
        untold = {
            (spec.streams[sink], reader): None for sink, readers in spec.readers.items() for reader in readers
        }
        names = (*spec.streams.values(), *spec.entries.values())
        self._catalog.left[spec.name] = ForwardingAddress(
            query=spec.query, node=node, epoch=epoch, names=names, untold=tuple(untold)
        )
        for stream in spec.streams.values():
            self._catalog.expects_only(stream)
        self._catalog.fragments.pop(spec.name, None)
        nodes = {reader for readers in spec.readers.values() for reader in readers}
        tell_clients(hosted.inputs.values(), hosted.outputs.values(), nodes, self._outbox, node)
        token = self._saver.save()
        self._tell(now_us, spec.name, after=token)
        return token

    def back(self, fragment: str) -> None:
        """A fragment that had left is here (again); ``Catalog.add`` and a save follow."""
        self._catalog.is_here_again(fragment)
        self._questions.forget(lambda question: question.fragment == fragment)

    def succeeded(self, now_us: int, hosted: FragmentHost, sink: str, old: str, new: str) -> None:
        """What read a stream of ours at one node does so at another now, from the row that the first one held
        durably; a save follows."""
        sender = hosted.outputs[sink].sender
        view = sender.receivers.get(old)
        sender.expect(new, None if view is None else view.durable)
        if view is not None and view.note:  # What it left with us is for whoever has its place.
            sender.receivers[new].leave(view.note)
        readers = hosted.spec.readers.get(sink, ())
        self._read_by(hosted, sink, tuple(dict.fromkeys((*readers, new))))
        self._drop(now_us, hosted, sink, old)
        hosted.changed(now_us, False)

    def switched(self, now_us: int, hosted: FragmentHost, feed: Feed, node: str, epoch: int) -> None:
        """A stream that a fragment of ours reads comes from another node now; a save follows."""
        new = msgspec.structs.replace(feed, node=node, epoch=epoch)
        feeds = tuple(new if each == feed else each for each in hosted.spec.feeds)
        self._replace(hosted, feeds=feeds)
        hosted.redirect(now_us, feed.source, node, up=self._is_up(node))
        self._outbox.report(
            "info", "stream switched", stream=feed.stream, peer=feed.node, to=node, epoch=epoch
        )

    def start(self, now_us: int) -> None:
        """The node starts: go on telling."""
        for fragment in self._catalog.left:
            self._tell(now_us, fragment, after=0)

    # --- messages -----------------------------------------------------------------------------------

    def receive(self, now_us: int, peer: str, message: DivertMessage) -> None:
        """Take what a node says; ``Reply`` goes out once it is on disk."""
        try:
            self._check_whose(peer, message)
            if self._is_late(peer, message):
                self._count("E_STALE")
                return
            changed = self._take(now_us, peer, message)
        except LinkError as error:
            self._count(error.code)
            say_no(self._outbox, peer, message, Refusal(code=error.code, text=error.message, hint=error.hint))
            return
        # What it asks for again may be on its way to disk.
        token = self._saver.save() if changed or message.request else 0
        if message.request:
            self._saver.send(peer, Reply(request=message.request), after=token)

    def _is_late(self, peer: str, message: DivertMessage) -> bool:
        key = self._about(peer, message), peer
        if not message.request:
            return False
        if message.request < self._heard.get(key, 0):
            return True
        self._heard.pop(key, None)
        self._heard[key] = message.request
        if len(self._heard) > HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        return False

    def _about(self, peer: str, message: DivertMessage) -> str:
        """Questions about the same replace earlier ones. One node can be before and behind us by the same
        stream, and asks each of that anew while the other isn't answered."""
        match message:
            case Expect() | Unexpect() | Release():
                return f"readers of {message.stream}"
            case Read():
                return f"readers of {self.guests.stream(self.participant_of(peer), message)}"
            case Follow() | Moved():
                return f"sender of {message.stream}"
            case Placed():
                return f"place of {message.fragment}"

    def _take(self, now_us: int, peer: str, message: DivertMessage) -> bool:
        """Whether the catalog has changed."""
        match message:
            case Expect():
                return self._expect(peer, message)
            case Unexpect():
                return self._unexpect(now_us, peer, message)
            case Release():
                return self._release(now_us, peer, message)
            case Follow():
                self._check_follow(peer, message)
                return False
            case Moved():
                return self._moved(now_us, peer, message)
            case Placed():
                return self._placed(peer, message)
            case Read():
                return self.guests.read(peer, self.participant_of(peer) or "", message)

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to a question of ours."""
        found = self._questions.get(reply.request, peer)
        if found is None:
            return reply.request >= ASKED and reply.request < 2 * ASKED
        if reply.code in UNTOLD:
            return True
        self._questions.close(found)
        question = found.order
        left = self._catalog.left.get(question.fragment)
        if left is not None:
            told = question.message.stream, peer
            untold = tuple(each for each in left.untold if each != told)
            self._catalog.left[question.fragment] = msgspec.structs.replace(left, untold=untold)
            self._saver.save()
        return True

    # --- upstream -----------------------------------------------------------------------------------

    def _sink(self, message: Expect | Unexpect | Release) -> tuple[FragmentHost, str]:
        name, sink = self._catalog.sink(message.stream)
        hosted = self._fragments[name]
        if hosted.spec.reader_query(sink) != message.query:
            raise LinkError(
                f"stream {message.stream!r} is not of query {message.query[:100]!r}", code="E_STREAM"
            )
        return hosted, sink

    def _expect(self, peer: str, message: Expect) -> bool:
        hosted, sink = self._sink(message)
        stream, reader = message.stream, message.reader
        readers = hosted.spec.readers.get(sink, ())
        follows = self._catalog.expected.get(stream, {})
        if message.like != peer or peer not in readers:
            text = f"{peer!r} isn't who reads stream {stream!r} for {message.like!r}"
            raise LinkError(text, code="E_READER")
        if follows.get(reader) == peer:
            self._catalog.expect(stream, reader, peer, message.epoch)
            return False
        between = {*follows, *follows.values()}
        if reader == peer:
            raise LinkError(f"node {reader!r} reads stream {stream!r} already", code="E_READER")
        if reader in readers and reader not in between:
            text = f"another fragment at node {reader!r} reads stream {stream!r} already"
            raise LinkError(text, hint="move it to a node that doesn't read that stream", code="E_MOVE")
        self._check_peer(reader)
        self._check_disk()
        if peer in between or reader in between or self.moving(hosted.spec.name):
            text = f"a move of fragment {hosted.spec.name!r} or of what reads stream {stream!r} isn't over"
            raise LinkError(text, hint="try again in a moment", code="E_BUSY")
        sender = hosted.outputs[sink].sender
        view = sender.receivers.get(peer)
        if view is None or view.plain or view.note or reader in sender.receivers:
            raise LinkError(f"no rows of stream {stream!r} are kept for {peer!r}", code="E_READER")
        sender.expect(reader, view.durable)
        self._read_by(hosted, sink, (*readers, reader))
        self._catalog.expect(stream, reader, peer, message.epoch)
        return True

    def _unexpect(self, now_us: int, peer: str, message: Unexpect) -> bool:
        hosted, sink = self._sink(message)
        follows = self._catalog.expected.get(message.stream, {})
        if message.reader not in follows:
            return False
        if follows[message.reader] != peer:
            text = f"{peer!r} didn't say that {message.reader!r} would read stream {message.stream!r}"
            raise LinkError(text, code="E_READER")
        self._drop(now_us, hosted, sink, message.reader)
        return True

    def _release(self, now_us: int, peer: str, message: Release) -> bool:
        hosted, sink = self._sink(message)
        readers = hosted.spec.readers.get(sink, ())
        follows = self._catalog.expected.get(message.stream, {})
        if message.reader not in readers:
            return False
        if peer != message.reader and follows.get(peer) != message.reader:
            text = f"{peer!r} doesn't follow {message.reader!r} as reader of stream {message.stream!r}"
            raise LinkError(text, code="E_READER")
        self._drop(now_us, hosted, sink, message.reader)
        return True

    def attached(self, now_us: int, fragment: str, sink: str, peer: str) -> None:
        """A reader has attached: if it was expected, it has taken the fragment over."""
        hosted = self._fragments[fragment]
        like = self._catalog.expected.get(hosted.spec.streams[sink], {}).get(peer)
        if like is not None:
            self._drop(now_us, hosted, sink, like)
            self._saver.save()

    def _drop(self, now_us: int, hosted: FragmentHost, sink: str, reader: str) -> None:
        """Keep nothing more for a reader; whoever was to follow it reads in its place."""
        stream = hosted.spec.streams[sink]
        follows = self._catalog.expected.get(stream, {})
        left = [new for new, like in follows.items() if reader not in (new, like)]
        self._catalog.expects_only(stream, left)
        self._read_by(hosted, sink, tuple(r for r in hosted.spec.readers.get(sink, ()) if r != reader))
        hosted.outputs[sink].sender.forget(now_us, reader)
        self.guests.left(hosted, sink)

    # --- streams that are sold ------------------------------------------------------------------------

    def origin(self, stream: str) -> int | None:
        """As of ``ForeignReaders``."""
        return self.guests.origin(stream)

    def read_on(self, peer: str, message: Read, origin: int) -> tuple[int, int]:
        """A node of another participant reads a sink of ours on, where it has read the rows before elsewhere.

        Args:
            origin: what its row 0 is called at the sink.

        Returns:
            The number of the first row that it gets here, and the write of the catalog with that.

        Raises:
            LinkError: as of ``ForeignReaders.read``; or it is read here already, and not by contract
                (``E_READER``).
        """
        participant = self.participant_of(peer) or ""
        changed = self.guests.read(peer, participant, message, origin)
        stream = self.guests.stream(participant, message)
        begin = next(
            (
                spec.sold[id].begin
                for spec in self._catalog.fragments.values()
                for id in spec.sold
                if spec.streams[id] == stream
            ),
            None,
        )
        if begin is None:  # It was read before a contract sold it, by the number that is said again here.
            text = f"stream {message.stream!r} is read here already, and not by contract"
            raise LinkError(text, hint="ask for it with another number", code="E_READER")
        return begin, self._saver.save() if changed else 0

    def reads_on(self, now_us: int, stream: str, node: str, asked: int) -> int | None:
        """A stream that a query of ours reads comes from another participant's node from now on, from the row
        on that is next; that row, or None: nothing reads it here, or what does is being moved."""
        for hosted in self._fragments.values():
            for feed in hosted.spec.feeds:
                if feed.stream != stream or self.moving(hosted.spec.name) or hosted.frozen:
                    continue
                row = hosted.inputs[feed.source, feed.node].receiver.next_seq
                self.switched(now_us, hosted, feed, node, 1)
                self._catalog.reading[stream] = CrossQueryRead(
                    node=node, query=hosted.spec.query, asked=asked, begin=row
                )
                self._saver.save()
                return row
        return None

    def unsell(self, now_us: int, stream: str, why: str) -> None:
        """A stream that is sold is read no more: its reader hears why, and nothing is kept for it."""
        for hosted in self._fragments.values():
            spec = hosted.spec
            for id in [each for each in spec.sold if spec.streams[each] == stream]:
                close_links((), [hosted.outputs[id]], self._outbox, why, "E_NO_CONTRACT")
                for reader in spec.readers.get(id, ()):
                    self._drop(now_us, hosted, id, reader)
                self._saver.save()

    def _read_by(self, hosted: FragmentHost, sink: str, readers: tuple[str, ...]) -> None:
        self._replace(hosted, readers={**hosted.spec.readers, sink: readers})

    def _replace(self, hosted: FragmentHost, **changes: Any) -> None:
        self._catalog.fragments[hosted.spec.name] = hosted.change_spec(**changes)

    # --- downstream -----------------------------------------------------------------------------------

    def _readers_of(self, stream: str, peer: str) -> list[tuple[FragmentHost, Feed]]:
        """Fragments here that read this stream of this node."""
        return [
            (hosted, feed)
            for hosted in self._fragments.values()
            for feed in hosted.spec.feeds
            if (feed.stream, feed.node) == (stream, peer)
        ]

    def _check_follow(self, peer: str, message: Follow | Moved) -> None:
        reading = self._readers_of(message.stream, peer)
        if not reading:
            return
        self._check_peer(message.node)
        self._check_disk()
        if self._readers_of(message.stream, message.node):
            text = f"stream {message.stream!r} is read from node {message.node!r} here already"
            raise LinkError(text, code="E_SENDER")
        for hosted, _ in reading:
            if self.moving(hosted.spec.name) and not self.gives_way(hosted.spec.name):
                text = f"fragment {hosted.spec.name!r}, which reads stream {message.stream!r}, is being moved"
                raise LinkError(text, hint="try again in a moment", code="E_BUSY")

    def _moved(self, now_us: int, peer: str, message: Moved) -> bool:
        reading = [(h, feed) for h, feed in self._readers_of(message.stream, peer)]
        if any(feed.epoch >= message.epoch for _, feed in reading):
            return (
                False  # The stream has come back. ``_is_late`` finds most of these, but not after a restart.
            )
        if not reading:
            there = self._readers_of(message.stream, message.node)
            if not any(feed.epoch >= message.epoch for _, feed in there):
                text = f"stream {message.stream!r} is not read from node {peer!r} here"
                raise LinkError(text, code="E_SENDER")
            return False
        self._check_follow(peer, message)
        for hosted, feed in reading:
            new = msgspec.structs.replace(feed, node=message.node, epoch=message.epoch)
            self._replace(hosted, feeds=tuple(new if each == feed else each for each in hosted.spec.feeds))
            up = self._is_up(message.node)
            hosted.redirect(now_us, feed.source, message.node, up=up)
            self._outbox.report(
                "info",
                "stream moved",
                stream=message.stream,
                peer=peer,
                to=message.node,
                epoch=message.epoch,
            )
        return True

    def _follow(self, now_us: int, feed: Feed, node: str, epoch: int) -> None:
        """As if its old owner had said that it moved; where that can't be, it is tried again."""
        moved = Moved(request=0, stream=feed.stream, node=node, epoch=epoch)
        with contextlib.suppress(LinkError):
            self._check_whose(feed.node, moved)
            if self._moved(now_us, feed.node, moved):
                self._saver.save()

    # --- the coordinator ------------------------------------------------------------------------------

    def _placed(self, peer: str, message: Placed) -> bool:
        deployment = self._catalog.deployment(message.query)
        if deployment is None:
            self._check_disk()  # Else it may only have forgotten it.
        if deployment is None and message.query in self._catalog.configurations:
            text = f"node {self._settings.name!r} hasn't heard that it coordinates {message.query!r}"
            raise LinkError(text, hint="try again in a moment", code="E_BUSY")
        if (removed := self._catalog.is_removed(message.query)) or deployment is None:
            text = f"query {message.query[:100]!r} isn't deployed from node {self._settings.name!r}"
            raise LinkError(text, code="E_REMOVED" if removed else "E_QUERY")
        if deployment.state != RUNNING:
            text = f"query {message.query!r} is being deployed"
            raise LinkError(text, hint="try again in a moment", code="E_BUSY")
        # Who had the role before may have had no time to tell of the move by which it has one.
        moved = deployment.taken_over and peer in self._settings.own_peers and peer == message.node
        if peer not in deployment.nodes and not moved:
            raise LinkError(f"node {peer!r} has no part of query {message.query!r}", code="E_READER")
        self._check_peer(message.node)
        before = deployment.nodes, deployment.streams
        deployment.has_part_at(message.node, message.streams)
        return before != (deployment.nodes, deployment.streams)

    # --- checks -----------------------------------------------------------------------------------------

    def participant_of(self, node: str) -> str | None:
        """Whose node it is."""
        return self._settings.participant if node == self._settings.name else self.whose(node)

    def _check_whose(self, peer: str, message: DivertMessage) -> None:
        """Another participant moves only what is next to parts that it has here, among its own nodes."""
        whose = self.participant_of(peer)
        queries: tuple[str, ...] = ()
        if whose == self._settings.participant or isinstance(message, Read):
            return
        other = ""
        if isinstance(message, Expect | Unexpect | Release):
            other, queries = message.reader, (message.query,)
            if self.guests.of(message.stream) is not None and self.participant_of(other) == whose:
                return  # It says so of its own reader, which is checked where it is looked for.
        elif isinstance(message, Follow | Moved):
            other = message.node
            reading = (*self._readers_of(message.stream, peer), *self._readers_of(message.stream, other))
            theirs = bool(reading) and self.participant_of(other) == whose
            if theirs and all(feed.source in hosted.spec.reads() for hosted, feed in reading):
                return  # It says so of its own stream, which a query here reads.
            queries = tuple(hosted.spec.query for hosted, _ in reading)
        owners = [self._catalog.coordinator_of(query, self._settings.name) for query in queries]
        if not owners or {self.participant_of(node) for node in (*owners, other)} != {whose}:
            text = (
                f"node {peer!r} of participant {whose!r} may move only what is next to parts that it has here"
            )
            raise LinkError(text, hint="and only to nodes of its own participant", code="E_NO_CONTRACT")

    def _check_peer(self, node: str) -> None:
        me = self._settings.name
        if node != me and node not in self._settings.peers:
            raise LinkError(
                f"node {node!r} is no peer of {me!r}", hint=f"add {node} to [peers] of {me}", code="E_PEER"
            )

    def _check_disk(self) -> None:
        if self._settings.forgets:
            raise LinkError(
                f"node {self._settings.name!r} has no disk to remember a move",
                hint="fragments next to those of a node without a disk stay where they are",
                code="E_STORE",
            )

    # --- telling ------------------------------------------------------------------------------------------

    def _tell(self, now_us: int, fragment: str, *, after: int) -> None:
        left = self._catalog.left[fragment]
        for stream, node in left.untold:
            self._request += 1
            message = Moved(request=self._request, stream=stream, node=left.node, epoch=left.epoch)
            self._questions.open(now_us, self._request, node, _Question(fragment, message))
            self._saver.send(node, message, after=after)

    def point(self, peer: str, stream: str) -> bool:
        """A node asks for a stream that was here: tell it where it is; whether it was here."""
        left = self._catalog.place(stream)
        if left is not None:
            self._outbox.send(peer, Moved(request=0, stream=stream, node=left.node, epoch=left.epoch))
        return left is not None

    def tick(self, now_us: int) -> None:
        """Ask again; look for who is lost."""
        self.seeking.tick(now_us)
        self._questions.forget(lambda question: question.fragment not in self._catalog.left)
        for each in self._questions.due(now_us):
            each.said(now_us)
            self._outbox.send(each.to, each.order.message)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._questions.wake_at_us()
