"""What a target has in memory of the checkpoints that come to it."""

from __future__ import annotations

import msgspec

from medusa.engine.state.checkpoint import crc32c
from medusa.runtime.engine_host.budgets import NEVER, EngineBounds
from medusa.wire.messages.move import Piece
from tests.nodes.moved import FRAGMENT, World
from tests.nodes.test_moving import filled


def huge(message, payload):
    """A checkpoint of over a GiB, as it says."""
    if isinstance(message, Piece):
        message = msgspec.structs.replace(message, nbytes=(1 << 30) + 1)
    return message, payload


def test_a_checkpoint_larger_than_the_memory_of_the_target_is_refused():
    world = World(hear=huge)
    reply, _ = world.move("m2")
    assert (reply.code, world.where) == ("E_MEMORY", ["m1"])
    assert "has 1 GiB of state; node 'm2' takes 1 GiB at once: raise limits.memory of 'm2'" in reply.text
    world.check()


def test_checkpoints_that_come_at_once_fit_the_memory_together_or_one_waits():
    """It goes on by itself when there is room; a fragment that runs from its checkpoint counts no more."""
    world = World()
    arrivals, other = world.fed.nodes["m2"].brain.orders.arrivals, filled()
    about = {"fragment": FRAGMENT, "attempt": 1, "ticket": 7, "file": "rows", "nbytes": 1 << 30}
    other.receive(0, Piece(frame=0, offset=0, crc=crc32c(b"e"), **about), b"e")
    other.heard_us = 1 << 60
    other._ack_at_us = None  # Nobody drives it: the node would wake for its word for ever.
    arrivals._takings["other"] = other
    reply, _ = world.move("m2")
    assert (reply.code, world.where) == ("E_BUSY", ["m1"])
    assert "and others that come have 1 GiB; node 'm2' takes 1 GiB at once" in reply.text
    other.persisted(0, 0, True, "")
    other._ack_at_us = None
    assert world.move("m2")[0].code == ""
    del arrivals._takings["other"]
    world.check()


def test_state_over_the_budget_of_the_target_is_refused_and_the_query_goes_on_where_it_is():
    world = World()
    budgets = world.fed.nodes["m2"].loop._host._budgets
    budgets.bounds = EngineBounds(query_bytes=10_000, owner_bytes=NEVER, piece_us=NEVER)
    reply, _ = world.move("m2")
    assert (reply.code, world.where) == ("E_MEMORY", ["m1"])
    assert "node 'm2' has no room for it: query 'q' holds" in reply.text
    assert "allowed are 9.8 KiB (query_memory)" in reply.text
    assert not any(node.brain.catalog.remote.stopped for node in world.fed.nodes.values())
    assert budgets._queries == {}
    budgets.bounds = EngineBounds(query_bytes=NEVER, owner_bytes=NEVER, piece_us=NEVER)
    assert world.move("m2")[0].code == ""
    world.check()
