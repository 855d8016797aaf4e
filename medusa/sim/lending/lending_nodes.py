"""Who is who where fragments go to nodes of other participants: whose each is, who is lost, what is home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from medusa.sim.world.keyring import Keyring
from medusa.wire.messages.configuration import Configuration

if TYPE_CHECKING:
    from medusa.sim.actors.node import NodeMachine

__all__ = ["LendingNodes"]


class LendingNodes:
    """Of one trial.

    Args:
        owners: node -> its participant.
        home: the participant whose query it is, and whose programs publish and read.
        ring: keys of all.

    Attributes:
        lost: nodes that burnt, and never come back.
    """

    def __init__(self, owners: Mapping[str, str], home: str, ring: Keyring) -> None:
        self._owners, self._home, self._ring = owners, home, ring
        self._plain: dict[str, str] = {}
        self.lost: set[str] = set()

    # --- programs, and their names --------------------------------------------------------------------

    def real_name(self, name: str) -> str:
        """By which a program is known to nodes; from now on it is its name in the trial."""
        real = self._ring.name_of(self._home, name.replace(" ", "-"))
        self._plain[real] = name
        return real

    def plain_name(self, real: str) -> str:
        """As the trial calls who is known to nodes so."""
        return self._plain.get(real, real)

    def links(self, links: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """From programs, as the trial calls them, to nodes: as they are known to nodes."""
        real = {plain: name for name, plain in self._plain.items()}
        return [(real.get(one, one), two) for one, two in links]

    # --- nodes ----------------------------------------------------------------------------------------

    def burns(self, name: str) -> None:
        """A node is lost for good."""
        self.lost.add(name)

    def living(self, nodes: Mapping[str, NodeMachine]) -> list[NodeMachine]:
        """Those that aren't lost."""
        return [node for name, node in nodes.items() if name not in self.lost]

    def owned(self, nodes: Mapping[str, NodeMachine]) -> list[list[NodeMachine]]:
        """Those, by participant."""
        living = self.living(nodes)
        return [
            [node for node in living if self._owners[node.name] == whose] for whose in self._ring.participants
        ]

    def see_each_other(self, nodes: Mapping[str, NodeMachine]) -> bool:
        """Whether every node that isn't lost is there, as its peers know."""
        living = self.living(nodes)
        there = {node.name for node in living if node.alive}
        if len(there) < len(living):
            return False
        return all(node.brain.peers[peer] == "up" for node in living for peer in there - {node.name})

    def has_all(
        self, nodes: Mapping[str, NodeMachine], newest: Configuration | None, fragments: Iterable[str]
    ) -> bool:
        """Whether home has these fragments, those that should stand by do, and nothing is left of permits."""
        for name in fragments:
            replicas = None if newest is None else newest.replicas(name)
            if (
                replicas is None
                or replicas.guest
                or {replicas.owner, *replicas.secondaries} != {*replicas.members}
            ):
                return False
        for node in self.living(nodes):
            if not node.alive:
                return False
            catalog = node.brain.catalog
            if catalog.permits.out or catalog.permits.into:
                return False
            if self._owners[node.name] != self._home and (catalog.fragments or catalog.configurations):
                return False
        return True
