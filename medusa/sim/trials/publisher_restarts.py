"""The scenario of publishers that have names and die."""

from __future__ import annotations

from typing import Any

from medusa.sim.trials.federations import OFTEN, in_order, over_nodes
from medusa.sim.trials.moves import moves
from medusa.sim.trials.queries import QueryTrial
from medusa.sim.trials.splits import splits
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.virtual_time import World

__all__ = ["COMEBACKS"]

ROWS = 200


def comeback(world: World, rows: int | None, parts: Any) -> QueryTrial:
    """Two publishers of a source are a decision, one is none; fragments stay, move, or are split."""
    dice = world.dice("comebacks")
    deaths, kind = dice.choice([1, 3]), dice.choice(["nodes", "nodes", "order", "order", "moves", "splits"])
    crowded = dice.random() < 0.3
    if kind == "nodes":
        return over_nodes(world, rows, deaths=deaths, crowded=crowded)
    if kind == "order":
        count = ROWS if rows is None else rows
        return in_order(world, dice, count, publishers=dice.choice([1, 2]), deaths=deaths, crowded=crowded)
    return (moves if kind == "moves" else splits)(world, rows, parts, deaths=deaths, crowded=crowded)


COMEBACKS: dict[str, Scenario] = {
    "comeback": Scenario(
        about="publishers with names are killed, hang, and come back: each row of theirs counts once",
        build=comeback,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
        events_max=600_000,
    ),
}
