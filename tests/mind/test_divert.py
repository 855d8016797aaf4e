"""The neighbours of a fragment that moves: rows are kept for the target, and a stream goes on at its row."""

from __future__ import annotations

from typing import get_args

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import START_US, Train
from medusa.engine.fragment import Fragment as Engine
from medusa.errors import RemoteProtocolError
from medusa.mind.brain import Brain
from medusa.mind.catalog import CATALOG, Catalog
from medusa.mind.checkpointing import Saved
from medusa.mind.decisions import unpack
from medusa.mind.diverting import ASK_AGAIN_US
from medusa.mind.placement import cut
from medusa.mind.record import LOG, RECORD, read_record
from medusa.mind.settings import Limits, Settings
from medusa.mind.spec import fragment_to
from medusa.sim.federation import Federation
from medusa.wire.codec import TrainCodec
from medusa.wire.messages import (
    Ack,
    Attach,
    Attached,
    Data,
    Hello,
    Install,
    Offer,
    Refuse,
    Remove,
    Reply,
)
from medusa.wire.messages_divert import DivertMessage, Expect, Follow, Moved, Placed, Release, Unexpect
from medusa.wire.messages_move import Move
from medusa.wire.outbox import Log, Persist, RunFragment, Send
from tests.mind.keyed import Keyed

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}
CREDIT = 8 << 20


def query() -> md.Query:
    """up: flows, f; n: g, h; down: out."""
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts")
    q.sink("out", flows.filter("v > -1", name="f").filter("v > -2", name="g").filter("v > -3", name="h"))
    return q


AT = {"up": ["flows", "f"], "n": ["g", "h"], "down": ["out"]}
FRAGMENT = "q/from f"


def spec_at(node: str):
    [fragment] = cut(query().graph, AT).at(node)
    return msgspec.structs.replace(fragment, node="n")


