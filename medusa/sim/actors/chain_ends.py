"""The ends of a simulated chain: a client that publishes, a client that reads. Both on ``ClientMind``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from medusa.errors import LinkError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.client_mind import ClientMind
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.receiver import Delivery
from medusa.wire.messages import Message
from medusa.wire.messages.links import OLDEST

__all__ = ["PublisherActor", "SubscriberActor"]

Act: TypeAlias = tuple[int, tuple[Buffer, int] | None, int | None]
"""Wait in us; payload and rows; a boundary."""


class _Actor(ABC):
    """What both have: a client's mind and a wake-up."""

    def __init__(self, name: str, node: str, link: LinkSettings) -> None:
        self.client = ClientMind(name, node, link=link)
        self.outbox = self.client.outbox

    def receive(self, now_us: int, peer: str, message: Message, payload: Buffer | None) -> None:
        try:
            self.client.receive(now_us, message, payload)
        except LinkError as error:
            raise SimulationError(f"{self.client.name}: {error}") from error
        self.work(now_us)

    def tick(self, now_us: int) -> None:
        self.client.tick(now_us)
        self.work(now_us)

    def persisted(self, now_us: int, token: int, ok: bool) -> None:
        raise SimulationError("a client has no disk")

    @abstractmethod
    def work(self, now_us: int) -> None:
        """Do what can be done now."""

    def _wake(self, now_us: int, own_us: int | None) -> None:
        times = (self.client.wake_at_us(now_us), own_us)
        self.outbox.wake_at(min((time for time in times if time is not None), default=now_us + 10_000_000))


class PublisherActor(_Actor):
    """Publishes a script at its pace, and no faster than the node takes it.

    Args:
        script: (wait in us, payload and rows, or None, then a boundary or None) one after the other.
    """

    def __init__(
        self,
        name: str,
        node: str,
        stream: str,
        schema: Schema,
        script: Iterator[Act],
        link: LinkSettings,
    ) -> None:
        super().__init__(name, node, link)
        self.ended = False
        self._script = script
        self._next = next(script, None)
        self._next_at_us = 0
        self._stream = stream
        self._schema = schema

    def start(self, now_us: int) -> None:
        self.publication = self.client.publish(now_us, self._stream, self._schema, timed=True)
        self._next_at_us = now_us + (self._next[0] if self._next else 0)
        self.tick(now_us)

    def add(self, act: Act) -> None:
        """One more to do; it is done at the next ``work``."""
        if self._next is None:
            self._next = act
        else:
            self._script = chain(self._script, (act,))

    def work(self, now_us: int) -> None:
        sender = self.publication.sender
        while self._next is not None and now_us >= self._next_at_us and not sender.full:
            _, rows, boundary_us = self._next
            if rows is not None:
                sender.train(now_us, *rows)
            if boundary_us is not None:
                sender.boundary(now_us, boundary_us)
            self._next = next(self._script, None)
            self._next_at_us = now_us + (self._next[0] if self._next else 0)
        self.ended = self._next is None
        waits = self._next is not None and not sender.full
        self._wake(now_us, self._next_at_us if waits else None)


class SubscriberActor(_Actor):
    """Reads a stream and keeps what came.

    Attributes:
        taken: deliveries in order.
    """

    def __init__(self, name: str, node: str, stream: str, link: LinkSettings, *, work_us: int = 0) -> None:
        super().__init__(name, node, link)
        self.taken: list[Delivery] = []
        self._deaf = False
        self._stream = stream
        self._work_us = work_us
        self._busy_until_us = 0

    def start(self, now_us: int) -> None:
        self.subscription = self.client.subscribe(now_us, self._stream, OLDEST)
        self.tick(now_us)

    def listen(self, listens: bool) -> None:
        """Take what comes from now on, or nothing."""
        self._deaf = not listens

    def work(self, now_us: int) -> None:
        receiver = self.subscription.receiver
        refusal = receiver.refusal
        if receiver.state is ReceiverState.REFUSED and refusal is not None and refusal.code == "E_CUT_OFF":
            # As a user does: go on from the row that it was told.
            receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED)
        while not self._deaf and now_us >= self._busy_until_us:
            delivery = self.subscription.take(now_us)
            if delivery is None:
                break
            assert isinstance(delivery, Delivery), "it asks for nothing tentative"
            self.taken.append(delivery)
            self._busy_until_us = now_us + self._work_us
        waits = self.subscription.waiting and not self._deaf
        self._wake(now_us, self._busy_until_us if waits else None)
