"""Messages about a stream: which of the fragments of a node has it, and who may read it or publish it."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

import msgspec

from medusa.errors import LinkError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragments import Fragments
from medusa.nodes.lanes import Lanes
from medusa.nodes.message_table import Heard
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.pending_attachments import PendingAttachments
from medusa.nodes.security.registry import Caller, Refusal, no_deploy
from medusa.nodes.security.sessions import check_reader, refusal_of, say_no
from medusa.wire.link.automaton import ReceiverState
from medusa.wire.link.named_subscriptions import TAKEN, key_of
from medusa.wire.link.receiver import PATIENCE_US
from medusa.wire.link.session import EARLIER
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Forget
from medusa.wire.messages.links import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows, TentativeTaken
from medusa.wire.outbox import CutPeer, Outbox

__all__ = ["StreamRouter"]


class StreamRouter:
    """Brings what readers, publishers and senders say to the fragment that it is for.

    Args:
        lanes: the connections that bring rows.
        diverting: knows streams that went elsewhere, and readers that come from elsewhere.
        clients: those that are here; others are nodes.
        count: told the code of each refusal.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: Fragments,
        clients: Container[str],
        *,
        lanes: Lanes,
        diverting: Rerouting,
        outbox: Outbox,
        count: Callable[[str], None],
    ) -> None:
        self._me = settings.name
        self._participant = settings.participant
        self._forgets = settings.forgets
        self._catalog = catalog
        self._fragments = fragments
        self._running = fragments.running
        self._lanes = lanes
        self._diverting = diverting
        self._clients = clients
        self._outbox = outbox
        self._count = count
        self._started_us = 0
        self._pending = PendingAttachments()

    def start(self, now_us: int) -> None:
        """The node begins."""
        self._started_us = now_us

    def receive(self, heard: Heard) -> None:
        """Take a message about a stream, or of a whole link that is refused.

        Raises:
            RemoteProtocolError: a frame breaks a rule.
        """
        now_us, peer, message = heard.now_us, heard.peer, heard.message
        match message:
            case Attach() | Ack() | Detach():
                self._from_reader(heard, message)
            case TentativeTaken():
                self._tentative_taken(now_us, peer, message)
            case StreamState() | TentativeRows() | TentativeBoundary():
                self._lanes.receive_tentative(now_us, peer, message, heard.payload)
            case Attached() | Data() | Boundary() | Progress():
                if not self._lanes.receive(now_us, peer, heard.lane, message, heard.payload):
                    self._unwanted(now_us, peer, message)
            case OpenPublisher():
                self._open_publisher(heard, message)
            case Refuse():
                self._refused(now_us, peer, message)
            case Forget():
                self._forget(now_us, peer, message, heard.caller)

    def lost(self, peer: str) -> None:
        """A peer, or its connection, is another one from now on."""
        self._pending.lost(peer)

    def flush(self, now_us: int) -> None:
        """Answer those who asked for a stream before anybody knew whose it is."""
        for heard in self._pending.take(now_us, self._rests) if self._pending else ():
            try:
                self.receive(replace(heard, now_us=now_us))
            except RemoteProtocolError as error:
                self._count(error.code)
                self._outbox.append(CutPeer(peer=heard.peer))

    def _rests(self, stream: str, kind: type) -> bool:
        """Nobody knows yet whether the fragment of a stream is ours."""
        try:
            fragment, _ = self._catalog.sink(stream) if kind is Attach else self._catalog.entry(stream)
        except LinkError:
            return False
        return self._running[fragment].frozen

    def _from_reader(self, heard: Heard, message: Attach | Ack | Detach) -> None:
        """Somebody reads a stream, or wants to."""
        now_us, peer, caller = heard.now_us, heard.peer, heard.caller
        if isinstance(message, Detach):
            self._pending.detached(peer, message.stream)
        try:
            fragment, sink = self._catalog.sink(message.stream)
        except LinkError as error:
            # A client may have missed the word that it went elsewhere; nodes are told until they answer.
            asks = isinstance(message, Attach) or (isinstance(message, Ack) and peer in self._clients)
            asks = asks and not self._may_come(now_us, message.stream)
            if asks and (peer in self._clients or not self._diverting.point(peer, message.stream)):
                self._refuse(peer, message, error)
            return
        hosted = self._running[fragment]
        # Before all else: who reads in whose place is a matter of the configuration.
        if not isinstance(message, Detach) and (refusal := hosted.refusal(now_us, peer, message)) is not None:
            self._count(refusal.code)
            self._outbox.send(peer, refusal)
            return
        if isinstance(message, Attach) and hosted.rests_for(sink, peer):
            self._pending.add(heard, message)
            return
        owner = caller.called if caller is not None else ""
        others = 0
        if isinstance(message, Attach) and self._is_abroad(caller):
            message = msgspec.structs.replace(message, tentative=False)  # That lane isn't offered.
        try:
            if isinstance(message, Attach):
                awaited = self._catalog.awaited_in(message.stream, peer)
                is_client = peer in self._clients
                check_reader(message, peer, hosted.spec, sink, client=is_client, awaited=awaited)
                if message.name:
                    others = sum(each.subscribers.count(owner) for each in self._running.values())
            hosted.from_reader(now_us, sink, peer, message, owner=owner, others=others)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        if isinstance(message, Attach) and not message.plain:
            self._diverting.attached(now_us, fragment, sink, peer)

    def _is_abroad(self, caller: Caller | None) -> bool:
        """It is a node of another participant."""
        return caller is not None and caller.rules is None and caller.participant != self._participant

    def _tentative_taken(self, now_us: int, peer: str, message: TentativeTaken) -> None:
        """A reader says how far it is in the tentative lane; of a stream that isn't here any more it hears by
        another way."""
        try:
            fragment, sink = self._catalog.sink(message.stream)
        except LinkError:
            return
        self._running[fragment].outputs[sink].sender.receive(now_us, peer, message)

    def _open_publisher(self, heard: Heard, message: OpenPublisher) -> None:
        """A client has rows for a source."""
        now_us, peer, caller = heard.now_us, heard.peer, heard.caller
        try:
            fragment, source = self._catalog.entry(message.stream)
            hosted = self._running[fragment]
            if hosted.frozen:
                self._pending.add(heard, message)
                return
            owner = caller.called if caller is not None else ""
            key = key_of(owner, message.name) if message.name else peer
            known = hosted.inputs.get((source, key))
            if known is None or (message.name and known.silent_since_us is not None):
                self._fragments.check_memory(1, caller)
            self._check_publisher(peer, key, message, hosted)
            if message.name:
                others = sum(each.publishers.count(owner) for each in self._running.values())
                hosted.open_named_publisher(now_us, peer, source, message, owner=owner, others=others)
            else:
                hosted.open_publisher(now_us, peer, source, message.schema)
        except LinkError as error:
            if error.code != "E_STREAM" or not self._may_come(now_us, message.stream):
                self._refuse(peer, message, error)

    def _check_publisher(self, peer: str, key: str, message: OpenPublisher, hosted: FragmentHost) -> None:
        if message.name and hosted.forgets:
            text = f"node {self._me!r} has no disk to remember how far publisher {message.name!r} is"
            hint = "publish without a name, or put that part of the query at a node with a disk"
            if hosted.spec.keeps_nothing:
                text = (
                    f"nothing is kept of {message.stream!r} when its node is lost, so nobody could say how "
                )
                text += f"far publisher {message.name!r} is"
                hint = 'publish without a name, or deploy what it feeds with another method than "amnesia"'
            raise LinkError(text, hint=hint, code="E_STORE")
        other = hosted.input_of(message.stream, peer)
        if other is not None and other.peer != key:
            text = f"this connection publishes into {message.stream!r} already, under another name"
            raise LinkError(text, hint="use a connection of its own for each name", code=TAKEN)

    def _unwanted(self, now_us: int, peer: str, message: Message) -> None:
        """Somebody asks how much came of a stream of which nothing here takes anything from it.

        Where that is a client it hears why: it may have missed the word that its source went elsewhere.
        """
        if peer not in self._clients or not isinstance(message, Progress):
            return
        if self._may_come(now_us, message.stream):
            return
        try:
            self._catalog.entry(message.stream)
        except LinkError as error:
            self._refuse(peer, message, error)
        else:
            text = "offer it: nothing is known here of what you publish"
            self._outbox.send(
                peer, Refuse(code="E_DETACHED", text=text, stream=message.stream, epoch=message.epoch)
            )

    def _may_come(self, now_us: int, stream: str) -> bool:
        """We have forgotten what ran here, and who coordinates it may not have told us yet; or the disk has
        lost what says whether it is here. Who asks for a stream that we don't know will ask again."""
        forgot = self._forgets and now_us - self._started_us < PATIENCE_US
        return forgot or self._catalog.may_hide(stream)

    def _refuse(self, peer: str, message: Message, error: LinkError) -> None:
        if error.code not in (
            "E_STREAM",
            "E_MOVED",
            "E_REMOVED",
        ):  # No rule: it isn't here (yet, or any more).
            self._count(error.code)
        say_no(self._outbox, peer, message, Refusal(code=error.code, text=error.message, hint=error.hint))

    def _refused(self, now_us: int, peer: str, message: Refuse) -> None:
        """The other end of a stream, or of the whole link, refuses."""
        if message.code == EARLIER:
            about = {"peer": peer, "why": message.text, "hint": message.hint}
            self._outbox.report("warning", "ignored by a peer as an earlier life", **about)
            return
        if not message.stream:
            self._outbox.report("error", "refused by peer", peer=peer, code=message.code, text=message.text)
            self._outbox.append(CutPeer(peer=peer))
            return
        fragments = list(self._running.values())
        readers = [(h, input) for h in fragments if (input := h.input_of(message.stream, peer)) is not None]
        if peer == self._me:  # Both ends are ours, and one of them has said it: if it rests, the input.
            readers = [each for each in readers if each[1].receiver.state is not ReceiverState.REFUSED]
        for hosted, input in readers:
            hosted.receive(now_us, input, message, None)
        if readers and peer == self._me:
            return
        for hosted in fragments:
            for output in hosted.outputs.values():
                if output.stream == message.stream:
                    output.sender.receive(now_us, peer, message)

    def _forget(self, now_us: int, client: str, message: Forget, caller: Caller | None) -> None:
        """A client ends a named subscription, or a named publisher."""
        found = self._catalog.entry if message.publisher else self._catalog.sink
        try:
            fragment, at = found(message.stream)
        except LinkError as error:
            self._outbox.send(client, refusal_of(message.request, error.code, error.message, error.hint))
            return
        hosted = self._running[fragment]
        owner = caller.called if caller is not None else ""
        if message.owner and caller is not None and not caller.may("deploy", hosted.spec.query):
            why = no_deploy(caller, hosted.spec.query)
            self._outbox.send(client, refusal_of(message.request, why.code, why.text, why.hint))
            return
        ending = hosted.publishers if message.publisher else hosted.subscribers
        ending.forget(now_us, at, client, message.owner or owner, message)
