"""Words of attempts that are over, answers that are lost, and who owns a fragment whatever comes late."""

from __future__ import annotations

import msgspec
import pytest

from medusa.nodes.migration.automaton import OwnerState, TargetState
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.sim.trials.moves import claims
from medusa.wire.codec import decode_frame
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Attach
from medusa.wire.messages.move import GiveUp, Got, Ready, Receive, Settle, Settled
from medusa.wire.messages.rerouting import Placed
from tests.nodes.moved import FRAGMENT, World


def listening(world, lost=lambda source, target, message: False):
    """(source, target, message, payload) of all that is said from now on; what is ``lost`` never arrives."""
    send, heard = world.fed.network.send, []

    def between(source, target, frames):
        message, payload = decode_frame([memoryview(bytes(each)) for each in frames])
        heard.append((source, target, message, payload))
        if not lost(source, target, message):
            send(source, target, frames)

    world.fed.network.send = between
    return heard


def said(heard, kind, source):
    """Words of a kind, with what came along."""
    return [
        (message, payload) for at, _, message, payload in heard if at == source and isinstance(message, kind)
    ]


def hears(node, peer, message, payload=None):
    """The node is told this."""
    node.order(lambda now_us: node.brain.receive(now_us, peer, message, payload))


def breaks(world, node, peer):
    """The node believes for a moment that a peer is gone."""
    brain = world.fed.nodes[node].brain
    for event in (LinkEvent.PEER_DOWN, LinkEvent.PEER_UP):
        world.fed.nodes[node].order(lambda now_us, event=event: brain._spread(now_us, peer, event))


def coming(node):
    """At which step of an attempt the target is; None: nothing comes."""
    comes = node.brain.orders.status().coming.get(FRAGMENT)
    return None if comes is None else comes.state


def going(node):
    """The order of the owner."""
    return node.brain.orders.moves._orders.get(FRAGMENT)


def test_who_moved_it_on_before_its_coordinator_knew_owes_it_no_word():
    """It kept in its catalog for ever that it had to tell it."""
    world = World()
    listening(world, lambda source, _, said: source == "m2" and isinstance(said, Placed) and said.streams)
    assert world.move("m2")[0].code == ""
    kept = world.fed.nodes["m2"].brain.catalog.ownership
    assert kept.unplaced == {FRAGMENT: "e"}
    assert world.move("m1", at="m2")[0].code == ""
    world.check()
    assert kept.unplaced == {}


def test_its_coordinator_is_told_where_it_is_also_after_an_attempt_to_move_it_on_that_came_to_nothing():
    """That attempt asks the coordinator under a later number, what has an earlier one is dropped there."""
    world, lost = World(), [True]
    listening(
        world, lambda source, _, said: lost and source == "m2" and isinstance(said, Placed) and said.streams
    )
    assert world.move("m2")[0].code == ""
    new, kept = world.fed.nodes["m2"], world.fed.nodes["m2"].brain.catalog.ownership
    world.order("m1", at="m2", timeout_ms=1)
    assert world.fed.run(lambda: coming(world.fed.nodes["m1"]) is not None)
    breaks(world, "m2", "m1")
    assert world.fed.run(lambda: going(new) is None)
    assert kept.unplaced == {FRAGMENT: "e"}
    lost.clear()
    assert world.fed.run(lambda: not kept.unplaced, for_us=3_000_000)
    assert dict(world.fed.nodes["e"].brain.catalog.deployments["q"].streams)["q.mean"] == "m2"
    world.check()


def test_it_is_not_taken_in_an_epoch_in_which_it_was_here_already():
    world = World()
    heard, target = listening(world), world.fed.nodes["m2"]
    assert world.move("m2")[0].code == ""
    assert world.move("m1", at="m2")[0].code == ""
    assert target.brain.catalog.left[FRAGMENT].epoch == 3
    [(receive, payload)] = said(heard, Receive, "m1")
    for attempt, epoch in enumerate([2, 3], start=1 << 20):
        hears(target, "m1", msgspec.structs.replace(receive, attempt=attempt, epoch=epoch), payload)
        answer, _ = said(heard, GiveUp, "m2")[-1]
        assert (answer.attempt, answer.code, coming(target)) == (attempt, "E_BUSY", None)
    hears(target, "m1", msgspec.structs.replace(receive, attempt=1 << 21, epoch=4), payload)
    assert coming(target) == "filling"
    world.fed.run(for_us=50_000)
    assert coming(target) is None, "the owner knows of no such attempt, and said so"
    world.check()


