"""Who didn't hear that a box was split or merged asks again, also of a node that was restarted since."""

from __future__ import annotations

import pytest

from medusa.nodes.catalog.kept_moves import REPLACED_MAX, Ownership
from medusa.nodes.repartition.completed_orders import already
from medusa.wire.messages.split import Merge
from tests.nodes.parted import Parting
from tests.nodes.test_splits import PARTS, refused, state


@pytest.fixture
def world():
    made = Parting()
    made.orderer = made.fed.client("other", "m")
    yield made
    made.check()


def restarted(world):
    node = world.fed.nodes["m"]
    node.crash()
    node.restart()
    world.fed.run(for_us=20_000)


@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_node_that_dies_with_the_answer_gives_it_in_its_next_life(what):
    """The order came by way of another node, which passes it on again."""
    world = Parting()
    if what == "merge":
        assert world.told(world.split())[0].code == ""
        world.fed.run(for_us=20_000)
    node = world.fed.nodes["m"]
    number = world.split() if what == "split" else world.merge()
    splits = node.brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == ["switching"], for_us=100_000)
    node.slowness = 10
    world.fed.run(for_us=1_500)
    node.crash("kept")  # The record reaches the disk, and nobody hears of it.
    node.slowness = 1
    node.restart()
    assert len(world.fragments) == (5 if what == "split" else 1)
    reply, told = world.told(number)
    assert reply.code == "", reply
    assert (told["node"], told["pause_us"]) == ("m", 0)
    assert set(told["fragments"]) <= set(world.fragments)
    world.check()


@pytest.mark.parametrize("ranges", ["even", "weight", (1 << 60, 1 << 62)])
def test_after_a_restart_the_same_order_is_answered_and_nothing_is_done_twice(world, ranges):
    reply, told = world.told(world.split(fragment="q/box", ranges=ranges))
    assert reply.code == "", reply
    restarted(world)
    before = state(world)[0].keys()
    for fragment in ("q/box", told["fragments"][0]):
        reply, again = world.told(world.split(fragment=fragment, ranges=ranges))
        assert reply.code == "", reply
        assert (again["ranges"], again["pause_us"], again["node"]) == (told["ranges"], 0, "m")
    merge = {"fragment": told["fragments"][0]}
    reply, told = world.told(world.merge(**merge))
    assert reply.code == "", reply
    restarted(world)
    reply, again = world.told(world.merge(**merge))
    assert reply.code == "", reply
    assert again == {**told, "pause_us": 0}
    assert len(before) == 5
    assert len(world.fragments) == 1
    reply, told = world.told(world.split(fragment=again["fragments"][0]))
    assert (reply.code, len(told["fragments"])) == ("", 5)
    assert told["pause_us"] > 0, "merged, it can be split again"


@pytest.mark.parametrize(
    ("parts", "ranges", "why"),
    [
        (2, "even", "is not in 2 parts as ordered: it is split in 3 already"),
        (3, "weight", "by other ranges"),
        (3, (5, 6), "by other ranges"),
    ],
)
def test_a_box_that_is_split_otherwise_is_refused(world, parts, ranges, why):
    _, told = world.told(world.split())
    before = state(world)
    for fragment in ("q/box", told["fragments"][0]):
        refused(world, world.split(parts, fragment=fragment, ranges=ranges), "E_SPLIT", why)
    assert state(world) == before


def test_a_fragment_that_took_no_place_is_unknown_and_a_query_that_goes_is_forgotten():
    world = Parting()
    _, told = world.told(world.split())
    router = told["fragments"][0]
    world.told(world.merge())
    node = world.fed.nodes["m"]
    assert set(node.brain.catalog.ownership.replaced) >= {router, *PARTS}
    refused(world, world.merge(fragment="q/box-9"), "E_FRAGMENT", "knows no fragment")
    refused(world, world.split(fragment="q/box-9"), "E_FRAGMENT", "knows no fragment")
    node.order(lambda now_us: node.brain.installed.drop("q"))
    assert node.brain.catalog.ownership.replaced == {}


def test_what_took_whose_place_is_bounded_and_a_name_that_is_used_again_is_nobody_elses():
    kept = Ownership()
    for number in range(REPLACED_MAX):
        kept.replaced = kept.replaced_by([f"q/{number}"], [f"q/{number + 1}"])
    assert len(kept.replaced) == REPLACED_MAX
    kept.replaced = kept.replaced_by(["q/a", "q/b"], ["q/5", "q/c"])
    assert len(kept.replaced) == REPLACED_MAX
    assert "q/5" not in kept.replaced
    assert {**kept.replaced}.items() >= {"q/a": "q/5", "q/b": "q/5"}.items()


def test_names_that_took_each_others_place_end():
    order = Merge(request=1, fragment="q/a", box="box")
    assert already(order, {}, {"q/a": "q/b", "q/b": "q/a"}, "m") is None
