"""The neighbours of a fragment that moves: rows are kept for the target, and it is undeployed there too."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import SentToItself
from medusa.query.boxes import Field
from medusa.sim.actors.federation import Federation
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.messages.links import Ack, Attach, Hello, OpenPublisher
from medusa.wire.messages.move import Move
from medusa.wire.messages.rerouting import (
    DivertMessage,
    Expect,
    Follow,
    Moved,
    Placed,
    Read,
    Release,
    Unexpect,
)
from tests.nodes.diverted import AT, CREDIT, FRAGMENT, Node, query, spec_at
from tests.nodes.keyed import Keyed

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
        hello = Hello(version=PROTOCOL_VERSION, node="client-1", incarnation=1, client=True)
        node.brain.receive(node.now_us, "client-1", hello)
        node.settle()
        source = next(box for box in node.hosted.spec.graph.boxes if not box.inputs)
        node.say("client-1", OpenPublisher(stream="q.flows", schema=source.schema))
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


def test_a_reader_that_comes_back_has_not_come_by_what_it_asks_as_it_was_before():
    """It handed the fragment over and hasn't heard that it was taken: the new owner lost its place."""
    node = upstream()
    reads(node, "old", epoch=1)
    publishes(node, 5)
    assert node.says("old", EXPECT) == ""
    reads(node, "new", epoch=1)
    back = msgspec.structs.replace(EXPECT, request=1, like="new", reader="old", epoch=3)
    assert node.says("new", back) == ""
    attach = Attach(stream="q.f", epoch=9, next_seq=0, durable=0, granted=CREDIT)
    for each in (node, node.restarted()):
        for epoch in (1, 2):
            assert each.says("old", msgspec.structs.replace(attach, fragment_epoch=epoch)) == "E_READER"
        assert kept(each) == (0, ["new", "old"])
    assert node.says("new", Unexpect(request=2, query="q", stream="q.f", reader="old")) == ""
    assert node.says("new", msgspec.structs.replace(back, request=3, epoch=4)) == ""
    assert node.says("new", msgspec.structs.replace(back, request=4, epoch=5)) == "", "another attempt"
    assert node.says("old", msgspec.structs.replace(attach, fragment_epoch=4)) == "E_READER"
    assert node.says("old", msgspec.structs.replace(attach, fragment_epoch=5)) is None
    assert kept(node) == (0, ["old"])
    assert node.says("old", msgspec.structs.replace(attach, epoch=10, fragment_epoch=4)) is None, "it reads"


def test_nobody_follows_a_reader_that_forgets():
    """Its rows are kept as far as its note says, which is its alone."""
    node = upstream()
    reads(node, "old", epoch=1)
    publishes(node, 5)
    view = node.hosted.outputs[only(node)].sender.receivers["old"]
    told = {"frames": view.frames, "received": view.sent_seq, "durable": 3, "granted": CREDIT}
    assert node.says("old", Ack(stream="q.f", epoch=1, note=b"seen", **told)) is None
    assert view.note == b"seen"
    assert node.says("old", EXPECT) == "E_READER"
    assert kept(node)[1] == ["old"]


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
    node.brain.diverting.moving = lambda fragment: True
    assert node.says("old", EXPECT) == "E_BUSY"
    assert node.says("old", UNEXPECT) == ""
    node.brain.diverting.moving = lambda fragment: False
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
    assert node.brain.diverting.busy(node.hosted.spec) != ""


def test_who_reads_it_already_or_is_about_to_does_not_read_it_for_another_one_too():
    node = upstream()
    node.hosted.spec = msgspec.structs.replace(node.hosted.spec, readers={only(node): ("old", "third")})
    to_third = msgspec.structs.replace(EXPECT, reader="third")
    reads(node, "old", epoch=1)
    reads(node, "third", epoch=1)
    assert node.says("old", to_third) == "E_MOVE"
    assert node.says("third", msgspec.structs.replace(EXPECT, like="third")) == ""
    assert node.says("old", msgspec.structs.replace(EXPECT, request=12)) == "E_BUSY", "third's is going there"
    assert node.says("old", msgspec.structs.replace(to_third, request=13)) == "E_BUSY", "it is going away"


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
    attach = Attach(stream="q.f", epoch=1, next_seq=0, durable=0, granted=CREDIT)
    node.brain.report(0, SentToItself(attach, None))
    node.settle()
    assert kept(node)[1] == ["n"]


