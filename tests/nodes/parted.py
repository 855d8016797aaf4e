"""Three nodes in virtual time, and a box of a query over them that is split and merged while rows flow."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors import keyed_timers
from medusa.sim.actors.federation import Federation
from medusa.sim.trials.queries import difference
from medusa.wire.messages.split import Merge, Split

NODES = ["e", "m", "c"]
SCHEMA = {"ts": "timestamp", "seg": "int64", "v": "int64"}
ROWS = 240
EVERY_US = 600


def window(rows):
    return rows.window("5s").group_by("seg").aggregate(t=md.sum("v"), n=md.count(), name="box")


def sliding(rows):
    return rows.window("6s", "2s").group_by("seg").aggregate(t=md.sum("v"), name="box")


def session(rows):
    return rows.session("2s").group_by("seg").aggregate(t=md.sum("v"), name="box")


def running(rows):
    return rows.group_by("seg").running(n=md.count(), before=md.lag("v"), name="box")


def distinct(rows):
    return rows.distinct("seg", "v", within="20s", name="box")


def passing(rows):
    return rows.filter("v % 3 != 0", name="box")


def joined(rows):
    """The box has two inputs, and a side stream goes past it."""
    few, rest = rows.filter("v % 2 = 0", name="few"), rows.filter("v % 2 = 1", name="rest")
    return few.join(rest, on="seg", within="3s", name="box")


def united(rows):
    """A stream goes past the box and meets what comes out of it."""
    some, past = rows.filter("v % 3 != 0", name="box"), rows.filter("v % 3 = 0", name="past")
    return some.sunion(past, bucket="1s", name="both")


def timers(rows):
    """A class of users; the next box gives each row its place in the order."""
    made, out = keyed_timers.Reminders, keyed_timers.OUT | {"k": "int64"}
    return rows.process(made, out, by="seg", state=keyed_timers.STATE, name="box")


@md.register("tests.parted.ones")
def ones(batch):
    """As many rows of each as its last digit says, up to three."""
    times = [int(str(v)[-1]) % 4 for v in batch["v"].to_pylist()]
    rows = [row for row, count in enumerate(times) for _ in range(count)]
    return {"_row": rows, "seg": batch["seg"].take(pa.array(rows, pa.int64())), "one": [1] * len(rows)}


def called(rows):
    return rows.apply(ones, {"seg": "int64", "one": "int64"}, by="seg", name="box")


def table(rows, box="box"):
    """What is stored is looked up again by what stored it, and by what deletes."""
    schema = {"seg": "int64", "n": "int64", "v": "int64"}
    given = {"seg": [3, 100], "n": [1000, 1], "v": [0, 0]}
    held = rows.query.table(box, key="seg", schema=schema, from_=given, expire="20s")
    looked = rows.lookup(held, name="looked" if box == "box" else "box")
    gone = rows.filter("v % 5 = 4", name="rest").delete(held)
    changed = rows.update(held, set={"n": "table.n + 1", "v": "v"}, insert={"n": "1", "v": "v"})
    columns = ("seg", "n", "v")
    rows.query.sink("gone", gone)
    rows.query.sink("changed", changed.lookup(held, suffix="_now", name="again").select(*columns))
    return looked.select("seg", "n", v="v_right")


def looked_up(rows):
    return table(rows, "held")


KINDS = {
    each.__name__: each
    for each in (
        window,
        sliding,
        session,
        running,
        distinct,
        passing,
        joined,
        united,
        timers,
        called,
        table,
        looked_up,
    )
}


def query(kind):
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="500ms").filter("v >= 0", name="all_rows")
    made = KINDS[kind](rows)
    if kind == "timers":
        q.sink("out", made.running(place=md.count(), name="last"))
    else:
        q.sink("out", made.filter("seg >= 0", name="last") if kind != "joined" else made)
    return q


@lru_cache(maxsize=len(KINDS))
def known(kind):
    """The query, the columns of its source, the rows, and what they give, by sink."""
    q = query(kind)
    schema = next(box.schema for box in q.graph.boxes if box.id == "rows")
    times = [max(0, n - n * 7 % 5) * 250_000 for n in range(ROWS)]
    rows = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "seg": [n * n % 11 for n in range(ROWS)],
            "v": [n * 37 % 101 for n in range(ROWS)],
        }
    ).cast(schema_to_arrow(schema))
    return q, schema, rows, collect(q, rows=rows)


class Parting:
    """One run: the box and what is above it are at ``m``, the source at ``e``, the end at ``c``.

    Args:
        kind: of the box.
        kill: ``m`` dies after so many turns since an order, and comes back; 0: it doesn't.
        unsynced: what becomes of its writes under way.
        every: rows of one train; 0: the test publishes.
    """

    def __init__(self, kind="window", *, kill=0, unsynced="lost", at=None, every=4):
        self.q, self.schema, self.rows, self.want = known(kind)
        self.turns, self.kill, self.unsynced = 0, kill, unsynced
        self.counting = False
        limits = Limits(checkpoint_every_us=50_000)
        self.fed = Federation(1, NODES, limits=limits, watch=self.watch)
        self.fed.start()
        self.publisher = self.fed.client("publisher", "e")
        if at is None:
            ends = [*self.want] if kind == "joined" else ["last", *self.want]
            here = [box.id for box in self.q.graph.boxes if box.id not in ("rows", "all_rows", *ends)]
            at = {"e": ["rows", "all_rows"], "m": here, "c": ends}
        reply, _ = self.fed.answer(self.publisher, self.publisher.deploy(self.q, at))
        assert reply.code == "", reply
        self.reader = self.fed.client("reader", next(node for node, boxes in at.items() if "out" in boxes))
        self.streams = [f"q.{sink}" for sink in self.want]
        for stream in self.streams:
            self.reader.read(stream)
        self.orderer = self.fed.client("orderer", "c")
        self.fed.run(for_us=600_000)  # Who asked for a stream too early asks again after a while.
        now_us = self.fed.world.now_us
        for first in range(0, ROWS if every else 0, every or 1):
            self.fed.world.at(now_us + first * EVERY_US, lambda first=first: self.publish(first, every))
        if every:
            self.fed.world.at(now_us + (ROWS + 2) * EVERY_US, self.finish)
        self.fed.run(for_us=40_000)

    def publish(self, first, count):
        self.publisher.publish("q.rows", self.rows.slice(first, count), self.schema)

    def finish(self):
        self.publisher.finish("q.rows", self.schema)

    def watch(self, node):
        if self.counting and node.name == "m":
            self.turns += 1
            if self.kill == self.turns:
                self.fed.world.after(0, lambda: self.die(node))

    def die(self, node):
        self.kill = 0
        node.crash(self.unsynced)
        self.fed.world.after(20_000, node.restart)

    # --- orders -----------------------------------------------------------------------------------

    @property
    def fragments(self):
        """What runs at ``m``."""
        node = self.fed.nodes["m"]
        return sorted(node.brain.fragments) if node.alive else []

    def with_stream(self, stream):
        return next(
            name
            for name, hosted in self.fed.nodes["m"].brain.fragments.items()
            if stream in hosted.spec.streams.values()
        )

    def split(self, parts=3, *, box="box", fragment=None, client=None, ranges="even"):
        """The number of the order."""
        client = client or self.orderer
        if fragment is None:
            fragment = next(
                name
                for name, hosted in self.fed.nodes["m"].brain.fragments.items()
                if any(each.id == box for each in hosted.spec.graph.boxes)
            )
        number = client.mind.request(
            lambda n: Split(request=n, fragment=fragment, box=box, parts=parts, ranges=ranges)
        )
        client.do(lambda mind: None)
        return number

    def merge(self, *, box="box", fragment=None, client=None):
        client = client or self.orderer
        if fragment is None:
            fragment = self.with_stream(f"q.{box}-1")  # Any of the set tells where the router is.
            routers = [f"q.{box}-router", f"q.{box}-router-left"]
            streams = {
                stream: name
                for name, hosted in self.fed.nodes["m"].brain.fragments.items()
                for stream in hosted.spec.streams.values()
            }
            fragment = next(streams[each] for each in routers if each in streams)
        number = client.mind.request(lambda n: Merge(request=n, fragment=fragment, box=box))
        client.do(lambda mind: None)
        return number

    def told(self, number, client=None):
        """The reply, and what it says."""
        reply, content = self.fed.answer(client or self.orderer, number)
        return reply, None if content is None else msgspec.json.decode(content)

    # --- the end ----------------------------------------------------------------------------------

    def settled(self):
        nodes = self.fed.nodes.values()
        if not all(node.alive for node in nodes) or not self.reader.ended.issuperset(self.streams):
            return False
        return not any(node.brain.orders.splits.status() for node in nodes)

    def check(self):
        """Everything arrived, once, in the order of one program."""
        assert self.fed.run(self.settled, for_us=20_000_000), self.fed.last()[-3000:]
        for sink, want in self.want.items():
            got = pa.Table.from_batches(self.reader.rows.get(f"q.{sink}", []), want.schema)
            assert difference(got, want) is None, sink
