"""Boxes of deployed queries are split and merged: every kind, and a death at each step."""

from __future__ import annotations

import pytest

from tests.mind.parted import KINDS, Parting

PARTS = ["q/box-1", "q/box-2", "q/box-3"]


@pytest.mark.parametrize("kind", KINDS)
def test_split_and_merged_while_rows_flow_it_gives_the_sequence_of_one_program(kind):
    world = Parting(kind)
    before = world.fragments
    reply, told = world.told(world.split())
    assert reply.code == "", reply
    assert told["node"] == "m"
    assert set(PARTS) < set(told["fragments"]) <= set(world.fragments)
    assert not set(before) & set(told["fragments"])
    world.fed.run(for_us=40_000)
    reply, told = world.told(world.merge())
    assert reply.code == "", reply
    assert len(told["fragments"]) == 1
    assert len(world.fragments) == len(before)
    world.check()


def dies(what, turn, unsynced):
    """``m`` dies so many turns after the order to split or merge; whether it was over before."""
    world = Parting("united", unsynced=unsynced)
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


@pytest.mark.parametrize("unsynced", ["lost", "kept"])
@pytest.mark.parametrize("what", ["split", "merge"])
@pytest.mark.parametrize("turn", [4, 9, 12])
def test_whenever_its_node_dies_the_box_is_whole_or_in_parts(what, turn, unsynced):
    dies(what, turn, unsynced)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("unsynced", ["lost", "kept", "torn"])
@pytest.mark.parametrize("what", ["split", "merge"])
def test_at_each_turn(what, unsynced):
    assert any(dies(what, turn, unsynced) for turn in range(1, 120))
