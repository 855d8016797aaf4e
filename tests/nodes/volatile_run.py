"""A query over three nodes, one of which keeps nothing and is killed: what is missing, and what is told.

    e (disk) ── first ──> m (memory): windows ── per_k ──> c (disk): last

Rows are counted per window, so what is missing in the answer is what was published less the counts that
came, less what was late. Publishers promise the time of what they published, so nothing is late here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.query.boxes import Source
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.world.network import Faults

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
SPAN_US = 2_000_000
TIME_US = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is asked of the memory node.

    Attributes:
        windows: it counts rows per window; else it passes them on, row by row.
        entry: publishers feed it; else a node does.
        union: both do.
        read: its output is read by a client; else by a node.
        publishers: of each source.
        filtered: it drops half of the rows before.
        sinks: of its output.
    """

    windows: bool = True
    entry: bool = False
    union: bool = False
    read: bool = False
    publishers: int = 1
    filtered: bool = False
    sinks: int = 1


@dataclass
class Outcome:
    """Rows that should have come, those that did, and what the memory node says is lost."""

    want: int
    came: int
    told: int
    unknown: bool
    reader_lost: dict[str, int]
    reports: list[dict[str, Any]] = field(default_factory=list)


def query(shape: Shape) -> tuple[md.Query, dict[str, list[str]], dict[str, str]]:
    """The query, what stands where, and where each source is published."""
    q = md.Query("q")
    at: dict[str, list[str]] = {"e": [], "m": [], "c": []}
    sources: dict[str, str] = {}
    streams = []
    if not shape.entry or shape.union:
        at["e"] += ["a", "first"]
        sources["a"] = "e"
        a = q.source("a", SCHEMA, time="ts", slack="100s")
        streams.append(a.filter("v > -1000", name="first"))
    if shape.entry or shape.union:
        at["m"].append("b")
        sources["b"] = "m"
        streams.append(q.source("b", SCHEMA, time="ts", slack="100s"))
    stream = streams[0]
    if shape.union:
        stream = streams[0].union(streams[1], name="both")
        at["m"].append("both")
    if shape.filtered:
        stream = stream.filter("v >= 0", name="half")
        at["m"].append("half")
    if shape.windows:
        stream = stream.window("1s").group_by("k").aggregate(n=md.count(), name="per_k")
        at["m"].append("per_k")
    else:
        stream = stream.select("k", "v", name="some")
        at["m"].append("some")
    here = at["m"] if shape.read else at["c"]
    if not shape.read:
        stream = stream.filter("k is not null", name="last")
        at["c"].append("last")
    for number in range(shape.sinks):
        q.sink(f"out{number}", stream)
        here.append(f"out{number}")
    return q, {node: boxes for node, boxes in at.items() if boxes}, sources


class Run:
    """One run in virtual time; ``asked``: the node that deploys."""

    def __init__(
        self, seed: int, shape: Shape, *, rows: int = 600, faults: Faults | None = None, asked: str = "c"
    ) -> None:
        self.dice = Random(seed)
        self.shape = shape
        self.rows = rows
        self.want = 0
        self.federation = Federation(
            seed,
            ["e", "m", "c"],
            memory=["m"],
            limits=Limits(checkpoint_every_us=200_000),
            faults=faults,
        )
        self.federation.start()
        self.federation.run(for_us=2_100_000)  # So long it waits for clients of an earlier life.
        self.q, self.at, self.sources = query(shape)
        self.client = self.federation.client("client", "c")
        deployer = self.federation.client("deployer", asked)
        reply, _ = self.federation.answer(deployer, deployer.deploy(self.q, self.at))
        assert reply.code == "", reply
        self.reader = self.federation.client("reader", "m") if shape.read else self.client
        for sink in self.q.graph.boxes:
            if sink.id.startswith("out"):
                self.reader.read(f"q.{sink.id}")
        for source, node in self.sources.items():
            columns = next(b.schema for b in self.q.graph.boxes if isinstance(b, Source) and b.id == source)
            for number in range(shape.publishers):
                self._publish(self.federation.client(f"pub-{source}-{number}", node), f"q.{source}", columns)

    def _publish(self, client: Client, stream: str, columns: Any) -> None:
        dice, world = self.dice, self.federation.world
        times = sorted(dice.randrange(TIME_US) for _ in range(self.rows))
        values = [dice.randrange(-100, 100) for _ in times]
        self.want += sum(value >= 0 or not self.shape.filtered for value in values)
        data = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                "k": [dice.choice("abcd") for _ in times],
                "v": values,
            }
        )
        client.publish(stream, data.slice(0, 0), columns)

        def put(piece: pa.Table, promise_us: int) -> None:
            client.publish(stream, piece, columns)
            client.do(lambda mind: mind.publications[stream].sender.boundary(world.now_us, promise_us))

        begin = 0
        while begin < len(data):
            piece = data.slice(begin, dice.randrange(1, 40))
            at_us = world.now_us + 300_000 + SPAN_US * begin // len(data)
            begin += len(piece)
            world.at(at_us, lambda piece=piece, last_us=times[begin - 1]: put(piece, last_us))
        world.at(world.now_us + 300_000 + SPAN_US, lambda: client.finish(stream, columns))

    def kill(self, *names: str) -> None:
        """Each dies at some moment and comes back soon."""
        world = self.federation.world
        for name in names:
            node = self.federation.nodes[name]
            at_us = self.dice.randrange(50_000, SPAN_US + 300_000)
            world.after(at_us, node.crash)
            world.after(at_us + self.dice.randrange(1_000, 300_000), node.restart)

    def outcome(self) -> Outcome:
        """When the end has come through."""
        streams = {f"q.out{number}" for number in range(self.shape.sinks)}
        ended = self.federation.run(lambda: self.reader.ended >= streams, for_us=40_000_000)
        assert ended, self.federation.last()
        node = self.federation.nodes["m"]
        (status,) = node.brain.status(self.federation.world.now_us)["fragments"]
        assert sum(status["lost_by"].values()) == status["lost_rows"]
        batches = self.reader.rows.get("q.out0", [])
        came = sum(sum(b.column("n").to_pylist()) if self.shape.windows else len(b) for b in batches)
        return Outcome(
            want=self.want,
            came=came,
            told=status["lost_rows"],
            unknown=status["lost_unknown"],
            reader_lost=dict(self.reader.lost),
            reports=[dict(r.fields) for r in node.reports if r.what.startswith("rows lost")],
        )
