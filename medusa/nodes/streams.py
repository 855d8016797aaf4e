"""Messages about a stream: which of the fragments of a node has it, and who may read it or publish it."""

from __future__ import annotations

from collections.abc import Callable, Container

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.commands import Commands
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import Hosted
from medusa.nodes.security.registry import Caller, Refusal
from medusa.nodes.security.sessions import check_reader, say_no
from medusa.wire.link.automaton import ReceiverState
from medusa.wire.link.named_subscriptions import TAKEN, key_of
from medusa.wire.link.receiver import PATIENCE_US
from medusa.wire.link.session import EARLIER
from medusa.wire.messages.links_and_commands import Ack, Attach, Detach, Message, Offer, Progress, Refuse
from medusa.wire.outbox import Cut, Outbox

__all__ = ["Streams"]


class Streams:
    """Brings what readers and publishers say to the fragment that it is for.

    Args:
        clients: those that are here; others are nodes.
        count: told the code of each refusal.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        commands: Commands,
        clients: Container[str],
        *,
        outbox: Outbox,
        count: Callable[[str], None],
    ) -> None:
        self._me = settings.name
        self._forgets = settings.store == "memory"
        self._catalog = catalog
        self._commands = commands
        self._clients = clients
        self._outbox = outbox
        self._count = count
        self._started_us = 0

    def start(self, now_us: int) -> None:
        """The node begins."""
        self._started_us = now_us

    def from_reader(
        self, now_us: int, peer: str, message: Attach | Ack | Detach, caller: Caller | None
    ) -> None:
        """Somebody reads a stream, or wants to."""
        diverting = self._commands.diverting
        try:
            fragment, sink = self._catalog.sink(message.stream)
        except LinkError as error:
            # A client may have missed the word that it went elsewhere; nodes are told until they answer.
            asks = isinstance(message, Attach) or (isinstance(message, Ack) and peer in self._clients)
            asks = asks and not self._may_come(now_us, message.stream)
            if asks and (peer in self._clients or not diverting.point(peer, message.stream)):
                self._refuse(peer, message, error)
            return
        fragments = self._commands.fragments
        hosted = fragments[fragment]
        owner = caller.called if caller is not None else ""
        others = 0
        try:
            if isinstance(message, Attach):
                awaited = self._catalog.awaited_in(message.stream, peer)
                is_client = peer in self._clients
                check_reader(message, peer, hosted.spec, sink, client=is_client, awaited=awaited)
                if message.name:
                    others = sum(each.subscribers.count(owner) for each in fragments.values())
            hosted.from_reader(now_us, sink, peer, message, owner=owner, others=others)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        if isinstance(message, Attach) and not message.plain:
            diverting.attached(now_us, fragment, sink, peer)

    def offer(self, now_us: int, peer: str, message: Offer, caller: Caller | None) -> None:
        """A client has rows for a source."""
        try:
            fragment, source = self._catalog.entry(message.stream)
            hosted = self._commands.fragments[fragment]
            owner = caller.called if caller is not None else ""
            key = key_of(owner, message.name) if message.name else peer
            known = hosted.inputs.get((source, key))
            if known is None or (message.name and known.silent_since_us is not None):
                self._commands.check_memory(1, caller)
            self._check_offer(peer, key, message, hosted)
            if message.name:
                others = sum(each.publishers.count(owner) for each in self._commands.fragments.values())
                hosted.offer_named(now_us, peer, source, message, owner=owner, others=others)
            else:
                hosted.offer(now_us, peer, source, message.schema)
        except LinkError as error:
            if error.code != "E_STREAM" or not self._may_come(now_us, message.stream):
                self._refuse(peer, message, error)

    def _check_offer(self, peer: str, key: str, message: Offer, hosted: Hosted) -> None:
        if message.name and self._forgets:
            text = f"node {self._me!r} has no disk to remember how far publisher {message.name!r} is"
            hint = "publish without a name, or put that part of the query at a node with a disk"
            raise LinkError(text, hint=hint, code="E_STORE")
        other = hosted.input_of(message.stream, peer)
        if other is not None and other.peer != key:
            text = f"this connection publishes into {message.stream!r} already, under another name"
            raise LinkError(text, hint="use a connection of its own for each name", code=TAKEN)

    def unwanted(self, now_us: int, peer: str, message: Message) -> None:
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
        return forgot or (self._catalog.in_doubt.hides(stream) and self._catalog.place(stream) is None)

    def _refuse(self, peer: str, message: Message, error: LinkError) -> None:
        if error.code not in (
            "E_STREAM",
            "E_MOVED",
            "E_REMOVED",
        ):  # No rule: it isn't here (yet, or any more).
            self._count(error.code)
        say_no(self._outbox, peer, message, Refusal(code=error.code, text=error.message, hint=error.hint))

    def refused(self, now_us: int, peer: str, message: Refuse) -> None:
        """The other end of a stream, or of the whole link, refuses."""
        if message.code == EARLIER:
            about = {"peer": peer, "why": message.text, "hint": message.hint}
            self._outbox.report("warning", "ignored by a peer as an earlier life", **about)
            return
        if not message.stream:
            self._outbox.report("error", "refused by peer", peer=peer, code=message.code, text=message.text)
            self._outbox.append(Cut(peer=peer))
            return
        fragments = list(self._commands.fragments.values())
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
