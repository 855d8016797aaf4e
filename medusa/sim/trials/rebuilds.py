"""Disks of nodes are lost while others stand by; the nodes are rebuilt from what their peers know: the same
answer, and all are guarded again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from medusa.sim.trials.federations import OFTEN
from medusa.sim.trials.standby import LOST_AFTER_US, StandbyTrial, planned
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import LATE, LATE_VOTES, LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import World

__all__ = ["REBUILDS"]

AWAY_US = (1_000, 900_000)
"""So long a node is away whose disk is lost: it may be back before anybody has taken over, or long after."""


def rebuilds(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """One to three nodes lose their disks, one after the other; each is rebuilt before the next does. No node
    does that has a fragment for which nobody stands by."""
    plan = planned(world, rows, lambda standby, witnesses: "")
    dice = world.dice("lost disks")
    unguarded = {*plan.options.at} - {*plan.options.standby}
    candidates = [node for node in plan.nodes if node not in unguarded]
    lost = dice.sample(candidates, min(dice.randrange(1, 4), len(plan.nodes) - 1, len(candidates)))
    options = replace(
        plan.options,
        lost=tuple((node, dice.randrange(*LOST_AFTER_US)) for node in lost),
        rebuilt={node: dice.randrange(*AWAY_US) for node in lost},
    )
    return StandbyTrial(world, plan.q, plan.tables, options, want=plan.want, nodes=plan.nodes)


REBUILDS: dict[str, Scenario] = {
    "rebuild": Scenario(
        about="disks are lost, and nodes are rebuilt from what their peers know: the same answer",
        build=rebuilds,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS],
        more=[*LATE, *LATE_VOTES],
        count=6,
        liveness_us=90_000_000,
        events_max=1_800_000,
    ),
}