def test_who_does_not_know_yet_that_it_was_taken_does_not_take_it_back_by_asking_for_rows():
    """Its old place upstream was taken for that of the next owner, which the present one had just announced:
    that one had none any more, and was refused for ever."""
    world, deaf = World(), [True]
    heard = listening(world, lambda source, _, said: source == "m2" and isinstance(said, Settled) and deaf)
    world.order("m2")
    target, owner = world.fed.nodes["m2"], world.fed.nodes["m1"]
    assert world.fed.run(lambda: FRAGMENT in target.brain.fragments and coming(target) is None)
    world.die(owner)
    number, client = world.order("m1", at="m2", timeout_ms=20_000), world.client("m2")
    world.fed.run(lambda: number in client.mind.replies, for_us=3_000_000)
    asked = [said.fragment_epoch for said, _ in said(heard, Attach, "m1") if said.stream == "q.f"]
    assert asked
    assert {*asked} == {1}
    [upstream] = world.fed.nodes["e"].brain.fragments.values()
    [readers] = upstream.spec.readers.values()
    assert "m2" in readers
    assert world.where == ["m1", "m2"]
    deaf.clear()
    assert world.fed.answer(client, number)[0].code == ""
    assert world.owners == {1: "m1", 2: "m2", 3: "m1"}
    world.check()


def test_it_does_not_come_to_where_what_reads_the_same_stream_is_not_known_to_have_gone():
    """Of a node one fragment reads a stream: rows would come to both."""
    world = World()
    heard, target = listening(world), world.fed.nodes["m2"]
    assert world.move("m2")[0].code == ""
    [(receive, payload)] = said(heard, Receive, "m1")
    spec = fragment_from(payload)
    other = next(name for box in spec.graph.boxes if (name := f"q/{box.id}") != FRAGMENT)
    named = msgspec.structs.replace(receive, fragment=other, attempt=1 << 20)
    hears(target, "m1", named, fragment_to(msgspec.structs.replace(spec, name=other)))
    answer, _ = said(heard, GiveUp, "m2")[-1]
    assert (answer.fragment, answer.code) == (other, "E_BUSY")
    assert f"{FRAGMENT!r}, which is at node 'm2', reads a stream of {other!r}" in answer.text
    world.check()


def test_nothing_is_left_of_what_was_given_up_and_it_does_not_begin_again():
    world = World()
    heard, target = listening(world), world.fed.nodes["m2"]
    world.order("m2", timeout_ms=1)
    assert world.fed.run(lambda: coming(target) == "following")
    breaks(world, "m1", "m2")
    assert world.fed.run(lambda: coming(target) is None, for_us=100_000)
    [(receive, payload)] = said(heard, Receive, "m1")
    hears(target, "m1", receive, payload)
    assert coming(target) is None
    assert said(heard, GiveUp, "m2")[-1][0].attempt == receive.attempt
    assert world.owners == {1: "m1"}
    world.check()


def test_an_attempt_that_the_target_gave_up_is_not_held_against_those_that_it_makes_as_owner():
    """Each node numbers its own: the way back was refused until that of the new owner was past that one."""
    world = World()
    heard, owner, target = listening(world), world.fed.nodes["m1"], world.fed.nodes["m2"]
    world.order("m2", timeout_ms=5000)
    assert world.fed.run(lambda: coming(target) == "following")
    late = 1 << 20
    hears(owner, "m2", GiveUp(fragment=FRAGMENT, attempt=late, code="E_DISK", text="the disk failed"))
    assert world.fed.run(lambda: world.where == ["m2"])
    reply, figures = world.move("m1", at="m2", timeout_ms=5000)
    assert (reply.code, figures["attempts"]) == ("", 1)
    [(receive, _)] = said(heard, Receive, "m2")
    assert receive.attempt < late
    world.check()


def test_it_keeps_its_epoch_when_the_target_goes_before_the_disk_says_that_it_is_handed_over():
    """It went on in the next one, which the disk didn't have: after a crash it would have gone back."""
    world = World()
    listening(world)
    owner = world.fed.nodes["m1"]
    world.order("m2", timeout_ms=1)
    assert world.fed.run(lambda: going(owner) is not None and going(owner).state is OwnerState.HANDING)
    assert not owner.brain.fragments[FRAGMENT].frozen
    breaks(world, "m1", "m2")
    assert owner.brain.catalog.ownership.epoch(FRAGMENT) == 1
    world.die(owner)
    assert world.fed.run(lambda: going(owner) is None and FRAGMENT in owner.brain.fragments)
    assert world.move("m2")[0].code == ""
    assert world.where == ["m2"]
    world.check()


