"""The smallest node that uses every part of a link: one stream in, a function, one stream out.

It keeps what ``nodes/`` keeps: input is consumed only while there is room for output; state, input
position and kept output go into one checkpoint; upstream hears *durable* only after the sync. It
stands in for a node where a simulation is about links, and needs no engine.

Rows are int64, little-endian; the time of a row is its value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import pack, unpack

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.elements import START_US
from medusa.engine.state.checkpoint import unseal
from medusa.errors import RemoteProtocolError, StateError
from medusa.ports import Buffer, Store
from medusa.query.boxes import Field
from medusa.sim.actors.saved_output import load_sender, save_sender
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.receiver import Delivery, LostRows, ReceivedPromise, ReceivedRows, Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.link.session import PeerSession
from medusa.wire.messages import Message
from medusa.wire.messages.links import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    Hello,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.outbox import Outbox, Persist

__all__ = [
    "MERGED_ROWS_MAX",
    "SCHEMA",
    "Relay",
    "RelaySettings",
    "covered_seq",
    "newest",
    "pack_rows",
    "unpack_rows",
]

MERGED_ROWS_MAX = 40
SCHEMA = (Field("value", "int64"),)


def pack_rows(values: list[int]) -> bytes:
    return pack(f"<{len(values)}q", *values)


def unpack_rows(payload: Buffer) -> list[int]:
    return list(unpack(f"<{memoryview(payload).nbytes // 8}q", payload))


def newest(store: Store) -> dict[str, Buffer]:
    """The files of the newest whole checkpoint; empty: there is none."""
    for name in reversed(store.names()):
        try:
            return unseal(store.read(name), store.where(name))[1]
        except StateError:
            continue  # Torn or damaged: the one before.
    return {}


def covered_seq(store: Store) -> int:
    """The next row that the newest whole checkpoint wants."""
    files = newest(store)
    return _STATES.decode(files["state"]).next_seq if files else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How a relay works.

    Attributes:
        source: stream and node it reads; a node of None: a client publishes it here.
        target: the stream it makes, and the nodes that will read it (clients come by themselves).
        apply: values in, values out; any number of them, the same each time.
        work_us: what consuming one train takes.
        checkpoint_us: between the end of one checkpoint and the next.
    """

    source: str
    node: str | None
    target: str
    readers: tuple[str, ...]
    apply: Callable[[list[int]], list[int]]
    link: LinkSettings
    work_us: Callable[[], int] = lambda: 0
    checkpoint_us: int = 200_000


class _State(msgspec.Struct, frozen=True):
    """What a checkpoint holds beside the output."""

    next_seq: int
    boundary_us: int
    publisher: str


_STATES = msgpack_decoder(_State)


