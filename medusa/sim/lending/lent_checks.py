"""What must hold of fragments that hosts of other participants have: as of replicas, and what hosts hear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from medusa.nodes.abroad.host_view import told_to
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.sim.checkers.replicas import ReplicaChecks, held_by
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.configuration import Configuration

if TYPE_CHECKING:
    from medusa.sim.actors.client import Client
    from medusa.sim.actors.node import NodeMachine

__all__ = ["LentChecks", "could_succeed"]


def could_succeed(node: NodeMachine, fragment: str) -> bool:
    """Whether a node could go on with it: with what rests there, or what it holds of its host."""
    recovery = node.brain.recovery
    return recovery.successor(fragment) is not None or held_by(node, fragment) is not None


class LentChecks(ReplicaChecks):
    """As ``ReplicaChecks``; a host goes by what it is told of a configuration that was decided at home, and
    votes on none.

    Args:
        owners: node -> its participant.
        home: the participant whose query it is.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeMachine],
        clients: Mapping[str, Client],
        owners: Mapping[str, str],
        home: str,
    ) -> None:
        super().__init__(nodes, clients)
        self._participants, self._home = owners, home

    def check_idle(self, node: NodeMachine) -> None:
        """At home nothing is computed of what a host has."""
        for fragment, owner, taking in node.brain.recovery.followings.followed():
            abroad = self._participants[owner] != self._home == self._participants[node.name]
            if abroad and not isinstance(taking, CheckpointReceiver):
                raise SimulationError(f"lent: {node.name} computes {fragment} of {owner} too")

    def _look_at(self, node: NodeMachine, current: Configuration) -> None:
        if self._participants[node.name] == self._home:
            strangers = [name for name in current.voters if self._participants[name] != self._home]
            if strangers:
                raise SimulationError(f"voters: {strangers} vote on a query of {self._home}")
            super()._look_at(node, current)
            return
        known = self._known.get((current.query, current.life, current.number))
        if known is None or told_to(known, node.name) != current:
            raise SimulationError(f"host: {node.name} goes by {current}, and {known} was decided")
