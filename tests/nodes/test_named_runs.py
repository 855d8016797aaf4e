"""A reader with a name and its node in virtual time, both dying at any moment, on a bad network."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import medusa as md
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.world.network import Faults
from medusa.wire.link.receiver import LostRows, ReceivedRows
from medusa.wire.messages.links import OLDEST

ROWS, PIECE = 600, 10
SPAN_US = 4_000_000


def query():
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None).filter("v >= 0", name="f"))
    return q


class Store:
    """What survives the program: rows and position, changed together."""

    def __init__(self):
        self.values = []
        self.repeated = 0
        self.lives = 0


class Reader(Client):
    """Stores what is new by number, and acknowledges when it feels like it."""

    def __init__(self, federation, store, random):
        store.lives += 1
        self.store, self.random = store, random
        self.dead = False
        self.position = None
        super().__init__(federation.world, federation.network, f"reader-{store.lives}", "n")
        federation.clients[self.name] = self
        self.ask()

    def ask(self):
        self.position = None
        self.do(lambda mind: mind.subscribe(self._world.now_us, "q.out", OLDEST, name="r"))

    def look(self):
        """Refused while the one before isn't noticed as dead: it asks again."""
        refusal = self.mind.subscriptions["q.out"].receiver.refusal
        if refusal is not None and not self.dead:
            assert refusal.code == "E_TAKEN"
            self.do(lambda mind: mind.unsubscribe(self._world.now_us, "q.out"))
            self.ask()

    def deliver(self, source, frames):
        if not self.dead:
            super().deliver(source, frames)

    def _settle(self):
        if not self.dead:
            super()._settle()

    def _take(self, name, receiver, delivery):
        assert not isinstance(delivery, LostRows)
        if not isinstance(delivery, ReceivedRows):
            return
        stored = self.store.values
        assert delivery.seq <= len(stored), "a row is missing"
        assert self.position in (None, delivery.seq), "rows come in order"
        super()._take(name, receiver, delivery)
        values = self.rows[name].pop()["v"].to_pylist()
        self.position = delivery.seq + len(values)
        self.store.repeated += min(len(stored) - delivery.seq, len(values))
        stored += values[len(stored) - delivery.seq :]
        if self.random.random() < 0.3:
            self.mind.subscriptions[name].ack(self._world.now_us, self.position)


def whole(random, faults):
    federation = Federation(random.randrange(1 << 30), ["n"], faults=faults)
    federation.start()
    world = federation.world
    feeder = federation.client("feeder", "n")
    assert federation.answer(feeder, feeder.deploy(query(), {"n": ["rows"]}))[0].code == ""
    store = Store()
    readers = [Reader(federation, store, random)]
    federation.run(for_us=500_000)
    columns = query().graph.boxes[0].schema
    for begin in range(0, ROWS, PIECE):
        piece = pa.table({"v": list(range(begin, begin + PIECE))})
        world.after(SPAN_US * begin // ROWS, lambda p=piece: feeder.publish("q.rows", p, columns))

    def die():
        readers[-1].dead = True
        readers.append(Reader(federation, store, random))

    for _ in range(4):
        world.after(random.randrange(SPAN_US), die)
        at_us = random.randrange(SPAN_US)
        world.after(at_us, federation.nodes["n"].crash)
        world.after(at_us + random.randrange(1, 500_000), lambda: federation.restart("n"))
    for at_us in range(0, 4 * SPAN_US, 100_000):
        world.after(at_us, lambda: readers[-1].look())
    federation.run(for_us=SPAN_US)
    assert federation.run(lambda: len(store.values) == ROWS, for_us=10_000_000), federation.last()
    return store


@pytest.mark.parametrize("faults", [Faults(), Faults(jitter_us=3000, loss_permille=10)], ids=["good", "bad"])
def test_whoever_dies_every_row_is_stored_once_and_in_order(faults):
    random = Random(faults.loss_permille)
    repeated = 0
    for _ in range(2):
        store = whole(random, faults)
        assert store.values == list(range(ROWS))
        assert store.lives == 5
        repeated += store.repeated
    assert repeated, "or nothing was tried"