class Relay:
    """The mind. ``publisher`` is the one client whose rows it takes."""

    sender_type = Sender
    receiver_type = Receiver

    def __init__(self, name: str, settings: RelaySettings, store: Store, life: int) -> None:
        self.name = name
        self.settings = settings
        self.outbox = Outbox()
        self.receiver: Receiver | None = None
        self.taken_seq = 0
        """The next row to consume: what a checkpoint may claim."""
        self.durable_seq = 0
        self._life = life
        self._boundary_us: int = START_US
        self._publisher = settings.node or ""
        self._sessions: dict[str, PeerSession] = {}
        self._waiting: deque[Delivery] = deque()
        self._busy_until_us = 0
        self._token = 0
        self._saving: tuple[int, int] | None = None
        self._saved: tuple[object, ...] = ()
        self._checkpoint_at_us = settings.checkpoint_us
        self.sender = self._load(store)

    def _load(self, store: Store) -> Sender:
        settings = self.settings
        files = newest(store)
        if not files:
            return self.sender_type(
                settings.target, SCHEMA, timed=True, outbox=self.outbox, settings=settings.link
            )
        state = _STATES.decode(files["state"])
        self.taken_seq = self.durable_seq = state.next_seq
        self._boundary_us = state.boundary_us
        self._publisher = state.publisher
        return load_sender(
            files["output"],
            settings.target,
            SCHEMA,
            timed=True,
            outbox=self.outbox,
            settings=settings.link,
            make=self.sender_type,
        )

    # --- what the host calls --------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        for reader in self.settings.readers:
            self.sender.expect(reader)
            self._session(reader, calls=False)
        if self._publisher:
            self._make_receiver()
            self._session(self._publisher, calls=self.settings.node is not None)
        self._checkpoint_at_us = now_us + self.settings.checkpoint_us
        self.tick(now_us)

    def _session(self, peer: str, *, calls: bool) -> PeerSession:
        if peer not in self._sessions:
            me = Hello(version=limits.PROTOCOL_VERSION, node=self.name, incarnation=self._life)
            self._sessions[peer] = PeerSession(me, peer, outbox=self.outbox, calls=calls)
        return self._sessions[peer]

    def _make_receiver(self) -> Receiver:
        self.receiver = self.receiver_type(
            self.settings.source,
            self._publisher,
            incarnation=self._life,
            outbox=self.outbox,
            settings=self.settings.link,
            schema=SCHEMA,
            timed=True,
            next_seq=self.taken_seq,
            boundary_us=self._boundary_us,
        )
        return self.receiver

    def receive(self, now_us: int, peer: str, message: Message, payload: Buffer | None) -> None:
        session = self._session(peer, calls=False)
        self._spread(now_us, peer, session.receive(now_us, message))
        match message:
            case Attach() | Ack() | Detach():
                self.sender.receive(now_us, peer, message)
            case OpenPublisher():
                self._open_publisher(now_us, peer)
            case Attached() | Data() | Boundary() | Progress():
                if self.receiver is not None and peer == self._publisher:
                    self._take(now_us, message, payload)
            case Refuse():
                if message.stream == self.settings.target:
                    self.sender.receive(now_us, peer, message)
                elif self.receiver is not None:
                    self.receiver.receive(now_us, message)
            case _:
                pass
        self._work(now_us)
        self._wake(now_us)

    def _open_publisher(self, now_us: int, peer: str) -> None:
        if self.settings.node is not None or (self._publisher and peer != self._publisher):
            refusal = Refuse(code="E_STREAM", text="it has a publisher", stream=self.settings.source)
            self.outbox.send(peer, refusal)
            return
        self._publisher = peer
        receiver = self.receiver or self._make_receiver()
        if receiver.state is ReceiverState.IDLE:
            receiver.peer_event(now_us, LinkEvent.PEER_UP)

    def _take(
        self, now_us: int, message: Attached | Data | Boundary | Progress, payload: Buffer | None
    ) -> None:
        assert self.receiver is not None
        try:
            self._waiting.extend(self.receiver.receive(now_us, message, payload))
        except RemoteProtocolError as error:
            self.receiver.refuse(error)

    def _spread(self, now_us: int, peer: str, event: LinkEvent | None) -> None:
        if event is None:
            return
        self.sender.peer(now_us, peer, event)
        if self.receiver is not None and peer == self._publisher:
            self.receiver.peer_event(now_us, event)

    def tick(self, now_us: int) -> None:
        for peer, session in self._sessions.items():
            self._spread(now_us, peer, session.tick(now_us))
        self.sender.tick(now_us)
        if self.receiver is not None:
            self.receiver.tick(now_us)
        self._work(now_us)
        if self._saving is None and now_us >= self._checkpoint_at_us:
            self._checkpoint_at_us = now_us + self.settings.checkpoint_us
            if self._changed() != self._saved:
                self._checkpoint()
        self._wake(now_us)

    def persisted(self, now_us: int, token: int, ok: bool) -> None:
        assert self._saving is not None
        assert self._saving[0] == token
        if ok:
            self.durable_seq = self._saving[1]
            if self.receiver is not None:
                self.receiver.durable(now_us, self.durable_seq)
        else:
            self._saved = ()
        self._saving = None
        self._checkpoint_at_us = now_us + self.settings.checkpoint_us
        self._wake(now_us)

    # --- work -------------------------------------------------------------------------------------

    def _work(self, now_us: int) -> None:
        """Consume while there is room for output."""
        while self._waiting and not self.sender.full and now_us >= self._busy_until_us:
            self._consume(now_us)
            self._busy_until_us = now_us + self.settings.work_us()
        if self.receiver is not None and self.receiver.pressed and self._saving is None:
            self._checkpoint_at_us = min(self._checkpoint_at_us, now_us)

    def _consume(self, now_us: int) -> None:
        """One delivery; or several trains that wait, as one: where output is cut depends on timing."""
        assert self.receiver is not None
        first = self._waiting.popleft()
        cost = first.cost
        match first:
            case ReceivedRows():
                values = unpack_rows(first.payload)[first.skip :]
                while self._waiting and isinstance(rows := self._waiting[0], ReceivedRows):
                    more = unpack_rows(rows.payload)[rows.skip :]
                    if len(values) + len(more) > MERGED_ROWS_MAX:
                        break
                    values += more
                    cost += self._waiting.popleft().cost
                self.taken_seq = first.seq + len(values)
                if out := self.settings.apply(values):
                    self.sender.train(now_us, pack_rows(out), len(out))
            case ReceivedPromise():
                self._boundary_us = first.time_us
                self.sender.boundary(now_us, first.time_us)
            case LostRows():
                self.taken_seq = first.to_seq
        self.receiver.consumed(now_us, cost)

    def _changed(self) -> tuple[object, ...]:
        """Equal as long as a checkpoint would hold the same."""
        return (self.taken_seq, self._boundary_us, self._publisher, self.sender.durable_positions())

    def _checkpoint(self) -> None:
        self._token += 1
        self._saving = (self._token, self.taken_seq)
        self._saved = self._changed()
        state = _State(next_seq=self.taken_seq, boundary_us=self._boundary_us, publisher=self._publisher)
        files: dict[str, Buffer] = {
            "state": msgspec.msgpack.encode(state),
            "output": save_sender(self.sender),
        }
        self.outbox.append(Persist(token=self._token, fragment="relay", files=files))

    def _wake(self, now_us: int) -> None:
        times = [session.wake_at_us(now_us) for session in self._sessions.values()]
        times.append(self.sender.wake_at_us())
        if self.receiver is not None:
            times.append(self.receiver.wake_at_us())
        if self._saving is None:
            times.append(self._checkpoint_at_us)
        if self._waiting and not self.sender.full:
            times.append(self._busy_until_us)
        self.outbox.wake_at(min(time for time in [*times, now_us + 10_000_000] if time is not None))
