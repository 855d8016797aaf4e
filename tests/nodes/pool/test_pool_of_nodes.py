"""Whole nodes in virtual time that scale by themselves, and a pool that starts and ends the spare ones: the
reader has the sequence of one program, and what nobody needs is gone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from medusa.nodes.pool.pool_keeper import PoolAct, PoolKeeper, PoolRules, PoolView
from medusa.nodes.pool.warm_nodes import SteadyWarm
from medusa.wire.status_and_metrics import status_of
from tests.nodes.pool.simulated_cloud import SimulatedCloud
from tests.nodes.scaled import SCALE, SECOND_US, ScaledRun

SPARES = ("s1", "s2", "s3")


class PooledRun(ScaledRun):
    """``s1`` to ``s3`` are off until the pool starts them, which takes its cloud 8 to 15 seconds.

    Attributes:
        acts: (virtual second, what the pool did).
    """

    def __init__(self) -> None:
        super().__init__(scale=replace(SCALE, nodes=("m", *SPARES)))
        for name in SPARES:
            self.fed.nodes[name].crash("lost")
        times_us = (8 * SECOND_US, 15 * SECOND_US)
        self.cloud = SimulatedCloud(SPARES, Random(1), start_us=times_us, stop_us=2 * SECOND_US)
        self.keeper = PoolKeeper(SPARES, PoolRules(idle_us=10 * SECOND_US), SteadyWarm(0))
        self.acts: list[tuple[float, PoolAct]] = []
        self.fed.world.after(SECOND_US, self._turn)

    def _turn(self) -> None:
        now_us = self.fed.world.now_us
        provided = self.cloud.nodes(now_us)
        for name, each in provided.items():
            if each.state == "up":
                self.fed.nodes[name].restart()
        for act in self.keeper.look(now_us, self._view()):
            self.acts.append((now_us / SECOND_US, act))
            if act.what == "acquire":
                self.cloud.acquire(now_us, act.node)
            elif not self.keeper.still_held(act.node, self._view()):
                node = self.fed.nodes[act.node]
                assert not node.brain.fragments
                self.cloud.release(now_us, act.node)
                node.crash("lost")
        self.fed.world.after(SECOND_US, self._turn)

    def _view(self) -> PoolView:
        alive = [node for node in self.fed.nodes.values() if node.alive]
        names = self.fed.nodes["e"].brain.naming.names
        return PoolView(
            statuses=[status_of(node.brain.status(node.clock.monotonic_us())) for node in alive],
            placed={"q": list(names.nodes_of("q"))},
            provided=self.cloud.nodes(self.fed.world.now_us),
        )

    @property
    def whole_acts(self) -> list[tuple[str, str]]:
        return [(act.what, act.node) for _, act in self.acts]


def test_a_spare_is_started_as_it_is_lacked_gets_a_part_at_once_and_ends_as_the_load_falls() -> None:
    run = PooledRun()
    run.publishes((300, 4), (900, 40))
    assert run.whole_acts == [("acquire", "s1")]
    at_s, act = run.acts[0]
    assert act.why.startswith("query q lacks a node with room since ")
    assert "per_road: " in act.why
    assert run.whats == ["split", "move"]
    split_s = run.orders[0][0]
    assert 8 <= split_s - at_s <= 15 + 4, "it was up at most 15 s later; it isn't rested until then"
    assert sorted(run.parts.values()) == ["m", "s1"]
    run.publishes((200, 40))
    assert run.parts == {"q/per_road": "m"}
    assert run.whole_acts[1:] == [("release", "s1")]
    assert not run.fed.nodes["s1"].alive
    assert run.status()["scaling"]["lacks"] is None
    run.check()


def test_a_load_that_falls_before_anybody_is_up_lacks_nobody() -> None:
    run = PooledRun()
    run.publishes((300, 4), (900, 6))
    lacks = run.status()["scaling"]["lacks"]
    assert (lacks["count"], lacks["nodes"]) == (1, ["s1", "s2", "s3"])
    run.publishes((200, 40))
    assert run.status()["scaling"]["lacks"] is None
    assert run.whole_acts == [("acquire", "s1"), ("release", "s1")]
    assert run.orders == []
    run.check()
