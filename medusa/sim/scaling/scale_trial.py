"""Nodes split a window and merge it by themselves, as its rows become dear and cheap again.

Clients move its fragments meanwhile, nodes die and links are cut: one act at a time, none that the load
forbids, the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any

import pyarrow as pa

from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.sim.scaling.costly_box import CostlyBoxEngine
from medusa.sim.scaling.scaling_checks import ScalingChecks
from medusa.sim.trials.federations import OFTEN, SCHEMA, options, table
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.keys_at_cuts import keys_of_rows
from medusa.sim.world.virtual_time import World
from medusa.wire.messages.move import Move

__all__ = ["SCALE", "ScaleTrial"]

NODES = ("e", "a", "b", "c", "z", "x")
AT = {"e": ["flows", "most"], "a": ["per_k"], "z": ["all", "out"]}
BOX = "per_k"
SECOND_US = 1_000_000
PUBLISH_US = 12 * SECOND_US
SAFETY_US = 13 * SECOND_US
RULES = ScaleSettings(every_us=200_000, cooldown_us=SECOND_US, nodes=("a", "b", "c"))
LOAD = LoadRules(half_life_us=300_000)
MOVE_MS = 5_000
"""An order of a client lasts so long, where its target is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions(QueryOptions):
    """What a seed decided.

    Attributes:
        work: threads that the box has to have while its rows are dear.
        dear_us: from then on, and for so long, they are.
        moves: when a client orders a fragment of the box to move, and to where.
    """

    work: float
    dear_us: tuple[int, int]
    moves: tuple[tuple[int, str], ...]


def windows() -> Query:
    q = Query("m")
    most = q.source("flows", SCHEMA, time="ts", slack="50ms").filter("v > -200", name="most")
    per_k = most.window("2s").group_by("k").aggregate(n=count(), s=sum("v"), name=BOX)
    q.sink("out", per_k.filter("n > 0", name="all"))
    return q


@lru_cache(maxsize=32)
def answered(seed: int, rows: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q = windows()
    tables = {"flows": table(Random(f"scale {seed}"), rows, keys_of_rows)}
    return tables, dict(collect(q, **tables))


class ScaleTrial(QueryTrial):
    """One run. ``x`` has nothing to do, and may die while a fragment is ordered to it."""

    def __init__(
        self,
        world: World,
        q: Query,
        tables: Mapping[str, pa.Table],
        decided: ScaleOptions,
        want: Mapping[str, pa.Table],
    ) -> None:
        self._decided = decided
        self._began_us = 0
        self._healed = False
        super().__init__(world, q, tables, decided, want=want, nodes=NODES)
        self.scaling = ScalingChecks(world, self.nodes, q.graph.name, RULES)
        rate = self.rows_in * SECOND_US / decided.publish_us
        dear_us = round(decided.work * SECOND_US / max(rate, 1))
        for node in self.nodes.values():
            node.engine_is(
                partial(
                    CostlyBoxEngine, box=BOX, row_us=partial(self._row_us, dear_us), spent=self.scaling.spent
                )
            )

    def _row_us(self, dear_us: int) -> int:
        """What a row costs now."""
        begin_us, for_us = self._decided.dear_us
        since_us = self.world.now_us - self._began_us
        return dear_us if self._began_us and begin_us <= since_us < begin_us + for_us else dear_us // 30

    def _begin(self) -> None:
        super()._begin()
        self._began_us = self.world.now_us
        for at_us, to in self._decided.moves:
            self.world.after(at_us, partial(self._move, to))

    def _move(self, to: str) -> None:
        """A client orders one of the box's fragments elsewhere; ``x`` is gone for a while then."""
        if self._healed:
            return
        names = sorted(
            name
            for node in self.nodes.values()
            if node.alive
            for name in node.brain.fragments
            if name.removeprefix(f"{self.q.graph.name}/").startswith(BOX)
        )
        if not names:
            return
        fragment = names[self.world.now_us % len(names)]
        if to == "x":
            self.nodes[to].crash()
            self.world.after(MOVE_MS * 1_000, partial(self.restart, to))
        client = self.clients.get("mover") or self.client("mover", "b")
        self.world.trace("mover", f"orders {fragment} to {to}")
        client.mind.request(lambda number: Move(request=number, fragment=fragment, to=to, timeout_ms=MOVE_MS))
        client.do(lambda mind: None)

    def heal(self) -> None:
        self._healed = True
        super().heal()

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        self.scaling.look(node)

    def _together(self) -> bool:
        brains = [node.brain for node in self.nodes.values() if node.alive]
        busy = any(brain.orders.status().under_way or brain.orders.splits_status() for brain in brains)
        return super()._together() and not busy


def scale(world: World, rows: int | None, parts: Any) -> ScaleTrial:
    dice = world.dice("scale options")
    tables, want = answered(world.seed % 16, 360 if rows is None else rows)
    whole = options(world.dice("options"), AT, publish_us=PUBLISH_US, piece_rows=2, job_us=50)
    moves = tuple(
        (dice.randrange(SECOND_US, PUBLISH_US), dice.choice(["a", "b", "x", "x"]))
        for _ in range(dice.randrange(0, 4))
    )
    decided = ScaleOptions(
        **{name: getattr(whole, name) for name in QueryOptions.__dataclass_fields__}
        | {"load": LOAD, "scale": RULES},
        work=dice.choice([0.9, 1.2, 1.6, 2.2]),
        dear_us=(dice.randrange(1, 2 * SECOND_US), dice.randrange(4, 8) * SECOND_US),
        moves=moves,
    )
    return ScaleTrial(world, windows(), tables, decided, want)


SCALE: dict[str, Scenario] = {
    "scale": Scenario(
        about="nodes split and merge a box by themselves, one act at a time: the same answer",
        build=scale,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
        count=5,
        safety_us=SAFETY_US,
        events_max=1_500_000,
    ),
}
