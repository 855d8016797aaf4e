"""Named publishers at a node: answered when all that came is durable, each key its own, bounded in number."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Train
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.fragment import published_sources, publishers
from medusa.nodes.fragment.checkpoint_record import RECORD, read_record
from medusa.nodes.reports import PeerLost, Persisted, Ran
from medusa.query.types import schema_to_arrow
from medusa.sim.actors.federation import Federation
from medusa.wire.codec import TrainCodec
from medusa.wire.messages.commands import Forget, Reply
from medusa.wire.messages.links import Attach, Attached, Boundary, Data, OpenPublisher, Refuse
from medusa.wire.outbox import Persist, RunFragment
from medusa.wire.statement import client_name
from tests.nodes.keyed import SECURITY, Keyed, curve
from tests.nodes.test_security import columns, query

OFFER = OpenPublisher(stream="q.flows", schema=columns(), name="w/7")
RESUMED = msgspec.structs.replace(OFFER, resumed=True)
FORGET = Forget(request=5, stream="q.flows", name="w/7", publisher=True)
OWNER = client_name(curve("writer"))
KEY = f"{OWNER}/w/7"
FIRST, SECOND = f"{OWNER}-1", f"{OWNER}-2"


def running(**options):
    """A node with the query; two clients with the key of ``writer``."""
    clients = {**SECURITY.clients, "other": ClientRules(key=curve("other"), publish=("*",))}
    limits = Limits(checkpoint_every_us=100_000)
    node = Keyed(replace(SECURITY, clients=clients), limits=limits, **options)
    for name in ("maker", "writer", "reader", "other"):
        node.hello(name)
    node.hello("writer", suffix="2")
    assert node.deploy("maker", query()) == ""
    return node


def hosted(node):
    return node.brain.fragments["q/flows"]


def disk(node, ok=True):
    """The checkpoint under way becomes durable, or fails; what then goes out."""
    token = [e.token for e in node.effects if isinstance(e, Persist)][-1]
    node.brain.report(node.now_us, Persisted(token, ok, "full"))
    return said(node.settle(disk=False))


def said(effects):
    return [(e.peer, e.message) for e in effects if hasattr(e, "message")]


def kinds(messages, kind):
    return [(peer, message) for peer, message in messages if isinstance(message, kind)]


def record(node):
    """The input of the name in the checkpoint that was asked for last."""
    files = [e.files for e in node.effects if isinstance(e, Persist) and RECORD in e.files]
    inputs = read_record(files[-1][RECORD], where="test").inputs
    return next((each for each in inputs if each.peer == KEY), None)


def sends(node, attach, count, *, called=FIRST, frame=1):
    """``count`` rows, by whom this was said to."""
    rows = {"ts": list(range(count)), "v": list(range(count))}
    batch = pa.table(rows, schema_to_arrow(columns())).to_batches()[0]
    [(payload, _, _)] = TrainCodec(columns(), timed=False).encode(Train(batch=batch))
    about = {"stream": "q.flows", "epoch": attach.epoch}
    if frame == 1:
        node.say("writer", attached(attach), called=called, disk=False)
    data = Data(frame=frame, seq=attach.next_seq, rows=count, **about)
    return node.say("writer", data, memoryview(payload), called=called, disk=False)


def attached(attach):
    return Attached(
        stream="q.flows",
        epoch=attach.epoch,
        next_seq=attach.next_seq,
        boundary_us=-(1 << 62),
        schema=columns(),
        timed=False,
    )


def fed(node):
    """The engine does what it has to do."""
    for effect in [e for e in node.effects if isinstance(e, RunFragment)]:
        node.effects.remove(effect)
        node.brain.report(node.now_us, Ran(effect.fragment, []))
    node.settle(disk=False)


def passes(node, us=200_000):
    node.now_us += us
    node.brain.tick(node.now_us)
    return said(node.settle(disk=False))


def shown(node):
    return node.brain.status(node.now_us)["fragments"][0]["publishers"]


def test_a_new_name_is_answered_once_a_checkpoint_holds_it():
    node = running()
    assert node.say("writer", OFFER, disk=False) == []
    assert (record(node).next_seq, record(node).holder) == (0, FIRST)
    assert node.say("writer", OFFER, disk=False) == [], "asked again, still not durable"
    [(peer, attach)] = kinds(disk(node), Attach)
    assert (peer, attach.next_seq, attach.durable) == (FIRST, 0, 0)
    assert node.say("writer", OFFER) == [], "that was answered: the answer is asked for again in its time"


def test_a_checkpoint_that_fails_answers_nobody():
    node = running()
    node.say("writer", OFFER, disk=False)
    assert kinds(disk(node, ok=False), Attach) == []
    passes(node)
    assert len(kinds(disk(node), Attach)) == 1


def test_the_next_one_begins_behind_all_that_came_before_once_that_is_durable():
    node = running()
    [attach] = node.say("writer", OFFER)
    sends(node, attach, 3)
    assert node.say("writer", OFFER, called=SECOND, disk=False) == []
    assert kinds(said(node.effects), Refuse)[-1][0] == FIRST, "whoever has it hears so at once"
    assert sends(node, attach, 2, frame=2) == [], "what it still sends is nothing"
    assert kinds(passes(node), Attach) == [], "the rows are not fed yet"
    fed(node)
    passes(node)
    assert record(node).next_seq == 3
    [(peer, attach)] = kinds(disk(node), Attach)
    assert (peer, attach.next_seq, attach.durable) == (SECOND, 3, 3)
    assert [(each["next_row"], each["from"]) for each in shown(node)] == [(3, SECOND)]


def test_who_had_the_name_does_not_get_it_back():
    node = running()
    node.say("writer", OFFER)
    assert len(node.say("writer", OFFER, called=SECOND)) == 1
    for offer in (RESUMED, OFFER):
        assert node.answer("writer", offer) == "E_TAKEN"
    assert node.say("writer", RESUMED, called=SECOND) == []
    node.brain.report(node.now_us, PeerLost(SECOND))
    assert node.answer("writer", RESUMED) == "E_TAKEN", "not even when that one is away"


def test_who_asked_first_and_was_overtaken_before_the_answer_hears_so():
    node = running()
    node.say("writer", OFFER, disk=False)
    node.say("writer", OFFER, called=SECOND, disk=False)
    assert [peer for peer, _ in kinds(said(node.effects), Refuse)] == [FIRST]
    passes(node)
    told = kinds(disk(node), Attach) + kinds(disk(node), Attach)
    assert [peer for peer, _ in told] == [SECOND]


def test_one_who_goes_on_with_a_name_that_nobody_knows():
    node = running()
    assert node.answer("writer", RESUMED) == "E_NAME"
    assert shown(node) == []


def test_each_key_has_names_of_its_own():
    node = running()
    for name in ("writer", "other"):
        [attach] = node.say(name, OFFER)
        assert attach.next_seq == 0
    assert [each["owner"] for each in shown(node)] == [OWNER, client_name(curve("other"))]
    assert node.answer("other", replace_forget(owner=OWNER)) == "E_ROLE"
    assert node.answer("reader", FORGET) == "E_ROLE"
    assert node.answer("maker", replace_forget(owner="somebody")) == "E_NAME"
    assert node.answer("maker", replace_forget(owner=OWNER)) == ""
    assert [each["owner"] for each in shown(node)] == [client_name(curve("other"))]


def replace_forget(**changes):
    return msgspec.structs.replace(FORGET, **changes)


def test_one_connection_publishes_under_one_name_into_a_stream():
    node = running()
    node.say("writer", OFFER)
    for offer in (
        msgspec.structs.replace(OFFER, name="x"),
        OpenPublisher(stream="q.flows", schema=columns()),
    ):
        assert node.answer("writer", offer) == "E_TAKEN"


def test_an_end_is_answered_when_it_is_durable_and_what_came_before_counts():
    node = running()
    [attach] = node.say("writer", OFFER)
    sends(node, attach, 3)
    assert node.say("writer", FORGET, called=SECOND, disk=False) == []
    assert [message.code for _, message in kinds(said(node.effects), Refuse)] == ["E_REMOVED"]
    assert node.answer("writer", OFFER, disk=False) == "E_TAKEN", "until it is gone for good"
    assert node.answer("writer", replace_forget(request=6), disk=False) == "E_TAKEN"
    fed(node)
    passes(node)
    assert record(node).next_seq == 3
    assert kinds(disk(node), Reply) == []
    assert record(node) is None
    assert kinds(disk(node), Reply) == [(SECOND, Reply(request=5))]
    assert node.say("writer", FORGET, called=SECOND) == [Reply(request=5)], "its answer was lost"
    assert node.answer("writer", replace_forget(request=7)) == "E_NAME"
    [attach] = node.say("writer", OFFER, called=SECOND)
    assert attach.next_seq == 0


@pytest.mark.parametrize("bound", ["NAMED_PER_STREAM", "NAMED_PER_OWNER"])
def test_names_are_bounded(monkeypatch, bound):
    monkeypatch.setattr(publishers, bound, 3)
    node = running()
    for number in range(3, 7):
        called = node.hello("writer", suffix=str(number))
        offer = msgspec.structs.replace(OFFER, name=f"w{number}")
        if number < 6:
            assert isinstance(node.say("writer", offer, called=called)[0], Attach)
    assert node.answer("writer", offer, called=called) == "E_LIMIT"
    if bound == "NAMED_PER_OWNER":
        assert isinstance(node.say("other", OFFER)[0], Attach), "another key has room of its own"
    assert node.answer("writer", replace_forget(name="w3")) == ""
    assert isinstance(node.say("writer", offer, called=called)[0], Attach)


def test_a_name_is_never_forgotten_for_another_publisher(monkeypatch):
    monkeypatch.setattr(published_sources, "PUBLISHERS_MAX", 2)
    node = running()
    node.say("writer", OFFER)
    node.brain.report(node.now_us, PeerLost(FIRST))
    node.say("other", OpenPublisher(stream="q.flows", schema=columns()))
    assert (
        node.answer("writer", OpenPublisher(stream="q.flows", schema=columns()), called=SECOND) == "E_LIMIT"
    )


def test_what_was_finished_is_refused_once_that_is_durable():
    node = running()
    [attach] = node.say("writer", OFFER)
    other = node.hello("other", suffix="2")
    node.say("other", OpenPublisher(stream="q.flows", schema=columns()), called=other)
    node.say("writer", attached(attach), disk=False)
    end = Boundary(stream="q.flows", epoch=attach.epoch, frame=1, seq=0, time_us=END_US)
    node.say("writer", end, disk=False)
    assert node.say("writer", OFFER, called=SECOND, disk=False) == []
    passes(node)
    assert [message.code for peer, message in kinds(disk(node), Refuse) if peer == SECOND] == ["E_FINISHED"]
    assert node.answer("writer", OFFER, called=node.hello("writer", suffix="3")) == "E_FINISHED"
    assert shown(node)[0]["finished"]


# --- over deaths, in virtual time -----------------------------------------------------------------


def counted():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.window("10us").aggregate(n=md.count(), s=md.sum("v")))
    return q


class World:
    """A node, a reader, and programs that come and go."""

    def __init__(self, **options):
        limits = Limits(checkpoint_every_us=1_000_000, subscriber_timeout_us=3_000_000)
        self.federation = Federation(7, ["n"], limits=limits, **options)
        self.federation.start()
        self.reader = self.federation.client("reader", "n")
        reply, _ = self.federation.answer(self.reader, self.reader.deploy(counted(), {"n": ["rows"]}))
        assert reply.code == ""
        self.reader.read("q.out")
        self.columns = counted().graph.boxes[0].schema
        self.lives = 0

    def program(self, name="w"):
        """One more program that opens a name."""
        self.lives += 1
        client = self.federation.client(f"program-{self.lives}", "n")
        if name:
            client.names["q.rows"] = name
        client.publish("q.rows", pa.table({"ts": [], "v": []}, schema_to_arrow(self.columns)), self.columns)
        publication = client.publication("q.rows")
        self.until(lambda: publication.begun or publication.refusal or (not name and publication.attached))
        return client, publication

    def until(self, done):
        assert self.federation.run(done, for_us=20_000_000), self.federation.last()

    def publish(self, client, first, count):
        values = list(range(first, first + count))
        client.publish("q.rows", pa.table({"ts": values, "v": values}), self.columns)

    def kill(self, client):
        client.dead = True
        del self.federation.clients[client.name]

    def crash(self):
        self.federation.nodes["n"].crash()
        self.federation.restart("n")

    def input(self, name="w"):
        node = self.federation.nodes["n"]
        return next(i for i in node.brain.fragments["q/rows"].inputs.values() if i.peer == f"/{name}")

    def answer(self):
        return [row for batch in self.reader.rows["q.out"] for row in batch.select(["n", "s"]).to_pylist()]


def windows(count):
    values = [range(begin, min(begin + 10, count)) for begin in range(0, count, 10)]
    return [{"n": len(each), "s": sum(each)} for each in values]


@pytest.mark.parametrize("turn", range(6))
def test_whoever_dies_at_whatever_turn_each_row_counts_once(turn):
    """A record of 60 rows; the program goes on from where the node says."""
    world = World()
    client, publication = world.program()
    assert publication.sender.log.next_seq == 0
    world.publish(client, 0, 25)
    if turn == 1:
        world.until(lambda: world.input().receiver.next_seq == 25)
    if turn == 2:
        world.until(lambda: publication.durable)
    if turn in (3, 4):
        world.until(lambda: world.input().fed_seq == 25)
        world.crash()
    if turn == 4:
        world.until(lambda: publication.durable)
    world.kill(client)
    if turn == 5:
        world.crash()
    client, publication = world.program()
    at = publication.sender.log.next_seq
    assert at in {0: (0, 25), 1: (25,), 2: (25,), 3: (0, 25), 4: (25,), 5: (0,)}[turn]
    world.publish(client, at, 60 - at)
    if turn in (2, 3):
        world.crash()
    client.finish("q.rows", world.columns)
    world.until(lambda: "q.out" in world.reader.ended)
    assert world.answer() == windows(60)


def test_who_lost_the_name_does_not_get_it_from_a_node_that_restarted():
    """It never heard that it had the name, and asks again once the node has its checkpoint only."""
    world = World()
    late = world.federation.client("late", "n")
    late.names["q.rows"] = "w"
    late.publish("q.rows", pa.table({"ts": [], "v": []}, schema_to_arrow(world.columns)), world.columns)
    inputs = world.federation.nodes["n"].brain.fragments["q/rows"].inputs
    world.until(lambda: ("rows", "/w") in inputs)
    late.dead = True
    _, publication = world.program()
    world.crash()
    late.dead = False
    late.do(lambda mind: None)
    refused = late.publication("q.rows")
    world.until(lambda: refused.refusal)
    assert refused.refusal.code == "E_TAKEN"
    assert world.input().by == "program-1"
    assert publication.refusal is None


def test_the_order_of_several_is_done_again_with_rows_of_the_next_life():
    """The node and the program die while the log holds more than the checkpoint."""
    world = World()
    other, _ = world.program("")
    client, publication = world.program()
    world.until(lambda: world.federation.nodes["n"].brain.fragments["q/rows"].mixed)
    world.until(lambda: publication.durable)
    world.publish(client, 0, 5)
    world.publish(other, 5, 5)
    hosted = world.federation.nodes["n"].brain.fragments["q/rows"]
    world.until(lambda: hosted.decided.at == 2 and hosted.decided.durable == hosted.decided.at)
    assert world.input().receiver.durable_seq == 0, "or the log has nothing to say"
    world.crash()
    world.kill(client)
    client, publication = world.program()
    hosted = world.federation.nodes["n"].brain.fragments["q/rows"]
    assert hosted.repeating, "or it isn't answered while that is done"
    assert publication.sender.log.next_seq == 0
    world.publish(client, 0, 5)
    world.until(lambda: not hosted.repeating)
    for each in (client, other):
        each.finish("q.rows", world.columns)
    world.until(lambda: "q.out" in world.reader.ended)
    assert world.answer() == windows(10)
    assert not [r for r in world.federation.nodes["n"].reports if "not repeated" in r.what]


def test_two_who_come_while_the_log_is_fed_again():
    """The first of them dies when it has sent a part of what the log wants."""
    world = World()
    other, _ = world.program("")
    client, publication = world.program()
    world.until(lambda: publication.durable)
    world.publish(client, 0, 5)
    world.publish(other, 5, 5)
    hosted = world.federation.nodes["n"].brain.fragments["q/rows"]
    world.until(lambda: hosted.decided.at == 2 and hosted.decided.durable == hosted.decided.at)
    world.crash()
    world.kill(client)
    client, _ = world.program()
    world.publish(client, 0, 2)
    world.until(lambda: world.input().receiver.next_seq == 2)
    world.kill(client)
    client, publication = world.program()
    assert publication.sender.log.next_seq == 0, "what isn't durable comes again"
    world.publish(client, 0, 5)
    for each in (client, other):
        each.finish("q.rows", world.columns)
    world.until(lambda: "q.out" in world.reader.ended)
    assert world.answer() == windows(10)


def test_a_name_that_is_away_is_waited_for_and_counts_again_when_it_is_back():
    world = World()
    client, publication = world.program()
    other, _ = world.program("")
    world.publish(client, 0, 3)
    world.publish(other, 3, 17)
    publication.sender.boundary(world.federation.world.now_us, 3)
    other.publication("q.rows").sender.boundary(world.federation.world.now_us, 20)
    world.until(lambda: publication.durable)
    world.kill(client)
    fed_us = world.federation.nodes["n"].brain.fragments["q/rows"].fed_us
    assert not world.federation.run(lambda: fed_us["rows"] > 3, for_us=3_000_000)
    world.until(lambda: fed_us["rows"] == 20)
    client, publication = world.program()
    assert publication.sender.log.next_seq == 3
    other.publication("q.rows").sender.boundary(world.federation.world.now_us, 40)
    assert not world.federation.run(lambda: fed_us["rows"] > 20, for_us=1_000_000), "it is waited for again"
    world.publish(client, 0, 1)  # too late now
    world.publish(client, 20, 5)
    for each in (client, other):
        each.finish("q.rows", world.columns)
    world.until(lambda: "q.out" in world.reader.ended)
    assert sum(row["n"] for row in world.answer()) == 25


def test_a_node_without_a_disk_has_no_names():
    world = World(memory=["n"])
    _, publication = world.program()
    assert publication.refusal.code == "E_STORE"
