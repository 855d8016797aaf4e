"""Who reads a fragment that moves, and who had it: a stream goes on at its row, whoever dies."""

from __future__ import annotations

import msgspec

import medusa as md
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.input_log_records import unpack
from medusa.nodes.placement.placement import cut
from medusa.nodes.requests import AGAIN_US
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.messages.links import Ack, Attach, Hello, Progress, Refuse
from medusa.wire.messages.rerouting import Expect, Follow, Moved
from tests.nodes.diverted import CREDIT, SCHEMA, Node, query, spec_at, train

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


def test_who_had_the_stream_may_ask_to_read_it_before_it_is_answered_that_it_went():
    """Its question that came later is about something else: the earlier one is not late by that."""
    node = downstream()
    expect = Expect(request=9, query="q", stream="q.f", like="old", reader="third", epoch=2)
    assert node.says("old", expect) == "E_STREAM"
    assert node.says("old", MOVED) == ""
    assert node.hosted.spec.feeds[0].node == "new"


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
    node.brain.diverting.moving = lambda fragment: True
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
    saved = {node.only: SavedCheckpoint(record=None, logs={}, decisions=decisions)}
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
    saved = {node.only: SavedCheckpoint(record=None, logs={}, decisions=decisions)}
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
    client = Hello(version=PROTOCOL_VERSION, node="client-1", incarnation=1, client=True)
    node.brain.receive(0, "client-1", client)
    plain = Attach(stream=stream, epoch=3, next_seq=0, durable=0, granted=CREDIT, plain=True)
    assert node.says("client-1", plain) is None
    node.sent.clear()
    node.disk = False
    hosted = node.brain.fragments[node.only]
    name = node.only
    node.brain.diverting.left(0, hosted, "new", 2)
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
    node.passes(AGAIN_US)
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
    again.passes(3 * AGAIN_US)
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


def test_a_client_that_missed_that_a_stream_went_hears_it_when_it_says_anything():
    [whole] = cut(query().graph, {"n": ["flows", "f", "g", "h", "out"]}).at("n")
    node = Node(whole)
    client = Hello(version=PROTOCOL_VERSION, node="client-1", incarnation=1, client=True)
    node.brain.receive(0, "client-1", client)
    source, stream = whole.entries["flows"], whole.streams["out"]
    asks = Progress(stream=source, epoch=7, frames=3, pressed=False)
    assert node.says("client-1", asks) == "E_DETACHED", "it is here, and nothing of this publisher"
    assert node.says("up", asks) is None
    plain = Attach(stream=stream, epoch=3, next_seq=0, durable=0, granted=CREDIT, plain=True)
    node.says("client-1", plain)
    node.brain.diverting.left(0, node.hosted, "new", 2)
    del node.brain.fragments[node.only]
    node.settle()
    ack = Ack(stream=stream, epoch=3, frames=1, received=0, durable=0, granted=CREDIT)
    for peer, code in (("client-1", "E_MOVED"), ("up", None)):
        assert node.says(peer, ack) == code
        assert node.says(peer, asks) == code
    [refusal] = [each for each in node.say("client-1", asks) if isinstance(each, Refuse)]
    assert (refusal.stream, refusal.epoch) == (source, 7)