class Node:
    """Node ``n`` with one fragment of the query; its engine and its disk work at once, unless told not to.

    Attributes:
        sent: what it said, with to whom, since it was asked last.
        disk: it works.
    """

    PEERS = ("up", "old", "new", "third", "down")

    def __init__(self, spec, *, catalog=None, saved=None, incarnation=1, store="disk", coordinator="up"):
        settings = Settings(
            name="n",
            listen="tcp://*:1",
            data="d" if store == "disk" else "",
            store=store,
            peers=dict.fromkeys(self.PEERS, "tcp://example.org:1"),
            limits=Limits(checkpoint_every_us=100_000),
        )
        self.now_us, self.disk = 0, True
        self.engines: dict[str, Engine] = {}
        self.pending: list[Persist] = []
        self.files: dict[str, dict] = {}
        self.logs: list[bytes] = []
        self.fed: list[int] = []
        self.sent: list[tuple[str, object]] = []
        self.payloads: list[tuple[str, object, object]] = []
        self.brain = Brain(
            settings, incarnation=incarnation, catalog=catalog, saved=saved, first_token=1000 * incarnation
        )
        for each in self.brain.fragments.values():
            self.engines[each.spec.name] = Engine(each.spec.graph)
        self.brain.start(0)
        self.settle()
        self.epochs: dict[str, int] = {}
        for peer in self.PEERS:
            self.brain.receive(0, peer, Hello(version=1, node=peer, incarnation=1))
        self.settle()
        if spec is not None and catalog is None:
            install = Install(request=1, query="q", fragment=spec.name)
            assert self.says(coordinator, install, fragment_to(spec)) == ""

    @property
    def hosted(self):
        return self.brain.fragments[self.only]

    @property
    def only(self) -> str:
        [name] = self.brain.fragments
        return name

    def settle(self) -> None:
        while effects := self.brain.outbox.take():
            for effect in effects:
                self._do(effect)

    def _do(self, effect) -> None:
        match effect:
            case Persist():
                self.files[effect.fragment] = {**effect.files}
                self.pending.append(effect)
                if self.disk:
                    self.written()
            case Log():
                self.logs.append(effect.data)
                self.brain.logged(self.now_us, effect.fragment, True)
            case RunFragment():
                engine = self.engines.setdefault(
                    effect.fragment, Engine(self.brain.catalog.fragments[effect.fragment].graph)
                )
                if isinstance(effect.element, Train):
                    self.fed += effect.element.batch.column("v").to_pylist()
                engine.feed(effect.stream, effect.element)
                sinks = self.brain.catalog.fragments[effect.fragment].streams
                outputs = [(sink, each) for sink in sinks for each in engine.drain(sink)]
                self.brain.fragment_ran(self.now_us, effect.fragment, outputs)
            case Send(after=after) if after is not None and any(e.token == after for e in self.pending):
                self.held.append(effect)
            case Send():
                self.sent.append((effect.peer, effect.message))

    @property
    def held(self) -> list[Send]:
        return self.__dict__.setdefault("_held", [])

    def written(self) -> None:
        """What was to be written is on disk."""
        pending, self.pending = self.pending, []
        for each in pending:
            self.brain.persisted(self.now_us, each.token, True)
        held, self.held[:] = list(self.held), []
        for each in held:
            self.sent.append((each.peer, each.message))
        self.settle()

    def say(self, peer: str, message, payload=None) -> list:
        """What a peer says, and what it gets for it."""
        before = len(self.sent)
        self.brain.receive(self.now_us, peer, message, payload)
        self.settle()
        return [said for to, said in self.sent[before:] if to == peer]

    def says(self, peer: str, message, payload=None) -> str | None:
        """The code of the answer; None: there is none."""
        codes = [each.code for each in self.say(peer, message, payload) if isinstance(each, Reply | Refuse)]
        assert len(codes) <= 1
        return codes[0] if codes else None

    def passes(self, us: int) -> None:
        self.now_us += us
        self.brain.tick(self.now_us)
        self.settle()

    def checkpoint(self) -> None:
        """Time passes until there is one, and not so much that a peer counts as silent."""
        for _ in range(2):
            self.passes(150_000)

    def on_disk(self) -> Catalog:
        return Catalog.from_bytes(self.files[""][CATALOG], node="n", where="disk")

    def saved(self) -> dict[str, Saved]:
        """Checkpoints as they are on disk."""
        found = {}
        for name, files in self.files.items():
            if name:
                record = read_record(files[RECORD], where="disk")
                log = b"".join(bytes(piece) for piece in files[LOG])
                found[name] = Saved(record=record, logs={record.token: log})
        return found

    def restarted(self) -> Node:
        """The node after a crash, with what was on its disk."""
        return Node(None, catalog=self.on_disk(), saved=self.saved(), incarnation=2)

    # --- a stream that comes ------------------------------------------------------------------

    def attach_of(self, peer: str) -> Attach | None:
        """The last ``Attach`` to a peer."""
        found = [each for to, each in self.sent if to == peer and isinstance(each, Attach)]
        return found[-1] if found else None

    def brings(self, peer: str, first: int, count: int, *, frame: int, begins: int | None = None) -> None:
        """A peer answers our attachment, if ``begins`` says where, and sends rows of these numbers."""
        attach = self.attach_of(peer)
        assert attach is not None
        source = next(box for box in self.hosted.spec.graph.boxes if not box.inputs)
        if begins is not None:
            opening = Attached(
                stream=attach.stream,
                epoch=attach.epoch,
                next_seq=begins,
                boundary_us=START_US,
                schema=source.schema,
                timed=source.judged and source.timed,
            )
            self.say(peer, opening)
        self.say(peer, *train(source, attach.stream, attach.epoch, frame, first, count))


def train(source, stream: str, epoch: int, frame: int, first: int, count: int):
    numbers = list(range(first, first + count))
    times = pa.array(numbers, pa.timestamp("us", tz="UTC"))
    rows = Train(
        batch=pa.record_batch({"ts": times, "v": pa.array(numbers, pa.int64())}),
        times=pa.array(numbers, pa.int64()) if source.judged and source.timed else None,
        first_seq=first,
    )
    [(payload, _, _)] = TrainCodec(source.schema, timed=source.judged and source.timed).encode(rows)
    data = Data(stream=stream, epoch=epoch, frame=frame, seq=first, rows=count)
    return data, bytes(payload)


# --- upstream -----------------------------------------------------------------------------------------


def upstream() -> Node:
    """n is ``up``: old reads its stream, as ``down`` of the plan."""
    spec = spec_at("up")
    [sink] = spec.readers
    return Node(msgspec.structs.replace(spec, readers={sink: ("old",)}))