def test_words_of_an_earlier_attempt_change_nothing():
    world = World()
    heard, owner, target = listening(world), world.fed.nodes["m1"], world.fed.nodes["m2"]
    world.order("m2", timeout_ms=5000)
    assert world.fed.run(lambda: coming(target) == "following")
    first = going(owner).attempt
    about = {"fragment": FRAGMENT, "attempt": first}
    [(ready, _)] = said(heard, Ready, "m2")
    breaks(world, "m1", "m2")
    to_owner = [
        ready,
        Got(ticket=ready.ticket, frames=1, opened=True, **about),
        GiveUp(**about),
        Settled(taken=False, **about),
        Settled(taken=True, **about),
    ]
    to_target = [GiveUp(**about), Settle(gone=True, **about)]
    passed = set()

    def step():
        order = going(owner)
        if order is None or order.attempt == first:
            return None
        asked = order.state.value == "preparing" and order.questions
        return order.state.value, owner.brain.fragments[FRAGMENT].frozen, bool(asked), coming(target)

    def look():
        if (now := step()) is None or now in passed:
            return going(owner) is None
        passed.add(now)
        for word in to_owner:
            hears(owner, "m2", word)
            assert step() == now, word
        for word in to_target:
            hears(target, "m1", word)
            assert step() == now, word
        return False

    assert world.fed.run(look)
    assert {state for state, *_ in passed} >= {"preparing", "copying", "handing"}
    assert {frozen for _, frozen, *_ in passed} == {False, True}
    assert {at for *_, at in passed} >= {"filling", "following", "taking"}
    assert all(answer.attempt == first for answer, _ in said(heard, Settled, "m2") if not answer.taken)
    assert world.owners == {1: "m1", 2: "m2"}
    world.check()


@pytest.mark.parametrize("on", [None, "c"])
def test_who_took_it_says_so_also_after_its_restart_and_when_it_has_gone_on(on):
    world = World()
    owner, target = world.fed.nodes["m1"], world.fed.nodes["m2"]
    heard = listening(
        world, lambda source, _, said: source == "m2" and isinstance(said, Settled) and target.lives == 1
    )
    world.order("m2")
    assert world.fed.run(lambda: said(heard, Settled, "m2"))
    if on is not None:
        assert world.move(on, at="m2")[0].code == ""
    attempt = going(owner).attempt
    target.crash()
    target.restart()
    assert world.fed.run(lambda: going(owner) is None, for_us=5_000_000)
    assert world.where == [on or "m2"]
    for number in (attempt + 1, attempt):
        hears(target, "m1", Settle(fragment=FRAGMENT, attempt=number, gone=True))
        assert said(heard, Settled, "m2")[-1][0].taken is (number == attempt)
    world.check()


def test_a_grant_is_answered_once_it_is_on_disk():
    """Its operator was told so by a node that died then, and waited again when it was back."""
    world = World()
    owner, on_disk = world.fed.nodes["m1"], []

    def look(source, target, said):
        if (source, target) == ("m1", "mover-m1") and isinstance(said, Reply):
            on_disk.append(claims(owner, FRAGMENT))

    world.order("m2")
    assert world.fed.run(lambda: owner.brain.fragments[FRAGMENT].frozen)
    world.fed.nodes["m2"].crash()
    listening(world, look)
    assert world.grant("m1", at="m1").code == ""
    assert on_disk == [True]
    world.fed.nodes["m2"].restart()
    world.check()


@pytest.mark.parametrize("to", ["m1", "m2"])
def test_what_runs_needs_no_grant(to):
    world = World()
    reply = world.grant(to, at="e")
    assert (reply.code, reply.text) == (
        "E_GRANT",
        f"fragment {FRAGMENT!r} runs at node 'm1' and needs no grant",
    )
    assert world.where == ["m1"]


def test_what_is_being_taken_stays_when_another_fragment_of_its_query_ends_there():
    world = World()
    arrivals = world.fed.nodes["m2"].brain.orders.arrivals

    def is_taken():
        taking = arrivals._takings.get(FRAGMENT)
        return taking is not None and taking.state is TargetState.TAKING

    world.order("m2")
    assert world.fed.run(is_taken)
    world.fed.nodes["m2"].brain.orders.removed("q", ["another"], whole=False)
    assert world.fed.run(lambda: world.where == ["m2"], for_us=20_000_000)
    world.check()
