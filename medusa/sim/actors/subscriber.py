"""A program that reads a stream under a name, is killed, and goes on behind what it has acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa

from medusa.sim.actors.client import Client
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.client_mind import ClientSubscription
from medusa.wire.link.automaton import ReceiverState
from medusa.wire.messages.links import OLDEST

__all__ = ["Subscriber"]

LOOK_US = 20_000
AWAY_US = 500_000
"""It comes back within this."""

AGAIN_US = 300_000
"""A refused subscription is tried again after this: an earlier life may still seem to be there."""


class Subscriber:
    """One named subscription in all lives of its program.

    Attributes:
        batches: what was read, each row once, in order of its number.
        ended: the end of the stream was read.

    Args:
        client: connects, by the number of the life.
        left: called with a client that isn't the program's any more.
    """

    def __init__(
        self,
        world: World,
        dice: Random,
        name: str,
        stream: str,
        *,
        client: Callable[[int], Client],
        left: Callable[[Client], None],
    ) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.ended = False
        self._world = world
        self._dice = dice
        self._name = name
        self._stream = stream
        self._connect = client
        self._left = left
        self._client: Client | None = None
        self._lives = 0
        self._known = False
        self._next = self._acked = 0
        """The row after the last that was read, and after the last that was acknowledged."""
        self._seen = 0
        """Batches of this life that were looked at."""
        self._eager = dice.choice((0.02, 0.3))
        """How likely it is that it acknowledges when it looks."""
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._client = self._connect(self._lives)
        self._subscribe(self._client)
        self._look(self._lives)

    def _subscribe(self, client: Client) -> None:
        self._seen = 0
        client.rows.pop(self._stream, None)
        client.first_seq.pop(self._stream, None)
        now_us = self._world.now_us
        client.do(
            lambda mind: mind.subscribe(now_us, self._stream, OLDEST, name=self._name, known=self._known)
        )

    def die(self) -> None:
        """End this life; the next one begins soon, and knows only what this one had acknowledged."""
        client = self._client
        if client is None or self.ended:
            return
        self._world.trace(client.name, "dies")
        self._client = None
        self._left(client)
        client.die()
        if self.batches:
            done = pa.Table.from_batches(self.batches).slice(0, self._acked)
            self.batches, self._next = done.to_batches(), self._acked
        self._world.after(self._dice.randrange(1, AWAY_US), self._begin)

    def _look(self, life: int) -> None:
        client = self._client
        if life != self._lives or client is None or self.ended:
            return
        subscription = client.mind.subscriptions[self._stream]
        receiver = subscription.receiver
        if receiver.state is ReceiverState.FLOWING:
            self._known = True
        elif receiver.state is ReceiverState.REFUSED:
            self._refused(client, subscription)
            return
        self._read(client)
        self._acknowledge(client, subscription)
        self.ended = self._stream in client.ended and self._acked == self._next
        self._world.after(LOOK_US, lambda: self._look(life))

    def _refused(self, client: Client, subscription: ClientSubscription) -> None:
        refusal, life = subscription.receiver.refusal, self._lives
        if refusal is not None and refusal.code in ("E_NAME", "E_REMOVED"):
            raise SimulationError(f"named: {client.name} reads under a name and is told {refusal}")

        def again() -> None:
            if life == self._lives and self._client is client:
                now_us = self._world.now_us
                client.do(lambda mind: mind.unsubscribe(now_us, self._stream))
                self._subscribe(client)
                self._look(life)

        self._world.after(AGAIN_US, again)

    def _read(self, client: Client) -> None:
        """Take what is new; rows that came before are the same."""
        if self._stream not in client.first_seq:
            return
        batches = client.rows.get(self._stream, [])
        at = client.first_seq[self._stream] + sum(len(each) for each in batches[: self._seen])
        for batch in batches[self._seen :]:
            if at > self._next:
                raise SimulationError(f"named: {client.name} is sent row {at}, row {self._next} never came")
            repeated = min(self._next - at, len(batch))
            if not self._same(at, batch.slice(0, repeated)):
                raise SimulationError(f"named: {client.name} is sent other rows at {at} than before")
            if repeated < len(batch):
                self.batches.append(batch.slice(repeated))
                self._next = at + len(batch)
            at += len(batch)
        self._seen = len(batches)

    def _same(self, at: int, batch: pa.RecordBatch) -> bool:
        known = pa.Table.from_batches(self.batches, batch.schema).slice(at, len(batch))
        return bool(known.equals(pa.Table.from_batches([batch])))

    def _acknowledge(self, client: Client, subscription: ClientSubscription) -> None:
        """Now and then; at the end all."""
        taken = subscription.taken_seq or 0
        if taken > self._acked and (self._stream in client.ended or self._dice.random() < self._eager):
            self._acked, now_us = taken, self._world.now_us
            client.do(lambda mind: subscription.ack(now_us, taken))