def reads(node: Node, peer: str, *, epoch: int, next_seq: int = 0) -> None:
    attach = Attach(stream="q.f", epoch=epoch, next_seq=next_seq, durable=next_seq, granted=CREDIT)
    assert node.says(peer, attach) is None


def publishes(node: Node, count: int) -> None:
    """A client brings so many rows."""
    if "client-1" not in node.brain.sessions:
        hello = Hello(version=1, node="client-1", incarnation=1, client=True)
        node.brain.receive(node.now_us, "client-1", hello)
        node.settle()
        source = next(box for box in node.hosted.spec.graph.boxes if not box.inputs)
        node.say("client-1", Offer(stream="q.flows", schema=source.schema))
        node.brings("client-1", 0, count, frame=1, begins=0)
        node.frames = 2
    else:
        first = node.hosted.rows_in
        node.brings("client-1", first, count, frame=node.frames)
        node.frames += 1


def acks(node: Node, peer: str, epoch: int, durable: int) -> None:
    view = node.hosted.outputs[only(node)].sender.receivers[peer]
    ack = Ack(
        stream="q.f",
        epoch=epoch,
        frames=view.frames,
        received=view.sent_seq,
        durable=durable,
        granted=CREDIT,
    )
    assert node.says(peer, ack) is None


def only(node: Node) -> str:
    [sink] = node.hosted.outputs
    return sink


def kept(node: Node) -> tuple[int, list[str]]:
    """The oldest row that is kept, and for whom."""
    sender = node.hosted.outputs[only(node)].sender
    return sender.log.start_seq, sorted(sender.receivers)


EXPECT = Expect(request=10, query="q", stream="q.f", like="old", reader="new", epoch=2)
UNEXPECT = Unexpect(request=11, query="q", stream="q.f", reader="new")


def test_rows_are_kept_for_the_target_from_where_the_owner_holds_them():
    node = upstream()
    reads(node, "old", epoch=1)
    for _ in range(4):
        publishes(node, 5)
    acks(node, "old", 1, 5)
    assert kept(node) == (5, ["old"])
    assert node.says("old", EXPECT) == ""
    acks(node, "old", 1, 15)
    assert kept(node) == (5, ["new", "old"]), "the target may need them"
    reads(node, "new", epoch=1, next_seq=10)
    assert kept(node) == (10, ["new"]), "who attaches has taken over: nothing more is kept for the owner"
    assert node.hosted.spec.readers == {only(node): ("new",)}
    assert node.says("old", Attach(stream="q.f", epoch=2, next_seq=15, durable=15, granted=1)) == "E_READER"
    acks(node, "new", 1, 20)
    assert kept(node)[0] == 20


def test_it_is_on_disk_before_it_is_answered_and_a_restart_changes_nothing():
    node = upstream()
    reads(node, "old", epoch=1)
    publishes(node, 5)
    acks(node, "old", 1, 3)
    node.checkpoint()
    node.disk = False
    assert node.says("old", EXPECT) is None
    assert node.says("old", EXPECT) is None, "asked again, it waits for the same"
    node.written()
    answers = [said for to, said in node.sent if to == "old" and isinstance(said, Reply)]
    assert {each.code for each in answers} == {""}
    again = node.restarted()
    assert again.hosted.spec.readers == {only(again): ("old", "new")}
    assert kept(again) == (0, ["new", "old"])
    sender = again.hosted.outputs[only(again)].sender
    assert sender.receivers["new"].durable <= sender.receivers["old"].durable
    reads(again, "new", epoch=7, next_seq=3)
    assert kept(again)[1] == ["new"]
    assert again.on_disk().fragments[again.only].readers == {only(again): ("new",)}
    assert again.on_disk().expected == {}
    assert again.restarted().hosted.spec.readers == {only(again): ("new",)}


def test_undone_it_is_as_before_and_what_comes_late_changes_nothing():
    node = upstream()
    reads(node, "old", epoch=1)
    publishes(node, 5)
    before = node.brain.catalog.to_bytes()
    assert node.says("old", EXPECT) == ""
    assert node.says("old", UNEXPECT) == ""
    assert node.brain.catalog.to_bytes() == before
    assert kept(node) == (0, ["old"])
    assert node.says("old", EXPECT) is None, "the network brings it once more"
    assert node.brain.refusals == {"E_STALE": 1}
    assert node.says("old", UNEXPECT) == ""
    assert node.brain.catalog.to_bytes() == before
    acks(node, "old", 1, 5)
    assert kept(node) == (5, ["old"])
    assert node.says("old", msgspec.structs.replace(EXPECT, request=12)) == "", "another attempt"


