"""A client's mind: what it publishes, what it reads, what it asked a node. Pure: no IO, no clock.

Publishing is sending: rows are numbered per (client, stream), kept until the node holds them
durably, and resent when the node comes back. Reading is receiving: the next row is remembered, so
that a restart of the node neither loses nor repeats one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from medusa.elements import END_US
from medusa.errors import LinkError, LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.receiver import (
    Delivery,
    LostRows,
    ReceivedPromise,
    ReceivedRows,
    Receiver,
    ReceiverMessage,
)
from medusa.wire.link.sender import Sender
from medusa.wire.link.session import PeerSession, PeerState, SessionSettings
from medusa.wire.link.tentative_receiver import (
    StateChanged,
    TentativeDelivery,
    TentativePromise,
    TentativeRowsCame,
)
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import (
    NOW,
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    Heartbeat,
    Hello,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows, TentativeTaken
from medusa.wire.outbox import Detour, Outbox

__all__ = ["ClientMind", "ClientPublication", "ClientSubscription"]

NOT_TAKEN_MAX = 10
"""Words of rows not taken that a publication keeps."""

LOST = ("E_TAKEN", "E_NAME", "E_REMOVED", "E_FINISHED")
"""Refusals after which a named publisher is not opened again: it isn't ours, or isn't any more."""

EARLY_MAX = 1000
"""Streams that a node may ask for before they are published to it."""


class ClientPublication:
    """One stream that we publish; the node is its only receiver.

    Attributes:
        sender: the rows not yet durable at the node.
        refusal: what the node said against it; None while it has said nothing.
        not_taken: what it said of rows that it received and could not take (``E_ROWS``), at most
            the first few.
        attached: the node has asked for it, or acknowledged of it, since it last came up.
        name: of a named publisher, else empty.
        begun: of a named publisher: the node has said at which row it goes on.
    """

    def __init__(self, sender: Sender, node: str, way: Detour, name: str = "") -> None:
        self.sender = sender
        self.name = name
        self.begun = False
        self.way = way
        self.refusal: Refuse | None = None
        self.not_taken: list[Refuse] = []
        self._last_not_taken: Refuse | None = None
        self.attached = False
        self._asked_at_us = 0
        self._node = node
        sender.expect(node)

    def open(self, now_us: int, outbox: Outbox) -> None:
        """Tell the node that there are rows for it."""
        self.attached = False
        self._asked_at_us = now_us
        stream, schema = self.sender.stream, self.sender.schema
        outbox.send(
            self._node, OpenPublisher(stream=stream, schema=schema, name=self.name, resumed=self.begun)
        )

    def refused(self, message: Refuse) -> None:
        """The node takes none of it."""
        self.refusal = message

    def told_not_taken(self) -> list[Refuse]:
        """What the node could not take, said once."""
        said, self.not_taken = self.not_taken, []
        return said

    def move(self, now_us: int, node: str, outbox: Outbox) -> None:
        """Another node takes the stream from now on: it goes on after the last row that is durable."""
        view = self.sender.receivers[self._node]
        self.sender.expect(node, view.durable)
        self.sender.receivers[node].leave(view.note)
        if node != self._node:
            self.sender.forget(now_us, self._node)
        self.way.lead_to(outbox)
        self._node = node
        self.refusal = None
        self.attached = False

    def open_again_at_us(self) -> int | None:
        """When what opens it is repeated, unanswered."""
        lost = self.name and self.refusal is not None and self.refusal.code in LOST
        return None if self.attached or lost else self._asked_at_us + self.sender.settings.retry_us

    def asked(self, now_us: int, message: Attach | Ack | Detach) -> None:
        """The node says what it wants, or has."""
        self.refusal = None
        self.attached = not isinstance(message, Detach)
        if self.name and not self.begun and isinstance(message, Attach):
            self.begun = True
            self.sender.begin_log(message.durable)
        self.sender.receive(now_us, self._node, message)

    def rows_refused(self, message: Refuse) -> None:
        """Rows were not taken; the stream goes on. Opened anew, the node says its last word again."""
        if message != self._last_not_taken and len(self.not_taken) < NOT_TAKEN_MAX:
            self.not_taken.append(message)
        self._last_not_taken = message

    @property
    def durable(self) -> bool:
        """Everything published so far survives a crash of the node."""
        return self.undurable_rows == 0

    @property
    def undurable_rows(self) -> int:
        """Rows published that a crash of the node could still take."""
        return max(self.sender.log.next_seq - self.durable_seq, 0)

    @property
    def durable_seq(self) -> int:
        """The node holds the rows below it durably."""
        return self.sender.receivers[self._node].durable

    @property
    def left_out_rows(self) -> int:
        """So many of the rows that it had received the node has left out under overload, as it said last."""
        return self.sender.receivers[self._node].shed_rows


class ClientSubscription:
    """One stream that we read.

    Attributes:
        receiver: where we are.
        waiting: what came and was not yet taken, oldest first; at most one credit window, and one of the
            tentative lane.
        taken_seq: rows below it were taken, or are lost; None before any was.
        ended: the end of the stream was taken.
    """

    def __init__(self, receiver: Receiver, way: Detour) -> None:
        self.receiver = receiver
        self._lane = receiver.tentative
        self.way = way
        self.waiting: deque[Delivery | TentativeDelivery] = deque()
        self.taken_seq: int | None = None
        self.ended = False

    def receive(self, now_us: int, message: ReceiverMessage, payload: Buffer | None = None) -> None:
        """Take one message of the node. Broken rules are answered here."""
        try:
            self.waiting.extend(self.receiver.receive(now_us, message, payload))
        except RemoteProtocolError as error:
            self.receiver.refuse(error)
        self._take_tentative()

    def peer_event(self, now_us: int, event: LinkEvent) -> None:
        """The node came, went or restarted."""
        self.receiver.peer_event(now_us, event)
        self._take_tentative()

    def _take_tentative(self) -> None:
        """Of several states in a row the last one counts, so that who says many fills nothing."""
        for delivery in self._lane.take():
            before = self.waiting[-1] if self.waiting else None
            if isinstance(delivery, StateChanged) and isinstance(before, StateChanged):
                self.waiting.pop()
            self.waiting.append(delivery)

    def take(self, now_us: int) -> Delivery | TentativeDelivery | None:
        """The oldest that waits, or None; in this life what was taken is never asked for again.

        It counts as acknowledged, unless the subscription is a named one: that waits for ``ack``.
        """
        if not self.waiting:
            return None
        delivery = self.waiting.popleft()
        if isinstance(delivery, StateChanged | TentativeRowsCame | TentativePromise):
            self._lane.taken(now_us, delivery.cost)
            return delivery
        self.receiver.consumed(now_us, delivery.cost)
        match delivery:
            case ReceivedRows():
                self.taken_seq = delivery.message.seq + delivery.message.rows
            case LostRows():
                self.taken_seq = delivery.to_seq
            case ReceivedPromise():
                self.ended = delivery.time_us >= END_US
                return delivery
        if self.receiver.plain:
            self.receiver.durable(now_us, self.taken_seq)
        return delivery

    def ack(self, now_us: int, seq: int) -> None:
        """Of a named subscription: rows below ``seq`` are done; below an earlier one changes nothing.

        Raises:
            LocalProtocolError: it has no name, or ``seq`` is beyond what was taken. Nothing changed.
        """
        receiver = self.receiver
        if not receiver.name:
            raise LocalProtocolError(
                f"{receiver.stream!r} is read without a name: what was taken counts as acknowledged",
                hint='subscribe(..., durable="NAME")',
                code="E_READER",
            )
        taken = receiver.durable_seq if self.taken_seq is None else self.taken_seq
        if seq > taken:
            raise LocalProtocolError(
                f"{receiver.stream!r}: row {seq} acknowledged, taken were the rows below {taken}",
                hint="acknowledge train.first_seq + len(train) once a train is done",
                code="E_SEQ",
            )
        receiver.durable(now_us, seq)


class ClientMind:
    """One client of one node.

    Args:
        name: made up by the driver, unique among all clients the node has known.
        node: the node's name; found out by the driver's first ``Hello`` if the user didn't say.
    """

    def __init__(
        self,
        name: str,
        node: str,
        *,
        incarnation: int = 0,
        link: LinkSettings | None = None,
        session: SessionSettings | None = None,
    ) -> None:
        self.outbox = Outbox()
        self.name = name
        self.node = node
        self.incarnation = incarnation
        self.publications: dict[str, ClientPublication] = {}
        self.subscriptions: dict[str, ClientSubscription] = {}
        self.replies: dict[int, tuple[Reply, Buffer | None]] = {}
        """Answers not yet fetched, by request."""
        self._link = link or LinkSettings()
        me = Hello.ours(name, incarnation, client=True)
        self._session = PeerSession(me, node, outbox=self.outbox, settings=session, calls=True)
        self._requests: dict[int, tuple[Message, Buffer | None]] = {}
        self._early: dict[str, Attach] = {}
        """What the node asked for that isn't published here: it may be on its way to this node as well."""
        self._request = 0
        self._readings = 0

    @property
    def up(self) -> bool:
        """The node is there."""
        return self._session.state is PeerState.UP

    # --- what the user does -----------------------------------------------------------------

    def publish(
        self, now_us: int, stream: str, schema: Schema, *, timed: bool, name: str = ""
    ) -> ClientPublication:
        """Begin to publish a stream.

        Args:
            name: of a named publisher: rows may be appended once it has ``begun``.

        Raises:
            LocalProtocolError: we publish it already.
        """
        if stream in self.publications:
            raise LocalProtocolError(f"{stream!r} is being published already")
        way = Detour(self.outbox)
        sender = Sender(stream, schema, timed=timed, outbox=way, settings=self._link)
        publication = self.publications[stream] = ClientPublication(sender, self.node, way, name)
        if self.up:
            publication.open(now_us, self.outbox)
        return publication

    def subscribe(
        self,
        now_us: int,
        stream: str,
        next_seq: int = NOW,
        *,
        name: str = "",
        known: bool = False,
        tentative: bool = False,
    ) -> ClientSubscription:
        """Begin to read a stream, from a row number, ``OLDEST`` or ``NOW``.

        Args:
            name: of a named subscription; if the node knows it, it goes on where that was acknowledged.
            known: and if not, it is refused.
            tentative: rows that may be wrong are wanted too; not under a name.

        Raises:
            LocalProtocolError: we read it already, and not to its end or under a name.
        """
        if (before := self.subscriptions.get(stream)) is not None:
            if not before.ended or before.receiver.name:
                raise LocalProtocolError(
                    f"{stream!r} is being read already",
                    hint="close() the earlier subscription (`with` does), or read over another connection",
                )
            self.unsubscribe(now_us, stream)
        way = Detour(self.outbox)
        receiver = Receiver(
            stream,
            self.node,
            # Epochs beyond those of any earlier reading, of which words may still be under way.
            incarnation=self.incarnation + self._readings,
            outbox=way,
            settings=self._link,
            next_seq=next_seq,
            plain=not name,
            name=name,
            tentative=tentative,
        )
        if known:
            receiver.knows_name()
        self._readings += 1
        subscription = self.subscriptions[stream] = ClientSubscription(receiver, way)
        if self.up:
            subscription.peer_event(now_us, LinkEvent.PEER_UP)
        return subscription

    def unsubscribe(self, now_us: int, stream: str) -> None:
        """End reading a stream. A named subscription keeps its rows at the node."""
        self.subscriptions.pop(stream).receiver.detach(now_us)

    # --- streams that move ------------------------------------------------------------------

    def take_subscription(self, now_us: int, subscription: ClientSubscription) -> None:
        """Go on reading, from this node, what came from another.

        Raises:
            LocalProtocolError: we read a stream of that name already.
        """
        receiver = subscription.receiver
        if self.subscriptions.get(receiver.stream, subscription) is not subscription:
            raise LocalProtocolError(f"{receiver.stream!r} is being read already")
        receiver.redirect(self.node)
        receiver.forget_refusal()
        subscription.way.lead_to(self.outbox)
        self.subscriptions[receiver.stream] = subscription
        if self.up:
            subscription.peer_event(now_us, LinkEvent.PEER_UP)

    def take_publication(self, now_us: int, publication: ClientPublication) -> None:
        """Go on publishing, to this node, what went to another.

        Raises:
            LocalProtocolError: we publish a stream of that name already.
        """
        stream = publication.sender.stream
        if self.publications.get(stream, publication) is not publication:
            raise LocalProtocolError(f"{stream!r} is being published already")
        publication.move(now_us, self.node, self.outbox)
        self.publications[stream] = publication
        if self.up:
            publication.open(now_us, self.outbox)
            if (early := self._early.pop(stream, None)) is not None:
                self._asked(now_us, publication, early)

    def request(self, make: Callable[[int], Message], payload: Buffer | None = None) -> int:
        """Send a command, again after each reconnection until it is answered; its number.

        Args:
            make: builds the message from its request number.
        """
        self._request += 1
        self._requests[self._request] = (make(self._request), payload)
        if self.up:
            self.outbox.send(self.node, *self._requests[self._request])
        return self._request

    def give_up(self, request: int) -> None:
        """Want no answer any more."""
        self._requests.pop(request, None)
        self.replies.pop(request, None)

    # --- what the driver brings -------------------------------------------------------------

    def receive(self, now_us: int, message: Message, payload: Buffer | None = None) -> None:
        """Take one message of the node.

        Raises:
            RemoteProtocolError: it broke a rule; end the connection.
            LinkError: it refuses to speak with us, and says why.
        """
        self._spread(now_us, self._session.receive(now_us, message))
        if isinstance(message, Reply | Refuse):
            message = _shown(message)
        match message:
            case Hello() | Heartbeat():
                pass
            case Reply():
                if self._requests.pop(message.request, None) is not None:
                    self.replies[message.request] = (message, payload)
            case Attach() | Ack() | Detach():
                if (publication := self.publications.get(message.stream)) is not None:
                    self._asked(now_us, publication, message)
                elif isinstance(message, Attach):
                    self._early[message.stream] = message
                    if len(self._early) > EARLY_MAX:
                        del self._early[next(iter(self._early))]
            case TentativeTaken():
                if (publication := self.publications.get(message.stream)) is not None:
                    publication.sender.receive(now_us, self.node, message)
            case Attached() | Data() | Boundary() | Progress():
                self._read(now_us, message, payload)
            case StreamState() | TentativeRows() | TentativeBoundary():
                self._read(now_us, message, payload)
            case Refuse():
                self._refused(now_us, message)
            case _:
                raise RemoteProtocolError(
                    f"{type(message).__name__} is nothing for a client", peer=self.node, code="E_FRAME"
                )

    def _asked(self, now_us: int, publication: ClientPublication, message: Attach | Ack | Detach) -> None:
        publication.asked(now_us, message)

    def _read(self, now_us: int, message: ReceiverMessage, payload: Buffer | None) -> None:
        if (subscription := self.subscriptions.get(message.stream)) is not None:
            subscription.receive(now_us, message, payload)

    def _refused(self, now_us: int, message: Refuse) -> None:
        if not message.stream:
            raise LinkError(message.text, hint=message.hint, code=message.code)
        publication = self.publications.get(message.stream)
        if message.code == "E_ROWS":
            if publication is not None:
                publication.rows_refused(message)
            return
        self._early.pop(message.stream, None)  # What it asked for before counts no more.
        if (subscription := self.subscriptions.get(message.stream)) is not None:
            subscription.receive(now_us, message)
        if publication is not None and message.code == "E_DETACHED":
            if publication.attached:
                publication.open(now_us, self.outbox)
        elif publication is not None and (publication.refusal is None or not message.epoch):
            # Of an attachment that was refused, what is said later about frames under way adds nothing.
            publication.refused(message)
            publication.sender.receive(now_us, self.node, message)

    def lost(self, now_us: int) -> None:
        """The connection broke."""
        self._spread(now_us, self._session.lost())

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        self._spread(now_us, self._session.tick(now_us))
        for subscription in self.subscriptions.values():
            subscription.receiver.tick(now_us)
        for publication in self.publications.values():
            publication.sender.tick(now_us)
            again_us = publication.open_again_at_us()
            if self.up and again_us is not None and now_us >= again_us:
                publication.open(now_us, self.outbox)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times = [self._session.wake_at_us(now_us)]
        times += [subscription.receiver.wake_at_us() for subscription in self.subscriptions.values()]
        for publication in self.publications.values():
            times.append(publication.sender.wake_at_us())
            if self.up:
                times.append(publication.open_again_at_us())
        return min((time for time in times if time is not None), default=None)

    def _spread(self, now_us: int, event: LinkEvent | None) -> None:
        if event is None:
            return
        if event is not LinkEvent.PEER_UP:
            self._early.clear()
        for subscription in self.subscriptions.values():
            subscription.peer_event(now_us, event)
        for publication in self.publications.values():
            publication.sender.peer(now_us, self.node, event)
            if event is not LinkEvent.PEER_DOWN:
                publication.open(now_us, self.outbox)
        if event is not LinkEvent.PEER_DOWN:
            for message, payload in self._requests.values():
                self.outbox.send(self.node, message, payload)


def _shown(message: Reply | Refuse) -> Reply | Refuse:
    """With its words as a terminal may print them: whoever runs the node may be a stranger."""
    code, text, hint = (
        "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in words)
        for words in (message.code, message.text, message.hint)
    )
    if (code, text, hint) == (message.code, message.text, message.hint):
        return message
    return msgspec.structs.replace(message, code=code, text=text, hint=hint)
