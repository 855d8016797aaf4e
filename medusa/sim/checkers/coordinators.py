"""Who coordinates a query with standbys: one node in each configuration, and nobody once it is removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from medusa.nodes.catalog.catalog import RUNNING
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.commands import Reply

__all__ = ["CoordinatorChecks", "QueryRemoval"]

LOOK_US = 50_000
ASK_AGAIN_US = 500_000


class CoordinatorChecks:
    """Of one query."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._acting: dict[tuple[int, int], str] = {}
        """Life and number of a configuration -> the node that coordinates by it."""

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn.

        Raises:
            SimulationError: it coordinates by a configuration that names another, or beside another.
        """
        if not node.alive:
            return
        catalog = node.brain.catalog
        deployment, kept = catalog.deployment(self._query), catalog.configuration(self._query)
        if deployment is None or deployment.state != RUNNING:
            return
        if kept is None:
            raise SimulationError(f"coordinator: {node.name} is one, and knows no configuration")
        current = kept.current
        if current.coordinator != node.name:
            raise SimulationError(
                f"coordinator: {node.name} is one, by configuration {current.number} it is "
                f"{current.coordinator}"
            )
        other = self._acting.setdefault((current.life, current.number), node.name)
        if other != node.name:
            raise SimulationError(f"coordinator: {node.name} and {other} by one configuration")


class QueryRemoval:
    """In the end a client of some node has the query removed, and those that were lost come back.

    Args:
        nodes: all.
        client: asks; its node stays.
        returns: brings a node back that was lost.
    """

    def __init__(
        self,
        world: World,
        query: str,
        nodes: Mapping[str, NodeMachine],
        client: Client,
        lost: Sequence[str],
        returns: Callable[[str], None],
    ) -> None:
        self._world = world
        self._query = query
        self._nodes = nodes
        self._client = client
        self._lost = lost
        self._returns = returns
        self._begun = self._came_back = False
        self._removed = False
        self._look_at_us = 0
        self._rests = False

    def begin(self) -> None:
        """Ask; twice is no mistake."""
        if not self._begun:
            self._begun = True
            self._ask()

    @property
    def begun(self) -> bool:
        """Whether it is asked for."""
        return self._begun

    def _ask(self) -> None:
        request = self._client.undeploy(self._query)

        def look() -> None:
            replies = self._client.mind.replies
            if request not in replies:
                self._world.after(LOOK_US, look)
                return
            reply, _ = replies.pop(request)
            self._world.trace("world", f"undeployed: {reply.code or 'done'} {reply.text}")
            self._answered(reply)

        look()

    def _answered(self, reply: Reply) -> None:
        if reply.code and self._left():
            self._world.after(ASK_AGAIN_US, self._ask)
        else:
            self._removed = True

    def _left(self) -> list[str]:
        """What living nodes have of the query."""
        found = []
        for node in self._nodes.values():
            catalog = node.brain.catalog if node.alive else None
            if catalog is None:
                continue
            for what, names in (
                ("coordinates", catalog.deployments),
                ("runs", catalog.fragments),
                ("knows", catalog.configurations),
                ("follows", node.brain.recovery.followings.status()),
            ):
                of = [name for name in names if name.partition("/")[0] == self._query]
                found += [f"{node.name} {what} {name}" for name in of]
        return found

    @property
    def done(self) -> bool:
        """Nothing of it is left anywhere."""
        now_us = self._world.now_us
        if now_us < self._look_at_us:
            return self._rests
        self._look_at_us = now_us + LOOK_US
        self._rests = self._removed and not self._left()
        if self._rests and not self._came_back:
            self._came_back, self._rests = True, False
            for name in self._lost:
                self._returns(name)
        return self._rests and all(node.alive for node in self._nodes.values())
