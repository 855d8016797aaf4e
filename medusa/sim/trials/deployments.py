"""Queries come and go, at two coordinators, under the same names: all of each runs in the end, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from medusa.nodes.catalog.catalog import RUNNING
from medusa.query.builder import Query
from medusa.runtime.engine_host.group_names import group_name
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.checkers.catalog import check_catalogs
from medusa.sim.checkers.rest import unsaved
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LATE_ORDERS, LINKS, MACHINES, WEATHER, Scene
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["DEPLOYS", "DeployTrial"]

NAMES = ("a", "b", "c", "d", "e")
COORDINATORS = ("a", "c")
QUERIES = ("p", "q")
ORDERS = 8
AGAIN_US = 100_000
PATIENCE_US = 8_000_000
REST_US = 3_000_000
"""A removal asks again every second."""


def query(name: str) -> Query:
    """A box for each node."""
    q = Query(name)
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    for box in ("one", "two", "three"):
        rows = rows.filter("v > 0", name=box)
    q.sink("out", rows)
    return q


BOXES = ("rows", "one", "two", "three", "out")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentOrder:
    """One thing that a client asks for: a deployment at these nodes, or a removal (none)."""

    query: str
    at: tuple[tuple[str, tuple[str, ...]], ...]


def order(dice: Random) -> DeploymentOrder:
    """Anything that a client may ask for."""
    name = dice.choice(QUERIES)
    if dice.random() < 0.4:
        return DeploymentOrder(query=name, at=())
    homes: dict[str, list[str]] = {}
    for box in BOXES:
        homes.setdefault(dice.choice(NAMES), []).append(box)
    return DeploymentOrder(query=name, at=tuple((node, tuple(boxes)) for node, boxes in homes.items()))


class DeployTrial(Federation):
    """Two clients deploy and remove the same two names, each at its node, as fast as they are answered."""

    def __init__(self, world: World, orders: int) -> None:
        super().__init__(world, NAMES, peers=None)
        dice = world.dice("orders")
        self.orders = {f"client-{node}": [order(dice) for _ in range(orders)] for node in COORDINATORS}
        self.heard: dict[tuple[str, str], bool] = {}
        """(node, query) -> whether the last answer of this node was that it runs, or is gone; nothing where
        nobody can know."""
        self._placed: dict[tuple[str, str], DeploymentOrder] = {}
        """(node, query) -> the order that this node last answered by saying that it runs."""
        self._left = {name: list(each) for name, each in self.orders.items()}
        self._rests_us = 0

    # --- the trial ----------------------------------------------------------------------------------

    @property
    def options(self) -> object:
        return self.orders

    @property
    def scene(self) -> Scene:
        return Scene(machines=list(self.nodes), links=self.links, span_us=2_000_000)

    @property
    def rows_in(self) -> int:
        return len(self.orders["client-a"])

    @property
    def rows(self) -> int:
        return len(self.heard)

    @property
    def lost(self) -> int:
        return 0

    @property
    def may_lose(self) -> bool:
        return False

    @property
    def input_us(self) -> int:
        return self.world.now_us

    def start(self) -> None:
        super().start()
        for node in COORDINATORS:
            self._next(self.client(f"client-{node}", node))

    def _next(self, client: Client) -> None:
        left = self._left[client.name]
        if left:
            self._ask(client, left[0])

    def _ask(self, client: Client, order: DeploymentOrder) -> None:
        node = client.mind.node
        self.heard.pop((node, order.query), None)
        asked_us = self.world.now_us
        if order.at:
            number = client.deploy(query(order.query), {name: list(boxes) for name, boxes in order.at})
        else:
            number = client.undeploy(order.query)

        def look() -> None:
            if number in client.mind.replies:
                code = client.mind.replies.pop(number)[0].code
                self.world.trace(client.name, f"{order.query}: {code or 'done'}")
                if not code:
                    self.heard[node, order.query] = bool(order.at)
                    self._placed[node, order.query] = order
            elif self.world.now_us - asked_us < PATIENCE_US:
                self.world.after(20_000, look)
                return
            else:
                client.mind.give_up(number)
            self._left[client.name].pop(0)
            self.world.after(AGAIN_US, lambda: self._next(client))

        look()

    # --- what must hold -----------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        if any(self._left.values()) or not all(node.alive for node in self.nodes.values()):
            self._rests_us = self.world.now_us + REST_US
        if self.world.now_us < self._rests_us or not self._settled():
            return False
        return not unsaved(self.nodes.values(), self.clients.values())

    def _settled(self) -> bool:
        return all(
            each.state == RUNNING
            for node in self.nodes.values()
            for each in node.brain.catalog.deployments.values()
        )

    def crash_all(self) -> bool:
        self._rests_us = self.world.now_us + REST_US
        return super().crash_all()

    def check_end(self) -> None:
        check_catalogs(self.nodes.values())
        for name in QUERIES:
            self._check(name)
        for (node, name), runs in self.heard.items():
            if (name in self.nodes[node].brain.catalog.deployments) is not runs:
                raise SimulationError(f"told: {node} said that {name} {'runs' if runs else 'is gone'}")
            if runs:
                self._check_placed(node, self._placed[node, name])

    def _check_placed(self, coordinator: str, order: DeploymentOrder) -> None:
        """What runs is what was ordered: each box at its node."""
        for node, boxes in order.at:
            specs = self.nodes[node].brain.catalog.fragments.values()
            here = {box.id for spec in specs if spec.query == order.query for box in spec.graph.boxes}
            if missing := sorted(set(boxes) - here):
                raise SimulationError(
                    f"told: {coordinator} said that {order.query} runs as ordered; {node} lacks {missing}"
                )

    def _check(self, name: str) -> None:
        """Each node has its part of the one deployment that names it, in its catalog and running."""
        catalogs = {node: each.brain.catalog for node, each in self.nodes.items()}
        owners: dict[str, str] = {}
        for coordinator, catalog in catalogs.items():
            for node in catalog.deployments[name].nodes if name in catalog.deployments else ():
                if owners.setdefault(node, coordinator) != coordinator:
                    raise SimulationError(f"one: {node} runs {name} for {owners[node]} and {coordinator}")
        here: dict[str, list[str]] = {}
        for node, catalog in catalogs.items():
            here[node] = [each.name for each in catalog.fragments.values() if each.query == name]
            has, should = catalog.coordinator_of(name), owners.get(node, "")
            if has != should or bool(here[node]) is not (node in owners):
                text = f"{node} has {here[node]} of {name}, for {has}; it should be for {should}"
                raise SimulationError(f"all or nothing: {text}")
            if not set(here[node]) <= set(self.nodes[node].brain.fragments):
                raise SimulationError(f"all or nothing: {name} at {node} is a name and nothing that runs")
        self._check_disks(name, here)

    def _check_disks(self, name: str, here: dict[str, list[str]]) -> None:
        for node, fragments in here.items():
            known = {group_name(each, 0).rpartition("-")[0] for each in fragments}
            possible = {group_name(f"{name}/{box}", 0).rpartition("-")[0]: box for box in BOXES}
            for group in self.nodes[node].disk.names():
                owner = group.rpartition("-")[0]
                if owner in possible and owner not in known:
                    raise SimulationError(f"all or nothing: {node} has files of {name}/{possible[owner]}")


def deploys(world: World, rows: int | None, parts: object) -> DeployTrial:
    return DeployTrial(world, ORDERS if rows is None else rows)


DEPLOYS = {
    "deploys": Scenario(
        about="two clients deploy and remove the same queries over five nodes: all of each runs, or nothing",
        build=deploys,
        kinds=[*WEATHER, *LINKS, "crash", "crash", "crash", "crash", *MACHINES],
        more=[*LATE, *BELIEVED, *LATE_ORDERS * 4, *["one write fails"] * 4],
        count=10,
        liveness_us=150_000_000,
        events_max=3_000_000,
    )
}
