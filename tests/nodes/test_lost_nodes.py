"""Clients of a node that is lost for good, and told them nothing: they find where their streams are now."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.entry_bodies import StreamBody, body_to
from medusa.nodes.config.settings import Limits
from medusa.nodes.names.lookup import NameLookup
from medusa.query.types import schema_to_arrow
from medusa.sim.actors.federation import Federation
from medusa.sim.actors.follower import Follower
from medusa.wire.codec import decode_frame
from medusa.wire.link.session import SessionSettings
from medusa.wire.messages.directory import CatalogEntry, EntryRun, Lookup
from medusa.wire.messages.move import Move
from medusa.wire.outbox import Outbox

NODES = ["a", "b", "c"]
SCHEMA = {"n": "int64"}
ROWS = 400
EVERY_US = 4_000
LOST_AT = 150


def query():
    """The same rows for either reader: what one with a name has acknowledged is not kept for one without,
    of which the new node knows only when it comes."""
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    q.sink("out", some)
    q.sink("kept", some)
    return q


class World:
    """A query at ``a``, one publisher and two readers. They don't hear that ``a`` hands it to ``b``, and then
    ``a`` is gone.

    Args:
        home: the node that the clients were given.
        named: whether the publisher is a named one.
    """

    def __init__(self, home, *, named):
        self.fed = Federation(2, NODES, limits=Limits(checkpoint_every_us=50_000))
        self.fed.start()
        q = query()
        self.schema = next(box.schema for box in q.graph.boxes if box.id == "rows")
        orderer = self.orderer = self.fed.client("orderer", "c")
        assert self.fed.answer(orderer, orderer.deploy(q, {"a": ["rows"]}))[0].code == ""
        self.publisher = self.follower("publisher", home)
        if named:
            self.publisher.names["q.rows"] = "feed"
            self.publisher.publish("q.rows", self.rows(0, 0), self.schema)
            self.until(lambda: (of := self.publisher.publication("q.rows")) is not None and of.begun)
        self.plain, self.named = self.follower("plain", home), self.follower("named", home)
        self.named.read_as["q.kept"] = "results"
        self.readers = {"q.out": self.plain, "q.kept": self.named}
        for stream, each in self.readers.items():
            each.read(stream)
            self.until(
                lambda each=each, stream=stream: any(stream in mind.subscriptions for mind in each.minds)
            )
        self.published = 0
        self.publish()

    def follower(self, name, home):
        made = self.fed.clients[name] = Follower(self.fed.world, self.fed.network, name, home, NODES)
        return made

    def until(self, done, for_us=60_000_000):
        assert self.fed.run(done, for_us=for_us), self.fed.last()

    def rows(self, begin, end):
        return pa.table({"n": range(begin, end)}, schema=schema_to_arrow(self.schema))

    def publish(self):
        self.publisher.publish("q.rows", self.rows(self.published, self.published + 1), self.schema)
        self.published += 1
        for mind in self.named.minds:
            if (of := mind.subscriptions.get("q.kept")) is not None and of.taken_seq:
                of.ack(self.fed.world.now_us, of.taken_seq)
        if self.published < ROWS:
            self.fed.world.after(EVERY_US, self.publish)
        else:
            self.publisher.finish("q.rows", self.schema)

    def lose(self):
        """The clients don't hear ``a`` any more, it hands its fragment to ``b``, and then nobody hears it."""
        for client in (self.publisher, self.plain, self.named):
            self.fed.network.cut("a", client.name)
        number = self.orderer.mind.request(
            lambda n: Move(request=n, fragment="q/rows", to="b", timeout_ms=20_000)
        )
        self.orderer.do(lambda mind: None)
        assert self.fed.answer(self.orderer, number)[0].code == ""
        self.fed.nodes["a"].crash()

    def got(self):
        """Of each reader."""
        return [
            [n for batch in each.rows.get(stream, []) for n in batch.column("n").to_pylist()]
            for stream, each in self.readers.items()
        ]


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
@pytest.mark.parametrize("home", ["a", "c"])
def test_they_go_on_at_the_same_row_with_the_node_that_has_taken_over(home, named):
    world = World(home, named=named)
    world.until(lambda: world.published >= LOST_AT)
    world.lose()
    world.until(lambda: all(stream in each.ended for stream, each in world.readers.items()))
    assert world.got() == [list(range(ROWS))] * 2
    assert [each.lost for each in world.readers.values()] == [{}, {}]
    world.until(lambda: world.publisher.publication("q.rows").durable)


def test_they_ask_soon_after_the_loss_and_more_and_more_rarely_while_nobody_knows_better():
    world = World("a", named=False)
    world.until(lambda: world.published >= LOST_AT)
    send, asked = world.fed.network.send, []

    def note(source, target, frames):
        message, _ = decode_frame([memoryview(bytes(each)) for each in frames])
        if source == "plain" and isinstance(message, Lookup):
            asked.append((world.fed.world.now_us, target))
        send(source, target, frames)

    world.fed.network.send = note
    world.fed.nodes["a"].crash()
    lost_us = world.fed.world.now_us
    world.fed.run(for_us=20_000_000)
    first_us = asked[0][0]
    noticed_us = lost_us + SessionSettings().timeout_us + SessionSettings().heartbeat_us
    assert first_us - noticed_us < 1_000_000, "as soon as another node has answered a call"
    early = [node for at_us, node in asked if at_us < first_us + 500_000]
    assert {*early} == {"b", "c"}, "one of them may not have heard of it yet"
    assert len(early) >= 5
    late = [at_us for at_us, _ in asked if at_us > lost_us + 12_000_000]
    assert 5 <= len(late) <= 8, "once a second"


def directory_of(epochs, *, there):
    """The catalog of node ``c``, by which other nodes have the same stream, each in an epoch."""
    made = Directory("c", incarnation=1, outbox=Outbox())
    for node in there:
        made.peer_up(0, node)
    body = body_to(StreamBody(query="q", fragment="q/rows", columns=(("n", "int64"),), timed=False))
    runs = tuple(
        EntryRun(
            writer=node,
            since=1,
            after=0,
            upto=1,
            entries=(
                CatalogEntry(kind="stream", name="q.out", writer=node, epoch=epoch, version=1, body=body),
            ),
        )
        for node, epoch in epochs.items()
    )
    made.load(0, runs)
    return made


@pytest.mark.parametrize(
    ("epochs", "there", "holders"),
    [
        pytest.param({"a": 1, "b": 2}, ["b"], ["b"], id="the lost one can't say any more that it has it not"),
        pytest.param({"a": 1, "b": 2}, ["a", "b"], ["a", "b"], id="who is there says so itself"),
        pytest.param({"a": 1, "b": 1}, ["b"], ["a", "b"], id="nobody took over from it"),
        pytest.param({"a": 2, "b": 1}, ["b"], ["a", "b"], id="it took over itself"),
        pytest.param({"x": 1, "b": 2}, ["b"], ["b", "x"], id="no peer of ours: it may be there"),
    ],
)
def test_what_was_taken_over_is_at_one_node_though_the_lost_one_never_said_so(epochs, there, holders):
    names = NameLookup(
        directory_of(epochs, there=there), participant="local", peers=dict.fromkeys("ab", "ipc:///x")
    )
    told = msgspec.json.decode(names.answer("q.out", "stream"))
    assert told["holders"] == holders
    assert told["epoch"] == max(epochs.values())