def test_a_refused_question_that_comes_again_after_it_was_given_up_changes_nothing():
    node = upstream()
    reads(node, "old", epoch=1)
    node.brain.commands.diverting.moving = lambda fragment: True
    assert node.says("old", EXPECT) == "E_BUSY"
    assert node.says("old", UNEXPECT) == ""
    node.brain.commands.diverting.moving = lambda fragment: False
    assert node.says("old", EXPECT) is None
    assert kept(node)[1] == ["old"]


def test_who_reads_no_more_is_released_by_itself_or_by_who_follows_it():
    for who, request in (("old", 11), ("new", 1)):
        node = upstream()
        reads(node, "old", epoch=1)
        publishes(node, 5)
        assert node.says("old", EXPECT) == ""
        release = Release(request=request, query="q", stream="q.f", reader="old")
        assert node.says("third", release) == "E_READER"
        assert node.says(who, release) == ""
        assert kept(node) == (0, ["new"])
        assert node.says(who, release) == "", "it was done"
        assert node.on_disk().fragments[node.only].readers == {only(node): ("new",)}


MAY_NOT = [
    ("old", {"stream": "q.no"}, "E_STREAM"),
    ("old", {"query": "p"}, "E_STREAM"),
    ("old", {"like": "third"}, "E_READER"),
    ("third", {}, "E_READER"),
    ("third", {"like": "third"}, "E_READER"),
    ("old", {"reader": "old"}, "E_READER"),
    ("old", {"reader": "stranger"}, "E_PEER"),
]


@pytest.mark.parametrize(("peer", "changes", "code"), MAY_NOT)
def test_only_the_present_reader_says_who_will_read_and_only_of_its_own_stream(peer, changes, code):
    node = upstream()
    reads(node, "old", epoch=1)
    before = node.brain.catalog.to_bytes()
    assert node.says(peer, msgspec.structs.replace(EXPECT, **changes)) == code
    assert node.brain.catalog.to_bytes() == before
    assert kept(node)[1] == ["old"]
    assert node.brain.refusals == {code: 1}


def test_one_at_a_time():
    node = upstream()
    reads(node, "old", epoch=1)
    assert node.says("old", EXPECT) == ""
    other = msgspec.structs.replace(EXPECT, request=12, reader="third")
    assert node.says("old", other) == "E_BUSY"
    after = msgspec.structs.replace(EXPECT, request=1, like="new", reader="third")
    assert node.says("new", after) == "E_BUSY", "it hasn't attached"
    reads(node, "new", epoch=1)
    assert node.says("new", msgspec.structs.replace(after, request=2)) == "", "now it reads"
    assert node.brain.commands.diverting.busy(node.hosted.spec) != ""


def test_who_never_attached_or_was_plain_passes_nothing_on():
    node = upstream()
    assert node.says("old", EXPECT) == "", "the plan says that it reads: from the oldest row on"
    node = upstream()
    plain = Attach(stream="q.f", epoch=1, next_seq=0, durable=0, granted=CREDIT, plain=True)
    assert node.says("old", plain) is None
    assert node.says("old", EXPECT) == "E_READER"


def test_a_node_without_a_disk_remembers_no_move():
    spec = spec_at("up")
    [sink] = spec.readers
    node = Node(msgspec.structs.replace(spec, readers={sink: ("old",)}), store="memory")
    assert node.says("old", EXPECT) == "E_STORE"


def test_a_reader_may_come_to_the_node_that_it_reads_from():
    node = upstream()
    reads(node, "old", epoch=1)
    publishes(node, 5)
    assert node.says("old", msgspec.structs.replace(EXPECT, reader="n")) == ""
    node.brain.own(0, Attach(stream="q.f", epoch=1, next_seq=0, durable=0, granted=CREDIT), None)
    node.settle()
    assert kept(node)[1] == ["n"]


# --- downstream ---------------------------------------------------------------------------------------


def downstream(**options) -> Node:
    """n is ``n`` of the plan: it reads q.f from old, and down reads it."""
    spec = spec_at("n")
    [feed] = spec.feeds
    feeds = (msgspec.structs.replace(feed, node="old"),)
    return Node(msgspec.structs.replace(spec, feeds=feeds), **options)


