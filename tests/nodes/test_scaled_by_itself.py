"""Whole nodes split and merge a box by themselves as the load rises and falls, in virtual time, and the
reader has the sequence of one program: also where nodes die meanwhile, the one that decides among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.nodes.scaled import SCALE, ScaledRun

RISES_AND_FALLS = ((300, 4), (1500, 14), (200, 24))


def test_as_the_load_rises_a_box_is_split_and_as_it_falls_it_is_merged():
    run = ScaledRun()
    run.publishes(*RISES_AND_FALLS)
    assert run.most[0] >= 3
    assert run.most[1] == run.most[0], "each part has a node of its own"
    assert run.parts == {"q/per_road": "m"}, run.orders
    assert {node for _, node, _ in run.orders} == {"e"}
    said = run.status()["scaling"]
    assert said["acts"] == len(run.orders)
    assert (said["last"], said["outcome"]) == ("merge per_road at m", "done")
    assert "below 0.3 in 2 looks" in said["why"]
    run.check()


def test_a_load_that_stays_is_met_once_and_left_alone():
    run = ScaledRun()
    run.publishes((900, 30))
    assert run.whats == ["split", "move"]
    run.check()


def test_when_nothing_comes_any_more_all_is_merged():
    run = ScaledRun()
    run.publishes((300, 4), (1500, 14))
    assert run.most[0] >= 3
    assert run.fed.run(lambda: run.parts == {"q/per_road": "m"}, for_us=60_000_000), run.orders
    run.check()


def test_it_is_off_unless_the_configuration_has_it():
    run = ScaledRun(scale=None)
    run.publishes((1500, 8))
    assert run.orders == []
    assert run.most == [1, 1]
    assert "scaling" not in run.status()
    assert all(node.brain.scaling.wake_at_us() is None for node in run.fed.nodes.values())
    run.check()


FULL = (pytest.mark.full, pytest.mark.issue(22))


@pytest.mark.parametrize(
    ("order", "node"),
    [
        ("split", "m"),
        ("move", "s1"),
        ("move", "e"),
        *(
            pytest.param(*each, marks=FULL)
            for each in (("move", "m"), ("merge", "m"), ("split", "e"), ("merge", "e"))
        ),
    ],
)
def test_whoever_dies_during_an_act_nothing_is_lost_and_it_goes_on(order, node):
    """``m`` has the box, ``s1`` gets a part, ``e`` decides."""
    run = ScaledRun()
    killed = []
    run.when(order, lambda: killed.append(run.dies(node)))
    run.publishes((900, 10), (200, 22))
    assert killed, f"no {order} was ordered: {run.orders}"
    assert run.most == [2, 2], run.orders
    assert run.parts == {"q/per_road": "m"}, run.orders
    run.check()


def test_who_decides_next_finds_what_was_left_half_done():
    """``e`` dies between the split and the move: both parts stand at ``m``, and each has little to do."""
    run = ScaledRun()
    run.when("split", lambda: run.fed.world.after(200_000, lambda: run.dies("e", back_us=1)))
    run.publishes((900, 5))
    assert run.whats == ["split"]
    assert set(run.parts.values()) == {"m"}
    run.publishes((900, 8))
    assert run.whats == ["split", "move"]
    assert "stand together" in run.status()["scaling"]["why"]
    assert len({*run.parts.values()}) == 2
    run.check()


def test_where_no_node_has_room_nothing_is_done_and_it_says_so_less_and_less_often():
    run = ScaledRun(scale=replace(SCALE, nodes=("m",)))
    run.publishes((900, 40))
    assert run.orders == []
    told = [each for each in run.fed.nodes["e"].reports if each.what == "not scaled"]
    assert 2 <= len(told) <= 4, "it rests 3 s, 6 s, 12 s, ..."
    assert "no node has room" in run.status()["scaling"]["waits_for"]
    run.check()


GUARDED = {"coordinator": "d", "standby": {"m": ["s3"], "e": ["c"]}, "witnesses": []}


@pytest.mark.parametrize("order", ["move", *(pytest.param(each, marks=FULL) for each in ("split", "merge"))])
def test_when_who_decides_is_lost_for_good_the_next_coordinator_goes_on(order):
    run = ScaledRun(**GUARDED, scale=replace(SCALE, nodes=("m", "s1", "s2")))
    run.when(order, lambda: run.fed.nodes["d"].crash("lost"))
    run.publishes((900, 16), (200, 20))
    assert run.most == [2, 2], run.orders
    assert run.parts == {"q/per_road": "m"}, run.orders
    assert run.orders[0][1] == "d"
    assert run.status("e")["scaling"]["next_look_us"] <= SCALE.every_us
    assert run.orders[-1][1] == "e" or order == "merge"
    run.check()


@pytest.mark.parametrize("order", ["move", *(pytest.param(each, marks=FULL) for each in ("split", "merge"))])
def test_when_the_node_of_the_box_is_lost_for_good_who_stands_by_is_scaled_too(order):
    run = ScaledRun(**GUARDED, scale=replace(SCALE, nodes=("s1", "s2", "s3")))
    run.when(order, lambda: run.fed.nodes["m"].crash("lost"))
    run.publishes((900, 20), (200, 30))
    assert run.most == [2, 2], run.orders
    assert run.parts == {"q/per_road": "s3"}, (run.orders, run.status("d"))
    run.check()
