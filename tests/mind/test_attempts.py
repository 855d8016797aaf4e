"""Words of attempts that are over, answers that are lost, and who owns a fragment whatever comes late."""

from __future__ import annotations

from medusa.wire.codec import decode_frame
from medusa.wire.messages_divert import Placed
from tests.mind.moved import FRAGMENT, World


def without(world, lost):
    """What ``lost(source, target, message)`` is true of never arrives."""
    send = world.fed.network.send

    def between(source, target, frames):
        message, _ = decode_frame([memoryview(bytes(each)) for each in frames])
        if not lost(source, target, message):
            send(source, target, frames)

    world.fed.network.send = between


def test_who_moved_it_on_before_its_coordinator_knew_owes_it_no_word():
    """It kept in its catalog for ever that it had to tell it."""
    world = World()
    without(
        world, lambda source, _, message: source == "m2" and isinstance(message, Placed) and message.streams
    )
    assert world.move("m2")[0].code == ""
    kept = world.fed.nodes["m2"].brain.catalog.ownership
    assert kept.unplaced == {FRAGMENT: "e"}
    assert world.move("m1", at="m2")[0].code == ""
    world.check()
    assert kept.unplaced == {}