MOVED = Moved(request=5, stream="q.f", node="new", epoch=2)


def test_a_stream_goes_on_at_its_row_and_no_row_comes_twice():
    node = downstream()
    node.brings("old", 0, 5, frame=1, begins=0)
    node.brings("old", 5, 5, frame=2)
    epoch = node.attach_of("old").epoch
    assert node.says("old", MOVED) == ""
    attach = node.attach_of("new")
    assert (attach.next_seq, attach.resumed, attach.stream) == (10, True, "q.f")
    source = node.hosted.spec.graph.boxes[0]
    node.say("old", *train(source, "q.f", epoch, 3, 10, 5))
    assert node.fed == list(range(10)), "what the old one still sends is nobody's"
    node.brings("new", 8, 6, frame=1, begins=10)
    assert node.fed == list(range(14))
    [input] = node.hosted.inputs.values()
    assert (input.peer, input.rows, input.receiver.lost_rows) == ("new", 14, 0)
    assert input.receiver.attachments == 2
    assert node.on_disk().fragments[node.only].feeds[0].node == "new"


def test_after_a_restart_a_checkpoint_that_names_the_old_node_is_read_as_of_the_new_one():
    node = downstream()
    node.brings("old", 0, 5, frame=1, begins=0)
    node.checkpoint()
    assert node.saved()[node.only].record.inputs[0].peer == "old"
    node.brings("old", 5, 5, frame=2)
    assert node.says("old", MOVED) == ""
    again = node.restarted()
    attach = again.attach_of("new")
    assert attach is not None
    assert (attach.next_seq, attach.durable) == (5, 5)
    assert again.attach_of("old") is None
    [input] = again.hosted.inputs.values()
    assert (input.peer, input.fed_seq) == ("new", 5)


def test_a_crash_before_the_disk_knows_it_asks_the_old_node_which_says_it_again():
    node = downstream()
    node.brings("old", 0, 5, frame=1, begins=0)
    node.checkpoint()
    before = node.on_disk()
    node.disk = False
    assert node.says("old", MOVED) is None, "no answer before it is on disk"
    again = Node(None, catalog=before, saved=node.saved(), incarnation=2)
    assert again.attach_of("old").next_seq == 5
    assert again.says("old", msgspec.structs.replace(MOVED, request=0)) is None
    assert again.attach_of("new").next_seq == 5


def test_what_is_late_or_not_its_to_say_changes_nothing():
    node = downstream()
    assert node.says("old", MOVED) == ""
    before = node.brain.catalog.to_bytes()
    assert node.says("old", MOVED) == "", "it comes twice"
    assert node.says("old", msgspec.structs.replace(MOVED, request=6, epoch=3, node="third")) == "E_SENDER"
    assert node.says("third", msgspec.structs.replace(MOVED, node="third", epoch=9)) == "E_SENDER"
    assert node.brain.refusals == {"E_SENDER": 2}
    assert node.says("new", msgspec.structs.replace(MOVED, node="third")) == "", "of an epoch that was"
    assert node.brain.catalog.to_bytes() == before
    back = msgspec.structs.replace(MOVED, node="old", epoch=3)
    assert node.says("new", back) == ""
    assert node.attach_of("old").epoch > node.attach_of("new").epoch
    late = msgspec.structs.replace(MOVED, request=0)
    assert node.says("old", late) is None
    assert node.hosted.spec.feeds[0].node == "old", "the stream has been away and is back"


def test_a_neighbour_that_is_no_peer_is_refused():
    node = downstream()
    before = node.brain.catalog.to_bytes()
    follow = Follow(request=4, query="q", stream="q.f", node="stranger")
    assert node.says("old", follow) == "E_PEER"
    assert node.says("old", msgspec.structs.replace(MOVED, node="stranger")) == "E_PEER"
    assert node.brain.catalog.to_bytes() == before
    assert [input.peer for input in node.hosted.inputs.values()] == ["old"]
    for target in ("new", "n", "down"):
        follow = msgspec.structs.replace(follow, request=follow.request + 9, node=target)
        assert node.says("old", follow) == "", target
    node.brain.commands.diverting.moving = lambda fragment: True
    assert node.says("old", msgspec.structs.replace(follow, request=90)) == "E_BUSY"
    assert node.says("old", msgspec.structs.replace(MOVED, request=91)) == "E_BUSY"
    assert node.brain.catalog.to_bytes() == before


