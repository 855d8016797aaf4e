"""Two neighbouring fragments are to move at once: neither holds the other up."""

from __future__ import annotations

import msgspec
import pytest

from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Receive
from tests.nodes.moved import World

AT = {"e": ["cars", "f"], "m1": ["mean"], "m2": ["g"], "c": ["out"]}
BOTH = [("q/mean", "m1", "c"), ("q/g", "m2", "e")]
"""What feeds, what reads it; where each is, and where it is to go."""


def moved(world, orders, gap_us=0):
    """Order them one after the other; the attempts of each, and when both were done."""
    begun_us, numbers = world.fed.world.now_us, []
    for fragment, at, to in orders:
        numbers.append((at, world.order(to, at=at, fragment=fragment, timeout_ms=20_000)))
        world.fed.run(for_us=gap_us)
    attempts = []
    for at, number in numbers:
        reply, figures = world.fed.answer(world.client(at), number)
        assert reply.code == "", reply
        attempts.append(msgspec.json.decode(figures)["attempts"])
    return attempts, world.fed.world.now_us - begun_us


@pytest.mark.parametrize("orders", [BOTH, BOTH[::-1]])
@pytest.mark.parametrize("gap_us", [0, 300, 1_500, 4_000, 9_000])
def test_both_are_done_in_the_time_of_a_few_moves(orders, gap_us):
    world = World(at=AT)
    attempts, took_us = moved(world, orders, gap_us)
    assert sum(attempts) <= 5
    assert took_us < 2_000_000
    world.check()


def test_who_waits_for_one_that_takes_long_does_not_ask_all_the_time():
    world = World(at=AT)
    send, until_us = world.fed.network.send, world.fed.world.now_us + 3_000_000

    def lose(source, target, frames):
        message, _ = decode_frame([memoryview(bytes(each)) for each in frames])
        if not isinstance(message, Receive) or target != "c" or world.fed.world.now_us > until_us:
            send(source, target, frames)

    world.fed.network.send = lose
    attempts, took_us = moved(world, BOTH, 2_000)
    assert attempts[0] == 1
    assert 3 <= attempts[1] <= 6
    assert took_us < 3_000_000 + 4_000_000
    world.check()


def test_what_feeds_a_fragment_on_its_way_waits_and_begins_once():
    world = World(at=AT)
    number = world.order("e", at="m2", fragment="q/g", timeout_ms=20_000)
    going = world.fed.nodes["m2"].brain.orders.moves
    assert world.fed.run(lambda: [each.state for each in going.status().values()] == ["copying"])
    attempts, _ = moved(world, BOTH[:1])
    assert attempts == [1]
    assert world.fed.answer(world.client("m2"), number)[0].code == ""
    world.check()
