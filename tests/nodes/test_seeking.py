"""What the catalog says of a fragment that moved, after the death of whoever could say it otherwise."""

from __future__ import annotations

import pyarrow as pa
import pytest

from medusa.nodes.migration.upstream_search import SILENT_US, UpstreamSearch
from medusa.nodes.names.advertise import SAVE_EVERY_US
from medusa.sim.checkers.names import names_agree
from medusa.sim.trials.queries import difference
from tests.nodes.moved import FRAGMENT, World
from tests.nodes.test_redirect import downstream


def said_at(node):
    """Owner and epoch, as the catalog of a node says."""
    directory = node.brain.naming.directory
    return {
        (entry.kind, entry.name): (entry.writer, entry.epoch)
        for entry in directory.entries()
        if entry.kind in ("fragment", "stream") and entry.name in (FRAGMENT, "q.mean")
    }


def test_the_epoch_of_what_moved_outlives_the_restart_of_its_owner():
    world = World()
    assert world.move("m2")[0].code == ""
    world.fed.run(for_us=1_000_000)
    for name in ("m1", "m2"):
        world.fed.nodes[name].crash()
        world.fed.run(for_us=500_000)
        world.fed.nodes[name].restart()
        # Until the files of all say no more that the old owner had it, in an epoch below.
        world.fed.run(for_us=2 * SAVE_EVERY_US)
        assert world.fed.run(lambda: names_agree(world.fed.nodes.values()), for_us=20_000_000)
        for node in world.fed.nodes.values():
            assert set(said_at(node).values()) == {("m2", 2)}, node.name
    world.check()


def lost_owner(*, untold):
    """A move after which the old owner dies for good, before its neighbours have heard of it."""
    world = World()
    send, nodes = world.fed.network.send, world.fed.nodes

    def between(source, target, frames):
        if source == "m1" and target in untold:
            return  # Nothing that it says reaches them any more.
        send(source, target, frames)

    world.order("m2")
    assert world.fed.run(lambda: FRAGMENT in nodes["m2"].brain.catalog.fragments)
    world.fed.network.send = between
    assert world.fed.run(lambda: nodes["m2"].brain.saved)
    nodes["m1"].crash()
    return world


def test_readers_of_an_owner_that_is_lost_find_the_stream_where_the_catalog_says():
    world = lost_owner(untold=("e", "c"))
    reader = world.fed.nodes["c"].brain
    assert [feed.node for hosted in reader.fragments.values() for feed in hosted.spec.feeds] == ["m1"]
    assert world.fed.run(lambda: "q.out" in world.reader.ended, for_us=60_000_000), world.fed.last()[-3000:]
    assert [(f.node, f.epoch) for h in reader.fragments.values() for f in h.spec.feeds] == [("m2", 2)]
    got = pa.Table.from_batches(world.reader.rows["q.out"], world.want.schema)
    assert difference(got, world.want) is None


def test_the_owner_that_comes_back_after_all_is_no_owner_any_more():
    world = lost_owner(untold=("e", "c"))
    assert world.fed.run(lambda: "q.out" in world.reader.ended, for_us=60_000_000), world.fed.last()[-3000:]
    del world.fed.network.send
    world.fed.nodes["m1"].restart()
    assert world.fed.run(lambda: world.where == ["m2"], for_us=20_000_000)
    world.check()


# --- one feed -----------------------------------------------------------------------------------------


class Entry:
    def __init__(self, writer, epoch):
        self.writer, self.epoch = writer, epoch


class Played:
    """A fragment that reads ``s`` of ``old`` in epoch 2, and what the catalog says."""

    def __init__(self, said, *, up=("new",)):
        self.up, self.said, self.followed = set(up), said, []
        self.inputs, self.spec = {}, self
        self.name = "q/x"
        self.feeds = [self]
        self.source, self.node, self.stream, self.epoch = "in", "old", "s", 2
        self.seeking = UpstreamSearch({"q/x": self}, is_up=lambda node: node in self.up, follow=self.follow)
        self.seeking.directory = self

    def find(self, kind, name):
        assert (kind, name) == ("stream", "s")
        return self.said

    def follow(self, now_us, feed, node, epoch):
        self.followed.append((node, epoch))

    def after(self, *seconds):
        for second in seconds:
            self.seeking.tick(second * 1_000_000)
        return self.followed