def test_a_stream_that_was_refused_goes_on_at_the_new_node():
    node = downstream()
    attach = node.attach_of("old")
    node.say("old", Refuse(code="E_STREAM", text="", stream="q.f", epoch=attach.epoch))
    assert node.says("old", MOVED) == ""
    assert node.attach_of("new") is not None
    count = len(node.sent)
    node.passes(600_000)
    assert not [1 for to, each in node.sent[count:] if to == "old" and isinstance(each, Attach)]


def union() -> Node:
    """Two streams meet: what they were fed, and in which order, is in the log."""
    q = md.Query("q")
    both = [q.source(name, SCHEMA, time="ts").filter("v > -1", name=f"f{name}") for name in "ab"]
    q.sink("out", both[0].union(both[1], name="both"))
    plan = cut(q.graph, {"old": ["a", "fa"], "third": ["b", "fb"], "n": ["both", "out"]})
    [spec] = plan.at("n")
    return Node(spec)


def test_decisions_that_name_the_old_node_are_done_again_with_the_rows_of_the_new_one():
    node = union()
    spec = node.hosted.spec
    node.brings("old", 0, 3, frame=1, begins=0)
    node.brings("third", 0, 2, frame=1, begins=0)
    node.brings("old", 3, 3, frame=2)
    was = list(node.fed)
    assert node.says("old", Moved(request=5, stream="q.fa", node="new", epoch=2)) == ""
    node.brings("new", 6, 2, frame=1, begins=6)
    records = [record for data in node.logs for record in unpack(data)[0]]
    decisions = [each for record in records for each in record.decisions()]
    assert {each.peer for each in decisions} == {"old", "third", "new"}
    saved = {node.only: Saved(record=None, logs={}, decisions=decisions)}
    again = Node(None, catalog=node.on_disk(), saved=saved, incarnation=2)
    assert again.hosted.repeating == len(decisions)
    again.brings("third", 0, 2, frame=1, begins=0)
    again.brings("new", 0, 8, frame=1, begins=0)
    assert again.hosted.repeating == 0
    assert again.fed == [*was, 6, 7]
    assert spec.feeds != again.hosted.spec.feeds


def test_a_stream_that_moves_while_decisions_are_done_again():
    node = union()
    node.brings("old", 0, 3, frame=1, begins=0)
    node.brings("third", 0, 2, frame=1, begins=0)
    node.brings("old", 3, 3, frame=2)
    was = list(node.fed)
    records = [record for data in node.logs for record in unpack(data)[0]]
    decisions = [each for record in records for each in record.decisions()]
    saved = {node.only: Saved(record=None, logs={}, decisions=decisions)}
    again = Node(None, catalog=node.on_disk(), saved=saved, incarnation=2)
    again.brings("old", 0, 2, frame=1, begins=0)
    assert 0 < again.hosted.repeating <= len(decisions)
    assert again.says("old", Moved(request=5, stream="q.fa", node="new", epoch=2)) == ""
    assert again.attach_of("new").next_seq == 2
    again.brings("new", 2, 6, frame=1, begins=2)
    again.brings("third", 0, 2, frame=1, begins=0)
    assert again.fed == [*was, 6, 7]
    assert again.hosted.repeating == 0


# --- the old owner ------------------------------------------------------------------------------------


