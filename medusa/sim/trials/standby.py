"""Machines are lost for good, and others take over: the answer is that of one program, each row once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from medusa.sim.actors.client import Client
from medusa.sim.actors.follower import Follower
from medusa.sim.actors.node import Node
from medusa.sim.trials.federations import OFTEN, ROWS, options
from medusa.sim.trials.moves import KINDS, answered
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.faults import BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.configuration import Configuration

__all__ = ["STANDBY", "StandbyTrial"]

LOOK_AGAIN_US = 50_000

LOST_AFTER_US = (50_000, 1_200_000)
"""When machines are lost, from the deployment on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOptions(QueryOptions):
    """What a seed decided beside.

    Attributes:
        standby: node -> those that stand by for its fragments.
        witnesses: vote, and run nothing.
        lost: machines that are lost for good, and when.
    """

    standby: Mapping[str, Sequence[str]]
    witnesses: Sequence[str] = ()
    lost: Sequence[tuple[str, int]] = ()


class StandbyTrial(QueryTrial):
    """A query whose fragments have standbys. Some machines never come back.

    Those who publish and read find the streams from nodes that stay.
    """

    def __init__(
        self,
        world: World,
        q: Any,
        tables: Mapping[str, pa.Table],
        options: StandbyOptions,
        *,
        want: Mapping[str, pa.Table],
        nodes: Sequence[str],
    ) -> None:
        self._burnt: set[str] = set()
        self._stays = [node for node in nodes if node not in {name for name, _ in options.lost}]
        self._owners: dict[tuple[str, int], str] = {}
        self._configurations: dict[tuple[str, int, int], Configuration] = {}
        self._standby = options
        super().__init__(world, q, tables, options, want=want, nodes=nodes)

    def client(self, name: str, node: str) -> Client:
        """All find the streams from any node; who deploys does so at one that stays."""
        home = self.world.dice(f"home of {name}").choice(self._stays)
        made = self.clients[name] = Follower(self.world, self.network, name, home, self.nodes)
        return made

    def _ask_for_it(self) -> int:
        standby = self._standby
        others = [node for node in standby.witnesses if node != self.reader.mind.node]
        return self.reader.deploy_guarded(self.q, standby.at, standby.standby, others)

    def _read(self, name: str, sink: str, tries: int = 0) -> None:
        self.reader.read(f"{name}.{sink}")

    def _begin(self) -> None:
        super()._begin()
        for name, after_us in self._standby.lost:
            self.world.after(after_us, lambda name=name: self._lose(name))  # type: ignore[misc]

    def _lose(self, name: str) -> None:
        """Once others can take over what it has; before that its loss is that of the query."""
        if not self._guarded(name):
            self.world.after(LOOK_AGAIN_US, lambda: self._lose(name))
            return
        self.world.trace(name, "burns")
        self._burnt.add(name)
        self.nodes[name].crash()

    def _guarded(self, name: str) -> bool:
        known = [
            kept.current
            for node in self.living
            if node.alive
            for kept in node.brain.catalog.configurations.values()
        ]
        newest = max(known, key=lambda each: each.number, default=None)
        if newest is None:
            return False
        of = [each for each in newest.fragments if each.owner == name]
        follow = {
            (node.name, fragment)
            for node in self.living
            if node.alive and node.name != name
            for fragment, _, _ in node.brain.recovery.followings.followed()
        }
        return all(any((node, each.fragment) in follow for node in each.secondaries) for each in of)

    def restart(self, name: str) -> None:
        if name not in self._burnt:
            super().restart(name)

    def heal(self) -> None:
        self.world.trace("world", "all faults end")
        self.network.heal_all()
        for name, node in self.nodes.items():
            node.disk.mend()
            node.slowness = 1
            if name not in self._burnt:
                node.restart()

    def crash_all(self) -> bool:
        return False

    # --- what must hold -----------------------------------------------------------------------------

    def _watch(self, node: Node) -> None:
        super()._watch(node)
        if node.loop is None:
            return
        for query, kept in node.brain.catalog.configurations.items():
            current = kept.current
            about = query, current.life, current.number
            if self._configurations.setdefault(about, current) != current:
                raise SimulationError(
                    f"configuration: {current} at {node.name}, and {self._configurations[about]}"
                )
        for fragment, hosted in node.brain.fragments.items():
            if not hosted.frozen:
                epoch = node.brain.catalog.ownership.epoch(fragment)
                if (owner := self._owners.setdefault((fragment, epoch), node.name)) != node.name:
                    raise SimulationError(
                        f"owner: {fragment} in epoch {epoch} is of {owner} and of {node.name}"
                    )

    def _wrong_names(self, nodes: Sequence[Node]) -> str:
        """What was at a node that is lost is found where it is now; of what that one said nothing is
        forgotten."""
        truth = [
            (kind, name, node.name)
            for node in nodes
            for spec in node.brain.catalog.fragments.values()
            for kind, names in (("stream", spec.streams.values()), ("source", spec.entries.values()))
            for name in names
        ]
        for node in nodes:
            for kind, name, owner in truth:
                entry = node.brain.naming.directory.find(kind, name)
                if entry is None or entry.writer != owner:
                    return f"{node.name} finds {name} at {entry and entry.writer}, not at {owner}"
        return ""

    @property
    def living(self) -> list[Node]:
        """Nodes that aren't lost."""
        return [node for name, node in self.nodes.items() if name not in self._burnt]

    @property
    def owned(self) -> Sequence[Sequence[Node]]:
        return [self.living]

    def _together(self) -> bool:
        return all(node.alive for node in self.living)

    @property
    def ended(self) -> bool:
        return len(self._burnt) == len(self._standby.lost) and super().ended


def guarded(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    dice = world.dice("options")
    kind = dice.choice(["slides", "unites", "unites"])
    make, _, _ = KINDS[kind]
    q, at = make()
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows)
    busy = list(at)
    spares = ["s1", "s2"]
    guarded_nodes = [node for node in busy if dice.random() < 0.7] or busy[:1]
    standby = {node: spares if dice.random() < 0.5 else [spares[0]] for node in guarded_nodes}
    losable = [node for node in guarded_nodes if dice.random() < 0.6] or guarded_nodes[:1]
    lost = [(node, dice.randrange(*LOST_AFTER_US)) for node in losable[:2]]
    decided = options(dice, at)
    made = StandbyOptions(
        at=at,
        publish_us=decided.publish_us,
        piece_rows=decided.piece_rows,
        sync_us=min(decided.sync_us, 20_000),
        job_us=decided.job_us,
        delay_us=decided.delay_us,
        limits=decided.limits,
        standby=standby,
        witnesses=("w1", "w2"),
        lost=tuple(lost),
    )
    return StandbyTrial(world, q, tables, made, want=want, nodes=[*busy, *spares, "w1", "w2"])


STANDBY: dict[str, Scenario] = {
    "standby": Scenario(
        about="machines are lost for good: secondaries take over, the same answer",
        build=guarded,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES],
        more=[*LATE, *BELIEVED],
        count=6,
        events_max=900_000,
    ),
}
