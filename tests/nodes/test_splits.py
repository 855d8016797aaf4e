"""Boxes of deployed queries are split and merged: every kind, and a death at each step."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from medusa.nodes import fragments
from medusa.nodes.repartition import job
from medusa.nodes.repartition.job import has_all
from medusa.nodes.reports import StopRequested
from medusa.runtime.engine_host.group_names import group_token
from medusa.runtime.node import loop
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.move import Move
from tests.nodes.parted import KINDS, Parting

FEW = ("window", "passing", "joined", "united", "timers", "called", "table", "looked_up")
PARTS = ["q/box-1", "q/box-2", "q/box-3"]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in FEW else [pytest.mark.full, pytest.mark.issue(6)])
        for kind in KINDS
    ],
)
def test_split_and_merged_while_rows_flow_it_gives_the_sequence_of_one_program(kind):
    world = Parting(kind)
    before = world.fragments
    reply, told = world.told(world.split())
    assert reply.code == "", reply
    assert told["node"] == "m"
    assert set(PARTS) < set(told["fragments"]) <= set(world.fragments)
    assert not set(before) & set(told["fragments"])
    world.fed.run(for_us=40_000)
    names = world.fed.nodes["m"].disk.names()
    assert not any(group_token(fragment, name) for fragment in before for name in names), "its files go"
    reply, told = world.told(world.merge())
    assert reply.code == "", reply
    assert len(told["fragments"]) == 1
    assert len(world.fragments) == len(before)
    world.check()


def dies(what, turn, unsynced, kind="united"):
    """``m`` dies so many turns after the order to split or merge; whether it was over before."""
    world = Parting(kind, unsynced=unsynced)
    if what == "merge":
        assert world.told(world.split())[0].code == ""
        world.fed.run(for_us=20_000)
    before = world.fragments
    world.kill, world.counting = turn, True
    number = world.split() if what == "split" else world.merge()
    world.fed.run(lambda: number in world.orderer.mind.replies, for_us=60_000)
    world.counting = False
    over = world.kill > 0
    world.fed.run(lambda: world.fed.nodes["m"].alive, for_us=60_000)
    world.fed.run(for_us=5_000)
    one, parted = (before, world.fragments) if what == "split" else (world.fragments, before)
    assert len(one) in (1, 5)
    assert set(PARTS) < set(parted) or parted == one
    assert len(world.fragments) in (1, 5)
    world.check()
    return over


@pytest.mark.parametrize("kind", ["united", "timers", "table", "looked_up"])
@pytest.mark.parametrize("unsynced", ["lost", "kept"])
@pytest.mark.parametrize(("what", "turn"), [("split", 14), ("merge", 14)])
def test_whenever_its_node_dies_the_box_is_whole_or_in_parts(what, turn, unsynced, kind):
    dies(what, turn, unsynced, kind)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("kind", ["united", "timers", "table", "looked_up"])
@pytest.mark.parametrize("unsynced", ["lost", "kept", "torn"])
@pytest.mark.parametrize("what", ["split", "merge"])
def test_at_each_turn(what, unsynced, kind):
    """Up to one at which the order is done."""
    assert any(dies(what, turn, unsynced, kind) for turn in range(1, 240))


def test_what_goes_past_the_box_has_not_the_name_of_what_another_node_sends():
    """A look-up reads what its table is changed by, and stands below: two nodes sent a stream of one name."""
    world = Parting("table")
    reply, _ = world.told(world.split())
    assert reply.code == "", reply
    specs = [hosted.spec for hosted in world.fed.nodes["m"].brain.fragments.values()]
    sent = [stream for spec in specs for stream in spec.streams.values()]
    read = {feed.stream for spec in specs for feed in spec.feeds if feed.node != "m"}
    assert read == {"q.all_rows"}
    assert "q.all_rows.below.box" in sent
    assert not read & set(sent)
    reply, _ = world.told(world.merge())
    assert reply.code == "", reply
    world.check()


# --- what is refused, and what comes in between -----------------------------------------------------


def state(world):
    """What must not have changed."""
    brain = world.fed.nodes["m"].brain
    return {
        name: (hosted.spec, hosted.frozen, [o.sender.muted for o in hosted.outputs.values()])
        for name, hosted in brain.fragments.items()
    }, brain.catalog.ownership.epochs


def refused(world, number, code, why, client=None):
    reply, _ = world.told(number, client)
    assert (reply.code, reply.text) == (code, reply.text)
    assert why in reply.text


def test_what_is_refused_changes_nothing():
    world = Parting()
    before = state(world)
    refused(world, world.split(box="last", fragment="q/box"), "query.box", "has no box 'last'")
    refused(world, world.split(fragment="q/nothing"), "E_FRAGMENT", "knows no fragment 'q/nothing'")
    refused(world, world.split(200), "E_MEMORY", "go beyond its memory")
    refused(world, world.merge(fragment="q/box"), "query.split", "isn't split")
    assert state(world) == before
    world.check()


@pytest.mark.parametrize(("short", "code"), [(1, "E_LIMIT"), (0, "")])
def test_there_is_room_for_all_new_fragments_together_or_for_none(monkeypatch, short, code):
    """Each alone had to fit, so that a node took more than it has room for."""
    world = Parting()
    monkeypatch.setattr(fragments, "FRAGMENTS_MAX", len(world.fragments) + 4 - short)
    before = state(world)
    reply, _ = world.told(world.split())
    assert reply.code == code
    assert (state(world) == before) == bool(code)


@pytest.mark.parametrize(("short", "code"), [(1, "E_MEMORY"), (0, "")])
def test_there_is_memory_for_the_links_between_all_of_them_or_for_none(short, code):
    world = Parting()
    brain = world.fed.nodes["m"].brain
    limits = brain.settings.limits
    used = sum(hosted.streams_in for hosted in brain.fragments.values())
    more = 3 + 3  # The router has the input of the box before; the parts have one each, the merge three.
    memory = (used + more) * limits.credit_bytes - short
    object.__setattr__(limits, "memory_bytes", memory)
    assert world.told(world.split())[0].code == code


def test_two_boxes_that_are_split_at_once_have_room_together(monkeypatch):
    world = Parting("joined", at={"e": ["rows", "all_rows"], "m": ["few", "rest", "box"], "c": ["out"]})
    splits = world.fed.nodes["m"].brain.orders.splits
    asked = []
    monkeypatch.setattr(splits, "_room", lambda *made, gone: asked.append((len(made), len(gone))))
    world.split()
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["writing"], for_us=100_000)
    [job] = splits._jobs
    splits.check_room(job.plan)
    assert asked == [(5, 1), (5, 1), (10, 2)]


def test_while_it_is_split_it_is_not_moved_nor_split_again_and_asked_twice_it_is_done_once():
    world = Parting()
    other = world.fed.client("other", "m")
    number = world.split(client=other)
    splits = world.fed.nodes["m"].brain.orders.splits
    assert world.fed.run(lambda: bool(splits.status()), for_us=100_000)
    again = world.split(fragment="q/box", client=other)
    move = other.mind.request(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=500))
    other.do(lambda mind: None)
    refused(world, again, "E_BUSY", "is being split or merged", other)
    refused(world, move, "E_BUSY", "is being split or merged", other)
    first, told = world.told(number, other)
    assert first.code == ""
    assert splits.known("other", number)
    assert not splits.known("other", number + 3)
    assert msgspec.json.decode(splits._completed._answers["other", number][1]) == told
    world.check()


def test_a_disk_that_fails_leaves_the_box_whole():
    world = Parting()
    before = world.fragments
    disk = world.fed.nodes["m"].disk
    number = world.split()
    splits = world.fed.nodes["m"].brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["writing"], for_us=100_000)
    disk.fail_next = 1
    refused(world, number, "E_DISK", "failed")
    assert world.fragments == before
    assert not state(world)[0]["q/box"][1], "it goes on"
    world.fed.run(for_us=200_000)
    node = world.fed.nodes["m"]
    assert {name for name in node.loop._host._running if name} == set(before), (
        "nothing new is left to the engine"
    )
    names = disk.names()
    assert not any(group_token(f"q/box-{part}", name) for part in (1, 2, 3, "router") for name in names)
    for output in node.brain.fragments["q/box"].outputs.values():
        assert output.sender._fetch == output.spilling._missing, "who reads from disk asks who is there"
    world.check()


def test_what_does_not_arrive_is_waited_for_only_so_long(monkeypatch):
    world = Parting("passing")
    assert world.told(world.split())[0].code == ""
    before = world.fragments
    monkeypatch.setattr(job, "DRAIN_US", 100_000)
    monkeypatch.setattr(loop, "OWN_MAX", 0)  # Nothing that the node sends to itself arrives.
    world.fed.run(for_us=10_000)
    number = world.merge()
    assert world.fed.run(lambda: number in world.orderer.mind.replies, for_us=500_000)
    refused(world, number, "E_TIMEOUT", "rows on their way did not arrive")
    monkeypatch.setattr(loop, "OWN_MAX", 64)
    assert world.fragments == before
    assert not any(hosted.frozen for hosted in world.fed.nodes["m"].brain.fragments.values())
    assert world.told(world.merge())[0].code == ""
    world.check()


@pytest.mark.parametrize(
    ("fed", "sent", "all_of_it"),
    [((3, 7), (3, 7), True), ((3, 7), (4, 7), False), ((3, 7), (3, 8), False)],
)
def test_what_was_sent_has_arrived_when_its_rows_have_and_its_boundary(fed, sent, all_of_it):
    log = SimpleNamespace(next_seq=sent[0], boundary_us=sent[1])
    sends = SimpleNamespace(
        outputs={"a": SimpleNamespace(stream="q.a", sender=SimpleNamespace(log=log))}, inputs={}
    )
    reads = SimpleNamespace(peer="m", stream="q.a", fed_seq=fed[0], fed_us=fed[1])
    elsewhere = SimpleNamespace(peer="e", stream="q.a", fed_seq=0, fed_us=0)
    hosted = SimpleNamespace(inputs={"reads": reads, "elsewhere": elsewhere}, outputs={})
    assert has_all("m", hosted, [hosted, sends]) == all_of_it


def test_the_new_fragments_begin_where_the_old_one_stood():
    world = Parting(at={"e": ["rows", "all_rows", "box"], "c": ["last", "out"]})
    brain = world.fed.nodes["e"].brain
    [old] = brain.fragments.values()
    old._entries.fed_us["rows"] = 5  # As if the publisher had promised something.
    splits = brain.orders.splits
    number = world.split(fragment=old.spec.name)
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["writing"], for_us=100_000)
    [job] = splits._jobs
    assert [dict(each.fed_us) for each in job.news.values() if each.fed_us] == [dict(old.fed_us)]
    stand = {o.stream: o.sender.log.boundary_us for each in job.news.values() for o in each.outputs.values()}
    read = {i.stream: i.fed_us for each in job.news.values() for i in each.inputs.values() if i.judged}
    assert len(read) == 6
    assert read == {stream: stand[stream] for stream in read}
    assert min(read.values()) > 0
    assert world.told(number)[0].code == ""
    world.check()


def test_each_split_and_merge_raises_the_epoch():
    world = Parting()
    kept = world.fed.nodes["m"].brain.catalog.ownership
    for epoch, order in enumerate([world.split, world.merge, world.split], start=2):
        _, told = world.told(order())
        assert {kept.epoch(name) for name in told["fragments"]} == {epoch}
        assert set(kept.epochs) == set(told["fragments"])
    feeds = [feed for h in world.fed.nodes["m"].brain.fragments.values() for feed in h.spec.feeds]
    assert {feed.epoch for feed in feeds if feed.node == "m"} == {4}
    world.check()


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_catalog_that_cannot_be_written_leaves_all_as_it_was(what, dies):
    """The fragments of neither side went on, for as long as the disk was full."""
    world = Parting()
    node = world.fed.nodes["m"]
    if what == "merge":
        assert world.told(world.split())[0].code == ""
    before, epochs = world.fragments, dict(node.brain.catalog.ownership.epochs)
    number = world.split() if what == "split" else world.merge()
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["switching"], for_us=100_000)
    assert world.fragments == before, "the others are there once the disk says so"
    node.disk.full = True
    assert world.fed.run(lambda: number in world.orderer.mind.replies, for_us=500_000)
    refused(world, number, "E_DISK", "can't write its catalog")
    assert (world.fragments, node.brain.catalog.ownership.epochs) == (before, epochs)
    assert not any(hosted.frozen for hosted in node.brain.fragments.values())
    refused(world, world.split() if what == "split" else world.merge(), "E_DISK", "the disk")
    world.fed.run(for_us=20_000)
    if dies:
        node.crash("kept")
    node.disk.full = False
    if dies:
        node.restart()
        assert world.fragments == before
    world.fed.run(lambda: node.brain.saved, for_us=20_000_000)
    assert world.told(world.split() if what == "split" else world.merge())[0].code == ""
    assert world.fragments != before
    world.check()


@pytest.mark.parametrize("step", ["asking", "cutting", "writing", "switching"])
def test_a_query_that_is_removed_meanwhile_leaves_nothing(step):
    world = Parting()
    node = world.fed.nodes["m"]
    number = world.split()
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == [step], for_us=100_000)
    node.order(lambda now_us: node.brain.installed.drop("q"))
    reply, _ = world.told(number)
    assert reply.code == "E_REMOVED"
    world.fed.run(for_us=50_000)
    assert (world.fragments, splits.status()) == ([], ())
    assert [name for name in node.disk.names() if not name.startswith(("node-", "life-"))] == []
    world.fed.run(for_us=200_000)


def test_a_node_that_stops_in_the_middle_finds_the_box_whole():
    world = Parting()
    node = world.fed.nodes["m"]
    before = world.fragments
    number = world.split()
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["writing"], for_us=100_000)
    node.order(lambda now_us: node.brain.report(now_us, StopRequested()))
    refused(world, number, "E_BROKEN", "node 'm' ends")
    assert world.fed.run(lambda: node.brain.stopped)
    node.crash()
    node.restart()
    assert world.fragments == before
    world.check()


def test_upstream_lets_nothing_go_before_the_record_is_on_disk():
    world = Parting()
    node = world.fed.nodes["m"]
    splits = node.brain.orders.splits
    before = world.fragments
    world.split()
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["writing"], for_us=100_000)
    node.slowness = 10  # The record takes long enough for words to get to the neighbour.
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["switching"])
    world.fed.run(for_us=3_000)
    assert [each.state for each in splits.status()] == ["switching"]
    node.crash()
    node.slowness = 1
    node.restart()
    assert world.fragments == before
    world.check()


def test_what_is_on_its_way_between_the_parts_arrives_before_they_are_merged(monkeypatch):
    world = Parting("passing")
    assert world.told(world.split())[0].code == ""
    splits = world.fed.nodes["m"].brain.orders.splits
    monkeypatch.setattr(loop, "OWN_MAX", 0)  # Nothing that the node sends to itself arrives.
    world.fed.run(for_us=10_000)
    number = world.merge()
    world.fed.run(for_us=30_000)
    assert [each.state for each in splits.status()] == ["draining"]
    monkeypatch.setattr(loop, "OWN_MAX", 64)
    assert world.told(number)[0].code == ""
    world.check()


def test_a_part_that_attaches_while_all_come_to_rest_gets_what_is_on_its_way(monkeypatch):
    """The router rested already and didn't let it in: they waited for ten seconds, and went on as they were.
    Nor do they wait for checkpoints that begin meanwhile."""
    world = Parting("passing")
    assert world.told(world.split())[0].code == ""
    monkeypatch.setattr(loop, "OWN_MAX", 0)  # Nothing that the node sends to itself arrives.
    world.fed.run(for_us=10_000)
    number = world.merge()
    node = world.fed.nodes["m"]
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["draining"], for_us=100_000)
    for input in node.brain.fragments["q/box-2"].inputs.values():
        node.order(lambda now_us, input=input: input.receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED))
    world.fed.run(for_us=20_000)
    written = [hosted.checkpoints for hosted in node.brain.fragments.values()]
    world.fed.run(for_us=200_000)
    assert [hosted.checkpoints for hosted in node.brain.fragments.values()] == written
    monkeypatch.setattr(loop, "OWN_MAX", 64)
    assert world.told(number)[0].code == ""
    world.check()


def test_what_the_merge_holds_back_leaves_when_it_goes():
    world = Parting("passing", every=0)
    world.publish(0, 11)
    assert world.told(world.split())[0].code == ""
    world.publish(11, 2)  # Older than what came: they move no boundary, so the merge holds them.
    world.fed.run(for_us=20_000)
    got = sum(map(len, world.reader.rows["q.out"]))
    assert world.told(world.merge())[0].code == ""
    world.fed.run(for_us=20_000)
    assert sum(map(len, world.reader.rows["q.out"])) > got
    world.publish(13, world.rows.num_rows - 13)
    world.finish()
    world.check()