def test_the_old_owner_tells_its_readers_until_they_know_also_after_a_restart():
    node = downstream()
    [sink] = node.hosted.outputs
    stream = node.hosted.spec.streams[sink]
    client = Hello(version=1, node="client-1", incarnation=1, client=True)
    node.brain.receive(0, "client-1", client)
    plain = Attach(stream=stream, epoch=3, next_seq=0, durable=0, granted=CREDIT, plain=True)
    assert node.says("client-1", plain) is None
    node.sent.clear()
    node.disk = False
    hosted = node.brain.fragments[node.only]
    name = node.only
    node.brain.commands.diverting.left(0, hosted, "new", 2)
    del node.brain.fragments[name]
    node.settle()
    [(to, refusal)] = [(to, each) for to, each in node.sent if isinstance(each, Refuse)]
    assert (to, refusal.code, refusal.stream, refusal.epoch) == ("client-1", "E_MOVED", stream, 3)
    assert "'new'" in refusal.hint
    assert not [1 for _, each in node.sent if isinstance(each, Moved)], "not before it is on disk"
    node.written()
    told = [(to, each) for to, each in node.sent if isinstance(each, Moved)]
    assert [(to, each.node, each.epoch) for to, each in told] == [("down", "new", 2)]
    node.sent.clear()
    node.passes(ASK_AGAIN_US)
    assert [each for _, each in node.sent if isinstance(each, Moved)] == [told[0][1]]
    again = Node(None, catalog=node.on_disk(), incarnation=2)
    [first] = [each for to, each in again.sent if isinstance(each, Moved) and to == "down"]
    assert first.request > told[0][1].request
    again.disk = True
    assert again.says("down", Reply(request=first.request, code="E_BUSY")) is None
    assert again.brain.catalog.left[name].untold
    assert again.says("down", Reply(request=first.request)) is None
    assert again.on_disk().left[name].untold == ()
    again.sent.clear()
    again.passes(3 * ASK_AGAIN_US)
    assert not [1 for _, each in again.sent if isinstance(each, Moved)]
    late = Attach(stream=stream, epoch=9, next_seq=0, durable=0, granted=CREDIT)
    [pointed] = [each for each in again.say("down", late) if isinstance(each, Moved)]
    assert (pointed.request, pointed.node, pointed.epoch) == (0, "new", 2)
    again.brain.receive(again.now_us, "client-1", client)
    assert again.says("client-1", msgspec.structs.replace(plain, epoch=4)) == "E_MOVED"
    spec = msgspec.structs.replace(hosted.spec)
    install = Install(request=99, query="q", fragment=name)
    assert again.says("up", install, fragment_to(spec)) == "E_MOVED", "an old word of its coordinator"
    assert again.says("up", Remove(request=100, query="q")) == ""
    assert again.on_disk().left == {}
    assert again.says("client-1", msgspec.structs.replace(plain, epoch=5)) == "E_STREAM"


# --- the coordinator ----------------------------------------------------------------------------------


def coordinator() -> Node:
    node = Node(None)
    node.brain.receive(0, "client-1", Hello(version=1, node="client-1", incarnation=1, client=True))
    node.settle()
    plan = cut(query().graph, {"up": ["flows", "f"], "old": ["g", "h"], "down": ["out"]})
    node.brain.commands.coordinator.deploy(0, "client-1", 1, plan)
    node.settle()
    return node


def runs(node: Node) -> Node:
    for to, each in list(node.sent):
        if isinstance(each, Install):
            assert node.says(to, Reply(request=each.request)) is None
    assert node.brain.catalog.deployments["q"].state == "running"
    return node


PLACED = Placed(request=7, query="q", fragment=FRAGMENT, node="new")


def test_a_coordinator_knows_where_a_fragment_may_be_before_it_is_there():
    node = runs(coordinator())
    node.disk = False
    assert node.says("old", PLACED) is None
    node.written()
    node.disk = True
    assert node.on_disk().deployments["q"].nodes == ("up", "old", "down", "new")
    assert node.says("old", PLACED) == ""
    assert node.on_disk().deployments["q"].nodes == ("up", "old", "down", "new")
    assert ("q.h", "old") in node.brain.catalog.deployments["q"].streams
    there = msgspec.structs.replace(PLACED, request=1, streams=("q.h",))
    assert node.says("new", there) == ""
    assert node.brain.catalog.elsewhere()["q.h"] == ["new"]
    node.sent.clear()
    assert node.says("client-1", Remove(request=2, query="q")) is None
    told = [to for to, each in node.sent if isinstance(each, Remove)]
    assert sorted(told) == ["down", "new", "old", "up"]


def test_a_query_that_goes_or_comes_takes_no_new_node():
    node = coordinator()
    assert node.says("old", PLACED) == "E_BUSY"
    runs(node)
    assert node.says("third", PLACED) == "E_READER", "it has no part of it"
    assert node.says("old", msgspec.structs.replace(PLACED, request=8, node="stranger")) == "E_PEER"
    node.say("client-1", Remove(request=2, query="q"))
    assert node.says("old", msgspec.structs.replace(PLACED, request=9)) == "E_REMOVED"
    assert node.says("old", msgspec.structs.replace(PLACED, request=10, query="p")) == "E_REMOVED"


