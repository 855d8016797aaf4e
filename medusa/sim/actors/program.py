"""A program that publishes its record under a name, is killed, and goes on where the node says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa

from medusa.query.boxes import Schema
from medusa.sim.actors.client import Client
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["Program"]

LOOK_US = 20_000
AWAY_US = 500_000
"""It comes back within this."""

LATE_US = 2_500_000
"""Nothing that was said is under way for longer."""

AWAKE_US = 5_000_000
"""A life that has woken too late asks again for so long at most."""


class Program:
    """One named publisher in all its lives.

    A life that ends is killed, or hangs: then it wakes after the next one has begun, and sends what it has.

    Attributes:
        lives: so many have begun.
        answered: the node has told one of them where to go on: from then on it knows the name whatever dies.

    Args:
        client: connects, by the number of the life.
        left: called with a client that isn't the program's any more.
        record: what it publishes, whatever happens.
        piece_rows: at once, at most.
    """

    def __init__(
        self,
        world: World,
        dice: Random,
        name: str,
        *,
        client: Callable[[int], Client],
        left: Callable[[Client], None],
        stream: str,
        record: pa.Table,
        schema: Schema,
        piece_rows: int,
    ) -> None:
        self.lives = 0
        self.answered = False
        self.client: Client | None = None
        self._world = world
        self._dice = dice
        self._name = name
        self._connect = client
        self._left = left
        self._stream = stream
        self._record = record
        self._schema = schema
        self._piece_rows = piece_rows
        self._due = 0
        self._other_us = 0
        """When a life that isn't the last one spoke last."""
        self._ends = self._done = False
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        made = self.client = self._connect(self.lives)
        made.names[self._stream] = self._name
        made.publish(self._stream, self._record.slice(0, 0), self._schema)
        self._look(self.lives)

    def has(self, rows: int) -> None:
        """Its record has so many rows now."""
        self._due = rows
        self._go_on()

    def finish(self) -> None:
        """And no more."""
        self._ends = True
        self._go_on()

    def die(self) -> None:
        """End this life; the next one begins soon."""
        if (client := self.client) is None or self._done:
            return
        self._world.trace(client.name, "dies")
        self._other_us = self._world.now_us
        self.client = None
        self._left(client)
        client.die()
        again_us = self._dice.randrange(1, AWAY_US)
        self._world.after(again_us, self._begin)
        if self._dice.random() < 0.4:
            self._world.after(again_us + self._dice.randrange(1, AWAY_US), lambda: self._wake(client))

    def _wake(self, client: Client) -> None:
        self._world.trace(client.name, "wakes")
        self._other_us = self._world.now_us + AWAKE_US
        client.wake()

    def _look(self, life: int) -> None:
        if life == self.lives and self.client is not None and not self._done:
            self._go_on()
            self._world.after(LOOK_US, lambda: self._look(life))

    def _go_on(self) -> None:
        """Publish what the node doesn't have, by its word when this life began."""
        client = self.client
        publication = client.publication(self._stream) if client is not None else None
        if client is None or publication is None:
            return
        refusal = publication.refusal
        if refusal is not None and refusal.code == "E_FINISHED":
            self._done = True  # It had come to the end, and the node has it all.
        elif refusal is not None and refusal.code == "E_TAKEN":
            if self.lives == 1 or self._world.now_us - self._other_us > LATE_US:
                raise SimulationError(
                    f"named: only {client.name} has asked for the name, and is told {refusal}"
                )
            self.die()  # What a life before had asked came later than what this one did.
            return
        elif refusal is not None and refusal.code in ("E_NAME", "E_LIMIT"):
            raise SimulationError(f"named: {client.name} has the name, and is told {refusal}")
        if not publication.begun:
            return
        self.answered = True
        while (at := publication.sender.log.next_seq) < self._due:
            piece = self._record.slice(at, min(self._dice.randrange(1, self._piece_rows + 1), self._due - at))
            client.publish(self._stream, piece, self._schema)
        if self._ends and self._due == len(self._record):
            client.finish(self._stream, self._schema)
