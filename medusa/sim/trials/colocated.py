"""Fragments of a query that are neighbours on one node: a link of the node with itself, under faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from medusa.nodes.catalog.catalog import RUNNING
from medusa.nodes.placement.placement import PlacementPlan, cut
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.builder import Query
from medusa.sim.trials.federations import OFTEN, ROWS, answered, counts, options, unions, windows
from medusa.sim.trials.queries import AGAIN_US, QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.virtual_time import World

__all__ = ["ColocatedTrial", "TOGETHER", "merged"]


def merged(plan: PlacementPlan, homes: Mapping[str, str]) -> PlacementPlan:
    """A plan for more nodes than there are: each of them stands on its home."""

    def moved(fragment: FragmentSpec) -> FragmentSpec:
        return msgspec.structs.replace(
            fragment,
            node=homes[fragment.node],
            feeds=tuple(msgspec.structs.replace(feed, node=homes[feed.node]) for feed in fragment.feeds),
            readers={
                sink: tuple(dict.fromkeys(homes[node] for node in nodes))
                for sink, nodes in fragment.readers.items()
            },
        )

    return PlacementPlan(query=plan.query, fragments=tuple(moved(fragment) for fragment in plan.fragments))


class ColocatedTrial(QueryTrial):
    """A query cut for more nodes than there are.

    Args:
        cuts: node -> boxes, as for ``cut``; these nodes need not exist.
        homes: node of ``cuts`` -> the node where its part stands.
    """

    def __init__(
        self,
        world: World,
        q: Query,
        tables: Mapping[str, pa.Table],
        options: QueryOptions,
        *,
        cuts: Mapping[str, Sequence[str]],
        homes: Mapping[str, str],
        want: Mapping[str, pa.Table] | None = None,
    ) -> None:
        super().__init__(world, q, tables, options, want=want)
        self._plan = merged(cut(q.graph, cuts), homes)
        self._tries = 0

    def _deploy(self) -> None:
        """No client can ask for this: the node that coordinates it is told, until all runs."""
        node = self.nodes[self.reader.mind.node]
        if self._everywhere():
            self._begin()
            return
        if node.alive and self.q.graph.name not in node.brain.catalog.deployments:
            self._tries += 1
            coordinator = node.brain.coordinator
            node.order(lambda now_us: coordinator.deploy(now_us, "reader", self._tries, self._plan))
        self.world.after(AGAIN_US, self._deploy)

    def _everywhere(self) -> bool:
        """It runs, and a crash now changes nothing of that."""
        node = self.nodes[self.reader.mind.node]
        known = node.brain.catalog.deployment(self.q.graph.name) if node.alive else None
        return known is not None and known.state == RUNNING and node.brain.saved


def _built(world: World, rows: int | None, parts: object) -> ColocatedTrial:
    dice = world.dice("options")
    kind = dice.choice(["counts", "counts", "unions", "windows"])
    q, cuts = {"counts": counts, "unions": unions, "windows": windows}[kind]()
    if kind == "windows":  # Two copies of one box are not on one node.
        homes = {"e1": "m", "e2": "n", "core": "n"}
    else:
        homes = {place: dice.choice("mn") for place in cuts}
        last, before = [*cuts][-1], [*cuts][-2]
        homes[before] = homes[last] = "n"
    at: dict[str, list[str]] = {home: [] for home in sorted(set(homes.values()))}
    for place, boxes in cuts.items():
        at[homes[place]] += boxes
    tables, want = answered(kind, world.seed % 16, ROWS if rows is None else rows)
    return ColocatedTrial(world, q, tables, options(dice, at), cuts=cuts, homes=homes, want=want)


TOGETHER: dict[str, Scenario] = {
    "selflinks": Scenario(
        about="neighbours on one node: what it sends to itself is kept, repeated and exact like any stream",
        build=_built,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
    ),
}