AWAY_S = range(SILENT_US // 1_000_000 + 2)


class Starting(Played):
    """``old`` is there, and knows nothing of the stream."""

    def __init__(self, said, *, code="E_STREAM"):
        super().__init__(said, up=("new", "old"))
        self.receiver, self.refusal = self, type("Refusal", (), {"code": code})()
        self.inputs = {("in", "old"): self}


def test_who_is_away_is_replaced_at_once_by_whom_the_catalog_says():
    assert Played(Entry("new", 3)).after(0) == [("new", 3)]


def test_who_knows_nothing_of_the_stream_is_waited_for():
    played = Starting(Entry("new", 3))
    assert played.after(*range(SILENT_US // 1_000_000)) == []
    assert played.after(*AWAY_S)[0] == ("new", 3)


def test_a_sender_that_knows_the_stream_again_is_waited_for_anew():
    played = Starting(Entry("new", 3))
    played.after(0, 1, 2, 3)
    refusal, played.refusal = played.refusal, None
    played.after(4)
    played.refusal = refusal
    assert played.after(5, 6, 7, 8, 9) == []
    assert played.after(10) == [("new", 3)]


@pytest.mark.parametrize(
    ("said", "up"),
    [
        (None, ["new"]),
        (Entry("new", 2), ["new"]),
        (Entry("new", 1), ["new"]),
        (Entry("old", 3), ["new"]),
        (Entry("new", 3), []),
        (Entry("new", 3), ["new", "old"]),
    ],
    ids=["unknown", "same epoch", "older", "itself", "away too", "nobody is silent"],
)
def test_who_is_not_followed(said, up):
    assert Played(said, up=up).after(*range(30)) == []


@pytest.mark.parametrize(("code", "follows"), [("E_STREAM", True), ("E_BUSY", False)])
def test_a_sender_that_knows_nothing_of_the_stream_is_replaced_in_the_end(code, follows):
    assert bool(Starting(Entry("new", 3), code=code).after(*AWAY_S)) is follows


class Abroad(Played):
    """``old`` and ``new`` are bob's; what his nodes publish is found after a while."""

    def __init__(self, **more):
        super().__init__(Entry("ours", 9), **more)
        self.asked = []
        self.seeking._whose, self.seeking._ours = {"old": "bob"}.get, "alice"
        self.seeking.abroad = self.seek

    def reads(self):
        """Feeds of sources with ``of=``, by source."""
        return {self.source: self} if self.stream.count(".") > 1 else {}

    def seek(self, now_us, participant, stream, then):
        self.asked.append((now_us // 1_000_000, participant, stream))
        self.then = then
        return True


def test_a_stream_of_another_participant_is_looked_for_where_that_publishes_it():
    played = Abroad()
    assert played.after(*range(16)) == [], "our catalog has another stream of that name"
    assert played.asked == [(5, "bob", "s"), (10, "bob", "s"), (15, "bob", "s")]
    for node, epoch in (("new", 2), ("old", 3), ("away", 3)):
        played.then(0, node, epoch)
    assert played.followed == []
    played.then(0, "new", 3)
    assert played.followed == [("new", 3)]


def test_of_what_a_query_reads_by_itself_the_sink_is_looked_for():
    played = Abroad()
    played.stream = "q.out.alice.r.s"
    played.after(*range(6))
    assert played.asked == [(5, "bob", "q.out")]


def test_what_is_found_too_late_is_not_followed():
    played = Abroad(up=("new",))
    played.after(*range(6))
    played.up.add("old")
    played.after(6)
    played.then(0, "new", 3)
    assert played.followed == []


def test_our_catalog_says_nothing_of_streams_of_other_participants():
    for whose, node in (("bob", "old"), ("local", "new")):
        played = downstream()
        diverting = played.brain.diverting
        diverting.whose = {"old": whose}.get
        [feed] = played.hosted.spec.feeds
        assert feed.node == "old"
        diverting._follow(0, feed, "new", 7)
        assert [each.node for each in played.hosted.spec.feeds] == [node]


def test_another_participant_takes_its_stream_to_its_own_nodes_only():
    for whose, node in (({"old": "bob", "new": "bob"}, "new"), ({"old": "bob", "new": "eve"}, "old")):
        played = downstream()
        diverting = played.brain.diverting
        diverting.whose = whose.get
        played.brain.catalog.owners["q"] = "old"
        [feed] = played.hosted.spec.feeds
        diverting._follow(0, feed, "new", 7)
        assert [each.node for each in played.hosted.spec.feeds] == [node]