# --- the coordinator ----------------------------------------------------------------------------------


def coordinator() -> Node:
    node = Node(None)
    node.brain.receive(
        0, "client-1", Hello(version=PROTOCOL_VERSION, node="client-1", incarnation=1, client=True)
    )
    node.settle()
    plan = cut(query().graph, {"up": ["flows", "f"], "old": ["g", "h"], "down": ["out"]})
    node.brain.coordinator.deploy(0, "client-1", 1, plan)
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
    assert node.brain.catalog.elsewhere()["q.h"] == ("new",)
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
    assert node.says("old", msgspec.structs.replace(PLACED, request=10, query="p")) == "E_QUERY"
    for to, each in list(node.sent):
        if isinstance(each, Remove):
            assert node.says(to, Reply(request=each.request)) is None
    assert node.brain.catalog.deployments == {}
    assert node.on_disk().removed == ("q",)
    assert node.says("old", msgspec.structs.replace(PLACED, request=11)) == "E_REMOVED"


def test_a_query_whose_deployment_is_undone_was_not_removed():
    """Before that its parts may have been there: their coordinator has lost its folder."""
    node = coordinator()
    [(to, install), *_] = [(to, each) for to, each in node.sent if isinstance(each, Install)]
    node.says(to, Reply(request=install.request, code="E_SPEC", text="no"))
    assert node.brain.catalog.deployments["q"].state == "removing"
    assert node.says("old", msgspec.structs.replace(PLACED, request=9)) == "E_BUSY"
    removals = [(to, each) for to, each in node.sent if isinstance(each, Remove)]
    assert {each.since for _, each in removals} == {node.brain.catalog.deployments["q"].began}
    for to, each in removals:
        assert node.says(to, Reply(request=each.request)) is None
    assert node.brain.catalog.deployments == {}
    assert node.says("old", msgspec.structs.replace(PLACED, request=10)) == "E_QUERY"


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
    going = brains["old"].orders.moves
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
        assert [*catalog.fragments, *catalog.owners, *catalog.left, *catalog.expected, *catalog.awaited] == []
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
    assert federation.run(lambda: nodes["new"].brain.orders.shadow(name) is not None)
    for one, other in (("down", "new"), ("new", "down")):
        network.cut(one, other)
    assert federation.run(lambda: name not in nodes["old"].brain.fragments), federation.last()
    nodes["new"].crash()
    for one, other in (("down", "new"), ("new", "down")):
        network.heal(one, other)
    assert "q.h" in nodes["down"].brain.catalog.elsewhere()
    assert nodes["down"].brain.catalog.elsewhere()["q.h"] == ("old",)
    nodes["new"].restart()
    assert federation.run(lambda: nodes["down"].brain.catalog.elsewhere()["q.h"] == ("new",))
    assert federation.run(lambda: nodes["new"].brain.catalog.ownership.unplaced == {})


# --- who may say what ---------------------------------------------------------------------------------

MOVED = Moved(request=5, stream="q.f", node="new", epoch=2)

ALL = [EXPECT, UNEXPECT, Release(request=3, query="q", stream="q.f", reader="old"), PLACED]
ALL += [Follow(request=4, query="q", stream="q.f", node="new"), MOVED]
ALL += [Read(request=6, query="r", source="s", stream="q.f", schema=(Field("v", "int64"),), timed=True)]


@pytest.mark.parametrize("message", ALL, ids=lambda each: type(each).__name__)
def test_clients_and_nodes_of_other_participants_divert_nothing_of_ours(message):
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
