"""A reader that goes from one replica of a stream to another says so by a new version of its own output.

Nothing makes replicas: where a test needs one, it writes what a node would have on its disk.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from medusa.elements import START_US
from medusa.errors import QueryError
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_from, fragment_to
from medusa.wire.messages.links import OLDEST, Attach, Attached, Heartbeat, Refuse
from tests.nodes.diverted import CREDIT, Node, spec_at
from tests.nodes.moved import FRAGMENT, World
from tests.nodes.parted import Parting
from tests.nodes.test_redirect import MOVED, downstream


def opens(node: Node, peer: str, *, version: int) -> None:
    """A peer that has this version of q.f answers the attachment, from the row that was asked for."""
    attach = node.attach_of(peer)
    source = node.hosted.spec.graph.boxes[0]
    message = Attached(
        stream=attach.stream,
        epoch=attach.epoch,
        next_seq=attach.next_seq,
        boundary_us=START_US,
        schema=source.schema,
        timed=source.judged and source.timed,
        stream_version=version,
    )
    node.say(peer, message)
    node.brain.tick(node.now_us)  # A driver does that after each message.
    node.settle()


def waits(node: Node) -> None:
    """A second passes, in which all are there."""
    for _ in range(10):
        node.passes(100_000)
        for peer in node.PEERS:
            node.say(peer, Heartbeat(incarnation=1))


def reads(node: Node, epoch: int) -> int:
    """``down`` attaches; the version that it is told."""
    attach = Attach(stream=out(node), epoch=epoch, next_seq=0, durable=0, granted=CREDIT)
    [attached] = [each for each in node.say("down", attach) if isinstance(each, Attached)]
    return attached.stream_version


def out(node: Node) -> str:
    [stream] = node.hosted.spec.streams.values()
    return stream


def told(node: Node) -> list[str]:
    """What ``down`` was refused."""
    return [each.code for to, each in node.sent if to == "down" and isinstance(each, Refuse)]


def listed(node: Node) -> list[int]:
    """The versions of its stream that the catalog has."""
    waits(node)
    return [each.stream_version for each in node.brain.naming.directory.versions("stream", out(node))]


def test_a_reader_that_changes_source_raises_its_version_once_and_tells_it_once_that_is_on_disk():
    node = downstream()
    node.brings("old", 0, 5, frame=1, begins=0)
    assert reads(node, 1) == 1
    assert node.says("old", MOVED) == ""
    assert node.attach_of("new").next_seq == 5, "it goes on from the same point"
    node.disk = False
    opens(node, "new", version=7)
    assert (told(node), listed(node)) == ([], [1]), "nobody hears what a crash could take back"
    assert node.hosted.spec.stream_version == 2
    node.disk = True
    node.written()
    assert told(node) == ["E_DETACHED"]
    assert (reads(node, 2), listed(node)) == (2, [2])
    node.brings("new", 5, 5, frame=1)
    assert node.fed == list(range(10))
    spec = node.on_disk().fragments[node.only]
    assert (spec.stream_version, spec.read_versions) == (2, {spec.feeds[0].source: 7})
    [shown] = node.brain.status(node.now_us)["fragments"]
    assert [each["stream_version"] for each in (*shown["inputs"], *shown["outputs"])] == [7, 2]
    again = Refuse(code="E_DETACHED", text="", stream="q.f", epoch=node.attach_of("new").epoch)
    node.say("new", again)
    assert node.attach_of("new").epoch > again.epoch
    opens(node, "new", version=7)
    waits(node)
    assert (node.hosted.spec.stream_version, told(node)) == (2, ["E_DETACHED"]), "once"


def test_neither_a_restart_nor_a_reconnection_raises_it_and_a_crash_before_the_disk_raises_it_again():
    node = downstream()
    opens(node, "old", version=1)
    node.checkpoint()
    assert node.hosted.spec.stream_version == 1
    assert node.says("old", MOVED) == ""
    before = node.on_disk()
    opens(node, "new", version=2)
    again = node.restarted()
    assert reads(again, 1) == 2, "before it is attached itself"
    for _ in range(2):
        opens(again, "new", version=2)
        waits(again)
        again.say("new", Refuse(code="E_DETACHED", text="", stream="q.f", epoch=again.attach_of("new").epoch))
    assert (again.hosted.spec.stream_version, told(again)) == (2, [])
    crashed = Node(None, catalog=before, saved=node.saved(), incarnation=2)
    assert reads(crashed, 1) == 1
    opens(crashed, "new", version=2)
    assert (told(crashed), reads(crashed, 2)) == (["E_DETACHED"], 2)


def test_a_new_version_is_above_those_of_all_replicas_and_comes_once_in_a_while():
    node = downstream()
    directory = node.brain.naming.directory
    versions = directory.versions
    directory.versions = lambda kind, name: [
        *versions(kind, name),
        *(msgspec.structs.replace(each, stream_version=5) for each in versions(kind, name)),
    ]
    opens(node, "old", version=2)
    assert node.hosted.spec.stream_version == 6
    for version in range(3, 9):  # As one that would keep us busy.
        node.say("old", Refuse(code="E_DETACHED", text="", stream="q.f", epoch=node.attach_of("old").epoch))
        opens(node, "old", version=version)
    assert node.hosted.spec.stream_version == 6
    waits(node)
    assert node.hosted.spec.stream_version == 7
    assert node.hosted.spec.read_versions == {node.hosted.spec.feeds[0].source: 8}


def test_what_says_no_version_has_the_first_and_is_written_as_before():
    spec = spec_at("n")
    raw = msgspec.msgpack.decode(fragment_to(spec))
    assert not {"stream_version", "read_versions"} & set(raw)
    assert fragment_from(fragment_to(spec)).stream_version == 1
    raised = msgspec.structs.replace(spec, stream_version=3, read_versions={spec.feeds[0].source: 2})
    assert fragment_from(fragment_to(raised)) == raised
    assert raised.as_deployed == spec
    for wrong in ({"read_versions": {"strange": 2}}, {"stream_version": 0}, {"read_versions": {"f": 0}}):
        with pytest.raises(QueryError):
            fragment_from(msgspec.msgpack.encode({**raw, **wrong}))


# --- from node to node ----------------------------------------------------------------------------------


def becomes_another(fed, name: str) -> None:
    """The node comes back as a replica with version 2 of its streams, at the same rows."""
    node = fed.nodes[name]
    catalog = node.brain.catalog
    for spec in list(catalog.fragments.values()):
        catalog.fragments[spec.name] = msgspec.structs.replace(spec, stream_version=2)
    node.brain._saver.save()
    node.brain.tick(fed.world.now_us)
    assert fed.run(lambda: node.brain.saved, for_us=1_000_000)
    node.crash()
    fed.run(for_us=30_000)
    node.restart()


def versions(fed) -> dict[str, set[int]]:
    nodes = ((name, node.brain.fragments.values()) for name, node in fed.nodes.items())
    return {name: {each.spec.stream_version for each in all_} for name, all_ in nodes if all_}


def seen(reader) -> int:
    """By the client that reads the result."""
    return reader.mind.subscriptions["q.out"].receiver.stream_version


def test_each_below_raises_its_own_and_a_plain_subscriber_sees_it_and_a_move_raises_nothing():
    world = World()
    named = world.fed.client("named", "c")
    named.do(lambda mind: mind.subscribe(world.fed.world.now_us, "q.out", OLDEST, name="mine"))
    assert world.fed.run(lambda: seen(named) == 1, for_us=1_000_000)
    assert seen(world.reader) == 1
    becomes_another(world.fed, "e")
    assert world.fed.run(lambda: seen(world.reader) == 2, for_us=10_000_000), world.fed.last()[-3000:]
    assert versions(world.fed) == {"e": {2}, "m1": {2}, "c": {2}}
    assert world.move("m2")[0].code == ""
    world.fed.run(for_us=2_500_000)
    world.fed.nodes["m2"].crash()
    world.fed.run(for_us=30_000)
    world.fed.nodes["m2"].restart()
    world.check()
    assert world.fed.run(lambda: "q.out" in named.ended, for_us=1_000_000)
    got = [pa.Table.from_batches(each.rows["q.out"]).to_pylist() for each in (named, world.reader)]
    assert len(got[0]) > 10
    assert got[0] == got[1][-len(got[0]) :], "from where it began"
    world.fed.run(for_us=2_500_000)
    assert (seen(world.reader), seen(named)) == (2, 2)
    assert versions(world.fed) == {"e": {2}, "m2": {2}, "c": {2}}
    directory = world.fed.nodes["c"].brain.naming.directory
    said = {each.name: (each.writer, each.stream_version) for each in directory.entries("stream")}
    assert said == {"q.f": ("e", 2), "q.mean": ("m2", 2), "q.out": ("c", 2)}
    [fragment] = world.fed.nodes["m2"].brain.fragments
    assert fragment == FRAGMENT


def test_a_box_that_is_split_or_merged_has_the_version_that_it_had():
    world = Parting()
    becomes_another(world.fed, "e")
    assert world.fed.run(lambda: seen(world.reader) == 2, for_us=10_000_000), world.fed.last()[-3000:]
    for order in (world.split, world.merge):
        assert world.told(order())[0].code == ""
        world.fed.run(for_us=2_500_000)
        assert versions(world.fed) == {"e": {2}, "m": {2}, "c": {2}}
        made: list[FragmentSpec] = [each.spec for each in world.fed.nodes["m"].brain.fragments.values()]
        assert all(set(each.read_versions) == {feed.source for feed in each.feeds} for each in made)
    world.check()
