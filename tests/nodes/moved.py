"""Four nodes in virtual time, a query cut over three of them, and its middle on the way to the fourth."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec
import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.federation import Federation
from medusa.sim.trials.queries import difference
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.move import Grant, Move

FRAGMENT = "q/mean"
NODES = ["e", "m1", "m2", "c"]
SCHEMA = {"ts": "timestamp", "seg": "utf8", "speed": "float64"}
ROWS = 200
EVERY_US = 600


def query():
    q = md.Query("q")
    fast = q.source("cars", SCHEMA, time="ts").filter("speed > 0", name="f")
    mean = fast.window("5s").group_by("seg").aggregate(v=md.avg("speed"), n=md.count(), name="mean")
    q.sink("out", mean.filter("n > 0", name="g"))
    return q


AT = {"e": ["cars", "f"], "m1": ["mean"], "c": ["g", "out"]}


@lru_cache(maxsize=1)
def known():
    """The query, the columns of its source, the rows, and what they give."""
    q = query()
    schema = next(box.schema for box in q.graph.boxes if box.id == "cars")
    rows = pa.table(
        {
            "ts": pa.array([number * 500_000 for number in range(ROWS)], pa.timestamp("us", "UTC")),
            "seg": ["ab"[number % 2] for number in range(ROWS)],
            "speed": [1.0 + number for number in range(ROWS)],
        }
    ).cast(schema_to_arrow(schema))
    return q, schema, rows, collect(q, cars=rows)["out"]


class World:
    """One run.

    Args:
        kill: (node, after so many turns since the order) -> dies then, and comes back.
        unsynced: what becomes of its writes under way.
        hear: (message, payload) of ``m1`` to ``m2`` -> what arrives instead; None: nothing does.
        at: where its boxes run.
    """

    def __init__(self, *, kill=None, unsynced="lost", hear=None, memory=(), at=AT):
        self.q, self.schema, self.rows, self.want = known()
        self.turns = Counter()
        self.owners = {}
        self.kill, self.unsynced = kill, unsynced
        self.counting = False
        limits = Limits(checkpoint_every_us=50_000)
        self.fed = Federation(1, NODES, limits=limits, watch=self.watch, memory=memory)
        self.fed.start()
        self.publisher = self.fed.client("publisher", "e")
        reply, _ = self.fed.answer(self.publisher, self.publisher.deploy(self.q, at))
        assert reply.code == "", reply
        self.reader = self.fed.client("reader", next(node for node, boxes in at.items() if "out" in boxes))
        self.reader.read("q.out")
        self.fed.run(for_us=600_000)  # Who asked for a stream too early asks again after a while.
        now_us = self.fed.world.now_us
        for first in range(0, ROWS, 4):
            self.fed.world.at(now_us + first * EVERY_US, lambda first=first: self.publish(first))
        self.fed.world.after(ROWS * EVERY_US + 1000, lambda: self.publisher.finish("q.cars", self.schema))
        self.fed.run(for_us=40_000)
        if hear is not None:
            self.intercept(hear)

    def publish(self, first):
        self.publisher.publish("q.cars", self.rows.slice(first, 4), self.schema)

    def intercept(self, hear):
        send = self.fed.network.send

        def between(source, target, frames):
            if (source, target) == ("m1", "m2"):
                changed = hear(*decode_frame([memoryview(bytes(each)) for each in frames]))
                if changed is None:
                    return
                frames = [bytes(each) for each in encode_frame(*changed)]
            send(source, target, frames)

        self.fed.network.send = between

    # --- one owner --------------------------------------------------------------------------------

    def watch(self, node):
        active = []
        for name, other in self.fed.nodes.items():
            hosted = other.brain.fragments.get(FRAGMENT) if other.alive else None
            if hosted is None or hosted.frozen:
                continue
            active.append(name)
            epoch = other.brain.catalog.ownership.epoch(FRAGMENT)
            assert self.owners.setdefault(epoch, name) == name, f"epoch {epoch} has two owners"
        assert len(active) <= 1, f"{active} run it"
        if self.counting:
            self.turns[node.name] += 1
            if self.kill == (node.name, self.turns[node.name]):
                self.fed.world.after(0, lambda: self.die(node))

    def die(self, node):
        node.crash(self.unsynced)
        self.fed.world.after(30_000, node.restart)

    # --- orders -----------------------------------------------------------------------------------

    def order(self, to="m2", *, at="m1", fragment=FRAGMENT, timeout_ms=400):
        """Ask for a move; the number of the request."""
        client = self.client(at)
        number = client.mind.request(
            lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=timeout_ms)
        )
        client.do(lambda mind: None)
        return number

    def client(self, at):
        name = f"mover-{at}"
        return self.fed.clients.get(name) or self.fed.client(name, at)

    def move(self, to="m2", **more):
        """The reply, and the figures where it was done."""
        at = more.get("at", "m1")
        reply, figures = self.fed.answer(self.client(at), self.order(to, **more))
        return reply, None if figures is None else msgspec.json.decode(figures)

    def grant(self, to, *, at):
        client = self.client(at)
        number = client.mind.request(lambda n: Grant(request=n, fragment=FRAGMENT, to=to))
        client.do(lambda mind: None)
        return self.fed.answer(client, number)[0]

    def move_under_count(self):
        """Order a move and count turns until it is over; whoever is to die dies."""
        self.counting = True
        number = self.order()
        client = self.client("m1")
        self.fed.run(lambda: number in client.mind.replies, for_us=150_000)
        self.counting = False

    # --- the end ----------------------------------------------------------------------------------

    @property
    def where(self):
        return [n for n, node in self.fed.nodes.items() if node.alive and FRAGMENT in node.brain.fragments]

    def settled(self):
        nodes = self.fed.nodes.values()
        if not all(node.alive for node in nodes) or "q.out" not in self.reader.ended:
            return False
        return not any(node.brain.orders.status().under_way for node in nodes)

    def check(self):
        """Everything arrived, once, and it runs at one node."""
        assert self.fed.run(self.settled, for_us=20_000_000), self.fed.last()[-3000:]
        got = pa.Table.from_batches(self.reader.rows.get("q.out", []), self.want.schema)
        assert difference(got, self.want) is None
        assert len(self.where) == 1
