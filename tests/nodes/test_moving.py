"""Fragments move: hostile words, and a death at each step of it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.state.checkpoint import crc32c
from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment.change_feed import PASSED, ChangeFeed
from medusa.nodes.fragment.input_log_records import LOST
from medusa.nodes.fragment.inputs import Work
from medusa.nodes.migration.standby import ReaderPosition
from medusa.nodes.migration.state_receiver import StateReceiver
from medusa.query.types import schema_to_arrow
from medusa.runtime.engine_host.group_names import group_name
from medusa.sim.actors.federation import Federation
from medusa.wire.codec import decode_frame
from medusa.wire.link.automaton import LinkEvent, ReceiverState
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import Fed, FedTogether, Got, Handover, Move, Piece, Receive, Standing, Whole
from medusa.wire.outbox import CloseFragment, Outbox
from tests.nodes.moved import FRAGMENT, NODES, SCHEMA, World

# --- one move -------------------------------------------------------------------------------------


def test_it_goes_there_and_back_and_leaves_nothing():
    world = World()
    reply, figures = world.move("m2")
    assert reply == Reply(request=reply.request)
    assert figures["node"] == "m2"
    assert figures["attempts"] == 1
    assert figures["bytes"] > 1000
    assert 0 < figures["pause_us"] < 50_000
    assert world.where == ["m2"]
    there = group_name(FRAGMENT, 0)[:-12]
    world.fed.run(lambda: not any(n.startswith(there) for n in world.fed.nodes["m1"].disk.names()))
    assert not any(name.startswith(there) for name in world.fed.nodes["m1"].disk.names())
    reply, figures = world.move("m1", at="e")  # The coordinator passes it on.
    assert (reply.code, figures["node"]) == ("", "m1")
    assert world.owners == {1: "m1", 2: "m2", 3: "m1"}
    world.check()


@pytest.mark.parametrize("to", ["e", "c"])
def test_two_neighbouring_fragments_end_on_one_node(to):
    world = World()
    assert world.move(to)[0].code == ""
    assert world.where == [to]
    world.check()


def test_between_both_its_neighbours_and_away_again():
    world = World(at={"e": ["cars", "f", "g", "out"], "m1": ["mean"]})
    assert world.move("e")[0].code == ""
    assert world.where == ["e"]
    assert world.move("m2", at="m2")[0].code == ""
    assert world.owners == {1: "m1", 2: "e", 3: "m2"}
    world.check()


def test_where_another_fragment_reads_the_same_stream_it_does_not_go_and_no_second_attempt_is_made():
    q = md.Query("q")
    fast = q.source("cars", SCHEMA, time="ts").filter("speed > 0", name="f")
    q.sink("all", fast.filter("speed > 1", name="mean"))
    q.sink("few", fast.filter("speed > 2", name="other"))
    fed = Federation(1, NODES)
    fed.start()
    client = fed.client("mover", "m1")
    deploy = client.deploy(q, {"e": ["cars", "f"], "m1": ["mean"], "m2": ["other"], "c": ["all", "few"]})
    assert fed.answer(client, deploy)[0].code == ""
    [upstream] = fed.nodes["e"].brain.fragments.values()
    before = upstream.spec
    number = client.mind.request(lambda n: Move(request=n, fragment=FRAGMENT, to="m2", timeout_ms=60_000))
    client.do(lambda mind: None)
    begun_us = fed.world.now_us
    reply, _ = fed.answer(client, number)
    assert (reply.code, reply.hint) == ("E_MOVE", "move it to a node that doesn't read that stream")
    assert "another fragment at node 'm2' reads stream" in reply.text
    assert fed.world.now_us - begun_us < 1_000_000
    assert upstream.spec == before
    assert not fed.nodes["m1"].brain.catalog.ownership.moves


def test_asked_twice_it_is_done_once_and_where_it_is_already_nothing_happens():
    world = World()
    numbers = [world.order("m2"), world.order("m2")]
    replies = [world.fed.answer(world.client("m1"), number)[0] for number in numbers]
    assert [reply.code for reply in replies] == ["", ""]
    reply, figures = world.move("m2", at="m2")
    assert (reply.code, figures["attempts"]) == ("", 0)
    assert world.owners == {1: "m1", 2: "m2"}
    world.check()


def test_who_moved_it_says_nothing_against_an_order_that_is_passed_on_again():
    world = World()
    send, lost = world.fed.network.send, []

    def lose(source, target, frames):
        message, _ = decode_frame([memoryview(bytes(each)) for each in frames])
        if (source, target, type(message)) == ("m1", "e", Reply) and world.where == ["m2"] and not lost:
            lost.append(message)
            return
        send(source, target, frames)

    world.fed.network.send = lose
    sliding = world.fed.nodes["e"].brain.orders
    where, sliding._where = sliding._where, lambda fragment: "m1"  # News of where it is are late.
    number, client = world.order("m2", at="e"), world.client("e")
    assert not world.fed.run(lambda: number in client.mind.replies, for_us=5_000_000)
    assert lost
    sliding._where = where
    reply, figures = world.fed.answer(client, number)
    assert (reply.code, msgspec.json.decode(figures)["node"]) == ("", "m2")
    world.check()


def test_the_figures_come_from_who_moved_it_also_when_news_of_where_it_is_came_first():
    world = World()
    number, client = world.order("m2", at="e"), world.client("e")
    assert world.fed.run(lambda: world.where == ["m1", "m2"])
    [relayed] = world.fed.nodes["e"].brain.orders._relayed
    relayed.to = "m2"
    _, figures = world.fed.answer(client, number)
    assert msgspec.json.decode(figures)["attempts"] == 1
    world.check()


def test_the_target_says_that_it_has_it_once_its_disk_does():
    world = World()
    world.order("m2")
    assert world.fed.run(lambda: world.where == ["m1", "m2"])
    hosted = world.fed.nodes["m2"].brain.fragments[FRAGMENT]
    assert hosted.frozen
    reply, _ = world.move("m2", at="m2")
    assert (reply.code, hosted.frozen) == ("", False)
    world.check()


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ({"to": "nobody"}, "E_PEER"),
        ({"fragment": "q/meen"}, "E_FRAGMENT"),
        ({"fragment": "other/mean", "at": "c"}, "E_FRAGMENT"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(order, code):
    world = World()
    reply, _ = world.move(**{"to": "m2", **order})
    assert reply.code == code
    assert reply.text
    assert world.where == ["m1"]
    world.check()


def test_a_node_without_a_disk_takes_nothing():
    world = World(memory=("m2",))
    reply, _ = world.move("m2")
    assert (reply.code, world.where) == ("E_STORE", ["m1"])
    world.check()


def test_undeployed_after_a_move_nothing_of_it_is_left():
    world = World()
    assert world.move("m2")[0].code == ""
    reply, _ = world.fed.answer(world.publisher, world.publisher.undeploy("q"))
    assert reply.code == ""
    assert all(not node.brain.fragments for node in world.fed.nodes.values())


# --- hostile words --------------------------------------------------------------------------------


def once(struct, **changes):
    """The first message of this kind comes with other fields."""
    left = [1]

    def hear(message, payload):
        if isinstance(message, struct) and left:
            left.clear()
            message = msgspec.structs.replace(message, **changes)
            payload = b"\xc1" if isinstance(message, Standing) else payload
        elif struct is Fed and isinstance(message, FedTogether) and left:
            left.clear()
            first = msgspec.structs.replace(message.fed[0], **changes)
            message = msgspec.structs.replace(message, fed=(first, *message.fed[1:]))
        return message, payload

    return hear


@pytest.mark.parametrize(
    "hear",
    [
        once(Piece, crc=1),
        once(Piece, offset=1),
        once(Piece, nbytes=1),
        once(Piece, file="another"),
        once(Whole, files=7),
        once(Fed, number=1 << 40),
        once(Fed, source="nothing"),
        once(Fed, next_seq=0),
        once(Fed, kind=3, number=1),
        once(Standing),
        once(Handover, decided=1 << 40),
    ],
    ids=lambda hear: None,
)
def test_a_frame_that_cannot_be_ends_the_attempt_and_the_next_one_succeeds(hear):
    world = World(hear=hear)
    reply, figures = world.move("m2", timeout_ms=5000)
    assert (reply.code, figures["attempts"]) == ("", 2)
    world.check()


@pytest.mark.parametrize("kind", [Receive, Piece, Whole, Fed | FedTogether, Handover])
def test_a_frame_that_is_lost_or_comes_twice_is_sent_again_or_dropped(kind):
    left, again = [1], []

    def hear(message, payload):
        if isinstance(message, kind) and left:
            left.clear()
            return None
        again.append((message, payload))
        return message, payload

    world = World(hear=hear)
    reply, figures = world.move("m2", timeout_ms=5000)
    assert (reply.code, figures["attempts"]) == ("", 1)
    assert not left, "there was one"
    assert again
    target = world.fed.nodes["m2"].brain
    for message, payload in again:  # All of it once more, late: nothing changes.
        if type(message).__module__.endswith("messages.move"):
            target.receive(target._now_us, "m1", message, payload)
    assert not target.orders.status().under_way
    world.check()


@pytest.mark.parametrize(
    "message",
    [
        Whole(fragment=FRAGMENT, attempt=1, ticket=1, frame=0, files=1),
        Handover(fragment=FRAGMENT, attempt=1, ticket=1, frame=0, decided=0),
        Receive(fragment=FRAGMENT, attempt=1, epoch=2, coordinator="e"),
    ],
)
def test_clients_may_not_say_what_owners_say(message):
    """Nor may nodes of other participants: tests/nodes/test_message_rights.py."""
    world = World()
    world.client("m2")
    world.fed.run(for_us=50_000)
    brain = world.fed.nodes["m2"].brain
    with pytest.raises(RemoteProtocolError) as raised:
        brain.receive(brain._now_us, "mover-m2", message, b"")
    assert raised.value.code == "E_ROLE"


def test_what_ends_before_it_is_handed_over_has_never_been():
    world = World()
    world.order("m2", timeout_ms=1)
    owner = world.fed.nodes["m1"].brain
    going = owner.orders.moves.status
    assert world.fed.run(lambda: FRAGMENT in going() and going()[FRAGMENT].state == "copying")
    target = world.fed.nodes["m2"]
    assert world.fed.run(lambda: target.brain.orders.arrivals.shadow(FRAGMENT) is not None)
    assert going()[FRAGMENT].state == "copying"
    owner._spread(owner._now_us, "m2", LinkEvent.PEER_DOWN)
    owner._spread(owner._now_us, "m2", LinkEvent.PEER_UP)
    assert world.fed.run(lambda: not owner.orders.status().going)
    assert world.owners == {1: "m1"}
    assert [report.what for report in target.reports if report.level == "error"] == []
    world.check()


# --- deaths ---------------------------------------------------------------------------------------

STEP = 60
TURNS = 170
"""At least so many turns has either node until a move that nothing breaks is over."""


def dies(node, turn, unsynced):
    world = World(kill=(node, turn), unsynced=unsynced)
    world.move_under_count()
    world.check()


@pytest.mark.parametrize("turn", range(6, TURNS, STEP))
@pytest.mark.parametrize("node", ["m1", "m2"])
def test_a_death_at_a_step(node, turn):
    dies(node, turn, ("lost", "kept", "torn")[turn // STEP % 3])


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("unsynced", ["lost", "kept", "torn"])
@pytest.mark.parametrize("node", ["m1", "m2", "e", "c"])
def test_a_death_at_every_step(node, unsynced):
    for turn in range(1, TURNS):
        dies(node, turn, unsynced)


def test_what_was_handed_over_to_a_node_that_is_lost_waits_until_it_is_granted():
    world = World()
    world.order("m2")
    owner, target = (world.fed.nodes[name] for name in ("m1", "m2"))
    assert world.fed.run(lambda: owner.brain.catalog.ownership.moves.get(FRAGMENT, None) is not None)
    assert world.fed.run(lambda: owner.brain.catalog.ownership.moves[FRAGMENT].handing)
    held = owner.brain.fragments[FRAGMENT]
    assert not held.frozen  # Not before its disk says so.
    assert world.fed.run(lambda: held.frozen)
    order = owner.brain.orders.moves._orders[FRAGMENT]
    assert world.fed.run(lambda: order.token <= owner.brain._saver.durable)
    target.crash()
    world.fed.run(for_us=3_000_000)
    assert owner.brain.fragments[FRAGMENT].frozen
    assert world.grant("m2", at="m1").code == "E_GRANT"
    assert world.grant("m1", at="m1").code == ""
    assert world.fed.run(lambda: not owner.brain.fragments[FRAGMENT].frozen)
    assert world.grant("m1", at="m1").code == "E_GRANT"
    assert owner.brain.catalog.ownership.epoch(FRAGMENT) == 3
    target.restart()
    world.check()


def test_who_comes_while_it_is_handed_on_is_noticed_and_not_let_in():
    """A publisher that was let in then believed for ever that this node took its rows."""
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    fed = Federation(1, NODES)
    fed.start()
    client = fed.client("p", "m1")
    assert fed.answer(client, client.deploy(q, {"m1": ["rows", "out"]}))[0].code == ""
    schema = q.graph.boxes[0].schema
    client.publish("q.rows", pa.table({"v": [1, 2]}).cast(schema_to_arrow(schema)), schema)
    fed.run(lambda: fed.nodes["m1"].brain.fragments["q/rows"].rows_in == 2)
    number = client.mind.request(lambda n: Move(request=n, fragment="q/rows", to="m2", timeout_ms=60_000))
    client.do(lambda mind: None)
    assert fed.answer(client, number)[0].code == ""
    now_us, hosted = fed.world.now_us, fed.nodes["m2"].brain.fragments["q/rows"]
    [publisher] = hosted.inputs.values()
    assert publisher.silent_since_us is not None
    hosted.freeze()
    hosted.open_publisher(now_us, "p", "rows", schema)
    assert publisher.receiver.state is ReceiverState.IDLE
    hosted.peer_event(now_us, "p", LinkEvent.PEER_UP)
    assert publisher.silent_since_us is None, "it would not hear where the fragment went"
    hosted.thaw(now_us)
    assert publisher.receiver.state is ReceiverState.ATTACHING


def test_that_it_moved_is_no_error_to_whoever_is_told():
    world = World()
    assert world.move("m2", at="e", fragment="q/cars")[0].code == ""
    told = [report for report in world.fed.nodes["e"].reports if report.fields.get("code") == "E_MOVED"]
    assert {report.what for report in told} >= {"stream refused"}
    assert {report.level for report in told} == {"info"}


def test_who_went_elsewhere_is_not_waited_for_after_a_restart_from_an_older_checkpoint():
    """Rows were kept for it for ever, and no later move of that reader was possible."""
    world = World()
    assert world.fed.run(lambda: "q.out" in world.reader.ended, for_us=20_000_000)
    upstream = world.fed.nodes["e"]
    world.fed.run(for_us=200_000)  # The last checkpoint names m1 as who reads.
    assert world.move("m2")[0].code == ""
    world.fed.run(for_us=200_000)
    upstream.crash("lost")
    upstream.restart()
    world.fed.run(for_us=1_000_000)
    [fragment] = upstream.brain.fragments.values()
    [output] = fragment.outputs.values()
    assert set(output.sender.receivers) == {"m2"}
    assert world.move("m1")[0].code == ""
    world.check()


# --- bounds ---------------------------------------------------------------------------------------


def test_the_target_cannot_acknowledge_what_was_not_sent():
    world = World()
    world.order("m2")
    brain = world.fed.nodes["m1"].brain
    orders = brain.orders.moves._orders
    assert world.fed.run(lambda: FRAGMENT in orders and orders[FRAGMENT].handing is not None)
    order = orders[FRAGMENT]
    handing, ticket = order.handing, order.handing._about["ticket"]
    for frames in (handing._frame + 1, 1 << 40):
        got = Got(fragment=FRAGMENT, attempt=order.attempt, ticket=ticket, frames=frames, opened=True)
        handing.got(world.fed.world.now_us, got)
        assert not handing.opened
    assert world.fed.run(lambda: world.where == ["m2"])
    world.check()


def test_what_the_owner_says_of_readers_is_bounded_and_its_notes_come_along():
    world = World()
    world.order("m2")
    arrivals = world.fed.nodes["m2"].brain.orders.arrivals
    assert world.fed.run(lambda: arrivals.shadow(FRAGMENT) is not None)
    shadow = arrivals.shadow(FRAGMENT)
    [(sink, output)] = shadow.outputs.items()
    shadow.standing(
        0, {sink: {"c": ReaderPosition(1 << 60, False, b"note")}, "nothing": {"c": ReaderPosition(0)}}
    )
    view = output.sender.receivers["c"]
    assert (view.durable, view.note) == (output.sender.log.next_seq, b"note")


def test_files_stay_until_the_disk_says_that_another_has_the_fragment():
    world = World()
    brain = world.fed.nodes["m1"].brain
    moves = brain.orders.moves
    moves._closing.append((brain._saver.durable + 1, "q/gone"))
    for token, closed in [(brain._saver.durable, []), (brain._saver.durable + 1, ["q/gone"])]:
        brain._saver._durable = token
        brain.outbox.take()
        moves.tick(world.fed.world.now_us)
        assert [each.fragment for each in brain.outbox.take() if isinstance(each, CloseFragment)] == closed


def test_rows_that_are_lost_are_a_decision_of_their_own_and_a_position_is_none():
    tap = ChangeFeed()
    tap.begins(1, 0)
    for number in (3, -1):
        input = SimpleNamespace(receiver=SimpleNamespace(note=b""))
        work = Work(input, None, next_seq=5, boundary_us=0, cost=0)
        work.number = number
        tap.fed(work)
    assert [(each.kind, each.number) for each in tap.queue] == [(LOST, 3), (PASSED, -1)]


def filled():
    return StateReceiver(
        SimpleNamespace(name=FRAGMENT),
        owner="m1",
        attempt=1,
        epoch=2,
        coordinator="e",
        ticket=7,
        make=None,
        outbox=Outbox(),
    )


@pytest.mark.parametrize("reader", [[-1, False, b""], [1 << 63, False, b""], [0, False, bytes(20_000)]])
def test_readers_that_cannot_be_end_the_attempt(reader):
    data = msgspec.msgpack.encode([{"out": {"c": reader}}])
    with pytest.raises(RemoteProtocolError, match="no readers"):
        filled().receive(0, Standing(fragment=FRAGMENT, attempt=1, ticket=7, frame=0), data)


def test_a_file_is_not_longer_than_was_said():
    taking = filled()
    about = {"fragment": FRAGMENT, "attempt": 1, "ticket": 7, "file": "rows", "nbytes": 4}
    for frame, data in enumerate([b"abc", b"d"]):
        piece = Piece(frame=frame, offset=3 * frame, crc=crc32c(data), **about)
        taking.receive(0, piece, data)
    with pytest.raises(RemoteProtocolError, match="longer than was said"):
        taking.receive(0, Piece(frame=2, offset=4, crc=crc32c(b"e"), **about), b"e")
