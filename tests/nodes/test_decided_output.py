"""A fragment whose output depends on the order of what came: it leaves when the log holds that order."""

from __future__ import annotations

from collections import deque
from itertools import count

import pyarrow as pa

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.fragment.durability import policy_of
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.input_log_records import PROMISE, ROWS, Decision
from medusa.nodes.placement.placement import cut
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.messages.links import OLDEST, Attach, Attached, Data
from medusa.wire.outbox import Log, Outbox, Persist, RunFragment, Send
from tests.nodes.test_decisions import Beginning

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}


class Life:
    """A fragment with an engine that answers at once, and a disk that answers when it is told to."""

    def __init__(self, q: md.Query) -> None:
        sources = [box.id for box in q.graph.boxes if not box.inputs]
        self.spec = cut(q.graph, {"n": sources}).fragments[0]
        self.outbox, self.engine = Outbox(), Fragment(self.spec.graph)
        tokens = count(1)
        self.hosted = FragmentHost(
            self.spec,
            incarnation=1,
            outbox=self.outbox,
            link=LinkSettings(),
            durability=policy_of(disk=True, guarded=False),
            checkpoint_every_us=1_000_000,
            next_token=lambda: next(tokens),
            wall=WallClock(),
        )
        self.logs: deque[Log] = deque()
        self.checkpoints: deque[Persist] = deque()
        self.epochs: dict[str, int] = {}
        self.frames: dict[str, int] = {}
        self.read: list[int] = []
        plain = Attach(stream="q.out", epoch=1, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True)
        self.hosted.from_reader(0, "out", "reader", plain, owner="", others=0)
        self.settle()
        self.read.clear()

    def settle(self) -> None:
        while effects := self.outbox.take():
            for each in effects:
                match each:
                    case Log():
                        self.logs.append(each)
                    case Persist():
                        self.checkpoints.append(each)
                    case RunFragment():
                        self.engine.feed(each.stream, each.element)
                        self.hosted.ran(0, [("out", found) for found in self.engine.drain("out")])
                    case Send(message=Attach() as asked):
                        self.epochs[each.peer] = asked.epoch
                    case Send(peer="reader", message=Data() as data):
                        self.read += range(data.seq, data.seq + data.rows)

    def disk(self) -> None:
        """The oldest checkpoint under way is durable."""
        self.hosted.persisted(0, self.checkpoints.popleft().token, True)
        self.settle()

    def log(self) -> None:
        """The write of the log that is under way is durable."""
        self.logs.popleft()
        self.hosted.logged(0, True)
        self.settle()

    def offers(self, peer: str, source: str) -> None:
        columns = next(box.schema for box in self.spec.graph.boxes if box.id == source)
        self.hosted.open_publisher(0, peer, source, columns)
        self.settle()

    def publishes(self, peer: str, source: str, value: int) -> None:
        """One row."""
        stream, epoch = f"q.{source}", self.epochs[peer]
        box = next(box for box in self.spec.graph.boxes if box.id == source)
        input = self.hosted.inputs[source, peer]
        if peer not in self.frames:
            first = Attached(
                stream=stream, epoch=epoch, next_seq=0, boundary_us=-(1 << 62), schema=box.schema, timed=False
            )
            self.hosted.receive(0, input, first, None)
        number = self.frames[peer] = self.frames.get(peer, 0) + 1
        rows = pa.record_batch(
            {"ts": pa.array([value], pa.timestamp("us", tz="UTC")), "v": pa.array([value], pa.int64())}
        )
        [(payload, _, _)] = TrainCodec(box.schema, timed=False).encode(Train(batch=rows))
        data = Data(stream=stream, epoch=epoch, frame=number, seq=number - 1, rows=1)
        self.hosted.receive(0, input, data, bytes(payload))
        self.settle()


def union() -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    q.sink("out", a.union(b, name="both"))
    return q


def test_each_row_waits_for_its_own_decision():
    life = Life(union())
    life.offers("pa", "a")
    life.offers("pb", "b")
    while life.logs:
        life.log()
    life.publishes("pa", "a", 1)
    life.publishes("pb", "b", 2)
    life.publishes("pa", "a", 3)
    assert life.read == []
    assert len(life.logs) == 1, "the others are noted while the first is written"
    life.log()
    assert life.read == [0], "of the others nothing is on disk"
    assert len(life.logs) == 1
    life.log()
    assert life.read == [0, 1, 2]


def test_a_checkpoint_of_before_does_not_say_that_order_matters():
    """With it and the log alone a restart would not know that there is an order to be kept."""
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="ts").filter("v > 0", name="f"))
    life = Life(q)
    life.offers("p1", "a")
    life.publishes("p1", "a", 1)
    assert life.read == [0], "one publisher, no order to decide"
    for now_us in (0, 1_000_000):
        life.hosted.tick(now_us)
        life.settle()
    assert len(life.checkpoints) == 1
    life.offers("p2", "a")
    life.disk()
    assert (list(life.logs), "p2" in life.epochs) == ([], False)
    life.publishes("p1", "a", 2)
    assert life.read == [0]
    assert len(life.checkpoints) == 1, "one that says so was asked for at once"
    life.disk()
    while life.logs:
        life.log()
    assert "p2" in life.epochs
    life.publishes("p2", "a", 3)
    life.log()
    assert life.read == [0, 1, 2]


def test_a_promise_that_was_fed_before_a_restart_is_not_fed_again():
    """Its sender says it once more, at another place among the rows."""
    begun = Beginning([Decision(PROMISE, "left", "n", 50), Decision(ROWS, "left", "n", 3)])
    begun.inputs["left", "n"].judged = True
    begun.came("left", 2, 4, 5, promises={2: 50, 4: 60})
    fed = begun.fed()
    assert [what for _, what, _ in fed].count(50) == 1
    assert [what for _, what, _ in fed].count(60) == 1
    assert sum(what for _, what, _ in fed if what is not None and what < 50) == 5
