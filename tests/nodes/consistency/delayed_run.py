"""A query with ``delay=`` over nodes in virtual time, while links are cut; what a reader sees, and when.

    pub-a ──> source a ──┐
                         ├── sunion ── window ── out, delay="2s" ──> reader, of both lanes
    pub-b ──> source b ──┘

The time of a row is that at which it is published, so the answer of a window is due at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.fragment.host import FragmentHost
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.wire.codec import TrainCodec
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.tentative_receiver import StateChanged, TentativePromise, TentativeRowsCame
from medusa.wire.messages.links import OLDEST

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
STEP_US = 50_000
X_US = 2_000_000
SLACK_US = 250_000
"""What the way takes without a failure: the bucket of a sunion, links and the engine."""
PATIENCE_US = 60_000_000


def second(count: float) -> int:
    return int(count * 1_000_000)


def table(salt: int, span_us: int) -> pa.Table:
    """Two rows of five keys every 50 ms."""
    times = [at for at in range(0, span_us, STEP_US) for _ in range(2)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": ["abcde"[(n * n + salt) % 5] for n in range(len(times))],
            "v": pa.array([n * 7 % 101 + salt for n in range(len(times))], pa.int64()),
        }
    )


class BothLanes(Client):
    """Reads the tentative lane too.

    Attributes:
        guesses: (when it came, fork, rows as dicts) of tentative rows.
        states: (when, state, fork).
        came: (when, rows) of stable rows.
        promised: (when, time) of the fork.
    """

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.guesses: list[tuple[int, int, list[dict[str, Any]]]] = []
        self.states: list[tuple[int, str, int]] = []
        self.came: list[tuple[int, list[dict[str, Any]]]] = []
        self.promised: list[tuple[int, int]] = []

    def read(self, name: str) -> None:
        self.do(lambda mind: mind.subscribe(self._world.now_us, name, OLDEST, tentative=True))

    def _take(self, name: str, receiver: Receiver, delivery: Any) -> None:
        now_us, had = self._world.now_us, len(self.rows.get(name, ()))
        super()._take(name, receiver, delivery)
        for batch in self.rows.get(name, [])[had:]:
            self.came.append((now_us, batch.to_pylist()))
        match delivery:
            case StateChanged():
                self.states.append((now_us, delivery.state, delivery.fork))
            case TentativePromise():
                self.promised.append((now_us, delivery.time_us))
            case TentativeRowsCame():
                assert receiver.schema is not None
                codec = TrainCodec(receiver.schema, timed=bool(receiver.timed))
                train = codec.decode(delivery.message, delivery.payload)
                self.guesses.append((now_us, delivery.fork, train.batch.to_pylist()))


def pair(delay: Any = "2s", **more: Any) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    counts = md.sunion(a, b, bucket="100ms", name="both").window("500ms").group_by("k")
    q.sink("out", counts.aggregate(n=md.count(), t=md.sum("v"), name="counts"), delay=delay, **more)
    return q


def chain(delay: Any = "2s") -> md.Query:
    """The sunion and the window are boxes of two fragments."""
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    both = md.sunion(a, b, bucket="100ms", name="both").filter("v >= 0", name="first")
    counts = both.window("500ms").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="counts")
    q.sink("out", counts, delay=delay)
    return q


PAIR: Mapping[str, Sequence[str]] = {"m": ["a", "b"]}
CHAIN: Mapping[str, Sequence[str]] = {"m": ["a", "b", "both", "first"], "n": ["counts", "out"]}


class DelayedRun:
    """One run.

    Args:
        at: node -> its boxes; sources are published there.
        span_us: for so long rows are published.
        read_at: the node of which the stream is read.
    """

    def __init__(
        self,
        q: Any,
        at: Mapping[str, Sequence[str]],
        *,
        span_us: int = second(12),
        names: Sequence[str] = ("m", "n", "s"),
        read_at: str = "m",
        seed: int = 1,
        **more: Any,
    ) -> None:
        self.q, self.at = q, at
        self.name = q.graph.name
        self.schemas = {box.id: box.schema for box in q.graph.boxes if box.id in q.sources}
        self.tables = {
            source: table(salt, span_us).cast(schema_to_arrow(schema))
            for salt, (source, schema) in enumerate(self.schemas.items())
        }
        [self.sink] = [box.id for box in q.graph.boxes if box.id == "out"]
        self.want = collect(q, **self.tables)[self.sink]
        self.fed = Federation(seed, names, **more)
        self.fed.start()
        self.places = {
            source: next(node for node, boxes in at.items() if source in boxes) for source in self.schemas
        }
        self.deployer = self.fed.client("deployer", next(iter(at)))
        self.publishers = {
            source: self.fed.client(f"pub-{source}", node) for source, node in self.places.items()
        }
        self.reader = BothLanes(self.fed.world, self.fed.network, "reader", read_at)
        self.fed.clients["reader"] = self.reader
        self.begin_us = 0
        self.span_us = span_us

    # --- what is done -----------------------------------------------------------------------------------

    def begin(self) -> DelayedRun:
        """Deploy it, read it, and publish from now on."""
        reply, _ = self.fed.answer(self.deployer, self.deployer.deploy(self.q, self.at))
        assert reply.code == "", reply
        self.reader.read(f"{self.name}.{self.sink}")
        self.fed.run(for_us=300_000)
        self.publish()
        return self

    def publish(self) -> None:
        world = self.fed.world
        self.begin_us = world.now_us + 1
        for source, rows in self.tables.items():
            client, schema, stream = self.publishers[source], self.schemas[source], f"{self.name}.{source}"
            for place in range(len(rows) // 2):
                part = rows.slice(2 * place, 2)
                world.at(
                    self.begin_us + place * STEP_US,
                    lambda client=client, part=part, stream=stream, schema=schema: client.publish(
                        stream, part, schema
                    ),
                )
            world.at(
                self.begin_us + self.span_us,
                lambda client=client, stream=stream, schema=schema: client.finish(stream, schema),
            )

    def at_second(self, count: float, action: Callable[[], Any]) -> None:
        """Do this so long after the first row."""
        self.fed.world.at(self.begin_us + second(count), action)

    def cut(self, one: str, other: str, from_s: float, to_s: float) -> None:
        """Nothing passes between the two meanwhile."""
        network = self.fed.network
        for way in ((one, other), (other, one)):
            self.at_second(from_s, lambda way=way: network.cut(*way))  # type: ignore[misc]
            self.at_second(to_s, lambda way=way: network.heal(*way))  # type: ignore[misc]

    def run_to(self, count: float) -> None:
        """Until so long after the first row."""
        self.fed.run(for_us=self.begin_us + second(count) - self.fed.world.now_us)

    def until(self, done: Callable[[], bool], what: str, *, for_us: int = PATIENCE_US) -> None:
        assert self.fed.run(done, for_us=for_us), f"not in time: {what}\n{self.fed.last()[-4000:]}"

    # --- what is seen -----------------------------------------------------------------------------------

    def hosted(self, node: str) -> FragmentHost:
        [found] = self.fed.nodes[node].brain.fragments.values()
        return found

    def forks(self, node: str) -> int:
        """How many the fragment of a node has had."""
        bound = self.hosted(node).bound
        assert bound is not None
        return bound.forks_made

    def forks_of(self, node: str) -> list[str]:
        """Those that its engine has."""
        engine = self.fed.nodes[node].loop._host._running  # type: ignore[union-attr]
        return [name for name in engine if "#" in name]

    @property
    def states(self) -> list[str]:
        return [state for _, state, _ in self.reader.states]

    def ends(self) -> None:
        """The stable lane is that of a run without failure, and nothing tentative holds any more."""
        stream = f"{self.name}.{self.sink}"
        self.until(lambda: stream in self.reader.ended, "all rows come")
        assert not any(self.reader.lost.values())
        got = pa.Table.from_batches(self.reader.rows.get(stream, []), self.want.schema)
        assert got.to_pylist() == self.want.to_pylist()
        self.until(lambda: not self.states or self.states[-1] == "stable", "it is stable again")
        assert not self.reader.states or self.reader.states[-1][2] == 0
        self._corrected()
        living = [node.name for node in self.fed.nodes.values() if node.alive]
        self.until(lambda: not any(map(self.forks_of, living)), "no fork is left", for_us=second(5))

    def _corrected(self) -> None:
        """When it was stable all had come that was due by then, but what an input may still hold up for X."""
        for stable_us in (at_us for at_us, state, _ in self.reader.states if state == "stable"):
            for came_us, rows in self.reader.came:
                ends_us = min(int(row["window_end"].timestamp() * 1_000_000) for row in rows)
                due_us = self.begin_us + ends_us + X_US + SLACK_US
                # What a publisher promises behind its last row isn't counted, and comes right after it.
                in_time = came_us <= stable_us + 5_000
                assert in_time or due_us >= stable_us, "a correction came after the last one"

    def first_seen_us(self) -> dict[Any, int]:
        """End of a window -> when a row of it was first seen, on either lane, from the first row on."""
        seen: dict[Any, int] = {}
        came = [*self.reader.came, *((at, rows) for at, _, rows in self.reader.guesses)]
        for at_us, rows in came:
            for row in rows:
                end_us = int(row["window_end"].timestamp() * 1_000_000)
                seen[end_us] = min(seen.get(end_us, at_us), at_us)
        return {end_us: at_us - self.begin_us for end_us, at_us in seen.items()}

    def late(self, *, x_us: int = X_US, before_s: float = 1e9) -> list[tuple[float, float]]:
        """(end of a window in s, by how much its first answer was later than X allows)."""
        seen = self.first_seen_us()
        found = []
        for end_us in range(500_000, self.span_us - 500_000, 500_000):
            if end_us >= before_s * 1_000_000:
                continue
            over_us = seen.get(end_us, 1 << 60) - end_us - x_us - SLACK_US
            if over_us > 0:
                found.append((end_us / 1e6, over_us / 1e6))
        return found