def test_a_fragment_that_was_taken_after_its_query_was_removed_goes_too():
    """The target had nothing of the query yet when it was told to forget it, and the owner was cut off."""
    federation = Federation(5, ["up", "old", "new", "down"])
    federation.start()
    client = federation.client("reader", "down")
    at = {"up": AT["up"], "old": AT["n"], "down": AT["down"]}
    assert federation.answer(client, client.deploy(query(), at))[0].code == ""
    brains = {name: node.brain for name, node in federation.nodes.items()}
    [name] = brains["old"].fragments
    network, mover = federation.network, federation.client("mover", "old")
    federation.run(for_us=300_000)
    network.cut("old", "new", hold=True)
    mover.do(lambda mind: mind.request(lambda n: Move(request=n, fragment=name, to="new", timeout_ms=4000)))
    going = brains["old"].commands.sliding.moves
    deployment = brains["down"].catalog.deployments["q"]
    assert federation.run(lambda: "new" in deployment.nodes and going.moving(name))
    federation.run(for_us=20_000)
    for one, other in (("down", "old"), ("old", "down")):
        network.cut(one, other)
    request = client.undeploy("q")
    assert federation.run(lambda: not brains["up"].fragments)
    federation.run(for_us=20_000)
    network.heal("old", "new", hold=True)
    assert federation.run(lambda: name in brains["new"].fragments), federation.last()
    for one, other in (("down", "old"), ("old", "down")):
        network.heal(one, other)
    assert federation.answer(client, request)[0].code == ""
    assert federation.run(lambda: not any(brain.catalog.fragments for brain in brains.values()))
    federation.run(for_us=3_000_000)
    for brain in brains.values():
        assert not brain.fragments
        catalog = brain.catalog
        assert [*catalog.fragments, *catalog.owners, *catalog.left, *catalog.expected] == []
        assert catalog.ownership.unplaced == {}


def test_a_target_that_dies_before_its_coordinator_knows_tells_it_when_it_is_back():
    federation = Federation(6, ["up", "old", "new", "down"])
    federation.start()
    client = federation.client("reader", "down")
    at = {"up": AT["up"], "old": AT["n"], "down": AT["down"]}
    assert federation.answer(client, client.deploy(query(), at))[0].code == ""
    nodes, network = federation.nodes, federation.network
    [name] = nodes["old"].brain.fragments
    mover = federation.client("mover", "old")
    mover.do(lambda mind: mind.request(lambda n: Move(request=n, fragment=name, to="new", timeout_ms=4000)))
    assert federation.run(lambda: nodes["new"].brain.commands.sliding.shadow(name) is not None)
    for one, other in (("down", "new"), ("new", "down")):
        network.cut(one, other)
    assert federation.run(lambda: name not in nodes["old"].brain.fragments), federation.last()
    nodes["new"].crash()
    for one, other in (("down", "new"), ("new", "down")):
        network.heal(one, other)
    assert "q.h" in nodes["down"].brain.catalog.elsewhere()
    assert nodes["down"].brain.catalog.elsewhere()["q.h"] == ["old"]
    nodes["new"].restart()
    assert federation.run(lambda: nodes["down"].brain.catalog.elsewhere()["q.h"] == ["new"])
    assert federation.run(lambda: nodes["new"].brain.catalog.ownership.unplaced == {})


# --- who may say what ---------------------------------------------------------------------------------

ALL = [EXPECT, UNEXPECT, Release(request=3, query="q", stream="q.f", reader="old"), MOVED, PLACED]
ALL.append(Follow(request=4, query="q", stream="q.f", node="new"))


@pytest.mark.parametrize("message", ALL, ids=lambda each: type(each).__name__)
def test_clients_and_nodes_of_other_participants_divert_nothing(message):
    node = Keyed()
    for name in ("maker", "near", "core", "nobody"):
        node.hello(name)
    before = node.state()
    for client in ("maker", "nobody"):
        with pytest.raises(RemoteProtocolError) as caught:
            node.say(client, message)
        assert caught.value.code == "E_ROLE"
    assert node.answer("core", message) == "E_NO_CONTRACT"
    assert node.state() == before


def test_the_tests_hold_each_message_of_the_room():
    assert {type(each) for each in ALL} == set(get_args(DivertMessage))
